// What `kvlease bench copy` found: for people, as JSON, and as a table for the choice of path.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "src/copy_path.hpp"
#include "tools/bench/statistics.hpp"
#include "tools/bench/target.hpp"

namespace kvlease::bench {

inline constexpr int copy_schema_version = 1;

/// One way to copy, in one cell.
struct copy_series {
  std::string name;
  std::optional<copy_path> path;  ///< that was forced
  std::optional<unsigned> sm_budget;
  std::optional<std::size_t> chunk_bytes;
  spread gbps;  ///< 10^9 bytes a second
  spread batch_us;
  double cpu_us_batch = 0;  ///< mean
  double cpu_us_row = 0;
  double share = 0;                 ///< of the ceiling, by medians
  std::optional<double> load_kept;  ///< the load's rate beside these copies / its rate alone
  std::string took;                 ///< the paths taken; empty when it was the one that was forced
};

enum class copy_section : std::uint8_t { grid, both, sweep };

struct copy_cell {
  copy_section section = copy_section::grid;
  std::optional<copy_kind> kind;  ///< absent: both directions at once
  device_load load = device_load::idle;
  std::size_t row_bytes = 0;
  std::size_t total_bytes = 0;      ///< of a batch, of each direction
  double load_alone = 0;            ///< operations a second
  std::vector<copy_series> series;  ///< the ceiling first
};

struct copy_report {
  target_facts facts;
  std::string date;     ///< UTC
  std::string command;  ///< as typed
  std::size_t in_flight = 1;
  std::size_t repetitions = 0;
  std::size_t window_bytes = 0;
  std::vector<copy_cell> cells;
  std::vector<std::string> wrong;  ///< a line for each way that copied wrongly
  double seconds = 0;
};

/// The fastest forced path of each cell of the grid. Of those within 1 % of the fastest, the one that the
/// load loses least by, and without a load the one with the least CPU time.
copy_table table_of(const copy_report& report);

nlohmann::ordered_json to_json(const copy_report& report);

/// A headline for the series that follow, and one line a cell as it is measured.
void print_head(const copy_report& report, std::ostream& out);
void print_cell(const copy_cell& cell, std::ostream& out);
/// CPU cost, what the load kept, and what was wrong.
void print_rest(const copy_report& report, std::ostream& out);

}  // namespace kvlease::bench
