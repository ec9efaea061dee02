// Seeded arithmetic that is the same on every machine: what draws faults, noise and paint (semantics 7.9).
#pragma once

#include <cstdint>

namespace kvlease {

inline constexpr std::uint64_t weyl_step = 0x9e3779b97f4a7c15;  ///< odd; 2^64 over the golden ratio

/// A bijection of 64 bits in which each input bit changes about half of the output (splitmix's finaliser).
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// One value of the stream that (seed, a, b) names.
constexpr std::uint64_t mix64(std::uint64_t seed, std::uint64_t a, std::uint64_t b) noexcept {
  return mix64(mix64(mix64(seed + weyl_step) + a * weyl_step + 1) + b * weyl_step + 2);
}

}  // namespace kvlease
