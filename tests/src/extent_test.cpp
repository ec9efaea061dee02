#include "src/extent.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

/// A name of the real width, with zero and non-ASCII bytes.
bytes name_from(unsigned seed) {
  bytes name(block_name_size, '\0');
  for (std::size_t i = 2; i < name.size(); ++i) name[i] = static_cast<char>(seed + 37 * i);
  return name;
}

const bytes name_a = name_from(1);
const bytes name_b = name_from(2);
const bytes name_c = name_from(3);

using rows = std::vector<std::uintptr_t>;

group_run run_of(std::int64_t layer_group, std::vector<bytes> names, rows addresses,
                 std::vector<std::int64_t> ordinals, std::int64_t part_index = 0) {
  return *group_run::make(layer_group, std::move(ordinals),
                          group_run::placement{std::move(names), std::move(addresses), part_index});
}

region_view view_of(std::vector<group_run> runs) { return *region_view::make(std::move(runs)); }

/// One part of 8 slots; group 7 has two rows, at slots 3 and 5.
struct mapping {
  std::vector<part> parts{{.name = "p", .address = 4096, .nbytes = 1024, .slot_bytes = 128, .slots = 8}};
  std::vector<bytes> names{name_a, name_b};
  rows addresses{4480, 4736};
  std::vector<std::int64_t> ordinals{40, 41};
  std::int64_t part_index = 0;
  std::vector<group_run> more;

  region_view view() const {
    std::vector<group_run> runs{run_of(7, names, addresses, ordinals, part_index)};
    runs.insert(runs.end(), more.begin(), more.end());
    return view_of(std::move(runs));
  }
  result<cache_extent> build(end_of_sequence is_last = end_of_sequence::yes) const {
    return build_extent(view(), parts, bytes{staging_namespace}, is_last);
  }
  void check_refused(std::string_view keyword) const { test::check_refused(build(), errc::invalid, keyword); }
};

void check_unit(const unit& u, const bytes& name, std::int64_t group, std::int64_t local) {
  CHECK(u.name() == name);
  CHECK(u.local_group() == group);
  CHECK(u.local() == local);
}

TEST_CASE("SM-01 golden mapping") {
  const auto e = mapping{}.build();
  REQUIRE(e);
  CHECK(e->name() == "trtllm:shared-kv:staging:1");
  CHECK(e->name().size() == 26);
  CHECK(e->is_last());
  REQUIRE(e->units().size() == 2);
  check_unit(e->units()[0], name_a, 7, 3);  // from addresses, not ordinals
  check_unit(e->units()[1], name_b, 7, 5);
  CHECK_FALSE(mapping{}.build(end_of_sequence::no)->is_last());
}

TEST_CASE("SM-02 relocation") {
  mapping m;
  const auto before = *m.build();
  m.parts[0].address = 8192;
  m.addresses = {8192 + 4 * 128, 8192 + 6 * 128};
  const auto after = m.build();
  REQUIRE(after);
  CHECK(after->name() == before.name());
  REQUIRE(after->units().size() == 2);
  check_unit(after->units()[0], before.units()[0].name(), 7, 4);
  check_unit(after->units()[1], before.units()[1].name(), 7, 6);
  CHECK(m.parts[0].name == "p");
}

TEST_CASE("SM-03 several groups in one part") {
  mapping m;
  m.more = {run_of(2, {name_c}, {4096 + 7 * 128}, {0})};
  const auto e = m.build();
  REQUIRE(e);
  REQUIRE(e->units().size() == 3);
  check_unit(e->units()[0], name_a, 7, 3);
  check_unit(e->units()[1], name_b, 7, 5);
  check_unit(e->units()[2], name_c, 2, 7);
}

TEST_CASE("SM-04 row before the part") {
  mapping m;
  m.addresses[0] = 3968;
  m.check_refused("outside");
  m.check_refused("row 0 of layer group 7: address 3968");
}

TEST_CASE("SM-05 unaligned row") {
  mapping m;
  m.addresses[0] = 4481;
  m.check_refused("misaligned");
  m.check_refused("4481");
}

TEST_CASE("SM-06 row past the last slot") {
  mapping m;
  m.addresses[1] = 5120;
  SUBCASE("at the end of the part") {}
  SUBCASE("in bytes of the part that no slot covers") { m.parts[0].nbytes = 4096; }
  SUBCASE("at the far end of the address space") {
    m.addresses[1] = std::numeric_limits<std::uintptr_t>::max() - 127;
  }
  m.check_refused("capacity");
  m.check_refused("row 1 of layer group 7");
}

TEST_CASE("SM-07 malformed part: address 0") {
  mapping m;
  m.parts[0].address = 0;
  m.check_refused("staging part");
  m.check_refused("address is 0");
}

