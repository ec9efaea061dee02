#include "src/slots.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/mix.hpp"
#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

using counts = slot_pool::group_counts;
using runs = slot_pool::group_runs;

/// Asks and takes at once. Precondition: nobody waits and it fits.
runs grab(slot_pool& pool, const counts& c) { return **pool.take(*pool.ask(c)); }

/// Absent: it waits.
std::optional<runs> taken(slot_pool& pool, ticket t) {
  auto r = pool.take(t);
  REQUIRE(r);
  return *std::move(r);
}

void check_sound(const slot_pool& pool) {
  const auto ok = pool.check_invariants();
  CHECK_MESSAGE(ok, (ok ? std::string{} : ok.error().text));
}

TEST_CASE("SQ-01 contiguous per group") {
  slot_pool pool{{4, 8}};
  const auto t = pool.ask({3, 5});
  REQUIRE(t);
  CHECK(taken(pool, *t) == runs{{0, 3}, {0, 5}});
  CHECK(pool.free_slots(0) == 1);
  CHECK(pool.free_slots(1) == 3);
  CHECK(pool.free_slots() == 4);
  CHECK(pool.total_slots() == 12);
  // An unknown group may be asked for nothing, and a group left out gets an empty run.
  CHECK(grab(pool, {1, 0, 0}) == runs{{3, 1}, {}});
  CHECK(grab(pool, {}) == runs{{}, {}});
  static_assert(std::is_same_v<decltype(slot_run::start), std::int64_t>);
  static_assert(std::is_same_v<decltype(slot_run::count), std::int64_t>);
  check_sound(pool);
}

TEST_CASE("SQ-02 all or nothing") {
  slot_pool pool{{4, 4}};
  const auto first = grab(pool, {0, 3});
  const auto t = *pool.ask({2, 2});
  CHECK_FALSE(taken(pool, t));
  CHECK(pool.free_slots(0) == 4);  // nothing taken from the group that could
  CHECK(pool.free_slots(1) == 1);
  CHECK(pool.waiting() == 1);
  REQUIRE(pool.give(first));
  CHECK(taken(pool, t) == runs{{0, 2}, {0, 2}});
  check_sound(pool);
}

TEST_CASE("SQ-03 contiguity waits") {
  slot_pool pool{{6}};
  const auto low = grab(pool, {2});
  const auto hole = grab(pool, {2});
  REQUIRE(pool.give(low));
  REQUIRE(pool.free_runs(0) == runs{{0, 2}, {4, 2}});
  const auto t = *pool.ask({3});
  CHECK_FALSE(taken(pool, t));
  REQUIRE(pool.give(hole));
  CHECK(taken(pool, t) == runs{{0, 3}});
}

TEST_CASE("SQ-03 first fit takes the lowest start, not the best fit") {
  slot_pool pool{{10}};
  const auto a = grab(pool, {4});
  grab(pool, {1});
  const auto c = grab(pool, {2});
  grab(pool, {3});
  REQUIRE(pool.give(a));
  REQUIRE(pool.give(c));
  CHECK(grab(pool, {2}) == runs{{0, 2}});
  CHECK(pool.free_runs(0) == runs{{2, 2}, {5, 2}});
}

TEST_CASE("SQ-04 strict order") {
  slot_pool pool{{3}};
  const auto held = grab(pool, {2});
  const auto head = *pool.ask({2});
  const auto later = *pool.ask({1});
  CHECK(pool.head() == head);
  CHECK_FALSE(taken(pool, head));
  CHECK_FALSE(taken(pool, later));  // would fit, and does not jump the line
  REQUIRE(pool.give(held));
  CHECK_FALSE(taken(pool, later));
  CHECK(taken(pool, head) == runs{{0, 2}});
  CHECK(pool.head() == later);
  CHECK(taken(pool, later) == runs{{2, 1}});
  CHECK_FALSE(pool.head());
}

TEST_CASE("SQ-05 cancel the head") {
  slot_pool pool{{3}};
  grab(pool, {2});
  const auto head = *pool.ask({2});
  const auto later = *pool.ask({1});
  pool.cancel(head);
  CHECK(pool.waiting() == 1);
  CHECK(taken(pool, later) == runs{{2, 1}});
  pool.cancel(ticket{99});
  pool.cancel(later);  // granted
  pool.cancel(head);   // cancelled before
  CHECK(pool.waiting() == 0);
  CHECK(pool.free_slots() == 0);
  check_sound(pool);
}

