// The deadline arbiter actor. In production it has a thread of its own, so that blocked workers of the host
// delay no deadline (4.9). It arms one wake-up for its earliest deadline, in hops of at most 250 ms, because
// a long timer aimed at an actor with a thread would hold up shutdown; none while nothing is tracked.
#pragma once

#include <functional>
#include <memory>

#include "messages/deadline_arbiter.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct arbiter_config {
  incarnation runtime;
  /// Called once on fatal; must not block (the runtime hands the record to a thread made at start, 4.8).
  std::function<void(const fatal_record&)> contain;
  std::shared_ptr<observation> watch = {};
};

deadline_arbiter_actor spawn_deadline_arbiter(caf::actor_system& system, arbiter_config config);

}  // namespace kvlease
