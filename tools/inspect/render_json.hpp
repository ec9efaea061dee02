// What the inspection port tells, as JSON: times in seconds under names that end in _seconds, ids as text,
// `schema_version` on top. Members are only ever added within one version.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/include/kvlease/inspection.hpp"

namespace kvlease::inspect {

/// `explained`: answers to `why` that travel with the snapshot, so that a saved file has them too.
std::string snapshot_json(const inspection_snapshot& s, health state,
                          std::span<const explanation> explained = {});
std::string why_json(const explanation& e);
std::string metrics_json(const inspection_metrics& m);
std::string health_json(health state, bool fatal, std::uint64_t exposure_bytes);
/// One line without its end.
std::string event_json(const journal_event& e);
/// Stands between events where some were overwritten before they could be read.
std::string lost_json(std::uint64_t lost);
std::string error_json(std::string_view text);

/// "1.7", from the value of an id of any kind.
std::string id_text(std::uint64_t value);

}  // namespace kvlease::inspect
