// For tests that need to send what no well-behaved peer would: the runtime's handles, with CAF.
#pragma once

#include <caf/scheduler/test_coordinator.hpp>
#include <deque>
#include <map>

#include "actors/spawn.hpp"
#include "messages/caf.hpp"
#include "messages/wiring.hpp"
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
  runtime_parts parts;
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
};

}  // namespace kvlease::test
