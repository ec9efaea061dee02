// A device between the runtime and the real one, which notes what it is asked for and on which thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/include/kvlease/device_port.hpp"

namespace kvlease::test {

class noting_device final : public device_port {
 public:
  explicit noting_device(std::shared_ptr<device_port> to) : to_{std::move(to)} {}

  /// `batch->after` of each batch to the host, in their order.
  std::vector<std::uintptr_t> read_behind() const {
    const std::lock_guard lock{notes_->mutex};
    return notes_->read_behind;
  }
  /// The threads on which its memory was given back.
  std::vector<std::thread::id> freed_on() const {
    const std::lock_guard lock{notes_->mutex};
    return notes_->freed_on;
  }

  std::string describe() const override { return to_->describe(); }
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t nbytes) override {
    return noted(to_->allocate_device(nbytes));
  }
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t nbytes) override {
    return noted(to_->allocate_staging(nbytes));
  }
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t address,
                                                         std::size_t nbytes) override {
    return noted(to_->register_staging(address, nbytes));
  }
  bool reaches(std::uintptr_t address, std::size_t nbytes) const override {
    return to_->reaches(address, nbytes);
  }
  bool spins() const override { return to_->spins(); }
  result<void> bind_thread() override { return to_->bind_thread(); }
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override {
    if (batch->kind == copy_kind::device_to_host) {
      const std::lock_guard lock{notes_->mutex};
      notes_->read_behind.push_back(batch->after);
    }
    return to_->enqueue(std::move(batch));
  }
  result<device_event> record(copy_kind kind) override { return to_->record(kind); }
  result<event_state> query(device_event e) override { return to_->query(e); }
  void recycle(device_event e) override { to_->recycle(e); }
  std::optional<error> lost() const override { return to_->lost(); }

 private:
  struct notes {
    std::mutex mutex;
    std::vector<std::uintptr_t> read_behind;
    std::vector<std::thread::id> freed_on;
  };
  struct block final : memory_block {
    block(std::shared_ptr<memory_block> b, std::shared_ptr<notes> n)
        : inner{std::move(b)}, to{std::move(n)} {}
    ~block() override {
      const std::lock_guard lock{to->mutex};
      to->freed_on.push_back(std::this_thread::get_id());
    }
    std::uintptr_t address() const noexcept override { return inner->address(); }
    std::size_t size() const noexcept override { return inner->size(); }
    std::shared_ptr<memory_block> inner;
    std::shared_ptr<notes> to;
  };
  result<std::shared_ptr<memory_block>> noted(result<std::shared_ptr<memory_block>> made) {
    if (!made) return made;
    return std::make_shared<block>(*std::move(made), notes_);
  }

  const std::shared_ptr<device_port> to_;
  const std::shared_ptr<notes> notes_ = std::make_shared<notes>();
};

}  // namespace kvlease::test
