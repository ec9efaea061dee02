#include "src/providers/segment/layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace kvlease {

namespace {

constexpr std::uint64_t head_magic = 0x31746e656d676573ULL;  // "segment1"

struct head_block {
  std::uint64_t magic;
  std::uint32_t block;
  std::uint32_t segment;
  std::uint64_t unit_bytes;
  std::uint64_t since;
  std::uint64_t checksum;  ///< of what stands before it
};

std::uint64_t checksum_before(const head_block& h) noexcept {
  return checksum_of(std::as_bytes(std::span{&h, 1}).first(offsetof(head_block, checksum)));
}

}  // namespace

std::uint64_t unit_bytes_for(std::uint64_t length) noexcept {
  const auto step = std::max(disk_block, std::bit_floor(length) / 8);
  const auto steps = std::max<std::uint64_t>(1, length / step + (length % step != 0 ? 1 : 0));
  return steps > std::numeric_limits<std::uint64_t>::max() / step ? std::numeric_limits<std::uint64_t>::max()
                                                                  : steps * step;
}

std::uint32_t segment_geometry::slots(std::uint64_t unit_bytes) const noexcept {
  if (segment_bytes < disk_block || unit_bytes > segment_bytes - disk_block) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      (segment_bytes - disk_block) / (disk_block + unit_bytes), std::numeric_limits<std::uint32_t>::max()));
}

void encode_head(const segment_head& head, std::span<std::byte> out) noexcept {
  head_block h{head_magic, disk_block, head.segment, head.unit_bytes, head.since, 0};
  h.checksum = checksum_before(h);
  std::ranges::fill(out, std::byte{0});
  std::memcpy(out.data(), &h, sizeof h);
}

std::optional<segment_head> decode_head(std::span<const std::byte> in, std::uint32_t segment,
                                        const segment_geometry& geometry) noexcept {
  head_block h;
  if (in.size() < sizeof h) return std::nullopt;
  std::memcpy(&h, in.data(), sizeof h);
  if (h.magic != head_magic || h.block != disk_block || h.checksum != checksum_before(h)) return std::nullopt;
  if (h.segment != segment || h.unit_bytes % disk_block != 0 || geometry.slots(h.unit_bytes) == 0)
    return std::nullopt;
  return segment_head{h.segment, h.unit_bytes, h.since};
}

std::optional<unit_frame> unit_in(std::span<const std::byte> header, const segment_head& head) {
  if (header.size() < sizeof(std::uint64_t) || header[0] == std::byte{0}) return std::nullopt;
  auto frame = decode_frame(header);
  if (!frame || frame->generation < head.since || unit_bytes_for(frame->length) != head.unit_bytes)
    return std::nullopt;
  return *std::move(frame);
}

}  // namespace kvlease
