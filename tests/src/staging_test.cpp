#include "messages/staging.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

using ordinals = std::vector<std::int64_t>;

std::string name_from(char seed) { return std::string(block_name_size, seed); }

/// Places for three rows.
group_run::placement three() {
  return {.names = {name_from('a'), name_from('b'), name_from('c')},
          .addresses = {128, 256, 384},
          .part_index = 2};
}

group_run run_of(std::int64_t layer_group, ordinals o) {
  return *group_run::make(layer_group, std::move(o), {});
}

// ---- PS-16

template <class Group>
concept makes_run = requires(Group g, ordinals o) {
  group_run::make(g, o, std::nullopt);
};
template <class Index>
concept makes_placement = requires(Index i) {
  group_run::placement{{}, {}, i};
};
template <class Ordinals>
concept takes_ordinals = requires(Ordinals o) {
  group_run::make(0, o, std::nullopt);
};

TEST_CASE("PS-16 group_run: refused at run time") {
  auto where = three();
  std::int64_t layer_group = 1;
  ordinals o{4, 5, 6};
  std::string keyword;
  SUBCASE("negative layer group") { layer_group = -1, keyword = "layer group is -1"; }
  SUBCASE("negative part") { where.part_index = -1, keyword = "part index is -1"; }
  SUBCASE("a name too few") { where.names.pop_back(), keyword = "2 names for 3 ordinals"; }
  SUBCASE("a name too many") { where.names.emplace_back(), keyword = "4 names for 3 ordinals"; }
  SUBCASE("no names") { where.names.clear(), keyword = "0 names for 3 ordinals"; }
  SUBCASE("an address too few") { where.addresses.pop_back(), keyword = "2 addresses for 3 ordinals"; }
  SUBCASE("no addresses") { where.addresses.clear(), keyword = "0 addresses for 3 ordinals"; }
  SUBCASE("an ordinal too many") { o.push_back(7), keyword = "for 4 ordinals"; }
  check_refused(group_run::make(layer_group, o, where), errc::invalid, keyword);
}

TEST_CASE("PS-16 group_run: refused by the compiler") {
  static_assert(makes_run<int> && makes_run<std::int64_t>);
  static_assert(!makes_run<bool> && !makes_run<double> && !makes_run<float> && !makes_run<std::string>);
  static_assert(makes_placement<std::int64_t> && !makes_placement<double>);
  static_assert(takes_ordinals<ordinals>);
  static_assert(!takes_ordinals<std::vector<double>> && !takes_ordinals<std::vector<ordinals>>);
}

TEST_CASE("PS-16 group_run: placed, unplaced and empty are fine") {
  const auto placed = group_run::make(1, {4, 5, 6}, three());
  REQUIRE(placed);
  CHECK(placed->layer_group() == 1);
  CHECK(placed->size() == 3);
  CHECK(*placed->where() == three());
  const auto unplaced = group_run::make(0, {4, 5, 6}, {});
  REQUIRE(unplaced);
  CHECK_FALSE(unplaced->where());
  CHECK(group_run::make(0, {}, group_run::placement{}));
}

// ---- PS-17

template <class Run>
concept ordinals_writable = requires(Run r) {
  r.ordinals()[0] = 1;
}
|| requires(Run r) { r.ordinals().push_back(1); };
template <class Run>
concept placement_writable = requires(Run r) {
  r.where()->names[0] = "";
}
|| requires(Run r) { r.where()->addresses[0] = 1; }
|| requires(Run r) { r.where()->part_index = 1; }
|| requires(Run r) { r.where().reset(); };
template <class View>
concept runs_writable = requires(View v) {
  v.runs().clear();
};

TEST_CASE("PS-17 read-only arrays: the run's are, the caller's own stay writable") {
  static_assert(!ordinals_writable<group_run> && !placement_writable<group_run> &&
                !runs_writable<region_view>);
  ordinals mine{4, 5, 6};
  auto where = three();
  const auto run = *group_run::make(1, mine, where);
  mine[0] = 99;
  where.names[1] = "other";
  where.addresses.clear();
  CHECK(run.ordinals() == ordinals{4, 5, 6});
  CHECK(*run.where() == three());
}

// ---- PS-18

template <class Mask>
concept selects = requires(const group_run& r, Mask m) {
  r.select(m);
};

