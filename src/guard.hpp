// Named mutations (docs/testing.md): each removes one guard of one safety rule, so that the tests can be seen
// to fail without it. Only the core is ever built with them (target kvlease_core_mutable, linked by tests
// alone); in the library that users get, `mutated` is a constant false and no switch exists.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvlease {

enum class mutation : std::uint8_t {
  none,
  // filled in by the rules that they break; see tests/mutations.cpp for the test that each must break
  release_at_outcome,
};

#ifdef KVLEASE_MUTATIONS
bool mutated(mutation m) noexcept;
void mutate(mutation m) noexcept;
#else
constexpr bool mutated(mutation) noexcept { return false; }
#endif

}  // namespace kvlease