TEST_CASE("SQ-06 unknown ticket") {
  slot_pool pool{{3}};
  check_refused(pool.take(ticket{99}), errc::unknown, "ticket 99");
  check_refused(pool.take(ticket{}), errc::unknown, "ticket 0");
  const auto t = *pool.ask({1});
  REQUIRE(taken(pool, t));
  check_refused(pool.take(t), errc::unknown, "not in the line");
  const auto gone = *pool.ask({1});
  pool.cancel(gone);
  check_refused(pool.take(gone), errc::unknown, "not in the line");
  CHECK(pool.free_slots() == 2);
}

TEST_CASE("SQ-07 coalescing") {
  slot_pool pool{{8}};
  std::vector<runs> four;
  four.reserve(4);
  for (int i = 0; i < 4; ++i) four.push_back(grab(pool, {2}));
  for (const std::size_t i : {1U, 3U, 0U, 2U}) {
    REQUIRE(pool.give(four[i]));
    check_sound(pool);
  }
  CHECK(pool.free_runs(0) == runs{{0, 8}});
  CHECK(grab(pool, {8}) == runs{{0, 8}});
}

TEST_CASE("SQ-08 double free") {
  slot_pool pool{{4, 4}};
  const auto both = grab(pool, {2, 2});
  REQUIRE(pool.give({{}, both[1]}));
  check_refused(pool.give(both), errc::invalid, "freed twice");
  CHECK(pool.free_slots(0) == 2);  // nothing returned
  CHECK(pool.free_slots(1) == 4);
  check_sound(pool);
}

TEST_CASE("SQ-08 double free of a part of a run") {
  slot_pool pool{{8}};
  grab(pool, {8});
  REQUIRE(pool.give({{3, 2}}));
  for (const slot_run r : {slot_run{2, 2}, slot_run{4, 2}, slot_run{3, 1}, slot_run{0, 8}})
    check_refused(pool.give({r}), errc::invalid, "freed twice");
  CHECK(pool.give({{2, 1}}));
  CHECK(pool.give({{5, 3}}));
  CHECK(pool.free_runs(0) == runs{{2, 6}});
}

TEST_CASE("SQ-09 free outside") {
  slot_pool pool{{4}};
  grab(pool, {4});
  slot_run bad{};
  SUBCASE("past the end") { bad = {3, 2}; }
  SUBCASE("negative") { bad = {-1, 2}; }
  SUBCASE("a negative count") { bad = {2, -1}; }
  SUBCASE("an end past 64 bits") { bad = {INT64_MAX, INT64_MAX}; }
  check_refused(pool.give({bad}), errc::invalid, "outside");
  check_refused(pool.quarantine({bad}), errc::invalid, "outside");
  CHECK(pool.free_slots() == 0);
  check_sound(pool);
}

TEST_CASE("SQ-10 free to unknown group") {
  slot_pool pool{{4}};
  const auto valid = grab(pool, {2});
  check_refused(pool.give({valid[0], {}, {}, {}, {}, {0, 1}}), errc::invalid, "pool group 5");
  CHECK(pool.free_slots() == 2);  // nothing returned
  CHECK(pool.give(valid));
}

TEST_CASE("SQ-11 impossible ask") {
  slot_pool pool{{4, 4}};
  counts bad;
  SUBCASE("too many") { bad = {1, 5}; }
  SUBCASE("unknown group") { bad = {1, 1, 1}; }
  SUBCASE("negative") { bad = {1, -1}; }
  check_refused(pool.check(bad), errc::invalid, "pool group");
  check_refused(pool.ask(bad), errc::invalid, "pool group");
  CHECK(pool.waiting() == 0);
  CHECK(pool.free_slots() == 8);
}

TEST_CASE("SQ-12 check queues nothing") {
  slot_pool pool{{4}};
  CHECK(pool.check({3}));
  CHECK(pool.waiting() == 0);
  CHECK_FALSE(pool.head());
  const auto t = *pool.ask({3});
  CHECK(pool.head() == t);
}

TEST_CASE("SQ-13 zero counts") {
  slot_pool pool{{2}};
  grab(pool, {2});
  REQUIRE(pool.free_slots() == 0);
  counts zeros(10);
  const auto t = pool.ask(zeros);
  REQUIRE(t);
  CHECK(taken(pool, *t) == runs{{}});
  CHECK(pool.give(runs(10)));  // gives nothing, also to unknown groups
}

// ---- quarantine

