#include "src/providers/segment/journal.hpp"

#include <fmt/format.h>

#include <cstring>

namespace kvlease {

namespace {

constexpr std::uint64_t journal_magic = 0x316c6e72756f6a73ULL;  // "sjournl1"

struct beginning {
  std::uint64_t magic;
  std::uint64_t epoch;
  std::uint64_t checksum;  ///< of what stands before it
};

struct record_head {
  std::uint64_t checksum;  ///< of the rest of the record, names included
  std::uint32_t size;      ///< of the record
  std::uint16_t extent_size;
  std::uint16_t name_size;
  std::uint32_t added;
  std::uint32_t segment;
  std::uint32_t slot;
  std::uint32_t zero;
  std::uint64_t generation;
  std::uint64_t length;
  std::uint64_t payload_checksum;
};
static_assert(sizeof(record_head) == 56, "no padding: records are written as they lie in memory");

template <class T>
void put(const T& value, std::vector<std::byte>& out) {
  const auto raw = std::as_bytes(std::span{&value, 1});
  out.insert(out.end(), raw.begin(), raw.end());
}

void put(const bytes& text, std::vector<std::byte>& out) {
  const auto raw = std::as_bytes(std::span{text});
  out.insert(out.end(), raw.begin(), raw.end());
}

std::uint64_t checksum_before(const beginning& b) {
  return checksum_of(std::as_bytes(std::span{&b, 1}).first(offsetof(beginning, checksum)));
}

}  // namespace

void begin_segment_journal(std::uint64_t epoch, std::vector<std::byte>& out) {
  beginning b{journal_magic, epoch, 0};
  b.checksum = checksum_before(b);
  put(b, out);
}

void append_segment_record(const segment_record& r, std::vector<std::byte>& out) {
  const auto at = out.size();
  const auto size = sizeof(record_head) + r.extent.size() + r.name.size();
  put(record_head{0, static_cast<std::uint32_t>(size), static_cast<std::uint16_t>(r.extent.size()),
                  static_cast<std::uint16_t>(r.name.size()), r.added ? 1u : 0u, r.place.segment, r.place.slot,
                  0, r.generation, r.length, r.checksum},
      out);
  put(r.extent, out);
  put(r.name, out);
  const auto checksum = checksum_of(std::span{out}.subspan(at + sizeof(std::uint64_t)));
  std::memcpy(out.data() + at, &checksum, sizeof checksum);
}

result<segment_journal_reading> read_segment_journal(std::span<const std::byte> in,
                                                     const std::function<void(const segment_record&)>& each) {
  beginning b;
  if (in.size() < sizeof b)
    return fail(errc::invalid, fmt::format("{} bytes are too few for a journal", in.size()));
  std::memcpy(&b, in.data(), sizeof b);
  if (b.magic != journal_magic)
    return fail(errc::invalid, fmt::format("no journal: it begins with {:#x}", b.magic));
  if (b.checksum != checksum_before(b)) return fail(errc::invalid, "the journal's beginning is damaged");
  segment_journal_reading reading{b.epoch, sizeof b, false};
  while (reading.good_bytes < in.size()) {
    const auto rest = in.subspan(reading.good_bytes);
    record_head h;
    if (rest.size() < sizeof h) return reading;
    std::memcpy(&h, rest.data(), sizeof h);
    const auto names = std::size_t{h.extent_size} + h.name_size;
    if (h.size != sizeof h + names || h.size > rest.size() || names > frame_names) return reading;
    if (checksum_of(rest.subspan(sizeof h.checksum, h.size - sizeof h.checksum)) != h.checksum)
      return reading;
    const auto* text = reinterpret_cast<const char*>(rest.data() + sizeof h);
    each({h.added == 1,
          {h.segment, h.slot},
          h.generation,
          h.length,
          h.payload_checksum,
          bytes(text, h.extent_size),
          bytes(text + h.extent_size, h.name_size)});
    reading.good_bytes += h.size;
  }
  reading.whole = true;
  return reading;
}

}  // namespace kvlease
