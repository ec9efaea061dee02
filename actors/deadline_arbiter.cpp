#include "actors/deadline_arbiter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "actors/errors.hpp"
#include "actors/guard.hpp"
#include "actors/observe.hpp"
#include "messages/wiring.hpp"
#include "src/arbitration.hpp"
#include "src/facts.hpp"

namespace kvlease {

namespace {

constexpr std::chrono::milliseconds longest_hop{250};

struct arbiter_state {
  static inline const char* name = "kvlease.deadline_arbiter";
  arbiter_config config;
  std::shared_ptr<const wiring> peers;
  std::optional<arbitration> core;
  std::unordered_map<operation_id, host_actor> hosts;
  std::vector<host_actor> watchers;
  std::optional<time_point> armed;
  std::uint64_t generation = 0;
  std::uint64_t wake_ups = 0;
  duration latest{};           ///< the most that a wake-up came behind its deadline
  operation_id registrations;  ///< the pseudo operation that stands for them; none: not tracked yet
  bool adapter_down = false;
  bool closed = false;  ///< admission, for good
  bool stopped = false;
  observer seen;
};

using self_pointer = metered_pointer<deadline_arbiter_actor, arbiter_state>;
namespace fx = arbitration_effects;

struct effect_sender {
  self_pointer self;
  time_point now;  ///< at which the core acted

  arbiter_state& s() const { return self->state; }
  template <class Message>
  void to_host(operation_id op, const Message& m) const {
    if (const auto it = s().hosts.find(op); it != s().hosts.end()) tell(self, it->second, m);
  }
  template <class Message>
  void to_adapter(Message m) const {
    tell(self, s().peers->adapter, std::move(m));
  }

  void record(journal_kind kind, noted what) const {
    if (s().seen.log == nullptr) return;
    if (what.operation && what.other == 0)
      if (const auto owner = s().core->owner_of(what.operation)) what.other = owner->value;
    note_at(s().seen.log, now, actor_kind::deadline_arbiter, kind, what);
  }

  void operator()(const fx::granted& e) const {
    const auto owner = s().core->owner_of(e.operation);
    const auto seen = owner ? s().core->clocks().view(*owner) : std::nullopt;
    const auto span = seen && seen->request_deadline ? *seen->request_deadline - now : duration{0};
    record(journal_kind::exposed, {.operation = e.operation, .value = in_ns(span)});
    to_adapter(exposure_granted{e.operation});
  }
  void operator()(const fx::refused& e) const {
    record(journal_kind::exposure_refused, {.operation = e.operation});
    to_adapter(exposure_refused{e.operation, e.reason});
  }
  void operator()(const fx::decided& e) const {
    const auto f = fact_of(e.value);
    record(journal_kind::outcome_committed,
           {.operation = e.operation, .value = f.served, .detail = static_cast<std::uint8_t>(f.what)});
    if (auto* g = s().seen.numbers())
      ++g->operations[static_cast<std::size_t>(e.way)][static_cast<std::size_t>(f.what)];
    to_host(e.operation, operation_outcome{e.operation, e.value});
    to_adapter(outcome_committed{e.operation, e.value});
  }
  void operator()(const fx::authorised& e) const {
    record(journal_kind::claim_settled, {.operation = e.token.operation()});
    to_adapter(claim_settled{e.token});
  }
  void operator()(const fx::not_authorised& e) const {
    record(journal_kind::claim_refused, {.operation = e.operation});
    to_adapter(claim_refused{e.operation});
  }
  void operator()(const operation_released& e) const {
    if (auto* g = s().seen.numbers()) {
      const auto& t = e.times;
      if (t.access_ended != time_point{}) {
        g->outcome_to_proof.add(t.access_ended - t.outcome);
        g->proof_to_release.add(t.released - t.access_ended);
      }
    }
    to_host(e.operation, e);
    s().hosts.erase(e.operation);
  }
  void operator()(const operation_retained& e) const { to_host(e.operation, e); }
  void operator()(const drain_started& d) const {
    auto why = drain_cause::disputed;
    if (d.reason == "transfer timeout") why = drain_cause::timeout;
    if (d.reason == "delivery failed or cancelled") why = drain_cause::unsuccessful;
    if (d.reason == "shutdown") why = drain_cause::shutdown;
    record(journal_kind::drain_started, {.operation = s().core->operation_of(d.owner),
                                         .other = d.owner.value,
                                         .value = since_start(d.started),
                                         .detail = static_cast<std::uint8_t>(why)});
  }
  void operator()(const fatal_record& f) const {
    record(journal_kind::fatal_latched,
           {.request = f.request, .other = f.owner.value, .value = since_start(f.deadline)});
    if (auto* g = s().seen.numbers()) g->fatal = true;
    if (!mutated(actor_mutation::fatal_untold)) to_adapter(f);
    for (const auto& w : s().watchers) tell(self, w, f);
    if (s().config.contain && !mutated(actor_mutation::fatal_uncontained)) s().config.contain(f);
  }

