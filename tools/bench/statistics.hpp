// Figures of repeated measurements.
#pragma once

#include <cstddef>
#include <vector>

namespace kvlease::bench {

/// Interpolated between the nearest two. Preconditions: not empty; 0 <= q <= 1.
double quantile(std::vector<double> values, double q);

/// A median with its spread. All 0 when there was no sample.
struct spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  std::size_t samples = 0;
};

spread spread_of(std::vector<double> values);

/// CPU time of the calling thread, in seconds.
double thread_cpu_seconds();

}  // namespace kvlease::bench
