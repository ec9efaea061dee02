#include "src/providers/ucx/export_pool.hpp"

#include <cstring>
#include <iterator>
#include <utility>

#include "src/providers/unit_frame.hpp"

namespace kvlease {

namespace {

/// No two pairs of names have the same key.
std::string key_of(const bytes& extent, const bytes& name) {
  return std::to_string(extent.size()) + ':' + extent + name;
}

}  // namespace

std::optional<export_pool::put_result> export_pool::known_locked(const std::string& key, std::size_t size) {
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  if (it->second->content->size != size) return put_result::other_size;
  by_use_.splice(by_use_.begin(), by_use_, it->second);
  return put_result::kept;
}

bool export_pool::reserve_locked(std::size_t size) {
  if (size > capacity_) return false;
  for (auto it = by_use_.end(); capacity_ - bytes_ < size && it != by_use_.begin();) {
    --it;
    // Pins are made under this lock, so nobody can take one of an entry that only the pool holds.
    if (it->content.use_count() > 1) continue;
    bytes_ -= it->content->size;
    index_.erase(it->key);
    it = by_use_.erase(it);
  }
  if (capacity_ - bytes_ < size) return false;
  bytes_ += size;
  return true;
}

export_pool::put_result export_pool::put(const kvlease::bytes& extent, const kvlease::bytes& name,
                                         std::span<const std::byte> data) {
  auto key = key_of(extent, name);
  {
    const std::lock_guard lock{mutex_};
    if (const auto known = known_locked(key, data.size())) return *known;
    if (!reserve_locked(data.size())) return put_result::full;
  }
  auto made = std::make_shared<entry>();
  try {
    made->data = std::make_unique_for_overwrite<std::byte[]>(data.size());
  } catch (...) {
    const std::lock_guard lock{mutex_};
    bytes_ -= data.size();
    throw;
  }
  if (!data.empty()) std::memcpy(made->data.get(), data.data(), data.size());
  made->size = data.size();
  made->checksum = checksum_of(made->bytes());
  const std::lock_guard lock{mutex_};
  if (const auto known = known_locked(key, data.size())) {  // somebody was faster
    bytes_ -= data.size();
    return *known;
  }
  by_use_.push_front({std::move(key), std::move(made)});
  index_.emplace(by_use_.front().key, by_use_.begin());
  return put_result::added;
}

export_pool::pin export_pool::get(const kvlease::bytes& extent, const kvlease::bytes& name) {
  const auto key = key_of(extent, name);
  const std::lock_guard lock{mutex_};
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, it->second);
  return it->second->content;
}

std::optional<std::size_t> export_pool::find(const kvlease::bytes& extent, const kvlease::bytes& name) const {
  const auto key = key_of(extent, name);
  const std::lock_guard lock{mutex_};
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  return it->second->content->size;
}

std::size_t export_pool::bytes() const {
  const std::lock_guard lock{mutex_};
  return bytes_;
}

std::size_t export_pool::units() const {
  const std::lock_guard lock{mutex_};
  return by_use_.size();
}

}  // namespace kvlease
