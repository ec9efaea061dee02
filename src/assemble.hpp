// A snapshot from what the actors told and what can be seen without asking. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "messages/inspection.hpp"
#include "src/facts.hpp"
#include "src/observation.hpp"

namespace kvlease {

/// At most `limit` operations, leases and owners each, the oldest first. `taken`, `exposure_bytes` and
/// workers are left to the caller. `stuck_after`: an actor that has been in one message for longer is shown
/// as stuck.
inspection_snapshot assemble(const gathered_facts& told, const observation& seen, time_point started,
                             std::size_t limit,
                             std::chrono::nanoseconds stuck_after = std::chrono::milliseconds{100});

}  // namespace kvlease