  static std::uint64_t in_ns(duration d) {
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count(), 0));
  }
  std::uint64_t since_start(time_point t) const {
    return s().seen.log == nullptr ? 0 : in_ns(t - s().seen.log->start());
  }
};

void arm(self_pointer self) {
  auto& s = self->state;
  const auto next = s.core->next_deadline();
  if (!next) return;
  const auto now = now_of(self);
  const auto wake = std::min(*next, now + longest_hop);
  if (s.armed && (*s.armed <= wake || mutated(actor_mutation::timer_not_advanced))) return;
  s.armed = wake;
  tell_later<deadline_arbiter_actor>(self, std::max(wake - now, duration{0}), deadline_due{++s.generation});
}

/// Lets the core act at the current time, sends what came of it, and arms for what is next.
template <class F>
auto act(self_pointer self, F on_core) {
  auto& s = self->state;
  struct sender {
    self_pointer self;
    time_point now;
    ~sender() {
      for (const auto& e : self->state.core->take_effects()) std::visit(effect_sender{self, now}, e);
      self->state.seen.rejected(self->state.core->rejected());
      arm(self);
    }
  } after{self, now_of(self)};
  return on_core(*s.core, after.now);
}

void on_due(self_pointer self, const deadline_due& d) {
  auto& s = self->state;
  if (d.generation != s.generation) return;
  ++s.wake_ups;
  s.armed.reset();
  if (const auto next = s.core->next_deadline(); next && now_of(self) >= *next)
    s.latest = std::max(s.latest, now_of(self) - *next);
  act(self, [](arbitration& core, time_point now) { core.advance(now); });
}

std::string in_ms(time_point t, time_point now) {
  return fmt::format("{:.3f} ms", std::chrono::duration<double, std::milli>(t - now).count());
}

actor_report report(self_pointer self) {
  const auto& s = self->state;
  const auto now = now_of(self);
  actor_report r;
  r.kind = actor_kind::deadline_arbiter;
  const auto& clocks = s.core->clocks();
  r.figures = {{"operations_open", static_cast<std::int64_t>(s.core->open())},
               {"owners", static_cast<std::int64_t>(clocks.tracked())},
               {"fatal", clocks.fatal() ? 1 : 0},
               {"wake_ups", static_cast<std::int64_t>(s.wake_ups)},
               {"latest_ns", s.latest.count()},
               {"rejected", static_cast<std::int64_t>(s.core->rejected())}};
  for (const auto& o : clocks.owners()) {
    report_row row{"owner", to_string(o.owner), {{"request", to_string(o.request)}}};
    row.facts.emplace_back("direction", std::string{to_string(o.way)});
    row.facts.emplace_back("claims", std::to_string(o.claims));
    if (o.request_deadline) row.facts.emplace_back("request_deadline_in", in_ms(*o.request_deadline, now));
    if (o.drain_started) {
      row.facts.emplace_back("draining_for", in_ms(now, *o.drain_started));
      row.facts.emplace_back("reason", o.reason);
    }
    if (o.fatal_at) row.facts.emplace_back("fatal_in", in_ms(*o.fatal_at, now));
    r.rows.push_back(std::move(row));
  }
  return r;
}

/// Where the arbiter knows the operation; else there is no claim to speak of.
void note_claim(self_pointer self, journal_kind kind, operation_id op) {
  const auto& s = self->state;
  if (s.seen.log == nullptr) return;
  if (const auto owner = s.core->owner_of(op)) note(self, kind, {.operation = op, .other = owner->value});
}

owner_fact fact_of(const arbiter_state& s, const retirement::owner_view& v) {
  owner_fact f{.id = v.owner,
               .operation = s.core->operation_of(v.owner),
               .request = v.request,
               .way = v.way,
               .claims = v.claims,
               .deadline = v.request_deadline,
               .drain_started = v.drain_started,
               .fatal_at = v.fatal_at,
               .reason = v.reason};
  f.registrations = f.operation && !f.request;
  return f;
}

std::shared_ptr<actor_facts> latches(const arbiter_state& s) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::deadline_arbiter});
  f->fatal = s.core->clocks().fatal();
  if (const auto first = s.core->clocks().first_grace()) f->first_grace = fact_of(s, *first);
  f->stopping = s.closed;
  f->total = s.core->clocks().tracked();
  return f;
}

facts_answer slice(const arbiter_state& s, const ask_slice& q) {
  auto f = latches(s);
  for (const auto& v : s.core->clocks().owners(owner_id{q.after}, q.most)) f->owners.push_back(fact_of(s, v));
  f->more = q.most > 0 && f->owners.size() == q.most;
  return {std::move(f)};
}

facts_answer about(const arbiter_state& s, const about_question& q) {
  auto f = latches(s);
  for (const auto op : q.operations)
    if (const auto owner = s.core->owner_of(op))
      if (const auto v = s.core->clocks().view(*owner)) f->owners.push_back(fact_of(s, *v));
  if (const auto owner = q.registrations || q.slot ? s.core->owner_of(s.registrations) : std::nullopt)
    if (const auto v = s.core->clocks().view(*owner)) f->owners.push_back(fact_of(s, *v));
  return {std::move(f)};
}

