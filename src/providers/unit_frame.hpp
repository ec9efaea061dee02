// What stands in front of a unit's bytes wherever they are kept or sent: whose they are, how many, which
// writing of them, and checksums, so that what comes back is either exactly what was stored or is not served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/contract.hpp"

namespace kvlease {

/// XXH3 of `data`: finds damage, is no defence against a forger.
std::uint64_t checksum_of(std::span<const std::byte> data) noexcept;

/// XXH3 over pieces.
class checksum_stream {
 public:
  checksum_stream();
  ~checksum_stream();
  checksum_stream(const checksum_stream&) = delete;
  checksum_stream& operator=(const checksum_stream&) = delete;
  void update(std::span<const std::byte> data) noexcept;
  std::uint64_t value() const noexcept;

 private:
  void* state_;
};

/// Encoded, little-endian: magic 8 | version 2 | size of the frame 2 | size of the extent's name 2 | size of
/// the unit's name 2 | length 8 | generation 8 | checksum of the payload 8 | checksum of the frame 8 | both
/// names | zeros. The frame's checksum covers all of it, its own field as 0.
struct unit_frame {
  bytes extent;
  bytes name;
  std::uint64_t length = 0;      ///< bytes of payload behind the frame
  std::uint64_t generation = 0;  ///< of the place it lies in; 0 where that has no meaning
  std::uint64_t checksum = 0;    ///< of the payload
  friend bool operator==(const unit_frame&, const unit_frame&) = default;
};

inline constexpr std::size_t frame_head = 48;  ///< bytes before the names
/// Both names together have at most this many bytes, so that a frame fits 4 KiB.
inline constexpr std::size_t frame_names = 4096 - frame_head;

/// Bytes of the encoded frame when nothing is padded.
constexpr std::size_t frame_size(const unit_frame& f) { return frame_head + f.extent.size() + f.name.size(); }

/// Encodes `f` into the first frame_size() bytes of `out` and zeros the rest of `out`. Errors: invalid when
/// the names are longer than frame_names or `out` is too short.
result<void> encode_frame(const unit_frame& f, std::span<std::byte> out);

/// Reads a frame that `in` begins with. Checks everything before it allocates from a length. Errors: invalid,
/// with what is wrong: not a frame, another version, sizes that do not fit, a checksum that differs.
result<unit_frame> decode_frame(std::span<const std::byte> in);

}  // namespace kvlease
