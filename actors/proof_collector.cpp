#include "actors/proof_collector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_map>

#include "actors/guard.hpp"
#include "actors/observe.hpp"
#include "actors/outlet.hpp"
#include "actors/thrown.hpp"
#include "messages/wiring.hpp"
#include "src/facts.hpp"

namespace kvlease {

namespace {

using collector_outlet = std::shared_ptr<outlet<proof_collector_actor>>;
using proof_list = std::vector<std::pair<operation_id, proof_id>>;

struct collector_state {
  static inline const char* name = "kvlease.proof_collector";
  collector_config config;
  std::shared_ptr<const wiring> peers;
  outlet_owner<proof_collector_actor> way_in;
  std::map<operation_id, proof_id> in_flight;
  poll_schedule schedule;
  std::vector<proof_source> rungs;  ///< configured and offered, in the provider's order
  std::string climb_problem;        ///< the last climb that was not made
  std::uint64_t proofs = 0, disputed = 0, rejected = 0, climbed = 0;
  std::unordered_map<operation_id, time_point> since;  ///< of the proofs in flight
  time_point round_began;                              ///< the round of polls under way, or the last
  time_point asked, round_ended;  ///< the last whole round: what it did not answer was running
  std::uint64_t rounds_ended = 0;
  observer seen;
};

using self_pointer = metered_pointer<proof_collector_actor, collector_state>;

// ---- jobs

/// Asks about one attempt; an exception is disputed evidence, and so is a missing attempt (2.4).
access_polled::answer ask_one(ledger& roots, operation_id op, proof_id proof, auto&& question) {
  access_polled::answer a{op, proof, access_state::unproven, proof_source::terminal_status, {}};
  const auto subject = roots.attempt_of(op);
  if (subject == nullptr) {
    if (mutated(actor_mutation::missing_attempt_is_end)) a.state = access_state::ended;
    a.reason = "there is no attempt to ask about";
    return a;
  }
  try {
    question(a, subject);
  } catch (...) {
    a.state = mutated(actor_mutation::broken_proof_is_end) ? access_state::ended : access_state::unproven;
    a.reason = what_was_thrown();
  }
  return a;
}

void poll_job(provider& service, ledger& roots, const collector_outlet& out, const proof_list& proofs) {
  access_polled round;
  for (const auto& [op, proof] : proofs) {
    auto a =
        ask_one(roots, op, proof, [&](access_polled::answer& into, const std::shared_ptr<attempt>& subject) {
          const auto whom =
              mutated(actor_mutation::one_answer_for_all) ? roots.attempt_of(proofs.front().first) : subject;
          const auto said = service.as_pollable()->poll_access(*whom);
          into.state = said.state;
          into.source = said.source;
          if (said.state == access_state::unproven) into.reason = "the provider can't tell";
        });
    if (a.state == access_state::running && mutated(actor_mutation::running_is_end))
      a.state = access_state::ended;
    if (a.state != access_state::running) round.answers.push_back(std::move(a));
  }
  out->send(std::move(round));
}

void quiesce_job(provider& service, ledger& roots, const collector_outlet& out, operation_id op,
                 proof_id proof) {
  access_polled answer;
  answer.round = false;
  answer.answers.push_back(
      ask_one(roots, op, proof, [&](access_polled::answer& into, const std::shared_ptr<attempt>& subject) {
        deliveries* d = service.as_fetches();
        if (d == nullptr) d = service.as_publishes();
        const std::shared_ptr<attempt> one[] = {subject};
        const bool ended = d != nullptr && (d->quiesce(one) || mutated(actor_mutation::false_proof_is_end));
        into.state = ended ? access_state::ended : access_state::unproven;
        if (!ended) into.reason = "quiesce answered false";
      }));
  out->send(std::move(answer));
}

void climb_job(provider& service, ledger& roots, const collector_outlet& out, const climb_rung& c,
               proof_source rung) {
  rung_climbed done{c.operation, c.proof, rung, {}, {}};
  try {
    const auto subject = roots.attempt_of(c.operation);
    if (subject == nullptr) return;  // it has been proven meanwhile
    done.taken_down = roots.operations_of(service.as_proof_rungs()->climb(*subject, rung));
  } catch (...) {
    done.problem = what_was_thrown();
  }
  out->send(std::move(done));
}

// ---- on the actor

void on_answers(self_pointer self, const access_polled& polled);

/// Posts a job that will answer `proofs`. One that can't be started leaves them disputed: nobody else would
/// ever answer them.
template <class Job>
void start_job(self_pointer self, const proof_list& proofs, bool round, Job job) {
  try {
    self->state.config.workers->post(std::move(job));
  } catch (...) {
    if (mutated(actor_mutation::unposted_proof_is_silent)) return;
    access_polled lost;
    lost.round = round;
    const auto reason = "the proof can't be started: " + what_was_thrown();
    for (const auto& [op, proof] : proofs)
      lost.answers.push_back({op, proof, access_state::unproven, proof_source::terminal_status, reason});
    on_answers(self, lost);
  }
}

void start_round(self_pointer self) {
  auto& s = self->state;
  s.round_began = now_of(self);
  const proof_list proofs{s.in_flight.begin(), s.in_flight.end()};
  start_job(self, proofs, true,
            [service = s.config.service, roots = s.config.roots, out = s.way_in.shared(), proofs] {
              poll_job(*service, *roots, out, proofs);
            });
}

/// Whose end does not come by itself is helped along, before the grace ends.
void plan_climb(self_pointer self, const grace_runs& c) {
  auto& s = self->state;
  if (s.rungs.empty() || c.grace.count() == 0) return;
  const auto first =
      std::chrono::duration_cast<std::chrono::nanoseconds>(c.grace * s.config.ladder.climb_after);
  const auto pause = (c.grace - first) / static_cast<std::int64_t>(s.rungs.size() + 1);
  tell_later<proof_collector_actor>(self, first, climb_rung{c.operation, c.proof, 0, pause});
}

void climb(self_pointer self, const climb_rung& c) {
  auto& s = self->state;
  const auto it = s.in_flight.find(c.operation);
  const bool gone = it == s.in_flight.end() || it->second != c.proof;
  if (gone && !mutated(actor_mutation::climbs_for_proven)) return;
  if (c.rung >= s.rungs.size()) return;
  const auto rung = s.rungs[c.rung];
  try {
    s.config.workers->post([service = s.config.service, roots = s.config.roots, out = s.way_in.shared(), c,
                            rung] { climb_job(*service, *roots, out, c, rung); });
  } catch (...) {
    tell(self, proof_collector_actor{self},
         rung_climbed{c.operation, c.proof, rung, {}, "the climb can't be started: " + what_was_thrown()});
  }
  tell_later<proof_collector_actor>(self, c.pause, climb_rung{c.operation, c.proof, c.rung + 1, c.pause});
}

void on_climbed(self_pointer self, const rung_climbed& c) {
  auto& s = self->state;
  if (c.problem.empty()) {
    ++s.climbed;
    tell(self, s.peers->adapter, c);
  } else {
    s.climb_problem =
        fmt::format("operation {}, {}: {}", to_string(c.operation), to_string(c.rung), c.problem);
  }
  if (!s.in_flight.empty() && s.config.service->as_pollable() != nullptr && s.schedule.wake())
    start_round(self);
}

void collect(self_pointer self, const collect_proof& c) {
  auto& s = self->state;
  ++s.proofs;
  s.in_flight[c.operation] = c.proof;
  s.since[c.operation] = now_of(self);
  if (s.config.service->as_pollable() != nullptr) {
    if (s.schedule.wake()) start_round(self);
    return;
  }
  start_job(self, {{c.operation, c.proof}}, false,
            [service = s.config.service, roots = s.config.roots, out = s.way_in.shared(), c] {
              quiesce_job(*service, *roots, out, c.operation, c.proof);
            });
}

void on_answers(self_pointer self, const access_polled& polled) {
  auto& s = self->state;
  bool advanced = false;
  for (const auto& a : polled.answers) {
    const auto it = s.in_flight.find(a.operation);
    const bool stale =
        it == s.in_flight.end() || (it->second != a.proof && !mutated(actor_mutation::stale_answer_counts));
    if (stale) {
      s.seen.rejected(++s.rejected);
      continue;
    }
    s.in_flight.erase(it);
    s.since.erase(a.operation);
    advanced = true;
    if (a.state == access_state::ended || mutated(actor_mutation::unproven_is_end)) {
      tell(self, s.peers->adapter, access_ended{a.operation, a.proof, a.source});
    } else {
      ++s.disputed;
      tell(self, s.peers->adapter, access_unproven{a.operation, a.proof, a.reason});
    }
  }
  if (!polled.round) return;
  s.asked = s.round_began;
  s.round_ended = now_of(self);
  ++s.rounds_ended;
  const auto next = s.schedule.end(advanced, !s.in_flight.empty());
  if (!next) return;
  if (next->count() == 0) {
    if (s.schedule.wake()) start_round(self);
  } else {
    tell_later<proof_collector_actor>(self, *next, poll_access{s.schedule.generation()});
  }
}

void on_poll(self_pointer self, std::uint64_t generation) {
  auto& s = self->state;
  if (s.in_flight.empty() || s.config.service->as_pollable() == nullptr) return;
  if (generation == 0 ? s.schedule.wake() : s.schedule.due(generation)) start_round(self);
}

proof_fact fact_of(const collector_state& s, operation_id op, proof_id proof) {
  proof_fact f{.operation = op, .proof = proof, .since = {}, .last_look = {}};
  if (const auto it = s.since.find(op); it != s.since.end()) f.since = it->second;
  f.blocking = s.config.service->as_pollable() == nullptr;
  // A round that began after the proof did has asked it, and would have ended it had it not been running.
  if (!f.blocking && s.rounds_ended > 0 && s.asked >= f.since) {
    f.looks = s.rounds_ended;
    f.last_look = s.round_ended;
  }
  return f;
}

facts_answer slice(const collector_state& s, const ask_slice& q) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::proof_collector});
  auto it = s.in_flight.upper_bound(operation_id{q.after});
  for (; it != s.in_flight.end() && f->proofs.size() < q.most; ++it)
    f->proofs.push_back(fact_of(s, it->first, it->second));
  f->more = it != s.in_flight.end();
  f->total = s.in_flight.size();
  return {std::move(f)};
}

