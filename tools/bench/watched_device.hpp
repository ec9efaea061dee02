// A device between the CUDA actor and the real one, which notes what the actor does and when.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "src/include/kvlease/device_port.hpp"

namespace kvlease::bench {

/// The port's calls come from the actor's thread; what it noted may be read on any.
class watched_device final : public device_port {
 public:
  explicit watched_device(std::shared_ptr<device_port> watched);

  bool bound() const noexcept { return bound_.load(std::memory_order_acquire); }
  /// CPU time of the thread that called bind_thread(). Preconditions: bound(), and that thread still runs.
  double cpu_seconds() const;
  std::uint64_t recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }
  /// When a query last said complete: nanoseconds of steady_clock.
  std::int64_t seen_complete() const noexcept { return seen_.load(std::memory_order_acquire); }

  std::string describe() const override { return to_->describe(); }
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t nbytes) override;
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t nbytes) override;
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t address, std::size_t nbytes) override;
  bool reaches(std::uintptr_t address, std::size_t nbytes) const override;
  bool spins() const override { return to_->spins(); }
  result<void> bind_thread() override;
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override;
  result<device_event> record(copy_kind kind) override;
  result<event_state> query(device_event e) override;
  void recycle(device_event e) override { to_->recycle(e); }
  std::optional<error> lost() const override { return to_->lost(); }

 private:
  const std::shared_ptr<device_port> to_;
  std::atomic<bool> bound_{false};
  clockid_t clock_{};
  std::atomic<std::uint64_t> recorded_{0};
  std::atomic<std::int64_t> seen_{0};
};

/// Nanoseconds of steady_clock.
std::int64_t steady_ns();

}  // namespace kvlease::bench
