// What the inspection port tells, as JSON: times in seconds under names that end in _seconds, ids as text,
// `schema_version` on top. Members are only ever added within one version.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/include/kvlease/inspection.hpp"

namespace kvlease::inspect {

/// What the host waits for while it ends: a runtime alone does not know.
struct drain_note {
  std::string waits_for;  ///< "requests", then "evidence"
  std::size_t requests_open = 0;
  std::chrono::nanoseconds deadline_in{};  ///< negative: past
};

/// What travels with a snapshot, so that a saved file has it too.
struct snapshot_extras {
  std::span<const explanation> explained = {};  ///< answers to `why`
  std::optional<inspection_metrics> metrics;
  std::optional<std::vector<journal_event>> events;  ///< the journal's last ones
  std::optional<drain_note> drain;
  std::size_t index = 0, runtimes = 1;  ///< which of a process' runtimes it is
};

std::string snapshot_json(const inspection_snapshot& s, health state, const snapshot_extras& with = {});
std::string why_json(const explanation& e);
std::string metrics_json(const inspection_metrics& m);
struct runtime_health {
  std::size_t index = 0;
  health state = health::healthy;
  bool fatal = false;
  std::uint64_t exposure_bytes = 0;
};
/// The worst of them, and each.
std::string health_json(std::span<const runtime_health> runtimes,
                        const std::optional<drain_note>& drain = {});
/// One line without its end.
std::string event_json(const journal_event& e);
/// Stands between events where some were overwritten before they could be read.
std::string lost_json(std::uint64_t lost);
std::string error_json(std::string_view text);

/// "1.7", from the value of an id of any kind.
std::string id_text(std::uint64_t value);

}  // namespace kvlease::inspect
