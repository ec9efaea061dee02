// The inspector actor: asks each actor what it keeps, and never waits for one that is stuck (architecture,
// "Inspection"). Lists are asked for in slices, so that no actor is held up; single things by their ids.
// Read-only: no message frees memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "messages/inspector.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct inspector_config {
  std::chrono::nanoseconds answer_within = std::chrono::milliseconds{100};  ///< of a snapshot, in all
  std::chrono::nanoseconds round_within =
      std::chrono::milliseconds{50};  ///< `why` asks two rounds, of a slot three
  std::size_t slice = 256;            ///< things in an answer, so that each takes well under a millisecond
  std::shared_ptr<observation> watch = {};
};

inspector_actor spawn_inspector(caf::actor_system& system, inspector_config config);

}  // namespace kvlease
