// Times several movers in turn, so that whatever drifts on the machine strikes all of them alike.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tools/bench/copy_mover.hpp"

namespace kvlease::bench {

struct measure_options {
  std::size_t repetitions = 11;               ///< samples of each mover, at least
  std::chrono::duration<double> min_time{};   ///< of each mover's samples in sum, at least
  std::chrono::duration<double> slice{1e-3};  ///< a mover's turn: one sample, or as many as fit
  std::size_t in_flight = 1;                  ///< batches of one sample, submitted back to back
};

/// What one mover took, a batch.
struct samples {
  std::vector<double> seconds;      ///< from before the enqueue until its event was seen complete
  std::vector<double> cpu_seconds;  ///< of enqueue and record
  double load_rate = 0;             ///< operations a second of the load beside it
};

struct measured {
  std::vector<samples> movers;
  double load_alone = 0;  ///< operations a second of the load with no copy beside it, in the same turns
};

/// Moves every batch once to warm up, then takes samples in turns. `load` may be null.
/// Errors: of the device; timeout when a sample takes 30 s.
result<measured> measure(std::span<mover* const> movers, const measure_options& options, busy_load* load);

}  // namespace kvlease::bench
