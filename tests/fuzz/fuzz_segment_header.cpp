// Whatever stands where the store expects its own blocks: never a crash, and nothing accepted that the
// encoder would not have written.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "src/providers/segment/layout.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvlease;
  alignas(8) std::array<std::byte, disk_block> block{};
  std::memcpy(block.data(), data, std::min(size, block.size()));
  const segment_geometry geometry{std::uint64_t{1} << 20, 4};
  std::array<std::byte, disk_block> again{};
  if (const auto head = decode_head(block, 0, geometry)) {
    encode_head(*head, again);
    if (decode_head(again, 0, geometry) != head) std::abort();
  }
  for (const std::uint64_t unit_bytes : {std::uint64_t{4096}, std::uint64_t{65536}}) {
    const auto unit = unit_in(block, {0, unit_bytes, 1});
    if (!unit) continue;
    if (unit->length > unit_bytes || unit->generation == 0) std::abort();
    if (!encode_frame(*unit, again) || unit_in(again, {0, unit_bytes, 1}) != unit) std::abort();
  }
  return 0;
}
