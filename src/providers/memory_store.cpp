#include "src/providers/memory_store.hpp"

#include <functional>
#include <utility>

namespace kvlease {

namespace {

/// The extent's length in front keeps ("a", "bc") apart from ("ab", "c").
std::string key_of(const bytes& extent, const bytes& name) {
  std::string key = std::to_string(extent.size());
  key.reserve(key.size() + 1 + extent.size() + name.size());
  return key.append(1, ':').append(extent).append(name);
}

}  // namespace

std::list<memory_store::entry>::iterator memory_store::shard::find(std::string_view key) {
  const auto it = index.find(key);
  return it == index.end() ? by_use.end() : it->second;
}

void memory_store::shard::use(std::list<entry>::iterator it, std::uint64_t tick) {
  it->used = tick;
  by_use.splice(by_use.begin(), by_use, it);
  note_oldest();
}

void memory_store::shard::note_oldest() {
  oldest.store(by_use.empty() ? never : by_use.back().used, std::memory_order_relaxed);
}

memory_store::shard& memory_store::shard_of(const std::string& key) {
  return shards_[std::hash<std::string>{}(key) % shard_count];
}

const memory_store::shard& memory_store::shard_of(const std::string& key) const {
  return shards_[std::hash<std::string>{}(key) % shard_count];
}

memory_store::put_result memory_store::put_again(shard& in, std::list<entry>::iterator it, std::size_t size) {
  if (it->data->size() != size) return put_result::other_size;
  in.use(it, ++tick_);
  return put_result::kept;
}

memory_store::put_result memory_store::put(const kvlease::bytes& extent, const kvlease::bytes& name,
                                           std::span<const std::byte> data) {
  std::string key = key_of(extent, name);
  shard& in = shard_of(key);
  {
    const std::lock_guard lock{in.mutex};
    if (const auto it = in.find(key); it != in.by_use.end()) return put_again(in, it, data.size());
  }
  if (!reserve(data.size())) return put_result::full;
  try {
    auto copy = std::make_shared<const std::vector<std::byte>>(data.begin(), data.end());
    std::list<entry> made;
    made.push_back({std::move(key), std::move(copy), 0});
    const std::lock_guard lock{in.mutex};
    if (const auto it = in.find(made.front().key); it != in.by_use.end()) {
      bytes_ -= data.size();
      return put_again(in, it, data.size());
    }
    in.index.emplace(made.front().key, made.begin());
    in.by_use.splice(in.by_use.begin(), made);
    in.use(in.by_use.begin(), ++tick_);
    ++units_;
    return put_result::added;
  } catch (...) {
    bytes_ -= data.size();
    throw;
  }
}

memory_store::blob memory_store::get(const kvlease::bytes& extent, const kvlease::bytes& name) {
  const std::string key = key_of(extent, name);
  shard& in = shard_of(key);
  const std::lock_guard lock{in.mutex};
  const auto it = in.find(key);
  if (it == in.by_use.end()) return nullptr;
  in.use(it, ++tick_);
  return it->data;
}

std::optional<std::size_t> memory_store::find(const kvlease::bytes& extent,
                                              const kvlease::bytes& name) const {
  const std::string key = key_of(extent, name);
  const shard& in = shard_of(key);
  const std::lock_guard lock{in.mutex};
  const auto it = in.index.find(key);
  if (it == in.index.end()) return std::nullopt;
  return it->second->data->size();
}

bool memory_store::reserve(std::size_t size) {
  if (size > capacity_) return false;
  std::size_t held = bytes_.load();
  for (;;) {
    if (held <= capacity_ - size) {
      if (bytes_.compare_exchange_weak(held, held + size)) return true;
    } else {
      if (!evict_one()) return false;
      held = bytes_.load();
    }
  }
}

bool memory_store::evict_one() {
  std::array<bool, shard_count> pinned{};
  for (;;) {
    std::size_t choice = shard_count;
    std::uint64_t oldest = never;
    for (std::size_t i = 0; i < shard_count; ++i) {
      const std::uint64_t used = shards_[i].oldest.load(std::memory_order_relaxed);
      if (!pinned[i] && used < oldest) oldest = used, choice = i;
    }
    if (choice == shard_count) return false;
    if (evict_from(shards_[choice])) return true;
    pinned[choice] = true;
  }
}

bool memory_store::evict_from(shard& from) {
  std::list<entry> gone;  // freed after the lock
  const std::lock_guard lock{from.mutex};
  for (auto it = from.by_use.end(); it != from.by_use.begin();) {
    --it;
    // Readers take their reference under this lock, so a count of one can't rise while we hold it.
    if (it->data.use_count() != 1) continue;
    bytes_ -= it->data->size();
    from.index.erase(it->key);
    gone.splice(gone.begin(), from.by_use, it);
    from.note_oldest();
    --units_;
    ++evicted_;
    return true;
  }
  return false;
}

}  // namespace kvlease
