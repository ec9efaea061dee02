// For tests that need to send what no well-behaved peer would: the runtime's handles, with CAF.
#pragma once

#include <doctest/doctest.h>

#include <caf/event_based_actor.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "actors/errors.hpp"
#include "actors/spawn.hpp"
#include "messages/caf.hpp"
#include "messages/wiring.hpp"
#include "src/mix.hpp"
#include "tests/world.hpp"

namespace kvlease::test {

/// An executor whose jobs are messages of an actor, so that the deterministic scheduler interleaves them.
class scheduled_executor;

struct world_config : caf::actor_system_config {
  world_config() { set("scheduler.policy", caf::atom("testing")); }
};

struct world::inside {
  world_options options;
  world_config config;
  std::unique_ptr<caf::actor_system> system;
  caf::scheduler::test_coordinator* scheduler = nullptr;
  std::shared_ptr<scheduled_executor> submit_workers, proof_workers, provider_workers;
  std::shared_ptr<device_bench> bench;
  runtime_parts parts;
  std::shared_ptr<journal> log;  ///< null: none
  time_point started;
  host_actor host;
  std::map<operation_id, heard> operations;
  std::map<lease_id, lease_heard> leases;
  std::optional<fatal_record> fatal;
  int containments = 0;
  std::vector<std::string> trace;
  incarnation runtime{1};

  /// Sends, as nobody, and runs unless stepping by hand.
  template <class Handle, class Message>
  void send(const Handle& to, Message m) {
    caf::anon_send(to, std::move(m));
    settle();
  }
  void settle();
  void run();
  /// Moves time to the next timer, if that is not further away. False when it is.
  bool to_next_timer(std::chrono::nanoseconds at_most);
};

/// Asks from an actor of its own; the answer is there once everything has run, if there is one.
template <class Answer, class Handle, class Question>
result<Answer> ask(world::inside& in, const Handle& whom, Question question) {
  auto got = std::make_shared<std::optional<result<Answer>>>();
  in.system->spawn([=](caf::event_based_actor* self) {
    self->request(whom, caf::infinite, question)
        .then([got](Answer& a) { got->emplace(std::move(a)); },
              [got](caf::error& e) { got->emplace(tl::unexpected{from_caf(e)}); });
  });
  in.run();
  if (!*got) return fail(errc::timeout, "no answer");
  return **got;
}

/// Lets the next message be taken, whichever the seed says, until `over` holds; `see` is shown each one
/// before.
template <class Over, class See>
void step_until(world& w, std::uint64_t seed, Over over, See see) {
  auto& s = *w.in().scheduler;
  for (std::uint64_t n = 0; n < 5000 && !over(); ++n) {
    const auto& timers = s.clock().schedule();
    if (w.ready() == 0 && timers.empty()) break;
    if (w.ready() == 0) s.advance_time(timers.begin()->first - w.now());
    const auto i = mix64(seed, n, 0) % w.ready();
    if (auto* actor = dynamic_cast<caf::scheduled_actor*>(s.jobs.at(i)))
      if (const auto* m = actor->peek_at_next_mailbox_element()) see(std::string{actor->name()}, *m);
    w.step(i);
  }
  REQUIRE(over());
}

}  // namespace kvlease::test
