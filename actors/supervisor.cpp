#include "actors/supervisor.hpp"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "actors/errors.hpp"
#include "actors/guard.hpp"
#include "actors/observe.hpp"
#include "messages/wiring.hpp"
#include "src/facts.hpp"

namespace kvlease {

namespace {

/// Shutdown in the order of 6.7; each step waits for the answer of the one before.
enum class stop_step : std::uint8_t { running, admission, adapter, lender, arbiter, memory, stopped };

struct supervisor_state {
  static inline const char* name = "kvlease.supervisor";
  supervisor_config config;
  std::shared_ptr<const wiring> peers;
  std::set<actor_kind> down;
  stop_step step = stop_step::running;
  bool stopping = false;
  time_point give_up;
  std::vector<std::string> waiting_for;
  std::vector<caf::typed_response_promise<stop_report>> askers;
  observer seen;
};

using self_pointer = metered_pointer<supervisor_actor, supervisor_state>;

/// Calls `each(kind, handle)` for every actor but the supervisor.
template <class F>
void for_peers(const wiring& w, F each) {
  each(actor_kind::manager, w.manager);
  each(actor_kind::lender, w.lender);
  each(actor_kind::adapter, w.adapter);
  each(actor_kind::backend, w.backend);
  each(actor_kind::proof_collector, w.proof_collector);
  each(actor_kind::deadline_arbiter, w.deadline_arbiter);
  each(actor_kind::cuda, w.cuda);
  each(actor_kind::inspector, w.inspector);
}

void finish(self_pointer self, bool stopped) {
  auto& s = self->state;
  s.stopping = false;
  note(self, journal_kind::stop_ended, {.value = stopped ? 1U : 0U});
  stop_report report{stopped, s.waiting_for};
  if (!stopped) {
    for (const auto& line : s.config.roots->rest()) report.retained.push_back(line);
    for (const auto kind : s.down)
      report.retained.push_back(fmt::format("actor {} is down", to_string(kind)));
  } else {
    report.retained.clear();
  }
  for (auto& rp : std::exchange(s.askers, {})) rp.deliver(report);
}

void look_later(self_pointer self) {
  auto& s = self->state;
  if (now_of(self) >= s.give_up) return finish(self, false);
  tell_later<supervisor_actor>(self, s.config.look_again, continue_stop{});
}

void take_step(self_pointer self);

/// Asks one actor; a good answer moves on, anything else waits and asks again within the bound.
template <class Answer, class Handle, class Question, class Good>
void ask(self_pointer self, const Handle& whom, Question question, Good good) {
  self->request(whom, self->state.config.answer_within, std::move(question))
      .then(
          [self, good](const Answer& got) {
            if (good(self->state, got))
              take_step(self);
            else
              look_later(self);
          },
          [self](caf::error& e) {
            self->state.waiting_for = {to_string(from_caf(e))};
            look_later(self);
          });
}

void take_step(self_pointer self) {
  auto& s = self->state;
  switch (s.step) {
    case stop_step::running:
    case stop_step::admission:
      if (mutated(actor_mutation::stop_skips_admission)) {
        s.step = stop_step::adapter;
        return take_step(self);
      }
      return ask<done>(
          self, s.peers->deadline_arbiter, close_admission{}, [](supervisor_state& st, const done&) {
            st.step = mutated(actor_mutation::stop_skips_adapter) ? stop_step::lender : stop_step::adapter;
            return true;
          });
    case stop_step::adapter:
      return ask<adapter_rest>(
          self, s.peers->adapter, close_adapter{}, [](supervisor_state& st, const adapter_rest& rest) {
            st.waiting_for = rest.waiting_for;
            if (rest.closed)
              st.step = mutated(actor_mutation::stop_skips_lender) ? stop_step::arbiter : stop_step::lender;
            return rest.closed;
          });
    case stop_step::lender:
      return ask<lender_rest>(
          self, s.peers->lender, shut_lender{}, [](supervisor_state& st, const lender_rest& rest) {
            st.waiting_for = {fmt::format("lender: {} leases, {} holds, {} slots quarantined", rest.leases,
                                          rest.holds, rest.slots.quarantined)};
            const bool clear = rest.leases == 0 && rest.holds == 0 && rest.slots.quarantined == 0;
            if (clear)
              st.step = mutated(actor_mutation::stop_skips_arbiter) ? stop_step::memory : stop_step::arbiter;
            return clear;
          });
    case stop_step::arbiter:
      return ask<done>(self, s.peers->deadline_arbiter, stop_arbiter{},
                       [](supervisor_state& st, const done&) {
                         st.step = stop_step::memory;
                         return true;
                       });
    case stop_step::memory: {
      const auto gone = s.config.roots->release_memory();
      if (!gone) {
        s.waiting_for = {gone.error().text};
        return look_later(self);
      }
      s.step = stop_step::stopped;
      return finish(self, true);
    }
    case stop_step::stopped:
      return finish(self, true);
  }
}

facts_answer facts(const supervisor_state& s) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::supervisor});
  f->stopping = s.step != stop_step::running || s.stopping;
  f->down.assign(s.down.begin(), s.down.end());
  return {std::move(f)};
}

