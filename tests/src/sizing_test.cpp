#include "src/sizing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/mix.hpp"
#include "src/slots.hpp"
#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

using counts = std::vector<std::int64_t>;

constexpr std::int64_t gib = std::int64_t{1} << 30;

/// A layout whose layer groups each have a pool group of their own.
sizing_layout layout_of(std::int64_t tokens_per_block, std::vector<sized_layer_group> groups,
                        std::int64_t page_bytes = 4096) {
  sizing_layout l{tokens_per_block, std::move(groups), {}};
  for (std::size_t g = 0; g < l.layer_groups.size(); ++g) {
    l.layer_groups[g].pool_group = static_cast<std::int64_t>(g);
    l.page_bytes.push_back(page_bytes + 512 * static_cast<std::int64_t>(g));
  }
  return l;
}

sized_layer_group full() { return {}; }
sized_layer_group window(std::int64_t tokens, std::int64_t sinks = 0) {
  return {.window = tokens, .sink_blocks = sinks};
}

staging_options fetches(std::int64_t tokens, std::int64_t most = 1, std::optional<std::int64_t> cap = {}) {
  return {.fetch_tokens = tokens, .max_fetches = most, .max_bytes = cap};
}

counts times(counts c, std::int64_t n) {
  for (auto& x : c) x *= n;
  return c;
}

std::int64_t bytes_of(const sizing_layout& l, const counts& pages) {
  std::int64_t n = 0;
  for (std::size_t p = 0; p < pages.size(); ++p) n += pages[p] * l.page_bytes[p];
  return n;
}

/// 128 tokens a block; windows of 128 and 8 tokens around a full group.
sizing_layout mixed() { return layout_of(128, {window(128), full(), window(8)}); }

TEST_CASE("SZ-01 full attention") {
  const auto s = size_staging(layout_of(32, {full()}, 22 * 2 * 4 * 64 * 2 * 32), fetches(2048, 8));
  REQUIRE(s);
  CHECK(s->rows == counts{64});
  CHECK(s->fetch_bytes == std::int64_t{44} << 20);
  CHECK(s->slots == counts{512});
  CHECK(s->nbytes == 8 * s->fetch_bytes);
}

TEST_CASE("SZ-02 windows and full") {
  const auto s = size_staging(mixed(), fetches(4096, 8));
  REQUIRE(s);
  CHECK(s->rows == counts{1, 32, 1});
  CHECK(s->slots == counts{8, 256, 8});
}

TEST_CASE("SZ-03 long range capped at one fetch") {
  const auto l = mixed();
  const auto one = size_staging(l, fetches(std::int64_t{1} << 20))->fetch_bytes;
  const auto s = size_staging(l, fetches(std::int64_t{1} << 20, 64, one));
  REQUIRE(s);
  CHECK(s->rows == counts{1, 8192, 1});
  CHECK(s->slots == s->rows);
  const auto large = size_staging(l, fetches(std::int64_t{1} << 20, 4096, 30 * gib));
  REQUIRE(large);
  for (std::size_t p = 0; p < 3; ++p) CHECK(large->slots[p] >= s->slots[p]);
  CHECK(large->nbytes == bytes_of(l, large->slots));
  CHECK(large->nbytes <= 30 * gib);
}

TEST_CASE("SZ-04 short range") { CHECK(size_staging(mixed(), fetches(100))->rows == counts{1, 1, 1}); }

TEST_CASE("SZ-05 window wider than range") {
  const auto s = size_staging(layout_of(32, {window(1024)}), fetches(256, 2));
  REQUIRE(s);
  CHECK(s->rows == counts{8});
  CHECK(s->slots == counts{16});
}

TEST_CASE("SZ-06 sinks") {
  const auto l = layout_of(32, {window(64, 1), full()});
  const auto s = size_staging(l, fetches(320, 3));
  REQUIRE(s);
  CHECK(s->rows == counts{3, 10});
  CHECK(s->fetch_bytes == 3 * l.page_bytes[0] + 10 * l.page_bytes[1]);
  CHECK(s->slots == counts{9, 30});
}