TEST_CASE("SM-08 malformed part: slot_bytes 0") {
  mapping m;
  SUBCASE("0") { m.parts[0].slot_bytes = 0; }
  SUBCASE("negative") { m.parts[0].slot_bytes = -128; }
  m.check_refused("staging part");
  m.check_refused("slot_bytes is");
}

// C++ turns `true` into the count 1, so what can be refused at run time is a count below 1, and what a flag
// can never do is make more than one slot.
TEST_CASE("SM-09 malformed part: slots") {
  mapping m;
  SUBCASE("0") { m.parts[0].slots = 0; }
  SUBCASE("negative") { m.parts[0].slots = -8; }
  m.check_refused("staging part");
  m.check_refused("slots is");
}

TEST_CASE("SM-09 malformed part: slots = true covers neither row") {
  mapping m;
  m.parts[0].slots = true;
  m.check_refused("capacity");
}

TEST_CASE("SM-10 malformed part: nbytes 1023") {
  mapping m;
  SUBCASE("one byte short") { m.parts[0].nbytes = 1023; }
  SUBCASE("0") { m.parts[0].nbytes = 0; }
  SUBCASE("negative") { m.parts[0].nbytes = -1024; }
  SUBCASE("slots whose sum of bytes is past 64 bits") {
    m.parts[0].slots = std::int64_t{1} << 60;
    m.parts[0].slot_bytes = std::int64_t{1} << 60;
  }
  m.check_refused("staging part");
  m.check_refused("nbytes is");
}

TEST_CASE("SM-10 a part may be larger than its slots, and may not wrap the address space") {
  mapping m;
  m.parts[0].nbytes = 1025;
  CHECK(m.build());
  m.parts[0].address = std::numeric_limits<std::uintptr_t>::max() - 1023;
  m.check_refused("staging part");
}

TEST_CASE("SM-11 overlapping parts") {
  mapping m;
  part second{.name = "p", .address = 4608, .nbytes = 1024, .slot_bytes = 128, .slots = 8};
  SUBCASE("the second starts inside the first") {}
  SUBCASE("the second ends inside the first") { second.address = 3584; }
  SUBCASE("by one byte") { second.address = 5119; }
  SUBCASE("one in the other") { second.address = 4224, second.nbytes = 128, second.slots = 1; }
  SUBCASE("the same span") { second.address = 4096; }
  m.parts.push_back(second);
  m.check_refused("overlap");
}

TEST_CASE("SM-11 parts may touch, and may have equal names") {
  mapping m;
  m.parts.push_back({.name = "p", .address = 5120, .nbytes = 128, .slot_bytes = 128, .slots = 1});
  m.parts.push_back({.name = "p", .address = 3968, .nbytes = 128, .slot_bytes = 128, .slots = 1});
  CHECK(m.build());
}

TEST_CASE("SM-12 unknown part") {
  mapping m;
  m.part_index = 1;
  m.check_refused("unknown part");
  m.parts.clear();
  m.check_refused("unknown part");
}

TEST_CASE("SM-13 view without placement") {
  const auto view = view_of({*group_run::make(7, {40, 41}, std::nullopt)});
  check_refused(build_extent(view, mapping{}.parts, bytes{staging_namespace}, end_of_sequence::yes),
                errc::invalid, "staging names");
}

TEST_CASE("SM-14 negative ordinal") {
  mapping m;
  m.ordinals = {-1, 41};
  m.check_refused("nonnegative");
  m.check_refused("-1");
}

TEST_CASE("SM-15 duplicate slot across groups") {
  mapping m;
  m.more = {run_of(2, {name_c}, {4480}, {0})};
  m.check_refused("duplicate physical coordinate");
  m.check_refused("row 0 of layer group 2 is on slot 3 of part 0");
}

TEST_CASE("SM-15 one slot number in two parts is two slots") {
  mapping m;
  m.parts.push_back({.name = "q", .address = 8192, .nbytes = 1024, .slot_bytes = 128, .slots = 8});
  m.more = {run_of(2, {name_c}, {8192 + 3 * 128}, {0}, 1)};
  const auto e = m.build();
  REQUIRE(e);
  check_unit(e->units()[2], name_c, 2, 3);
}

TEST_CASE("SM-16 duplicate name") {
  mapping m;
  m.names = {name_a, name_a};
  m.check_refused("share a name");
}

TEST_CASE("SM-17 masks: miss") { CHECK(*served_masks(mapping{}.view(), {}) == row_masks{{false, false}}); }

TEST_CASE("SM-18 masks: hole at the front") {
  CHECK(*served_masks(mapping{}.view(), {name_b}) == row_masks{{false, true}});
}

TEST_CASE("SM-19 masks: all, writable, the view as it was") {
  const auto view = mapping{}.view();
  auto masks = served_masks(view, {name_a, name_b});
  REQUIRE(masks);
  CHECK(*masks == row_masks{{true, true}});
  (*masks)[0][0] = false;
  CHECK(view == mapping{}.view());
  static_assert(std::is_same_v<row_masks::value_type::value_type, bool>);
}

