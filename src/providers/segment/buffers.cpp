#include "src/providers/segment/buffers.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "src/providers/segment/layout.hpp"

namespace kvlease {

namespace {

/// Few sizes, so that a buffer fits who comes next.
std::size_t rounded(std::size_t size) { return unit_bytes_for(size); }

}  // namespace

aligned_buffer::~aligned_buffer() {
  if (pool_ != nullptr) pool_->give_back(data_, size_);
}

buffer_pool::~buffer_pool() {
  for (auto& [size, all] : spare_)
    for (auto* data : all) std::free(data);
}

std::byte* buffer_pool::allocate(std::size_t size) {
  if (auto it = spare_.find(size); it != spare_.end() && !it->second.empty()) {
    auto* data = it->second.back();
    it->second.pop_back();
    kept_ -= size;
    return data;
  }
  // What is kept for other sizes counts too.
  for (auto it = spare_.begin(); it != spare_.end() && kept_ > 0 && out_ + kept_ + size > bound_; ++it)
    while (!it->second.empty() && out_ + kept_ + size > bound_) {
      std::free(it->second.back());
      it->second.pop_back();
      kept_ -= it->first;
    }
  auto* data = static_cast<std::byte*>(std::aligned_alloc(disk_block, size));
  if (data == nullptr) throw std::bad_alloc{};
  return data;
}

aligned_buffer buffer_pool::hand_out(std::size_t size) {
  aligned_buffer b;
  b.data_ = allocate(size);
  b.size_ = size;
  b.pool_ = this;
  out_ += size;
  return b;
}

aligned_buffer buffer_pool::take(std::size_t size, const std::shared_ptr<buffer_waiter>& waiter) {
  size = rounded(size);
  const std::lock_guard lock{mutex_};
  if (waiters_.empty() && fits(size)) return hand_out(size);
  waiters_.push_back({waiter, size});
  return {};
}

void buffer_pool::give_back(std::byte* data, std::size_t size) noexcept {
  std::vector<std::pair<std::shared_ptr<buffer_waiter>, aligned_buffer>> granted;
  {
    const std::lock_guard lock{mutex_};
    out_ -= size;
    spare_[size].push_back(data);
    kept_ += size;
    while (!waiters_.empty() && fits(waiters_.front().size)) {
      auto buffer = hand_out(waiters_.front().size);
      granted.emplace_back(std::move(waiters_.front().waiter), std::move(buffer));
      waiters_.pop_front();
    }
  }
  for (auto& [waiter, buffer] : granted) waiter->granted(std::move(buffer));
}

std::size_t buffer_pool::bytes_out() const {
  const std::lock_guard lock{mutex_};
  return out_;
}

std::size_t buffer_pool::waiting() const {
  const std::lock_guard lock{mutex_};
  return waiters_.size();
}

}  // namespace kvlease
