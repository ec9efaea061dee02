// What a provider offers to its peers: copies of published units, within a bound (semantics 2.8). A reader
// pins what it reads; eviction never takes that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "messages/contract.hpp"

namespace kvlease {

/// Units by (extent name, unit name); the first content of a name stays. Full, the unit goes that was used
/// longest ago and that nobody pins. Thread-safe: one lock, which is not held while bytes are copied.
class export_pool {
 public:
  struct entry {
    std::unique_ptr<std::byte[]> data;
    std::size_t size = 0;
    std::uint64_t checksum = 0;  ///< checksum_of the bytes, from when they were published
    std::span<const std::byte> bytes() const noexcept { return {data.get(), size}; }
  };
  /// Holding one keeps the bytes where they are.
  using pin = std::shared_ptr<const entry>;

  enum class put_result : std::uint8_t {
    added,
    kept,        ///< the name was there with this size; `data` was not looked at
    other_size,  ///< the name was there with another size; nothing changed
    full,        ///< larger than the pool, or than what can be evicted now
  };

  explicit export_pool(std::size_t capacity_bytes) : capacity_{capacity_bytes} {}

  put_result put(const kvlease::bytes& extent, const kvlease::bytes& name, std::span<const std::byte> data);
  /// Null when the unit is not here. Counts as a use.
  pin get(const kvlease::bytes& extent, const kvlease::bytes& name);
  /// Size in bytes, when the unit is here. Does not count as a use.
  std::optional<std::size_t> find(const kvlease::bytes& extent, const kvlease::bytes& name) const;

  std::size_t capacity() const noexcept { return capacity_; }
  /// Never above the capacity; what a put() under way has reserved is included.
  std::size_t bytes() const;
  std::size_t units() const;

 private:
  struct slot {
    std::string key;
    std::shared_ptr<entry> content;
  };
  using by_use = std::list<slot>;

  std::optional<put_result> known_locked(const std::string& key, std::size_t size);
  bool reserve_locked(std::size_t size);

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  by_use by_use_;                                                 ///< the last used first
  std::unordered_map<std::string_view, by_use::iterator> index_;  ///< keys live in by_use_
  std::size_t bytes_ = 0;
};

}  // namespace kvlease
