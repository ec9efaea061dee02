// Scenarios 7.Q: edges that the reference's code has and no test of its own covers. are in
// tests/src/retirement_test.cpp.
#include <doctest/doctest.h>

#include <set>
#include <type_traits>

#include "actors/guard.hpp"
#include "src/extent.hpp"
#include "src/profile.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE(
    "Q-01 exposure is refused at the submission: cancelled, not called, marked with nothing, released") {
  world w;
  one_fetch f{w, false};
  const auto owner = w.create_owner(f.request, 5s);
  REQUIRE(owner.has_value());
  REQUIRE(w.close_admission());  // between the owner's making and the submit
  const auto op = w.submit(direction::fetch, f.lease, f.request, *owner);
  REQUIRE(op.has_value());
  w.advance(a_while);
  CHECK(w.of(*op).events == strings{"outcome cancelled(local)", "released"});
  CHECK(w.provider->submissions == 0);
  CHECK(f.marked() == none);
  CHECK(w.ready_from(f.request)->value() == readiness{0, 0});  // settled, as a miss is
  CHECK(w.slots().free == w.slots().total);
}

TEST_CASE("Q-02 a backend that returns no attempt has let the submission escape") {
  world w;
  w.provider->return_null = true;
  one_fetch f{w};
  w.advance(a_while);
  CHECK(std::holds_alternative<failed>(*w.of(f.op).value));
  CHECK(w.of(f.op).retentions == 1);
  REQUIRE(w.retry_proof(f.op));  // nothing to retry: no handle can prove it
  w.advance(a_while);
  CHECK(w.of(f.op).releases == 0);
  w.advance(6s);
  CHECK(w.fatal().has_value());
}

TEST_CASE("Q-03 a poll that throws is a failure; an outcome is one of three by its type") {
  static_assert(std::is_same_v<decltype(std::declval<attempt&>().poll()), std::optional<outcome>>);
  static_assert(std::variant_size_v<outcome> == 3);
  world w;
  w.provider->on_attempt = [](scripted_attempt& a) { a.poll_throws = true; };
  one_fetch f{w};
  w.advance(a_while);
  CHECK(w.of(f.op).events == strings{"outcome failed(poll failed: poll broke)"});
  f.at->end_access();
  w.advance(a_while);
  CHECK(w.of(f.op).releases == 1);
}

TEST_CASE(
    "Q-04 a release is a message: a lender that can't take it leaves the slots out, and nothing twice") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  w.advance(a_while);
  w.kill(actor_kind::lender);
  f.at->end_access();
  w.advance(a_while);
  CHECK(w.of(f.op).releases == 0);
  CHECK(w.of(f.op).retentions >= 1);
}