TEST_CASE("SZ-07 shared pool group") {
  const sizing_layout l{32, {{.pool_group = 0, .window = 64}, {.pool_group = 0}}, {4096}};
  const auto s = size_staging(l, fetches(320));
  REQUIRE(s);
  CHECK(s->rows == counts{12});
  CHECK(s->fetch_bytes == 12 * 4096);
}

TEST_CASE("SZ-08 partial block") {
  CHECK(size_staging(layout_of(32, {full()}), fetches(33))->rows == counts{2});
  CHECK(size_staging(layout_of(32, {full()}), fetches(1))->rows == counts{1});
}

TEST_CASE("SZ-09 fetch_tokens") {
  std::int64_t tokens = 0;
  SUBCASE("0") { tokens = 0; }
  SUBCASE("-32") { tokens = -32; }
  const auto r = size_staging(mixed(), fetches(tokens));
  check_refused(r, errc::invalid, "fetch_tokens");
  check_refused(r, errc::invalid, std::to_string(tokens));
}

TEST_CASE("SZ-10 cap below one fetch") {
  const auto one = size_staging(mixed(), fetches(4096))->fetch_bytes;
  check_refused(size_staging(mixed(), fetches(4096, 8, one - 1)), errc::invalid, "one fetch");
  const auto s = size_staging(mixed(), fetches(4096, 8, one));
  REQUIRE(s);
  CHECK(s->slots == s->rows);
  CHECK(s->nbytes == one);
}

TEST_CASE("SZ-11 cap above need") {
  const auto one = size_staging(mixed(), fetches(4096))->fetch_bytes;
  CHECK(*size_staging(mixed(), fetches(4096, 2, 100 * one)) == *size_staging(mixed(), fetches(4096, 2)));
}

// ---- properties

struct draws {
  std::uint64_t seed;
  std::uint64_t n = 0;
  /// In [low, high].
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(mix64(seed, n++, 1) % static_cast<std::uint64_t>(high - low + 1));
  }
};

sizing_layout random_layout(draws& draw) {
  constexpr std::int64_t sizes[] = {1, 8, 16, 32, 128};
  sizing_layout l{.tokens_per_block = sizes[draw(0, 4)], .layer_groups = {}, .page_bytes = {}};
  const auto pools = draw(1, 3);
  for (std::int64_t p = 0; p < pools; ++p) l.page_bytes.push_back(draw(1, 100'000));
  for (auto g = draw(pools, 5); g > 0; --g) {
    sized_layer_group lg{.pool_group = g <= pools ? g - 1 : draw(0, pools - 1)};  // each pool group is used
    if (draw(0, 2) > 0) lg.window = draw(1, 200), lg.sink_blocks = draw(0, 2);
    l.layer_groups.push_back(lg);
  }
  return l;
}

/// By the definition alone: a block counts when it is a sink or a token of it is among those that the next
/// one, at position `history`, still reads.
bool needed(const sized_layer_group& lg, std::int64_t block, std::int64_t tpb, std::int64_t history) {
  if (!lg.window || block < lg.sink_blocks) return true;
  const auto last_token = (block + 1) * tpb - 1;
  return last_token > history - *lg.window;
}

TEST_CASE("SZ-12 property: any range fits") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    draws draw{seed};
    const auto l = random_layout(draw);
    const auto tokens = draw(l.tokens_per_block, 40 * l.tokens_per_block);
    const auto s = size_staging(l, fetches(tokens));
    REQUIRE(s);
    for (std::int64_t end = 0; end <= 40; ++end) {
      for (auto start = std::max<std::int64_t>(0, end - tokens / l.tokens_per_block); start <= end; ++start) {
        counts rows(l.page_bytes.size());
        for (const auto& lg : l.layer_groups)
          for (auto b = start; b < end; ++b)
            if (needed(lg, b, l.tokens_per_block, end * l.tokens_per_block))
              ++rows[static_cast<std::size_t>(lg.pool_group)];
        for (std::size_t p = 0; p < rows.size(); ++p) REQUIRE(rows[p] <= s->rows[p]);
      }
    }
  }
}

