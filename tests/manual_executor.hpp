// An executor on virtual time: nothing runs unless the test says so, always on the test's own thread and in
// the same order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "kvlease/provider.hpp"

namespace kvlease::test {

class manual_executor final : public executor {
 public:
  void post(std::function<void()> job) override { post_after(std::chrono::nanoseconds{0}, std::move(job)); }

  void post_after(std::chrono::nanoseconds delay, std::function<void()> job) override {
    jobs_.emplace(std::pair{now_ + delay, ++sequence_}, std::move(job));
  }

  time_point now() const override { return now_; }

  std::size_t pending() const { return jobs_.size(); }

  /// Runs the next job that is due now; false when none is.
  bool run_one() {
    if (jobs_.empty() || jobs_.begin()->first.first > now_) return false;
    const auto job = std::move(jobs_.extract(jobs_.begin()).mapped());
    job();
    return true;
  }

  /// Runs what is due now, and what that makes due now.
  void run_all() {
    while (run_one()) continue;
  }

  /// Moves time on, job by job: each sees the time that it was due at.
  void advance(std::chrono::nanoseconds by) {
    const time_point end = now_ + by;
    run_all();
    while (!jobs_.empty() && jobs_.begin()->first.first <= end) {
      now_ = jobs_.begin()->first.first;
      run_all();
    }
    now_ = end;
  }

  /// As an executor that dies: its jobs never run.
  void drop_all() { const auto gone = std::exchange(jobs_, {}); }

 private:
  std::multimap<std::pair<time_point, std::uint64_t>, std::function<void()>> jobs_;
  std::uint64_t sequence_ = 0;
  time_point now_{};
};

}  // namespace kvlease::test