TEST_CASE(
    "Q-05 the hold is released by a message too: without a lender close is not refused for ever by it") {
  world w;
  w.kill(actor_kind::lender);
  for (int i = 0; i < 3; ++i) w.close_adapter();
  w.advance(a_while);
  CHECK(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register", "deregister"});
}

static const broken_by unknown_cancelled{actor_mutation::unknown_cancel_answered, "Q-06 *"};
TEST_CASE("Q-06 a foreign operation to cancel or to retry is unknown, and changes nothing") {
  world w;
  one_fetch f{w};
  const operation_id foreign{f.op.value ^ (std::uint64_t{1} << (id_sequence_bits + 3))};
  for (const auto op : {foreign, operation_id{f.op.value + 100}}) {
    CHECK(w.cancel(op).error().code == errc::unknown);
    CHECK(w.retry_proof(op).error().code == errc::unknown);
  }
  CHECK(w.of(f.op).events.empty());
  CHECK(w.provider->last().cancels == 0);
}

TEST_CASE("Q-07 the registrations' own grace runs out while an operation drains too slowly after close") {
  world w{{.timeout = std::chrono::seconds{60}}};  // registrations and operation alike
  one_fetch f{w};
  CHECK_FALSE(w.close_adapter().first);
  w.advance(59s);
  CHECK_FALSE(w.fatal().has_value());
  w.advance(1s);
  REQUIRE(w.fatal().has_value());
  CHECK(w.fatal()->deadline - w.fatal()->started == 60s);
  f.at->end_access();
  w.advance(a_while);
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register"});
}

TEST_CASE("Q-13 a name twice across two runs is refused by served_masks") {
  const auto run = [](std::int64_t group, std::int64_t slot) {
    return *group_run::make(
        group, {0}, group_run::placement{{"same"}, {static_cast<std::uintptr_t>(4096 + slot * 64)}, 0});
  };
  const auto view = *region_view::make({run(0, 0), run(1, 1)});
  for (const std::set<bytes>& served : {std::set<bytes>{}, std::set<bytes>{"same"}}) {
    const auto masks = served_masks(view, served);
    REQUIRE_FALSE(masks.has_value());
    CHECK(masks.error().text.find("duplicate names") != std::string::npos);
  }
}

TEST_CASE("Q-14 a part may be larger than its slots") {
  const part larger{"p", 4096, 4096, 64, 4};
  const auto view =
      *region_view::make({*group_run::make(0, {0}, group_run::placement{{"n"}, {4096 + 192}, 0})});
  const auto extent = build_extent(view, {&larger, 1}, bytes{staging_namespace}, end_of_sequence::yes);
  REQUIRE(extent.has_value());
  CHECK(extent->units().front().local() == 3);
  const auto past =
      *region_view::make({*group_run::make(0, {0}, group_run::placement{{"n"}, {4096 + 256}, 0})});
  CHECK_FALSE(build_extent(past, {&larger, 1}, bytes{staging_namespace}, end_of_sequence::yes).has_value());
}

TEST_CASE("Q-15 the profile's parallelism is four numbers, its features a set, by their types") {
  static_assert(std::is_same_v<decltype(shared_runtime_profile::parallelism), std::array<std::int64_t, 4>>);
  static_assert(std::is_same_v<decltype(shared_runtime_profile::extra_features), std::set<std::string>>);
  auto profile = supported_profile("x");
  CHECK(validate(profile).has_value());
  profile.parallelism[2] = 0;
  CHECK_FALSE(validate(profile).has_value());
}

TEST_CASE("Q-16 the end marker and the route of a fetch are passed through") {
  world w;
  one_fetch f{w, false};
  auto& in = w.in();
  in.send(in.parts.actors->adapter, submit{f.lease, direction::fetch, f.request, *transfer_timeout::make(5s),
                                           in.host, std::nullopt, end_of_sequence::no});
  REQUIRE(w.provider->attempts.size() == 1);
  CHECK_FALSE(w.provider->last().extent.is_last());
  CHECK(w.provider->last_route == nullptr);
  one_fetch other{w, false};
  const auto along = w.open_route("good");
  REQUIRE(along.has_value());
  in.send(in.parts.actors->adapter,
          submit{other.lease, direction::fetch, other.request, *transfer_timeout::make(5s), in.host,
                 std::nullopt, end_of_sequence::yes, *along});
  CHECK(w.provider->last().extent.is_last());
  CHECK(w.provider->last_route != nullptr);
}

static const broken_by routeless{actor_mutation::closed_route_is_none, "2.7 routes*"};
static const broken_by route_forgotten{actor_mutation::broken_route_close_is_done, "2.7 routes*"};
TEST_CASE(
    "2.7 routes: a bad hint is an argument error, a close that fails is retried, a closed one is rejected") {
  world w;
  auto& in = w.in();
  CHECK(w.open_route("bad").error().code == errc::invalid);
  CHECK(w.open_route("anything").error().code == errc::unsupported);
  const auto along = w.open_route("good");
  REQUIRE(along.has_value());
  w.provider->fail_closes = 1;
  CHECK(w.close_route(*along).error().code == errc::provider);
  CHECK(w.close_route(*along).has_value());
  CHECK(w.close_route(*along).error().code == errc::unknown);
  CHECK(w.close_route(route_id{along->value + 5}).error().code == errc::unknown);
  one_fetch f{w, false};
  in.send(in.parts.actors->adapter, submit{f.lease, direction::fetch, f.request, *transfer_timeout::make(5s),
                                           in.host, std::nullopt, end_of_sequence::yes, *along});
  w.advance(a_while);
  CHECK(w.provider->submissions == 0);  // nothing escaped: released at once
  CHECK(w.slots().free == w.slots().total);
}

TEST_CASE("Q-17 a miss lets the request restart below its history, an abandoned fetch does not") {
  world w;
  const auto r = w.admit(17);
  w.compute(r, 2, std::byte{1});  // history 8
  const auto lease = w.lend(direction::fetch, r, {8, 16});
  REQUIRE(lease.has_value());
  SUBCASE("a miss: the floor is the lower of origin and history") {
    REQUIRE(w.submit(direction::fetch, *lease, r));
    w.provider->last().deliver({});
    w.provider->last().end_access();
    w.advance(a_while);
    CHECK(w.ready_from(r)->value() == readiness{8, 8});
  }
  SUBCASE("abandoned: the floor is the history") {
    REQUIRE(w.withdraw(*lease));
    CHECK(w.ready_from(r)->value() == readiness{8, 8});
  }
}
