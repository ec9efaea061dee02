// The inspector actor: asks each actor for its report, and never waits for one that is stuck (architecture,
// "Inspection"). Read-only: no message frees memory.
#pragma once

#include <chrono>

#include "messages/inspector.hpp"

namespace kvlease {

struct inspector_config {
  std::chrono::nanoseconds answer_within = std::chrono::milliseconds{100};
};

inspector_actor spawn_inspector(caf::actor_system& system, inspector_config config);

}  // namespace kvlease
