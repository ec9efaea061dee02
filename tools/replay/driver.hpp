// The life of one request on an instance, as a serving engine leads it: fetch what others published, compute
// the rest, publish that, exit. And its abort, at a point that follows from the seed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/thread_pool.hpp"
#include "tools/replay/instance.hpp"
#include "tools/replay/report.hpp"

namespace kvlease::replay {

/// What all requests of a run share. Thread-safe.
struct run_context {
  explicit run_context(const replay_plan& p)
      : plan{p}, outcomes_of(p.work.requests.size()), timer{"kvl-retry", 1, std::chrono::milliseconds{200}} {}

  const replay_plan& plan;
  std::atomic<bool> stop{false};  ///< fatal: nothing more is begun
  std::atomic<std::uint64_t> fetched{0}, published{0}, local_hits{0}, wrong{0}, aborted{0}, not_run{0},
      done{0}, not_leased{0}, retained{0}, operations{0};
  std::atomic<std::uint64_t> open{0};          ///< operations that may still be released
  std::atomic<std::uint64_t> unsuccessful{0};  ///< of those, with another outcome than delivered
  std::atomic<std::uint64_t> kept{0};          ///< operations retained for good
  std::vector<std::string> outcomes_of;        ///< by request; each written by the one thread that runs it
  latency_log latencies;
  thread_pool timer;  ///< retries of disputed proofs

  void count_outcome(const outcome& value, std::size_t units);
  void problem(std::string what);
  outcome_counts outcomes();
  std::vector<std::string> problems();

 private:
  std::mutex mutex_;
  outcome_counts outcomes_;
  std::vector<std::string> problems_;
};

/// Runs request `index` of the plan's trace on `on`. Blocks until the request has exited; its operations may
/// still wait for proofs.
void run_request(run_context& run, instance& on, std::size_t index);

}  // namespace kvlease::replay
