// The metrics of some runtimes in Prometheus' text format. Base units, and label sets that are closed: their
// number follows from the configuration, never from requests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/include/kvlease/inspection.hpp"

namespace kvlease::inspect {

struct runtime_metrics {
  std::string name;  ///< the value of the label `runtime`
  health state = health::healthy;
  inspection_metrics values;
};

inline constexpr std::string_view metrics_content_type = "text/plain; version=0.0.4; charset=utf-8";

std::string metrics_text(std::span<const runtime_metrics> runtimes);

}  // namespace kvlease::inspect
