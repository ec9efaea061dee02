// What a server may send us, as a fuzzer sees it: the first byte says which reader, the rest is what it
// reads, in one piece and cut; both ways must come to the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/providers/redis/cluster.hpp"
#include "src/providers/redis/reply_reader.hpp"

namespace kvlease::test {

/// Bytes around the slot that nothing may write.
inline constexpr std::size_t fuzz_guard = 64;
inline constexpr std::size_t fuzz_slot = 48;

struct fuzz_result {
  bool bad = false;
  std::optional<redis::reply> got;
  std::size_t taken = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(fuzz_slot + 2 * fuzz_guard, std::byte{0xa5});
};

/// Reads one reply from `in`, `piece` bytes more at a time.
inline fuzz_result fuzz_read(const redis::expectation& e, std::span<const std::byte> in, std::size_t piece,
                             bool withdraw) {
  fuzz_result r;
  redis::reply_reader reader{e};
  const auto slot = std::span{r.memory}.subspan(fuzz_guard, fuzz_slot);
  for (std::size_t there = 0; !reader.done();) {
    const auto took = reader.feed(in.subspan(r.taken, there - r.taken));
    if (!took) {
      r.bad = true;
      return r;
    }
    r.taken += *took;
    if (reader.wants_slot()) {
      reader.give(slot);
      if (withdraw) reader.withdraw();
    } else if (!reader.done()) {
      if (there == in.size()) return r;
      there = std::min(in.size(), there + piece);
    }
  }
  r.got = reader.take();
  return r;
}

inline bool same(const std::optional<redis::reply>& a, const std::optional<redis::reply>& b) {
  if (a.has_value() != b.has_value()) return false;
  if (!a) return true;
  if (const auto* u = std::get_if<redis::unit_answer>(&*a))
    return u->what == std::get<redis::unit_answer>(*b).what;
  return *std::get_if<redis::value>(&*a) == std::get<redis::value>(*b);
}

/// Aborts when a rule is broken.
inline void fuzz_resp(std::span<const std::uint8_t> data) {
  if (data.empty()) return;
  const auto in = std::as_bytes(data.subspan(1));
  const bool units = (data[0] & 1) != 0;
  const bool withdraw = (data[0] & 2) != 0;
  const redis::expectation e = units ? redis::expectation{redis::expected_unit{"extent", "name", fuzz_slot}}
                                     : redis::expectation{redis::slot_map::limits()};
  const auto whole = fuzz_read(e, in, in.size() + 1, withdraw);
  const auto rule = [](bool holds) {
    if (!holds) std::abort();
  };
  rule(whole.taken <= in.size());
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}}) {
    const auto cut = fuzz_read(e, in, piece, withdraw);
    rule(cut.bad == whole.bad && same(cut.got, whole.got));
  }
  const auto guarded = [&](std::size_t from, std::size_t n) {
    return std::ranges::all_of(std::span{whole.memory}.subspan(from, n),
                               [](std::byte b) { return b == std::byte{0xa5}; });
  };
  rule(guarded(0, fuzz_guard) && guarded(fuzz_guard + fuzz_slot, fuzz_guard));
  if (!whole.got) return;
  if (const auto* u = std::get_if<redis::unit_answer>(&*whole.got)) {
    // Only behind a good frame, and never once withdrawn.
    if (withdraw || u->what == redis::unit_answer::kind::foreign ||
        u->what == redis::unit_answer::kind::absent)
      rule(guarded(fuzz_guard, fuzz_slot));
    return;
  }
  const auto& v = std::get<redis::value>(*whole.got);
  if (const auto map = redis::slot_map::from_reply(v, {"asked", 1}); map)
    for (std::uint16_t s = 0; s < redis::slot_count; ++s)
      if (const auto* owner = map->owner(s)) rule(owner->port != 0);
  if (v.what == redis::value::kind::error)
    if (const auto to = redis::parse_redirect(v.text, {"asked", 1}))
      rule(to->slot < redis::slot_count && to->to.port != 0);
}

}  // namespace kvlease::test
