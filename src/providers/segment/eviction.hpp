// Which unit a store gives up when it needs a place. Pure: no clock, no randomness, no I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace kvlease {

enum class eviction : std::uint8_t {
  slru,    ///< segmented LRU with a ghost list: the default, better than LRU on the conversation trace
  s3fifo,  ///< S3-FIFO (Yang et al., SOSP'23)
  lru,
};

/// A place of a store, as its owner numbers them.
using place_id = std::uint64_t;

/// The units of one size, in the order in which they may go. Not thread-safe.
class eviction_policy {
 public:
  virtual ~eviction_policy() = default;
  /// `p` holds a unit now. `name`: a hash of the unit's name, by which it is known again when it returns.
  virtual void added(place_id p, std::uint64_t name) = 0;
  virtual void used(place_id p) = 0;
  /// For another reason than victim().
  virtual void removed(place_id p) = 0;
  /// The next to go, already taken out; none when `may_go` refuses all.
  virtual std::optional<place_id> victim(const std::function<bool(place_id)>& may_go) = 0;
};

/// slru: a quarter of the places is protected, for units that were used since they came or came back while
/// the ghost list, as long as the store, still knew them. docs/results/segment-eviction.txt compares.
std::unique_ptr<eviction_policy> make_eviction(eviction kind);

}  // namespace kvlease
