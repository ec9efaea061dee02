// Keeps one worker of the scheduler from going to sleep: waking it takes longer than seeing an event does.
// Two actors pass a token to and fro until a point in time that their owner moves on.
#pragma once

#include <atomic>
#include <caf/actor.hpp>
#include <chrono>
#include <memory>

#include "messages/cuda.hpp"

namespace kvlease {

class stay_awake {
 public:
  /// The two end with their owner.
  explicit stay_awake(cuda_actor::pointer owner);
  ~stay_awake();
  stay_awake(const stay_awake&) = delete;
  stay_awake& operator=(const stay_awake&) = delete;
  /// On the owner's thread.
  void until(std::chrono::steady_clock::time_point when);

  struct passing {
    std::atomic<std::int64_t> until{0};  ///< steady_clock
    std::atomic<bool> going{false};
  };

 private:
  std::shared_ptr<passing> state_ = std::make_shared<passing>();
  caf::actor first_, second_;
};

}  // namespace kvlease
