// The supervisor actor: tells every peer who has died (7.4), and shuts the runtime down actor by actor in
// the order of semantics 6.7, by messages and within a bound (7.8).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "messages/supervisor.hpp"
#include "src/ledger.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct supervisor_config {
  std::shared_ptr<ledger> roots;
  /// As the arbiter's: a dead arbiter is fatal, and can't say so itself (7.4).
  std::function<void(const fatal_record&)> contain = {};
  std::chrono::nanoseconds look_again = std::chrono::milliseconds{2};  ///< while a shutdown waits
  std::chrono::nanoseconds answer_within = std::chrono::seconds{5};
  std::shared_ptr<observation> watch = {};
};

supervisor_actor spawn_supervisor(caf::actor_system& system, supervisor_config config);

}  // namespace kvlease
