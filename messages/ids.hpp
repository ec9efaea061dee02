// Strong ids (semantics 7.1). An id is a 64-bit generation: it names one thing for ever and is never given
// to another in the same process, so a late message can be told from a current one by the id alone.
// The upper 24 bits are the runtime's incarnation, the lower 40 count within it: 10^12 ids a runtime.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace kvlease {

/// One life of one runtime. Drawn by the process for each runtime; tests give it, so that runs repeat.
struct incarnation {
  std::uint32_t value = 0;
  friend auto operator<=>(const incarnation&, const incarnation&) = default;
};

inline constexpr unsigned id_sequence_bits = 40;

/// Tag-typed generation. Zero is "none" and is never handed out.
template <class Tag>
struct id {
  std::uint64_t value = 0;

  explicit operator bool() const noexcept { return value != 0; }
  incarnation runtime() const noexcept {
    return incarnation{static_cast<std::uint32_t>(value >> id_sequence_bits)};
  }
  friend auto operator<=>(const id&, const id&) = default;
};

using request_id = id<struct request_tag>;            ///< owned by the manager
using pin_id = id<struct pin_tag>;                    ///< owned by the manager
using lease_id = id<struct lease_tag>;                ///< owned by the lender
using hold_id = id<struct hold_tag>;                  ///< owned by the lender
using copy_id = id<struct copy_tag>;                  ///< owned by the lender; answered by the CUDA actor
using operation_id = id<struct operation_tag>;        ///< owned by the adapter
using registration_id = id<struct registration_tag>;  ///< owned by the adapter
using route_id = id<struct route_tag>;                ///< owned by the backend
using proof_id = id<struct proof_tag>;                ///< owned by the adapter; one a proof, also for retries
using owner_id = id<struct owner_tag>;                ///< retirement owner; owned by the arbiter

/// Draws ids of one kind in rising order. Not thread-safe: each belongs to one actor.
template <class Id>
class id_source {
 public:
  /// `offset` separates two sources of one kind in one runtime.
  explicit id_source(incarnation of, std::uint64_t offset = 0) noexcept
      : next_{(std::uint64_t{of.value} << id_sequence_bits) + offset} {}
  Id next() noexcept { return Id{++next_}; }

 private:
  std::uint64_t next_;
};

/// "7.12": incarnation and sequence.
template <class Tag>
std::string to_string(const id<Tag>& x) {
  constexpr std::uint64_t low = (std::uint64_t{1} << id_sequence_bits) - 1;
  return std::to_string(x.value >> id_sequence_bits) + "." + std::to_string(x.value & low);
}

}  // namespace kvlease

template <class Tag>
struct std::hash<kvlease::id<Tag>> {
  std::size_t operator()(const kvlease::id<Tag>& x) const noexcept {
    return std::hash<std::uint64_t>{}(x.value);
  }
};
