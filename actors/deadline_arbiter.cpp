#include "actors/deadline_arbiter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "actors/errors.hpp"
#include "messages/wiring.hpp"
#include "src/arbitration.hpp"

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
  duration latest{};  ///< the most that a wake-up came behind its deadline
  bool adapter_down = false;
};

using self_pointer = deadline_arbiter_actor::stateful_pointer<arbiter_state>;
namespace fx = arbitration_effects;

struct effect_sender {
  self_pointer self;

  arbiter_state& s() const { return self->state; }
  template <class Message>
  void to_host(operation_id op, const Message& m) const {
    if (const auto it = s().hosts.find(op); it != s().hosts.end()) tell(self, it->second, m);
  }
  template <class Message>
  void to_adapter(Message m) const {
    tell(self, s().peers->adapter, std::move(m));
  }

  void operator()(const fx::granted& e) const { to_adapter(exposure_granted{e.operation}); }
  void operator()(const fx::refused& e) const { to_adapter(exposure_refused{e.operation, e.reason}); }
  void operator()(const fx::decided& e) const {
    to_host(e.operation, operation_outcome{e.operation, e.value});
    to_adapter(outcome_committed{e.operation, e.value});
  }
  void operator()(const fx::authorised& e) const { to_adapter(claim_settled{e.token}); }
  void operator()(const fx::not_authorised& e) const { to_adapter(claim_refused{e.operation}); }
  void operator()(const operation_released& e) const {
    to_host(e.operation, e);
    s().hosts.erase(e.operation);
  }
  void operator()(const operation_retained& e) const { to_host(e.operation, e); }
  void operator()(const drain_started&) const {}
  void operator()(const fatal_record& f) const {
    to_adapter(f);
    for (const auto& w : s().watchers) tell(self, w, f);
    if (s().config.contain) s().config.contain(f);
  }
};

void arm(self_pointer self) {
  auto& s = self->state;
  const auto next = s.core->next_deadline();
  if (!next) return;
  const auto now = now_of(self);
  const auto wake = std::min(*next, now + longest_hop);
  if (s.armed && *s.armed <= wake) return;
  s.armed = wake;
  tell_later<deadline_arbiter_actor>(self, std::max(wake - now, duration{0}), deadline_due{++s.generation});
}

/// Lets the core act at the current time, sends what came of it, and arms for what is next.
template <class F>
auto act(self_pointer self, F on_core) {
  auto& s = self->state;
  struct sender {
    self_pointer self;
    ~sender() {
      for (const auto& e : self->state.core->take_effects()) std::visit(effect_sender{self}, e);
      arm(self);
    }
  } after{self};
  return on_core(*s.core, now_of(self));
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

deadline_arbiter_actor::behavior_type deadline_arbiter(self_pointer self, const arbiter_config& config) {
  self->state.config = config;
  self->state.core.emplace(config.runtime);
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        if (down.kind != actor_kind::adapter || down.runtime != self->state.config.runtime) return;
        self->state.adapter_down = true;
        act(self, [](arbitration& core, time_point now) { core.adapter_down(now); });
      },
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> { return report(self); },
      [self](const create_owner& c) -> caf::result<owner_id> {
        return act(self, [&](arbitration& core, time_point now) {
          return answer(core.create_owner(now, c.request, c.way, c.timeout));
        });
      },
      [self](const close_owner& c) -> caf::result<done> {
        const bool closed =
            act(self, [&](arbitration& core, time_point now) { return core.close_owner(now, c.owner); });
        if (!closed)
          return to_caf(
              {errc::state, "owner " + to_string(c.owner) + " is in use, unknown, or fatal has won"});
        return done{};
      },
      [self](const cancel_directly& c) -> caf::result<done> {
        if (!self->state.adapter_down) return to_caf({errc::state, "the adapter is alive: cancel there"});
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
          if (tracked)
            tell(self, self->state.peers->adapter, exposure_granted{t.registrations});
          else
            tell(self, self->state.peers->adapter, exposure_refused{t.registrations, tracked.error().text});
        });
      },
      [self](const commit_outcome& c) {
        act(self, [&](arbitration& core, time_point now) { core.commit(now, c.operation, c.value); });
      },
      [self](const retain_claim& r) {
        act(self,
            [&](arbitration& core, time_point now) { core.retain_unproven(now, r.operation, r.reason); });
      },
      [self](const settle_claim& c) {
        act(self, [&](arbitration& core, time_point now) { core.settle(now, c.operation); });
      },
      [self](const claim_retired& c) {
        act(self, [&](arbitration& core, time_point now) { core.retired(now, c.operation, c.times); });
        self->state.hosts.erase(c.operation);
      },
      [self](const close_admission&) -> caf::result<done> {
        act(self, [](arbitration& core, time_point now) { core.request_shutdown(now); });
        return done{};
      },
      [self](const stop_arbiter&) -> caf::result<done> {
        const auto stopped = act(self, [](arbitration& core, time_point now) { return core.stop(now); });
        if (!stopped) return to_caf(stopped.error());
        return done{};
      },
      [self](const watch_fatal& w) {
        if (const auto& f = self->state.core->clocks().fatal()) tell(self, w.watcher, *f);
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
