// What a bench is asked to do: the command line's values, and the same checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/copies.hpp"
#include "messages/error.hpp"
#include "src/copy_path.hpp"
#include "tools/device_choice.hpp"

namespace kvlease::bench {

struct copy_options {
  std::string device = "cuda";
  std::string rows = "4K,16K,64K,256K,1M";
  std::string totals = "1M,4M,16M,64M,512M";
  std::string direction = "all";
  std::string paths = "rows,batch,kernel,bulk,selected";
  std::size_t repetitions = 11;
  std::string min_time = "50ms";
  std::size_t in_flight = 1;
  std::string window = "128M";
  unsigned sm_budget = 64;
  std::string chunk = "32M";
  std::string bounce = "128M";
  bool load = false;
  bool both = false;
  bool no_grid = false;
  std::string sweep;
  std::string table_path;
  std::string json_path;
  std::uint64_t seed = 1;
  bool quiet = false;
};

struct copy_bench_plan {
  device_choice device;
  std::vector<std::size_t> rows;
  std::vector<std::size_t> totals;
  std::vector<copy_kind> directions;
  std::vector<copy_path> paths;  ///< forced, each
  bool selected = true;          ///< also what the table chooses
  std::size_t repetitions = 0;
  std::chrono::duration<double> min_time{};
  std::size_t in_flight = 1;
  std::size_t window_bytes = 0;
  unsigned sm_budget = 0;
  std::size_t chunk_bytes = 0;
  std::size_t bounce_bytes = 0;
  bool load = false;
  bool both = false;
  bool grid = true;
  bool sweep = false;
  std::uint64_t seed = 0;

  std::size_t most_total() const;
  /// Of rows and totals: a batch has at least one row.
  static bool makes_a_batch(std::size_t row, std::size_t total) { return row <= total; }
};

/// Errors name the option, its value and the rule.
result<copy_bench_plan> plan_copy_bench(const copy_options& options);

struct detection_options {
  std::string device = "cuda";
  std::size_t rounds = 2000;
  std::string holds = "100us,1ms,5ms";
  std::string pending = "0,1,100,10000";
  std::string watch = "2s";
  std::string json_path;
  bool quiet = false;
};

struct detection_plan {
  device_choice device;
  std::size_t rounds = 0;
  std::vector<std::chrono::nanoseconds> holds;  ///< how long a copy is pending before it may end
  std::vector<std::size_t> pending;
  std::chrono::nanoseconds watch{};
};

result<detection_plan> plan_detection(const detection_options& options);

/// "64K", "1M", "2G", or plain bytes; powers of 1024. Errors: invalid.
result<std::size_t> parse_size(const std::string& text);
/// "64K": the largest unit that divides it.
std::string size_text(std::size_t bytes);

}  // namespace kvlease::bench
