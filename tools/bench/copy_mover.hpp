// Ways to move a case's batches, each as the same two calls.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "tools/bench/target.hpp"

namespace kvlease::bench {

class mover {
 public:
  virtual ~mover() = default;
  /// Before a sample, outside its time.
  virtual result<void> prepare() { return {}; }
  /// Enqueues the next batch and records an event behind it. Errors: capacity when that has to wait for a
  /// batch before it; device.
  virtual result<void> submit() = 0;
  /// Whether everything submitted has ended. Never waits.
  virtual result<bool> finished() = 0;
  /// How many batches it cycles through.
  virtual std::size_t cycle() const noexcept = 0;
};

/// The device under test.
class port_mover final : public mover {
 public:
  /// `before`: marked anew before each sample; its event is the batches' own `after`. May be null.
  port_mover(device_port& device, std::vector<std::shared_ptr<const copy_batch>> batches,
             std::shared_ptr<lane> before = nullptr);
  result<void> prepare() override;
  result<void> submit() override;
  result<bool> finished() override;
  std::size_t cycle() const noexcept override { return batches_.size(); }

 private:
  device_port& device_;
  std::vector<std::shared_ptr<const copy_batch>> batches_;
  std::shared_ptr<lane> before_;
  std::size_t next_ = 0;
  std::deque<device_event> pending_;
};

/// The ceiling: one copy of contiguous memory a batch.
class one_copy_mover final : public mover {
 public:
  one_copy_mover(std::shared_ptr<lane> on, copy_kind kind, std::vector<copy_row> copies);
  result<void> submit() override;
  result<bool> finished() override;
  std::size_t cycle() const noexcept override { return copies_.size(); }

 private:
  std::shared_ptr<lane> on_;
  const copy_kind kind_;
  std::vector<copy_row> copies_;
  std::size_t next_ = 0;
};

/// Both directions at once: a batch of each.
class pair_mover final : public mover {
 public:
  pair_mover(std::unique_ptr<mover> in, std::unique_ptr<mover> out);
  result<void> prepare() override;
  result<void> submit() override;
  result<bool> finished() override;
  std::size_t cycle() const noexcept override { return std::max(in_->cycle(), out_->cycle()); }

 private:
  std::unique_ptr<mover> in_, out_;
  bool in_submitted_ = false;  ///< of a pair whose other half has to wait
};

}  // namespace kvlease::bench
