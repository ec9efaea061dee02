// `kvlease bench copy`: each path beside one large copy of the same bytes, in turns.
#pragma once

#include <functional>

#include "tools/bench/copy_report.hpp"
#include "tools/bench/options.hpp"

namespace kvlease::bench {

/// Fills `report` cell by cell, and calls `measured` after each. What was copied wrongly is in the report.
/// Errors: of the device; no_memory.
result<void> run_copy_bench(const copy_bench_plan& plan, target& on, copy_report& report,
                            const std::function<void(const copy_cell&)>& measured);

}  // namespace kvlease::bench
