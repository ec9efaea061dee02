// `kvlease bench`: copy, detection, inspection and the providers.
#pragma once

#include <ostream>
#include <string>

#include "tools/bench/inspection_bench.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/redis_bench.hpp"
#include "tools/bench/segment_bench.hpp"
#include "tools/bench/ucx_bench.hpp"

namespace kvlease {

/// Runs it and prints what it found. `command` is what was typed, for the record. Exit status: 0; 1 when
/// something was copied wrongly or must not be; 2 for bad usage; 3 when there is no such device, with the
/// reason; 4 when a call of the device failed on the way.
int run_bench_copy(const bench::copy_options& options, const std::string& command, std::ostream& out,
                   std::ostream& err);
int run_bench_detection(const bench::detection_options& options, const std::string& command,
                        std::ostream& out, std::ostream& err);
int run_bench_inspection(const bench::inspection_options& options, std::ostream& out, std::ostream& err);
int run_bench_redis(const bench::redis_options& options, std::ostream& out, std::ostream& err);
int run_bench_segment(const bench::segment_bench_options& options, std::ostream& out, std::ostream& err);
int run_bench_ucx(const bench::ucx_bench_options& options, std::ostream& out, std::ostream& err);

}  // namespace kvlease