TEST_CASE("SZ-13 property: counts") {
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    CAPTURE(seed);
    draws draw{seed};
    const auto l = random_layout(draw);
    const auto tokens = draw(1, 100'000);
    const auto most = draw(1, 50);
    const auto free = size_staging(l, fetches(tokens, most));
    REQUIRE(free);
    CHECK(free->slots == times(free->rows, most));
    CHECK(free->nbytes == most * free->fetch_bytes);
    const auto one = free->fetch_bytes;
    const auto cap = draw(one, 60 * one);
    const auto s = size_staging(l, fetches(tokens, most, cap));
    REQUIRE(s);
    CHECK(s->rows == free->rows);
    CHECK(s->nbytes == bytes_of(l, s->slots));
    CHECK(s->nbytes <= cap);
    const auto whole = std::min(most, cap / one);
    for (std::size_t p = 0; p < s->rows.size(); ++p) {
      CHECK(s->slots[p] >= whole * s->rows[p]);
      CHECK(s->slots[p] <= most * s->rows[p]);
    }
  }
}

TEST_CASE("SZ-14 concurrency") {
  const auto l = mixed();
  const auto one = size_staging(l, fetches(4096))->fetch_bytes;
  std::optional<std::int64_t> cap;
  int at_once = 3;
  SUBCASE("no cap") {}
  SUBCASE("a cap of one fetch") { cap = one, at_once = 1; }
  SUBCASE("a cap of two and a half") { cap = one * 5 / 2, at_once = 2; }
  const auto s = size_staging(l, fetches(4096, 3, cap));
  REQUIRE(s);
  slot_pool pool{s->slots};
  for (int i = 0; i < at_once; ++i) CHECK((*pool.take(*pool.ask(s->rows))).has_value());
  CHECK_FALSE((*pool.take(*pool.ask(s->rows))).has_value());  // one more waits
  CHECK(pool.waiting() == 1);
}

// ---- what cannot be sized

TEST_CASE("scenarios 5.3 sizes past 64 bits are refused, exact ones below are not") {
  constexpr auto tokens = std::int64_t{1} << 50;
  const auto s = size_staging(layout_of(1, {full()}, 4096), fetches(tokens));
  REQUIRE(s);
  CHECK(s->rows == counts{tokens});
  CHECK(s->nbytes == tokens * 4096);
  check_refused(size_staging(layout_of(1, {full()}, 8192), fetches(tokens)), errc::invalid, "2^63 - 1");
  check_refused(size_staging(layout_of(1, {full()}, 4096), fetches(tokens, 2)), errc::invalid, "2^63 - 1");
  // A cap makes the many fetches harmless, and the share of each pool group stays exact.
  const auto capped = size_staging(layout_of(1, {full()}, 4096), fetches(tokens, INT64_MAX, INT64_MAX));
  REQUIRE(capped);
  CHECK(capped->slots == counts{INT64_MAX / 4096});
  const sizing_layout many{1, std::vector<sized_layer_group>(3), {1}};
  check_refused(size_staging(many, fetches(INT64_MAX / 2)), errc::invalid, "rows of one fetch");
  CHECK(size_staging(layout_of(1, {window(INT64_MAX, INT64_MAX)}, 1), fetches(7))->rows == counts{7});
}

TEST_CASE("scenarios 5.3 a layout without pages") {
  check_refused(size_staging({32, {}, {}}, fetches(32)), errc::invalid, "no pages");
  check_refused(size_staging({32, {}, {4096}}, fetches(32)), errc::invalid, "no pages");
  check_refused(size_staging({32, {full()}, {0}}, fetches(32)), errc::invalid, "no pages");
}

TEST_CASE("scenarios 5.3 a bad layout is refused, naming the field and its value") {
  check_refused(size_staging({0, {full()}, {1}}, fetches(1)), errc::invalid, "tokens_per_block is 0");
  check_refused(size_staging({1, {{.pool_group = 1}}, {1}}, fetches(1)), errc::invalid, "pool_group is 1");
  check_refused(size_staging({1, {{.pool_group = -1}}, {1}}, fetches(1)), errc::invalid, "pool_group is -1");
  check_refused(size_staging({1, {window(0)}, {1}}, fetches(1)), errc::invalid, "window is 0");
  check_refused(size_staging({1, {window(1, -1)}, {1}}, fetches(1)), errc::invalid, "sink_blocks is -1");
  check_refused(size_staging({1, {full()}, {1}}, fetches(1, 0)), errc::invalid, "max_fetches is 0");
}

}  // namespace
}  // namespace kvlease::test
