// A content-addressed store in this process, shared by any number of providers (semantics 2.8).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "messages/contract.hpp"

namespace kvlease {

/// Units by (extent name, unit name). A unit appears whole or not at all; the first content of a name stays.
/// Bounded: past `capacity_bytes` the unit that was used longest ago goes, never one that is being read.
/// Thread-safe, with locks by shard; only an eviction looks at more than one of them.
class memory_store {
 public:
  /// Holding one keeps the unit in the store.
  using blob = std::shared_ptr<const std::vector<std::byte>>;

  enum class put_result : std::uint8_t {
    added,
    kept,        ///< the name was there with this size; `data` was not looked at
    other_size,  ///< the name was there with another size; nothing changed
    full,        ///< larger than the store, or than what can be evicted now
  };

  /// Bytes of payload; names and tables come on top.
  explicit memory_store(std::size_t capacity_bytes) : capacity_{capacity_bytes} {}

  put_result put(const kvlease::bytes& extent, const kvlease::bytes& name, std::span<const std::byte> data);
  /// Null when the unit is not here. Counts as a use.
  blob get(const kvlease::bytes& extent, const kvlease::bytes& name);
  /// Size in bytes, when the unit is here. Does not count as a use.
  std::optional<std::size_t> find(const kvlease::bytes& extent, const kvlease::bytes& name) const;

  std::size_t capacity() const noexcept { return capacity_; }
  /// Never above the capacity; room taken by a put() under way is included.
  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  std::size_t units() const noexcept { return units_.load(std::memory_order_relaxed); }
  std::size_t evicted() const noexcept { return evicted_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t shard_count = 16;
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  struct entry {
    std::string key;
    blob data;
    std::uint64_t used;  ///< value of tick_ at the last use
  };
  struct shard {
    mutable std::mutex mutex;
    std::list<entry> by_use;                                                 ///< the last used first
    std::unordered_map<std::string_view, std::list<entry>::iterator> index;  ///< keys live in by_use
    std::atomic<std::uint64_t> oldest{never};  ///< `used` of the last of by_use; written under the lock

    std::list<entry>::iterator find(std::string_view key);
    void use(std::list<entry>::iterator it, std::uint64_t tick);
    void note_oldest();
  };

  shard& shard_of(const std::string& key);
  const shard& shard_of(const std::string& key) const;
  put_result put_again(shard& in, std::list<entry>::iterator it, std::size_t size);
  bool reserve(std::size_t size);
  bool evict_one();
  bool evict_from(shard& from);

  const std::size_t capacity_;
  std::array<shard, shard_count> shards_;
  std::atomic<std::uint64_t> tick_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> units_{0};
  std::atomic<std::size_t> evicted_{0};
};

}  // namespace kvlease
