#include "tools/replay/content.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvlease::replay {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the bytes of a block are those of a little-endian word");

constexpr std::uint64_t stride = 0x9E3779B97F4A7C15ULL;  // odd, so i -> i * stride never repeats in 64 bits
constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::size_t check_words = 512;  // compared without a branch; then a wrong block may end the check

/// A bijection of 64-bit words (splitmix64's finaliser): different counters give different words.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// The words of one block. Counter and mask both come from the name: two blocks whose counters overlap (by
/// chance, at different places) still differ in every word.
struct word_stream {
  std::uint64_t start;
  std::uint64_t mask;

  explicit word_stream(std::span<const std::byte> name) {
    const XXH128_hash_t hash = XXH3_128bits(name.data(), name.size());
    start = hash.low64;
    mask = hash.high64;
  }
  std::uint64_t operator[](std::size_t i) const { return mix(start + i * stride) ^ mask; }
};

}  // namespace

std::uint64_t block_seed(std::uint64_t block_id) { return mix(block_id + stride); }

void block_tokens(std::uint64_t block_id, std::span<std::uint32_t> out) {
  const std::uint64_t seed = block_seed(block_id);
  const std::size_t pairs = out.size() / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::uint64_t word = mix(seed + i * stride);
    out[2 * i] = static_cast<std::uint32_t>(word & 0x7FFFFFFFU);
    out[2 * i + 1] = static_cast<std::uint32_t>(word >> 33);
  }
  if (out.size() % 2 != 0) out.back() = static_cast<std::uint32_t>(mix(seed + pairs * stride) & 0x7FFFFFFFU);
}

void fill_block(std::span<const std::byte> name, std::span<std::byte> out) {
  const word_stream words{name};
  const std::size_t count = out.size() / word_bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = words[i];
    std::memcpy(out.data() + i * word_bytes, &word, word_bytes);
  }
  if (const std::size_t rest = out.size() % word_bytes; rest != 0) {
    const std::uint64_t word = words[count];
    std::memcpy(out.data() + count * word_bytes, &word, rest);
  }
}

bool check_block(std::span<const std::byte> name, std::span<const std::byte> bytes) {
  const word_stream words{name};
  const std::size_t count = bytes.size() / word_bytes;
  for (std::size_t first = 0; first < count; first += check_words) {
    const std::size_t end = std::min(first + check_words, count);
    std::uint64_t wrong = 0;
    for (std::size_t i = first; i < end; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i * word_bytes, word_bytes);
      wrong |= word ^ words[i];
    }
    if (wrong != 0) return false;
  }
  const std::size_t rest = bytes.size() % word_bytes;
  if (rest == 0) return true;
  const std::uint64_t word = words[count];
  return std::memcmp(bytes.data() + count * word_bytes, &word, rest) == 0;
}

}  // namespace kvlease::replay
