// A saved snapshot read back, as far as metrics and the trace need it. What a file lacks or has of another
// type counts as nothing.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/include/kvlease/inspection.hpp"

namespace kvlease::inspect {

/// Empty where the snapshot was saved without them.
std::optional<inspection_metrics> metrics_of(const nlohmann::json& snapshot);

/// The journal's records in a snapshot, and what was open.
struct saved_events {
  std::deque<std::string> names;  ///< what the events' texts point into
  std::vector<journal_event> events;
  inspection_snapshot open;  ///< runtime, uptime, and the ids of operations and leases
};
/// Empty where the snapshot was saved without them.
std::optional<saved_events> events_of(const nlohmann::json& snapshot);

health health_of(const nlohmann::json& snapshot);

}  // namespace kvlease::inspect
