#include "messages/contract.hpp"

#include <doctest/doctest.h>

#include <set>
#include <type_traits>

#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

using namespace std::string_literals;

unit unit_of(bytes name, std::int64_t group, std::int64_t local) {
  return *unit::make({.name = std::move(name), .local_group = group, .local = local});
}

// ---- units

TEST_CASE("BC-02 negative coordinate: the group") {
  const auto r = unit::make({.name = "a", .local_group = -1, .local = 0});
  check_refused(r, errc::invalid, "negative local coordinate");
  check_refused(r, errc::invalid, "local_group is -1");
}

TEST_CASE("BC-03 negative coordinate: the local") {
  const auto r = unit::make({.name = "a", .local_group = 0, .local = -1});
  check_refused(r, errc::invalid, "negative local coordinate");
  check_refused(r, errc::invalid, "local is -1");
}

TEST_CASE("BC-04 negative coordinate: both") {
  check_refused(unit::make({.name = "a", .local_group = -1, .local = -1}), errc::invalid,
                "negative local coordinate");
}

TEST_CASE("scenarios 1.1 zero coordinates and any name are let through") {
  CHECK(unit_of("", 0, 0).name().empty());
  const auto odd = "\0\xff\0"s;
  CHECK(unit_of(odd, 1, 2).name() == odd);
  CHECK(unit_of(odd, 1, 2) == unit_of(odd, 1, 2));
  CHECK(unit_of(odd, 1, 2) != unit_of(odd, 1, 3));
}

// ---- extents

TEST_CASE("BC-05 snapshot: clearing the caller's list changes nothing") {
  std::vector<unit> mine{unit_of("a", 0, 1), unit_of("b", 0, 1)};
  const auto extent = *cache_extent::make("content", mine, end_of_sequence::yes);
  mine.clear();
  REQUIRE(extent.units().size() == 2);
  CHECK(extent.units()[0] == unit_of("a", 0, 1));
  CHECK(extent.units()[1].name() == "b");  // equal coordinates under two names are no matter of the extent
}

TEST_CASE("BC-05 duplicates: two units of one name, whatever their coordinates") {
  const auto r = cache_extent::make("content", {unit_of("a", 0, 0), unit_of("b", 0, 1), unit_of("a", 1, 7)},
                                    end_of_sequence::no);
  check_refused(r, errc::invalid, "share a name");
  check_refused(r, errc::invalid, "units 0 and 2");
  check_refused(r, errc::invalid, "'61'");  // the name, in hex
}

TEST_CASE("BC-05 names that differ after a zero byte are two names") {
  CHECK(cache_extent::make("content", {unit_of("a\0x"s, 0, 0), unit_of("a\0y"s, 0, 1)}, end_of_sequence::no));
}

// ---- frozen: what may be read may not be assigned, and there is no other way in

template <class T>
concept name_assignable = requires(T x) {
  x.name() = bytes{};
}
|| requires(T x) { x.name().clear(); };
template <class T>
concept local_assignable = requires(T x) {
  x.local() = 1;
}
|| requires(T x) { x.local_group() = 1; };
template <class T>
concept units_assignable = requires(T x) {
  x.units() = {};
}
|| requires(T x) { x.units().clear(); };
template <class T>
concept last_assignable = requires(T x) {
  x.is_last() = true;
};
template <class T>
concept served_assignable = requires(T x) {
  x.served() = {};
}
|| requires(T x) { x.served().clear(); };
template <class T>
concept reason_assignable = requires(T x) {
  x.reason() = "";
}
|| requires(T x) { x.reason().clear(); };
template <class T>
concept by_peer_assignable = requires(T x) {
  x.by_peer() = true;
};
/// A type whose fields are set by its constructor alone.
template <class T>
concept closed = !std::is_aggregate_v<T> && !std::is_default_constructible_v<T>;

TEST_CASE("BC-06 frozen: unit") {
  static_assert(closed<unit> && !name_assignable<unit> && !local_assignable<unit>);
}

TEST_CASE("BC-07 frozen: cache_extent") {
  static_assert(closed<cache_extent> && !name_assignable<cache_extent> && !units_assignable<cache_extent> &&
                !last_assignable<cache_extent>);
}

