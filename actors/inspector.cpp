#include "actors/inspector.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/observe.hpp"
#include "messages/retirement.hpp"
#include "messages/wiring.hpp"
#include "src/facts.hpp"
#include "src/subjects.hpp"

namespace kvlease {

namespace {

struct last_report {
  actor_report report;
  time_point taken;
};

struct inspector_state {
  static inline const char* name = "kvlease.inspector";
  inspector_config config;
  std::shared_ptr<const wiring> peers;
  std::map<actor_kind, last_report> last;
  std::set<actor_kind> down;
  std::uint64_t snapshots = 0;
  std::map<actor_kind, gathered_facts::answer> told;  ///< in the last whole look
  std::map<actor_kind, std::int64_t> stuck_at;        ///< messages it had handled when it did not answer
  observer seen;
};

using self_pointer = metered_pointer<inspector_actor, inspector_state>;

/// One snapshot being gathered.
struct gathering {
  std::set<actor_kind> open;
  std::set<actor_kind> answered;
  caf::typed_response_promise<snapshot> asker;
};

void close_one(self_pointer self, const std::shared_ptr<gathering>& g, actor_kind kind) {
  g->open.erase(kind);
  if (!g->open.empty()) return;
  auto& s = self->state;
  snapshot out;
  out.runtime = s.peers->runtime;
  for (const auto& [k, l] : s.last)
    out.actors.push_back({k, g->answered.contains(k), now_of(self) - l.taken, l.report});
  out.down.assign(s.down.begin(), s.down.end());
  g->asker.deliver(std::move(out));
}

template <class Handle>
void ask_one(self_pointer self, const std::shared_ptr<gathering>& g, actor_kind kind, const Handle& whom) {
  self->request(whom, self->state.config.answer_within, report_request{})
      .then(
          [self, g, kind](actor_report& r) {
            g->answered.insert(kind);
            self->state.last[kind] = {std::move(r), now_of(self)};
            close_one(self, g, kind);
          },
          [self, g, kind](caf::error&) {
            self->state.last.try_emplace(kind, last_report{actor_report{kind, {}, {}}, time_point{}});
            close_one(self, g, kind);
          });
}

caf::result<snapshot> gather(self_pointer self) {
  auto& s = self->state;
  ++s.snapshots;
  auto g = std::make_shared<gathering>();
  g->asker = self->make_response_promise<snapshot>();
  g->open = {actor_kind::manager, actor_kind::lender,          actor_kind::adapter,
             actor_kind::backend, actor_kind::proof_collector, actor_kind::deadline_arbiter,
             actor_kind::cuda,    actor_kind::supervisor};
  ask_one(self, g, actor_kind::manager, s.peers->manager);
  ask_one(self, g, actor_kind::lender, s.peers->lender);
  ask_one(self, g, actor_kind::adapter, s.peers->adapter);
  ask_one(self, g, actor_kind::backend, s.peers->backend);
  ask_one(self, g, actor_kind::proof_collector, s.peers->proof_collector);
  ask_one(self, g, actor_kind::deadline_arbiter, s.peers->deadline_arbiter);
  ask_one(self, g, actor_kind::cuda, s.peers->cuda);
  ask_one(self, g, actor_kind::supervisor, s.peers->supervisor);
  return g->asker;
}

// ---- facts: in slices, or about some things

using kinds = std::set<actor_kind>;
using answer = gathered_facts::answer;
const kinds all_kinds{actor_kind::manager, actor_kind::lender,          actor_kind::adapter,
                      actor_kind::backend, actor_kind::proof_collector, actor_kind::deadline_arbiter,
                      actor_kind::cuda,    actor_kind::supervisor};

/// Calls `with(handle)` with the actor of a kind.
template <class F>
void with_peer(const wiring& w, actor_kind kind, F with) {
  switch (kind) {
    case actor_kind::manager:
      return with(w.manager);
    case actor_kind::lender:
      return with(w.lender);
    case actor_kind::adapter:
      return with(w.adapter);
    case actor_kind::backend:
      return with(w.backend);
    case actor_kind::proof_collector:
      return with(w.proof_collector);
    case actor_kind::deadline_arbiter:
      return with(w.deadline_arbiter);
    case actor_kind::cuda:
      return with(w.cuda);
    case actor_kind::supervisor:
      return with(w.supervisor);
    case actor_kind::inspector:
      return;
  }
}

/// One question that is out to several actors.
struct round_of_questions {
  kinds open;
  std::map<actor_kind, answer> got;
  std::function<void(std::map<actor_kind, answer>&)> then;
  time_point give_up;
  std::size_t limit = 0;
};
using round_pointer = std::shared_ptr<round_of_questions>;

void end_one(const round_pointer& r, actor_kind kind) {
  r->open.erase(kind);
  if (r->open.empty()) r->then(r->got);
}

/// False for one that is down, or has done nothing since it did not answer: its mailbox is spared.
bool may_ask(const inspector_state& s, actor_kind kind) {
  if (s.down.contains(kind)) return false;
  const auto it = s.stuck_at.find(kind);
  if (it == s.stuck_at.end()) return true;
  const auto meter = s.config.watch == nullptr ? nullptr : s.config.watch->meter(kind);
  return meter == nullptr || meter->handled() > it->second;
}

/// Asks one actor; `next(facts)` says what to ask it then, if anything.
template <class Question>
void ask_facts(self_pointer self, const round_pointer& r, actor_kind kind, Question question,
               std::function<std::optional<Question>(const actor_facts&)> next) {
  const auto now = now_of(self);
  if (now >= r->give_up) return end_one(r, kind);
  with_peer(*self->state.peers, kind, [&](const auto& whom) {
    self->request(whom, r->give_up - now, question)
        .then(
            [self, r, kind, next](const facts_answer& a) {
              self->state.stuck_at.erase(kind);
              auto& mine = r->got[kind];
              mine.facts.push_back(a.facts);
              if (auto more = next(*a.facts)) return ask_facts(self, r, kind, *std::move(more), next);
              mine.answered = true;
              mine.at = now_of(self);
              end_one(r, kind);
            },
            [self, r, kind](caf::error&) {
              const auto& watch = self->state.config.watch;
              if (const auto meter = watch == nullptr ? nullptr : watch->meter(kind))
                self->state.stuck_at[kind] = meter->handled();
              end_one(r, kind);
            });
  });
}

template <class Question>
void ask_round(self_pointer self, const kinds& whom, std::chrono::nanoseconds within, Question question,
               std::function<std::optional<Question>(const actor_facts&)> next,
               std::function<void(std::map<actor_kind, answer>&)> then) {
  auto r = std::make_shared<round_of_questions>();
  r->give_up = now_of(self) + within;
  r->then = std::move(then);
  for (const auto kind : whom) {
    r->got[kind].from = kind;
    if (may_ask(self->state, kind)) r->open.insert(kind);
  }
  const auto asked = r->open;
  if (asked.empty()) return r->then(r->got);
  for (const auto kind : asked) ask_facts<Question>(self, r, kind, question, next);
}

gathered_facts gathered(self_pointer self, std::map<actor_kind, answer>& got) {
  const auto& s = self->state;
  gathered_facts g{.now = now_of(self), .runtime = s.peers->runtime, .answers = {}, .down = {}};
  for (auto& [kind, a] : got) g.answers.push_back(std::move(a));
  g.down.assign(s.down.begin(), s.down.end());
  return g;
}

/// Of the last thing in a slice.
std::uint64_t last_id(const actor_facts& f) {
  if (!f.operations.empty()) return f.operations.back().id.value;
  if (!f.leases.empty()) return f.leases.back().id.value;
  if (!f.owners.empty()) return f.owners.back().id.value;
  if (!f.proofs.empty()) return f.proofs.back().operation.value;
  return 0;
}

void gather_everything(self_pointer self, const gather_all& g) {
  const auto slice = std::max<std::size_t>(std::min(self->state.config.slice, g.limit), 1);
  auto left = std::make_shared<std::map<actor_kind, std::size_t>>();
  ask_round<ask_slice>(
      self, all_kinds, self->state.config.answer_within, ask_slice{0, slice, true},
      [slice, left, limit = g.limit](const actor_facts& f) -> std::optional<ask_slice> {
        auto& asked = (*left)[f.from];
        asked += slice;
        const auto last = last_id(f);
        if (!f.more || asked >= limit || last == 0) return std::nullopt;
        return ask_slice{last, std::min(slice, limit - asked), false};
      },
      [self, promise = g.answer](std::map<actor_kind, answer>& got) {
        for (auto& [kind, a] : got) {
          auto& before = self->state.told[kind];
          if (a.answered)
            before = a;
          else if (before.at)  // as it was last seen
            a = {kind, false, before.at, before.facts};
        }
        promise->set_value(gathered(self, got));
      });
}

/// The second round: all that the first one has named, and who gives evidence of it.
void gather_rest(self_pointer self, const about_question& first, const facts_promise& promise,
                 std::map<actor_kind, answer> got) {
  auto q = std::make_shared<about_question>();
  std::set<operation_id> operations{first.operations.begin(), first.operations.end()};
  std::set<lease_id> leases{first.leases.begin(), first.leases.end()};
  for (const auto& [kind, a] : got)
    for (const auto& f : a.facts) {
      for (const auto& o : f->operations) {
        operations.insert(o.id);
        leases.insert(o.lease);
      }
      for (const auto& l : f->leases) leases.insert(l.id);
    }
  q->operations.assign(operations.begin(), operations.end());
  q->leases.assign(leases.begin(), leases.end());
  q->registrations = first.registrations;
  q->slot = first.slot;
  kinds whom{actor_kind::deadline_arbiter, actor_kind::proof_collector, actor_kind::backend,
             actor_kind::cuda};
  for (const auto kind : {actor_kind::adapter, actor_kind::lender})
    if (got[kind].answered && !q->leases.empty()) whom.insert(kind);
  ask_round<ask_about>(
      self, whom, self->state.config.round_within, ask_about{std::move(q)},
      [](const actor_facts&) -> std::optional<ask_about> { return std::nullopt; },
      [self, promise, before = std::move(got)](std::map<actor_kind, answer>& now) mutable {
        for (auto& [kind, a] : before) {
          auto& later = now[kind];
          later.from = kind;
          if (later.facts.empty()) later.answered = a.answered;
          if (!later.at) later.at = a.at;
          later.facts.insert(later.facts.begin(), a.facts.begin(), a.facts.end());
        }
        promise->set_value(gathered(self, now));
      });
}

/// What a question names, and its operations; then the rest.
void gather_named(self_pointer self, const about_question& first, const facts_promise& promise) {
  kinds whom{actor_kind::adapter, actor_kind::lender, actor_kind::supervisor};
  if (first.request) whom.insert(actor_kind::manager);
  ask_round<ask_about>(
      self, whom, self->state.config.round_within, ask_about{std::make_shared<const about_question>(first)},
      [](const actor_facts&) -> std::optional<ask_about> { return std::nullopt; },
      [self, first, promise](std::map<actor_kind, answer>& got) {
        gather_rest(self, first, promise, std::move(got));
      });
}

void gather_some(self_pointer self, const gather_about& g) {
  const auto& s = self->state;
  const auto parts = s.config.watch == nullptr ? std::vector<part>{} : s.config.watch->parts();
  const auto first = question_of(g.what, parts);
  if (!first) {  // whoever asked says why
    std::map<actor_kind, answer> nobody;
    return g.answer->set_value(gathered(self, nobody));
  }
  if (!first->slot) return gather_named(self, *first, g.answer);
  // Only the lender knows whose slot it is.
  ask_round<ask_about>(
      self, {actor_kind::lender}, s.config.round_within,
      ask_about{std::make_shared<const about_question>(*first)},
      [](const actor_facts&) -> std::optional<ask_about> { return std::nullopt; },
      [self, q = *first, promise = g.answer](std::map<actor_kind, answer>& got) mutable {
        for (const auto& f : got[actor_kind::lender].facts)
          if (f->slot && f->slot->lease) q.leases = {f->slot->lease};
        gather_named(self, q, promise);
      });
}

inspector_actor::behavior_type inspector(self_pointer self, const inspector_config& config) {
  self->state.config = config;
  self->state.seen.open(self, config.watch, actor_kind::inspector);
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        if (down.runtime == self->state.peers->runtime) self->state.down.insert(down.kind);
      },
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> {
        actor_report r;
        r.kind = actor_kind::inspector;
        r.figures = {{"snapshots", static_cast<std::int64_t>(self->state.snapshots)}};
        return r;
      },
      [self](const take_snapshot&) { return gather(self); },
      [self](const gather_all& g) { gather_everything(self, g); },
      [self](const gather_about& g) { gather_some(self, g); },
  };
}

}  // namespace

inspector_actor spawn_inspector(caf::actor_system& system, inspector_config config) {
  return system.spawn(inspector, std::move(config));
}

}  // namespace kvlease
