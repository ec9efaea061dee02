// `kvlease bench ucx`: fetches over ucx:// between two providers, beside ucx_perftest's active-message
// bandwidth test, in turn, with the same transport settings on the loopback device.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "messages/error.hpp"
#include "tools/bench/statistics.hpp"

namespace kvlease::bench {

struct ucx_bench_options {
  std::string sizes = "256K,1M,4M";
  std::string bytes = "512M";  ///< a round and a way
  std::size_t rounds = 7;
  std::string json_path;
  bool quiet = false;
};

struct ucx_bench_line {
  std::size_t size = 0;   ///< bytes of a unit
  spread raw, ours;       ///< GB/s: of ucx_perftest, of fetches
  double ratio = 0;       ///< of the medians
  std::size_t wrong = 0;  ///< units whose bytes were not those published
};

struct ucx_bench_report {
  std::size_t rounds = 0, bytes = 0;
  std::vector<ucx_bench_line> lines;
};

/// Errors: invalid for a size or count; unsupported without UCX; provider for a transfer that failed; io
/// where ucx_perftest could not be run, with what it said.
result<ucx_bench_report> run_ucx_bench(const ucx_bench_options& options);
void print(const ucx_bench_report& r, std::ostream& out);
nlohmann::ordered_json to_json(const ucx_bench_report& r);

}  // namespace kvlease::bench
