#include "src/providers/unit_frame.hpp"

#include <fmt/format.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same values, by the widest vectors that the processor has
#else
#include <xxhash.h>
#endif

#include <bit>
#include <cstring>
#include <new>

namespace kvlease {

static_assert(std::endian::native == std::endian::little, "frames are written as they lie in memory");

namespace {

constexpr std::uint64_t frame_magic = 0x31656d617266766bULL;  // "kvframe1"
constexpr std::uint16_t frame_version = 1;

struct head {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t size;
  std::uint16_t extent_size;
  std::uint16_t name_size;
  std::uint64_t length;
  std::uint64_t generation;
  std::uint64_t checksum;
  std::uint64_t frame_checksum;
};
static_assert(sizeof(head) == frame_head);

XXH3_state_t* state_of(void* state) { return static_cast<XXH3_state_t*>(state); }

/// Of a frame whose own field holds whatever it holds: that counts as 0.
std::uint64_t frame_checksum(head h, std::span<const std::byte> names) {
  h.frame_checksum = 0;
  checksum_stream sum;
  sum.update(std::as_bytes(std::span{&h, 1}));
  sum.update(names);
  return sum.value();
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> data) noexcept {
  return XXH3_64bits(data.data(), data.size());
}

checksum_stream::checksum_stream() : state_{XXH3_createState()} {
  if (state_ == nullptr) throw std::bad_alloc{};
  XXH3_64bits_reset(state_of(state_));
}

checksum_stream::~checksum_stream() { XXH3_freeState(state_of(state_)); }

void checksum_stream::update(std::span<const std::byte> data) noexcept {
  XXH3_64bits_update(state_of(state_), data.data(), data.size());
}

std::uint64_t checksum_stream::value() const noexcept { return XXH3_64bits_digest(state_of(state_)); }

result<void> encode_frame(const unit_frame& f, std::span<std::byte> out) {
  const auto names = f.extent.size() + f.name.size();
  if (names > frame_names)
    return fail(errc::invalid, fmt::format("the names of an extent and its unit have {} bytes together, must "
                                           "have at most {}",
                                           names, frame_names));
  const auto size = frame_head + names;
  if (out.size() < size)
    return fail(errc::invalid, fmt::format("a frame of {} bytes does not fit {}", size, out.size()));
  head h{frame_magic,
         frame_version,
         static_cast<std::uint16_t>(size),
         static_cast<std::uint16_t>(f.extent.size()),
         static_cast<std::uint16_t>(f.name.size()),
         f.length,
         f.generation,
         f.checksum,
         0};
  auto* at = out.data() + frame_head;
  std::memcpy(at, f.extent.data(), f.extent.size());
  std::memcpy(at + f.extent.size(), f.name.data(), f.name.size());
  h.frame_checksum = frame_checksum(h, out.subspan(frame_head, names));
  std::memcpy(out.data(), &h, sizeof h);
  std::memset(out.data() + size, 0, out.size() - size);
  return {};
}

result<unit_frame> decode_frame(std::span<const std::byte> in) {
  if (in.size() < frame_head)
    return fail(errc::invalid,
                fmt::format("{} bytes are too few for a frame, which has {} or more", in.size(), frame_head));
  head h;
  std::memcpy(&h, in.data(), sizeof h);
  if (h.magic != frame_magic)
    return fail(errc::invalid, fmt::format("no frame: it begins with {:#x}", h.magic));
  if (h.version != frame_version)
    return fail(errc::invalid, fmt::format("a frame of version {}, known is {}", h.version, frame_version));
  const std::size_t names = std::size_t{h.extent_size} + h.name_size;
  if (names > frame_names || h.size != frame_head + names || h.size > in.size())
    return fail(errc::invalid, fmt::format("a frame of {} bytes with names of {} and {} does not fit {}",
                                           h.size, h.extent_size, h.name_size, in.size()));
  const auto named = in.subspan(frame_head, names);
  if (frame_checksum(h, named) != h.frame_checksum)
    return fail(errc::invalid, "the frame's checksum differs: it is damaged");
  const auto* text = reinterpret_cast<const char*>(named.data());
  return unit_frame{bytes(text, h.extent_size), bytes(text + h.extent_size, h.name_size), h.length,
                    h.generation, h.checksum};
}

}  // namespace kvlease
