// Whatever stands in a store's journal: never a crash, nothing read past its end, and what was accepted is
// what the encoder writes.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "src/providers/segment/index.hpp"
#include "src/providers/segment/journal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvlease;
  const std::span<const std::byte> in{reinterpret_cast<const std::byte*>(data), size};
  segment_index index{{std::uint64_t{1} << 20, 4}, eviction::slru};
  index.adopt({0, 4096, 1});
  index.adopt({2, 65536, 5});
  std::vector<std::byte> again;
  std::vector<segment_record> seen;
  const auto reading = read_segment_journal(in, [&](const segment_record& r) {
    seen.push_back(r);
    if (r.added)
      index.restore({r.extent, r.name}, {r.place, r.generation, r.length, r.checksum, false});
    else
      index.drop(r.place, r.generation);
  });
  if (!reading) return seen.empty() ? 0 : (std::abort(), 0);
  if (reading->good_bytes > size || reading->whole != (reading->good_bytes == size)) std::abort();
  index.recovered(1);
  if (!index.check().empty()) std::abort();
  begin_segment_journal(reading->epoch, again);
  for (const auto& r : seen) append_segment_record(r, again);
  std::vector<segment_record> twice;
  const auto second = read_segment_journal(again, [&](const segment_record& r) { twice.push_back(r); });
  if (!second || !second->whole || twice != seen) std::abort();
  return 0;
}