TEST_CASE("PS-18 select keeps order") {
  const auto run = *group_run::make(1, {9, 4, 6}, three());
  const auto some = run.select({true, false, true});
  REQUIRE(some);
  CHECK(some->layer_group() == 1);
  CHECK(some->ordinals() == ordinals{9, 6});
  CHECK(some->where()->names == std::vector{name_from('a'), name_from('c')});
  CHECK(some->where()->addresses == std::vector<std::uintptr_t>{128, 384});
  CHECK(some->where()->part_index == 2);
  CHECK(*run.select({true, true, true}) == run);
  CHECK(run.select({false, false, false})->size() == 0);
  CHECK_FALSE(run_of(1, {1, 2}).select({false, true})->where());
}

TEST_CASE("PS-18 select refuses a mask of another length or kind") {
  const auto run = *group_run::make(1, {9, 4, 6}, three());
  check_refused(run.select({true, false}), errc::invalid, "mask has 2 entries for the 3 rows");
  check_refused(run.select(std::vector<bool>(4)), errc::invalid, "mask has 4 entries");
  static_assert(selects<std::vector<bool>> && !selects<std::vector<int>> &&
                !selects<std::vector<std::uint8_t>>);
}

// ---- PS-19

TEST_CASE("PS-19 region_view: rows and fresh masks") {
  const auto view = region_view::make({run_of(3, {1, 2}), run_of(0, {}), run_of(1, {5})});
  REQUIRE(view);
  CHECK(view->num_rows() == 3);
  CHECK(view->runs()[0].layer_group() == 3);  // in the order given
  auto masks = view->masks();
  CHECK(masks == row_masks{{false, false}, {}, {false}});
  CHECK(view->masks(true) == row_masks{{true, true}, {}, {true}});
  masks[0][1] = true;
  CHECK(view->masks() == row_masks{{false, false}, {}, {false}});
  CHECK(region_view::make({})->num_rows() == 0);
}

TEST_CASE("PS-19 region_view: one run a layer group, and runs only") {
  const auto r = region_view::make({run_of(3, {1}), run_of(1, {1}), run_of(3, {2})});
  check_refused(r, errc::invalid, "layer group 3");
  static_assert(!std::is_invocable_v<decltype(&region_view::make), std::vector<ordinals>>);
  static_assert(!std::is_invocable_v<decltype(&region_view::make), ordinals>);
}

// ---- PS-20

template <class T>
concept options_take = requires(T v) {
  staging_options{v, 1, std::nullopt};
}
&&requires(T v) { staging_options{1, v, std::nullopt}; };

TEST_CASE("PS-20 staging_options: below 1 is refused, naming the field and its value") {
  staging_options o{.fetch_tokens = 1};
  CHECK(o.validate());
  CHECK(o.max_fetches == 1);
  CHECK_FALSE(o.max_bytes);
  SUBCASE("fetch_tokens left out") {
    check_refused(staging_options{}.validate(), errc::invalid, "fetch_tokens is 0");
  }
  SUBCASE("fetch_tokens") {
    o.fetch_tokens = -5;
    check_refused(o.validate(), errc::invalid, "fetch_tokens is -5");
  }
  SUBCASE("max_fetches") {
    o.max_fetches = 0;
    check_refused(o.validate(), errc::invalid, "max_fetches is 0");
  }
  SUBCASE("max_bytes") {
    o.max_bytes = 0;
    check_refused(o.validate(), errc::invalid, "max_bytes is 0");
  }
}

TEST_CASE("PS-20 staging_options: fractions are refused by the compiler") {
  static_assert(options_take<std::int64_t>);
  static_assert(!options_take<double> && !options_take<float> && !options_take<std::string>);
}

TEST_CASE("scenarios 5.1 readiness: empty means compute from 0") {
  CHECK(readiness{.usable_until = 31, .restart_floor = 32}.empty());
  CHECK_FALSE(readiness{.usable_until = 32, .restart_floor = 32}.empty());
}

TEST_CASE("7.10 slot counts add up, and add") {
  slot_counts a{.total = 10, .free = 4, .lent = 3, .awaiting_proof = 2, .quarantined = 1};
  CHECK(a.conserved());
  a += slot_counts{.total = 1, .free = 1};
  CHECK(a.conserved());
  CHECK(a.total == 11);
  a.free -= 1;
  CHECK_FALSE(a.conserved());
}

}  // namespace
}  // namespace kvlease::test