facts_answer about(const collector_state& s, const about_question& q) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::proof_collector});
  for (const auto op : q.operations)
    if (const auto it = s.in_flight.find(op); it != s.in_flight.end())
      f->proofs.push_back(fact_of(s, op, it->second));
  return {std::move(f)};
}

proof_collector_actor::behavior_type proof_collector(self_pointer self, const collector_config& config) {
  auto& s = self->state;
  s.config = config;
  s.schedule = poll_schedule{config.polling};
  if (auto* offered = config.service->as_proof_rungs())
    for (const auto rung : offered->rungs())
      if (std::ranges::find(config.ladder.rungs, rung) != config.ladder.rungs.end() ||
          mutated(actor_mutation::ladder_climbed_unasked))
        s.rungs.push_back(rung);
  s.way_in.open(proof_collector_actor{self});
  s.seen.open(self, config.watch, actor_kind::proof_collector);
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [](const peer_down&) {},
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> {
        const auto& state = self->state;
        actor_report r;
        r.kind = actor_kind::proof_collector;
        r.figures = {{"in_flight", static_cast<std::int64_t>(state.in_flight.size())},
                     {"proofs", static_cast<std::int64_t>(state.proofs)},
                     {"disputed", static_cast<std::int64_t>(state.disputed)},
                     {"climbed", static_cast<std::int64_t>(state.climbed)},
                     {"rounds", static_cast<std::int64_t>(state.schedule.rounds())},
                     {"rejected", static_cast<std::int64_t>(state.rejected)}};
        if (!state.climb_problem.empty())
          r.rows.push_back({"climb", "last", {{"problem", state.climb_problem}}});
        return r;
      },
      [self](const ask_slice& q) -> caf::result<facts_answer> { return slice(self->state, q); },
      [self](const ask_about& q) -> caf::result<facts_answer> { return about(self->state, *q.what); },
      [self](const collect_proof& c) { collect(self, c); },
      [self](const grace_runs& g) { plan_climb(self, g); },
      [self](const access_polled& p) { on_answers(self, p); },
      [self](const poll_access& p) { on_poll(self, p.generation); },
      [self](const climb_rung& c) { climb(self, c); },
      [self](const rung_climbed& c) { on_climbed(self, c); },
  };
}

}  // namespace

proof_collector_actor spawn_proof_collector(caf::actor_system& system, collector_config config) {
  return system.spawn(proof_collector, std::move(config));
}

}  // namespace kvlease