TEST_CASE("BC-08 frozen: delivered") { static_assert(closed<delivered> && !served_assignable<delivered>); }

TEST_CASE("BC-09 frozen: failed") { static_assert(closed<failed> && !reason_assignable<failed>); }

TEST_CASE("BC-10 frozen: cancelled") { static_assert(closed<cancelled> && !by_peer_assignable<cancelled>); }

// ---- markers

TEST_CASE("BC-11 an extent without units and with an empty name is valid") {
  const auto extent = cache_extent::make("", {}, end_of_sequence::no);
  REQUIRE(extent);
  CHECK(extent->name().empty());
  CHECK(extent->units().empty());
  CHECK_FALSE(extent->is_last());
  CHECK(cache_extent::make("", {}, end_of_sequence::yes)->is_last());
}

TEST_CASE("BC-11 explicit markers: no default says who cancelled or what is last") {
  static_assert(!std::is_default_constructible_v<cancelled>);
  static_assert(!std::is_constructible_v<cancelled, bool> && !std::is_convertible_v<cancelled_by, cancelled>);
  using make_extent = decltype(&cache_extent::make);
  static_assert(std::is_invocable_v<make_extent, bytes, std::vector<unit>, end_of_sequence>);
  static_assert(!std::is_invocable_v<make_extent, bytes, std::vector<unit>>);
  static_assert(!std::is_invocable_v<make_extent, bytes, std::vector<unit>, bool>);
  CHECK(cancelled{cancelled_by::peer}.by_peer());
  CHECK_FALSE(cancelled{cancelled_by::local}.by_peer());
}

TEST_CASE("BC-11 explicit markers: a unit's fields are named") {
  static_assert(!std::is_constructible_v<unit, bytes, std::int64_t, std::int64_t>);
  static_assert(!std::is_invocable_v<decltype(&unit::make), bytes, std::int64_t, std::int64_t>);
  static_assert(std::is_invocable_v<decltype(&unit::make), unit::fields>);
}

// ---- outcomes and texts

TEST_CASE("scenarios 1.6 an outcome is one of three") {
  static_assert(std::variant_size_v<outcome> == 3);
  static_assert(!std::is_default_constructible_v<outcome>);
  CHECK(delivered{{"a"}} == delivered{{"a"}});
  CHECK(delivered{{"a"}} != delivered{{}});
  CHECK(outcome{failed{"x"}} != outcome{failed{"y"}});
  CHECK(outcome{cancelled{cancelled_by::local}} != outcome{cancelled{cancelled_by::peer}});
}

TEST_CASE("scenarios 1.6 the texts of outcomes; a miss is neither a failure nor a delivery") {
  CHECK(to_string(outcome{delivered{{"a", "b", "c"}}}) == "delivered(3)");
  CHECK(to_string(outcome{delivered{{}}}) == "miss");
  CHECK(to_string(outcome{failed{"link down"}}) == "failed(link down)");
  CHECK(to_string(outcome{cancelled{cancelled_by::local}}) == "cancelled(local)");
  CHECK(to_string(outcome{cancelled{cancelled_by::peer}}) == "cancelled(peer)");
}

TEST_CASE("scenarios 1.6 every enumerator has its name, and a foreign value has none") {
  CHECK(to_string(access_state::running) == "running");
  CHECK(to_string(access_state::unproven) == "unproven");
  CHECK(to_string(proof_source::terminal_status) == "terminal_status");
  CHECK(to_string(proof_source::process_exit) == "process_exit");
  CHECK(to_string(cancel_disposition::unsupported) == "unsupported");
  CHECK(to_string(cancel_disposition::requested) == "requested");
  CHECK(to_string(direction::fetch) == "fetch");
  CHECK(to_string(direction::publish) == "publish");
  CHECK(to_string(errc::invalid) == "invalid");
  CHECK(to_string(errc::no_memory) == "no_memory");
  CHECK(to_string(errc::io) == "io");
  CHECK(to_string(static_cast<errc>(0)) == "?");
  CHECK(to_string(static_cast<errc>(200)) == "?");
  CHECK(to_string(error{errc::state, "not accepting"}) == "state: not accepting");
  CHECK(name_text("a\0\xff"s) == "'6100ff'");
}

}  // namespace
}  // namespace kvlease::test