TEST_CASE("SM-19 masks: one a run, in row order") {
  mapping m;
  m.more = {run_of(2, {name_c}, {4096}, {0}), run_of(9, {}, {}, {})};
  CHECK(*served_masks(m.view(), {name_c, name_a}) == row_masks{{true, false}, {true}, {}});
}

TEST_CASE("SM-20 unknown served name") {
  const auto r = served_masks(mapping{}.view(), {name_a, name_c});
  check_refused(r, errc::invalid, "subset");
  check_refused(r, errc::invalid, name_text(name_c));
}

TEST_CASE("SM-20 a view without names cannot be served") {
  const auto view = view_of({*group_run::make(7, {40, 41}, std::nullopt)});
  check_refused(served_masks(view, {}), errc::invalid, "names");
}

TEST_CASE("SM-21 duplicate view names") {
  mapping m;
  std::set<bytes> served{name_a};
  SUBCASE("in one run") { m.names = {name_a, name_a}; }
  SUBCASE("across two runs") { m.more = {run_of(2, {name_a}, {4096}, {0})}; }
  SUBCASE("also when that name was not served") { m.names = {name_b, name_b}, served.clear(); }
  check_refused(served_masks(m.view(), served), errc::invalid, "duplicate names");
}

TEST_CASE("SM-22 empty view") {
  const auto view = view_of({});
  const auto e = build_extent(view, {}, bytes{staging_namespace}, end_of_sequence::no);
  REQUIRE(e);
  CHECK(e->units().empty());
  CHECK(served_masks(view, {})->empty());
}

template <class Name, class Last>
concept builds = requires(const region_view& v, std::span<const part> p, Name n, Last l) {
  build_extent(v, p, n, l);
};

TEST_CASE("SM-41 request id as namespace: namespace must be bytes") {
  static_assert(builds<bytes, end_of_sequence>);
  static_assert(!builds<int, end_of_sequence> && !builds<std::uint64_t, end_of_sequence>);
}

TEST_CASE("SM-42 non-bool end marker: is_last must be its own type") {
  static_assert(!builds<bytes, int> && !builds<bytes, bool>);
}

template <class Served>
concept serves = requires(const region_view& v, const Served& s) {
  served_masks(v, s);
};

TEST_CASE("scenarios 2.4 served is a set of byte strings") {
  static_assert(serves<std::set<bytes>>);
  static_assert(!serves<std::vector<bytes>> && !serves<std::set<int>> && !serves<bytes>);
}

TEST_CASE("scenarios 2.3 the checks come in order: parts, their overlap, then run by run") {
  mapping m;
  m.names = {name_a, name_a};
  m.check_refused("share a name");
  m.addresses[1] = m.addresses[0];
  m.check_refused("duplicate physical coordinate");
  m.addresses[0] = 4481;
  m.check_refused("misaligned");
  m.ordinals[1] = -5;
  m.check_refused("nonnegative");
  m.part_index = 7;
  m.check_refused("unknown part");
  m.parts.push_back(m.parts[0]);
  m.check_refused("overlap");
  m.parts[1].slots = 0;
  m.check_refused("staging part 1");
}

TEST_CASE("scenarios 2.3 a lease of 100,000 rows is mapped both ways in far less than quadratic time") {
  constexpr std::int64_t n = 100'000;
  std::vector<part> parts{{.name = "p", .address = 4096, .nbytes = n * 16, .slot_bytes = 16, .slots = n}};
  std::vector<bytes> names;
  rows addresses;
  std::vector<std::int64_t> ordinals;
  std::set<bytes> served;
  for (std::int64_t i = 0; i < n; ++i) {
    names.push_back(std::to_string(i) + name_a.substr(10));
    addresses.push_back(4096 + static_cast<std::uintptr_t>(n - 1 - i) * 16);
    ordinals.push_back(i);
    if (i % 3 == 0) served.insert(names.back());
  }
  const auto view = view_of({run_of(0, std::move(names), std::move(addresses), std::move(ordinals))});
  const auto start = std::chrono::steady_clock::now();
  const auto e = build_extent(view, parts, bytes{staging_namespace}, end_of_sequence::yes);
  const auto masks = served_masks(view, served);
  const auto took = std::chrono::steady_clock::now() - start;
  REQUIRE(e);
  REQUIRE(masks);
  CHECK(e->units().front().local() == n - 1);
  CHECK(e->units().back().local() == 0);
  bool right = true;
  for (std::size_t i = 0; i < n; ++i) right = right && (*masks)[0][i] == (i % 3 == 0);
  CHECK(right);
  CHECK(took < std::chrono::seconds{10});  // quadratic: 10^10 comparisons; this leaves room for sanitizers
}

}  // namespace
}  // namespace kvlease::test
