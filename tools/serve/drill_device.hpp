// A device whose next copy into pages can be made to last, or to get lost: for drills, and for tests that
// want to see how the inspection shows it. All else goes to the device behind it. Threads: hold_next and
// lose_next on any; the rest as the port says.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "src/include/kvlease/device_port.hpp"

namespace kvlease::serve {

class drill_device final : public device_port {
 public:
  explicit drill_device(std::shared_ptr<device_port> inner) : inner_{std::move(inner)} {}

  /// The next event behind copies from host to device is pending for at least so long.
  void hold_next(std::chrono::nanoseconds span);
  /// Nothing can be said about it, ever.
  void lose_next();

  std::string describe() const override { return inner_->describe(); }
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t n) override {
    return inner_->allocate_device(n);
  }
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t n) override {
    return inner_->allocate_staging(n);
  }
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t address, std::size_t n) override {
    return inner_->register_staging(address, n);
  }
  bool reaches(std::uintptr_t address, std::size_t n) const override { return inner_->reaches(address, n); }
  result<void> bind_thread() override { return inner_->bind_thread(); }
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override {
    return inner_->enqueue(std::move(batch));
  }
  result<device_event> record(copy_kind kind) override;
  result<event_state> query(device_event e) override;
  void recycle(device_event e) override;
  std::optional<error> lost() const override { return inner_->lost(); }

 private:
  struct fate {
    bool lost = false;
    std::chrono::steady_clock::time_point until;
  };
  const std::shared_ptr<device_port> inner_;
  std::mutex mutex_;
  std::optional<std::chrono::nanoseconds> hold_;
  bool lose_ = false;
  std::unordered_map<std::uint64_t, fate> fates_;  ///< by event
};

}  // namespace kvlease::serve
