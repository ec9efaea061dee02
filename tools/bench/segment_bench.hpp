// `kvlease bench segment`: the segment store beside fio, with the same pattern in the same directory and in
// turns: O_DIRECT, io_uring, one queue depth, random over the same bytes.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "messages/error.hpp"
#include "tools/bench/statistics.hpp"

namespace kvlease::bench {

struct segment_bench_options {
  std::string directory;  ///< empty: a temporary one; what the bench makes there goes with it
  std::string bytes = "1G";
  std::string sizes = "64K,1M,4M";
  unsigned depth = 16;
  std::size_t rounds = 5;
  std::string engine = "auto";
  std::string fio = "fio";  ///< the command; "off": the store alone
  std::string json_path;
  bool quiet = false;
};

struct segment_bench_line {
  std::size_t unit_bytes = 0;
  std::size_t units = 0;  ///< of each pass
  bool writes = false;
  spread store, fio;  ///< GB/s; fio's is empty without it
};

struct segment_bench_report {
  std::string provider;     ///< what it says of itself
  std::string fio_version;  ///< empty without it
  std::vector<segment_bench_line> lines;
  double checksum_gb_s =
      0;  ///< one pass over memory that is in no cache: what the store does and fio does not
  std::size_t failed_units = 0;  ///< not accepted, or not served
};

/// Errors: invalid (an option, its value, the rule; fio that is not there, and how to get it); io.
result<segment_bench_report> run_segment_bench(const segment_bench_options& options);
void print(const segment_bench_report& r, std::ostream& out);
nlohmann::ordered_json to_json(const segment_bench_report& r);

}  // namespace kvlease::bench
