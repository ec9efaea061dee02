// Plain loops over several threads, for host memory by the gigabyte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace kvlease::bench {

/// Calls work(first, last) for parts of [0, count), each on a thread of its own, and waits. `least` is worth
/// a thread.
template <class F>
void in_parallel(std::size_t count, std::size_t least, F work) {
  const std::size_t cores = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  const std::size_t parts = std::clamp<std::size_t>(count / std::max<std::size_t>(least, 1), 1, cores);
  if (parts == 1) return work(std::size_t{0}, count);
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < parts; ++p)
    threads.emplace_back(
        [&work, first = count * p / parts, last = count * (p + 1) / parts] { work(first, last); });
  for (auto& t : threads) t.join();
}

}  // namespace kvlease::bench