TEST_CASE("6.5 quarantined slots are counted and never come back") {
  slot_pool pool{{4, 4}};
  const auto lost = grab(pool, {2, 1});
  REQUIRE(pool.quarantine(lost));
  CHECK(pool.quarantined_slots(0) == 2);
  CHECK(pool.quarantined_slots(1) == 1);
  CHECK(pool.quarantined_slots() == 3);
  CHECK(pool.free_slots() == 5);
  check_refused(pool.give(lost), errc::invalid, "quarantined");
  check_refused(pool.quarantine(lost), errc::invalid, "quarantined");
  CHECK(pool.quarantined_slots() == 3);
  CHECK(grab(pool, {2, 3}) == runs{{2, 2}, {1, 3}});
  check_sound(pool);
}

TEST_CASE("6.5 only slots that are out can be quarantined") {
  slot_pool pool{{4, 4}};
  const auto out = grab(pool, {2, 0});
  check_refused(pool.quarantine({out[0], {0, 1}}), errc::invalid, "free");
  CHECK(pool.quarantined_slots() == 0);
}

TEST_CASE("6.5 what quarantine made impossible is refused at once") {
  slot_pool pool{{8}};
  const auto low = grab(pool, {3});
  const auto lost = grab(pool, {1});
  REQUIRE(pool.give(low));
  CHECK(pool.check({5}));
  REQUIRE(pool.quarantine(lost));
  check_refused(pool.check({5}), errc::invalid, "1 of its 8 are quarantined");
  check_refused(pool.ask({5}), errc::invalid, "more staging slots than the 4");
  CHECK(pool.ask({4}));
}

// ---- against a model that knows each slot by itself

enum class slot : std::uint8_t { free, out, quarantined };

struct model {
  std::vector<std::vector<slot>> groups;

  std::optional<std::int64_t> first_fit(std::size_t g, std::int64_t n) const {
    std::int64_t in_a_row = 0;
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      in_a_row = groups[g][i] == slot::free ? in_a_row + 1 : 0;
      if (in_a_row == n) return static_cast<std::int64_t>(i) + 1 - n;
    }
    return std::nullopt;
  }
  std::optional<runs> grant(const counts& c) {
    runs r(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (c[g] == 0) continue;
      const auto at = first_fit(g, c[g]);
      if (!at) return std::nullopt;
      r[g] = {*at, c[g]};
    }
    set(r, slot::out);
    return r;
  }
  void set(const runs& r, slot to) {
    for (std::size_t g = 0; g < r.size(); ++g)
      for (auto i = r[g].start; i < r[g].end(); ++i) groups[g][static_cast<std::size_t>(i)] = to;
  }
  std::int64_t number(std::size_t g, slot what) const { return std::ranges::count(groups[g], what); }
};

TEST_CASE("7.10 grants and counts agree with a model slot by slot") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::uint64_t drawn = 0;
    const auto draw = [&](std::size_t below) {
      return static_cast<std::size_t>(mix64(seed, drawn++, 0) % below);
    };
    slot_pool pool{{40, 13}};
    model m{{std::vector<slot>(40), std::vector<slot>(13)}};
    std::vector<std::pair<ticket, counts>> line;
    std::vector<runs> out;
    for (int step = 0; step < 400; ++step) {
      const auto what = draw(20);
      if (what < 9) {
        const counts c{static_cast<std::int64_t>(draw(9)), static_cast<std::int64_t>(draw(5))};
        if (const auto t = pool.ask(c)) line.emplace_back(*t, c);
      } else if (what < 10 && !line.empty()) {
        const auto i = draw(line.size());
        pool.cancel(line[i].first);
        line.erase(line.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (!out.empty()) {
        const auto i = draw(out.size());
        const auto r = out[i];
        out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
        const bool lost = draw(60) == 0;
        REQUIRE((lost ? pool.quarantine(r) : pool.give(r)));
        m.set(r, lost ? slot::quarantined : slot::free);
        if (r != runs(2)) REQUIRE_FALSE(pool.give(r));
      }
      while (!line.empty()) {
        const auto expected = m.grant(line.front().second);
        REQUIRE(taken(pool, line.front().first) == expected);
        if (!expected) break;
        out.push_back(*expected);
        line.erase(line.begin());
      }
      REQUIRE(pool.waiting() == line.size());
      REQUIRE(pool.check_invariants());
      for (std::size_t g = 0; g < 2; ++g) {
        REQUIRE(pool.free_slots(g) == m.number(g, slot::free));
        REQUIRE(pool.quarantined_slots(g) == m.number(g, slot::quarantined));
      }
    }
  }
}

TEST_CASE("scenarios 5.4 runs cost the same however many slots they have") {
  slot_pool pool{{std::int64_t{1} << 60}};
  const auto all = grab(pool, {std::int64_t{1} << 60});
  REQUIRE(pool.give(all));
  CHECK(pool.free_slots() == std::int64_t{1} << 60);
}

}  // namespace
}  // namespace kvlease::test
