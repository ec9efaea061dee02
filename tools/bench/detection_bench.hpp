// `kvlease bench detection`: how soon the end of a copy is known, and what it costs to wait for it.
#pragma once

#include "tools/bench/detection_report.hpp"
#include "tools/bench/options.hpp"

namespace kvlease::bench {

/// Runs the CUDA actor over a device of `on`. Errors: of the device; timeout when nothing is heard of a copy.
result<void> run_detection_bench(const detection_plan& plan, target& on, detection_report& report);

}  // namespace kvlease::bench
