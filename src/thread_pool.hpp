// The executor of production: a bounded number of threads that may be blocked by a provider (semantics 7.2).
// An exception that escapes a job is counted and costs nothing but that job. A thread that is stuck when the
// pool goes is left behind with what it holds (7.8): everything that it uses is shared.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/include/kvlease/provider.hpp"

namespace kvlease {

class thread_pool final : public executor {
 public:
  /// `threads` at least 1. `patience`: how long the destructor waits for running jobs.
  thread_pool(const std::string& name, std::size_t threads, std::chrono::nanoseconds patience);
  ~thread_pool() override;
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  void post(std::function<void()> job) override;
  void post_after(std::chrono::nanoseconds delay, std::function<void()> job) override;
  time_point now() const override { return std::chrono::steady_clock::now(); }

  struct figures {
    std::size_t threads = 0;
    std::size_t busy = 0;
    std::size_t queued = 0;
    std::uint64_t escaped = 0;  ///< exceptions out of jobs
  };
  figures look() const;
  /// Takes no more jobs, drops what is queued, waits for running ones at most `patience`. Answers how many
  /// threads were left behind. The destructor does it, unless it was done.
  std::size_t close();

 private:
  struct shared;
  std::shared_ptr<shared> shared_;
};

}  // namespace kvlease
