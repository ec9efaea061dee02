#include "tools/bench/statistics.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <ctime>

namespace kvlease::bench {

namespace {

double of_sorted(const std::vector<double>& sorted, double q) {
  assert(!sorted.empty() && q >= 0 && q <= 1);
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(at));
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return of_sorted(values, q);
}

spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {of_sorted(values, 0.1), of_sorted(values, 0.5), of_sorted(values, 0.9), of_sorted(values, 0.99),
          values.size()};
}

double thread_cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace kvlease::bench
