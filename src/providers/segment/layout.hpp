// Where units lie on a segment store's disk: files of one size ("segments"), each cut into slots for units of
// one size, a slot being a 4 KiB header block (unit_frame) with the payload behind it. Pure: no I/O.
//
//   segment file:  head block 4 KiB | slot | slot | ... | rest, unused
//   slot:          header block 4 KiB | payload, padded to the segment's unit size
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "messages/error.hpp"
#include "src/providers/unit_frame.hpp"

namespace kvlease {

/// Everything on disk begins and ends at multiples of it: what O_DIRECT asks for.
inline constexpr std::uint64_t disk_block = 4096;

constexpr std::uint64_t round_to_blocks(std::uint64_t size) {
  return (size + disk_block - 1) / disk_block * disk_block;
}

/// The unit size of the segments that take a unit of `length` bytes: at most 1/8 more, or the next 4 KiB.
std::uint64_t unit_bytes_for(std::uint64_t length) noexcept;

struct disk_place {
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  friend bool operator==(const disk_place&, const disk_place&) = default;
};

struct segment_geometry {
  std::uint64_t segment_bytes = 0;  ///< a multiple of disk_block
  std::uint32_t segments = 0;

  /// Slots of a segment for units of `unit_bytes`; 0 when not one fits.
  std::uint32_t slots(std::uint64_t unit_bytes) const noexcept;
  /// Where the header block of a slot begins in its file.
  static std::uint64_t offset(std::uint32_t slot, std::uint64_t unit_bytes) noexcept {
    return disk_block + slot * (disk_block + unit_bytes);
  }
};

/// What the head block of a segment says. A segment that was never used has a block of zeros.
struct segment_head {
  std::uint32_t segment = 0;
  std::uint64_t unit_bytes = 0;
  std::uint64_t since = 0;  ///< generations below it are of an earlier use of the file
  friend bool operator==(const segment_head&, const segment_head&) = default;
};

/// `out` has disk_block bytes.
void encode_head(const segment_head& head, std::span<std::byte> out) noexcept;
/// Nothing for a block that is no head, is damaged, or can't be of `segment` in a store of this geometry.
std::optional<segment_head> decode_head(std::span<const std::byte> in, std::uint32_t segment,
                                        const segment_geometry& geometry) noexcept;

/// The unit that the header block of a slot of this segment tells of. Nothing when it tells of none, is
/// damaged, is of an earlier use of the file, or its length fits no slot there. That its payload is whole is
/// not known before the payload was read.
std::optional<unit_frame> unit_in(std::span<const std::byte> header, const segment_head& head);

}  // namespace kvlease
