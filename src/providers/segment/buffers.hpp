// The bounce buffers of a segment store: 4 KiB-aligned memory for what can't go straight between a slot on
// disk and leased memory (header blocks, unaligned units, first reads after a restart). All of them together
// stay within a bound; who finds none is granted one later, first come, first served.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace kvlease {

class buffer_pool;

/// Returns to its pool by itself, which outlives it.
class aligned_buffer {
 public:
  aligned_buffer() = default;
  aligned_buffer(aligned_buffer&& other) noexcept { swap(other); }
  aligned_buffer& operator=(aligned_buffer&& other) noexcept {
    aligned_buffer gone;
    gone.swap(*this);
    swap(other);
    return *this;
  }
  ~aligned_buffer();
  explicit operator bool() const noexcept { return pool_ != nullptr; }
  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  friend class buffer_pool;
  void swap(aligned_buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  buffer_pool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class buffer_waiter {
 public:
  virtual ~buffer_waiter() = default;
  /// On the thread that gave the buffer back, with no lock of the pool held.
  virtual void granted(aligned_buffer buffer) = 0;
};

/// Thread-safe.
class buffer_pool {
 public:
  /// `bound`: bytes at once. One buffer that is larger is handed out when nothing else is.
  explicit buffer_pool(std::size_t bound) : bound_{bound} {}
  ~buffer_pool();
  buffer_pool(const buffer_pool&) = delete;
  buffer_pool& operator=(const buffer_pool&) = delete;

  /// `size` bytes or more, a multiple of 4 KiB; or nothing, and then `waiter` will be granted it. Throws
  /// std::bad_alloc.
  aligned_buffer take(std::size_t size, const std::shared_ptr<buffer_waiter>& waiter);
  std::size_t bytes_out() const;
  std::size_t waiting() const;

 private:
  friend class aligned_buffer;
  struct claim {
    std::shared_ptr<buffer_waiter> waiter;
    std::size_t size;
  };
  bool fits(std::size_t size) const { return out_ == 0 || size <= bound_ - std::min(bound_, out_); }
  std::byte* allocate(std::size_t size);
  aligned_buffer hand_out(std::size_t size);
  void give_back(std::byte* data, std::size_t size) noexcept;

  const std::size_t bound_;
  mutable std::mutex mutex_;
  std::size_t out_ = 0;   ///< bytes handed out
  std::size_t kept_ = 0;  ///< bytes of kept buffers
  std::map<std::size_t, std::vector<std::byte*>> spare_;
  std::deque<claim> waiters_;
};

}  // namespace kvlease