deadline_arbiter_actor::behavior_type deadline_arbiter(self_pointer self, const arbiter_config& config) {
  self->state.config = config;
  self->state.core.emplace(config.runtime);
  self->state.seen.open(self, config.watch, actor_kind::deadline_arbiter);
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        const bool ours = down.runtime == self->state.config.runtime;
        if (!ours && !mutated(actor_mutation::arbiter_believes_foreign_down)) return;
        if (down.kind != actor_kind::adapter || mutated(actor_mutation::adapter_death_ignored)) return;
        self->state.adapter_down = true;
        act(self, [](arbitration& core, time_point now) { core.adapter_down(now); });
      },
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> { return report(self); },
      [self](const ask_slice& q) -> caf::result<facts_answer> { return slice(self->state, q); },
      [self](const ask_about& q) -> caf::result<facts_answer> { return about(self->state, *q.what); },
      [self](const create_owner& c) -> caf::result<owner_id> {
        return act(self, [&](arbitration& core, time_point now) {
          const auto owner = core.create_owner(now, c.request, c.way, c.timeout);
          if (owner)
            effect_sender{self, now}.record(journal_kind::owner_created,
                                            {.request = c.request,
                                             .other = owner->value,
                                             .value = effect_sender::in_ns(c.timeout.value())});
          return answer(owner);
        });
      },
      [self](const close_owner& c) -> caf::result<done> {
        const bool closed =
            act(self, [&](arbitration& core, time_point now) { return core.close_owner(now, c.owner); });
        if (closed) note(self, journal_kind::owner_closed, {.other = c.owner.value});
        if (!closed)
          return to_caf(
              {errc::state, "owner " + to_string(c.owner) + " is in use, unknown, or fatal has won"});
        return done{};
      },
      [self](const cancel_directly& c) -> caf::result<done> {
        if (!self->state.adapter_down && !mutated(actor_mutation::cancel_past_adapter))
          return to_caf({errc::state, "the adapter is alive: cancel there"});
        act(self,
            [&](arbitration& core, time_point now) { core.commit(now, c.operation, cancelled{c.who}); });
        return done{};
      },
      [self](const expose_operation& e) {
        self->state.hosts.emplace(e.what.operation, e.host);
        act(self, [&](arbitration& core, time_point now) { core.expose(now, e.what); });
      },
      [self](const track_registrations& t) {
        act(self, [&](arbitration& core, time_point now) {
          const auto tracked = core.track(now, t.registrations, t.timeout);
          if (tracked) {
            self->state.registrations = t.registrations;
            effect_sender{self, now}.record(journal_kind::registrations_tracked,
                                            {.operation = t.registrations,
                                             .other = tracked->value,
                                             .value = effect_sender::in_ns(t.timeout.value())});
            tell(self, self->state.peers->adapter, exposure_granted{t.registrations});
          } else
            tell(self, self->state.peers->adapter, exposure_refused{t.registrations, tracked.error().text});
        });
      },
      [self](const commit_outcome& c) {
        act(self, [&](arbitration& core, time_point now) { core.commit(now, c.operation, c.value); });
      },
      [self](const retain_claim& r) {
        note_claim(self, journal_kind::claim_retained, r.operation);
        act(self,
            [&](arbitration& core, time_point now) { core.retain_unproven(now, r.operation, r.reason); });
      },
      [self](const settle_claim& c) {
        act(self, [&](arbitration& core, time_point now) { core.settle(now, c.operation); });
      },
      [self](const claim_retired& c) {
        note_claim(self, journal_kind::claim_retired, c.operation);
        act(self, [&](arbitration& core, time_point now) { core.retired(now, c.operation, c.times); });
        self->state.hosts.erase(c.operation);
      },
      [self](const close_admission&) -> caf::result<done> {
        if (!std::exchange(self->state.closed, true)) note(self, journal_kind::admission_closed, {});
        if (auto* g = self->state.seen.numbers()) g->draining = true;
        act(self, [](arbitration& core, time_point now) { core.request_shutdown(now); });
        return done{};
      },
      [self](const stop_arbiter&) -> caf::result<done> {
        const auto stopped = act(self, [](arbitration& core, time_point now) { return core.stop(now); });
        if (!stopped) return to_caf(stopped.error());
        if (!std::exchange(self->state.stopped, true)) note(self, journal_kind::arbiter_stopped, {});
        return done{};
      },
      [self](const watch_fatal& w) {
        if (const auto& f = self->state.core->clocks().fatal();
            f && !mutated(actor_mutation::late_watcher_untold))
          tell(self, w.watcher, *f);
        self->state.watchers.push_back(w.watcher);
      },
      [self](const deadline_due& d) { on_due(self, d); },
  };
}

}  // namespace

deadline_arbiter_actor spawn_deadline_arbiter(caf::actor_system& system, arbiter_config config) {
  return spawn_own_thread(system, deadline_arbiter, std::move(config));
}

}  // namespace kvlease
