// The journal as a Chrome trace, which Perfetto opens: a track an operation, one a lease without operation,
// and one an actor for the rest. On a track each record is an instant, and a slice lasts until the next one.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "src/include/kvlease/inspection.hpp"

namespace kvlease::inspect {

/// The slices of operations and leases that are in `open` last until its `uptime`.
std::string trace_json(std::span<const journal_event> events, const inspection_snapshot& open);

}  // namespace kvlease::inspect