supervisor_actor::behavior_type supervisor(self_pointer self, const supervisor_config& config) {
  self->state.config = config;
  self->state.seen.open(self, config.watch, actor_kind::supervisor);
  self->set_down_handler([self](caf::down_msg& down) {
    auto& s = self->state;
    if (s.peers == nullptr) return;
    std::optional<actor_kind> lost;
    for_peers(*s.peers, [&](actor_kind kind, const auto& handle) {
      if (handle.address() == down.source) lost = kind;
    });
    if (!lost || !s.down.insert(*lost).second) return;
    note(self, journal_kind::actor_down, {.value = static_cast<std::uint64_t>(*lost)});
    if (auto* g = s.seen.numbers()) g->down |= 1U << static_cast<unsigned>(*lost);
    for_peers(*s.peers, [&](actor_kind kind, const auto& handle) {
      if (kind != *lost && !mutated(actor_mutation::death_untold))
        tell(self, handle, peer_down{*lost, s.peers->runtime});
    });
    const auto now = now_of(self);
    const bool contains = s.config.contain && !mutated(actor_mutation::arbiter_death_uncontained);
    if (lost == actor_kind::deadline_arbiter && contains)
      s.config.contain(
          {.reason = "the deadline arbiter is down", .started = now, .deadline = now, .noticed = now});
  });
  return {
      [self](const wired& w) {
        self->state.peers = w.peers;
        for_peers(*w.peers, [self](actor_kind, const auto& handle) { self->monitor(handle); });
      },
      [self](const quit_now&) {
        auto& s = self->state;
        if (!s.askers.empty()) finish(self, false);
        if (s.peers != nullptr)
          for_peers(*s.peers, [self](actor_kind, const auto& handle) {
            self->demonitor(handle.address());
            tell(self, handle, quit_now{});
          });
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> {
        actor_report r;
        r.kind = actor_kind::supervisor;
        r.figures = {{"actors_down", static_cast<std::int64_t>(self->state.down.size())},
                     {"stopping", self->state.stopping ? 1 : 0}};
        for (const auto kind : self->state.down)
          r.rows.push_back({"actor", std::string{to_string(kind)}, {{"state", "down"}}});
        return r;
      },
      [self](const ask_slice&) -> caf::result<facts_answer> { return facts(self->state); },
      [self](const ask_about&) -> caf::result<facts_answer> { return facts(self->state); },
      [self](const stop_runtime& stop) -> caf::result<stop_report> {
        note(self, journal_kind::stop_asked, {.value = static_cast<std::uint64_t>(stop.bound.count())});
        auto& s = self->state;
        auto rp = self->make_response_promise<stop_report>();
        s.askers.push_back(rp);
        s.give_up = now_of(self) + stop.bound;
        if (!s.stopping) {
          s.stopping = true;
          take_step(self);
        }
        return rp;
      },
      [self](const continue_stop&) {
        if (self->state.stopping) take_step(self);
      },
  };
}

}  // namespace

supervisor_actor spawn_supervisor(caf::actor_system& system, supervisor_config config) {
  return system.spawn(supervisor, std::move(config));
}

}  // namespace kvlease
