// The proof ladder: an access that does not end by itself is helped along before the grace ends, where that
// was asked for, and only there (architecture.md, "Proof has a source").
#include <doctest/doctest.h>

#include <algorithm>

#include "actors/guard.hpp"
#include "tests/mutations.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

world_options climbing(std::vector<proof_source> rungs) {
  world_options o;
  o.proof_rungs = std::move(rungs);
  o.provider.rungs = {proof_source::flush, proof_source::endpoint_closed};
  o.timeout = 4s;
  return o;
}

std::size_t count(const world& w, journal_kind kind) {
  const auto all = w.records();
  return static_cast<std::size_t>(
      std::ranges::count_if(all, [kind](const journal_record& r) { return r.kind == kind; }));
}

}  // namespace

static const broken_by unasked{actor_mutation::ladder_climbed_unasked, "2.4 ladder: off*"};
TEST_CASE("2.4 ladder: off unless it is configured, whatever the provider offers") {
  world w{climbing({})};
  const auto op = w.fetch(w.admit(9));
  w.advance(7s);  // the timeout, and almost all of the grace
  CHECK(w.provider->climbed.empty());
  CHECK(w.of(op).events.front().find("outcome failed") == 0);
  w.provider->last().end_access();
  w.advance(300ms);
  CHECK(w.of(op).events.back() == "released");
}

TEST_CASE("2.4 ladder: a rung is climbed in the middle of the grace, and its proof releases the memory") {
  world w{climbing({proof_source::endpoint_closed})};
  const auto op = w.fetch(w.admit(9));
  w.advance(5500ms);
  CHECK(w.provider->climbed.empty());
  w.advance(1s);  // T of 4 s, then half of the grace
  CHECK(w.provider->climbed == std::vector<proof_source>{proof_source::endpoint_closed});
  CHECK(count(w, journal_kind::rung_climbed) == 1);
  CHECK(w.of(op).events.back() != "released");  // the climb proves nothing
  w.provider->last().end_access_by(proof_source::endpoint_closed);
  w.advance(300ms);
  CHECK(w.of(op).events.back() == "released");
  CHECK(w.containments() == 0);
  CHECK(w.exposure_bytes() == 0);
}

static const broken_by climbs_on{actor_mutation::climbs_for_proven, "2.4 ladder: what is proven*"};
TEST_CASE("2.4 ladder: what is proven in time is not helped, however long the memory is held after that") {
  world w{climbing({proof_source::endpoint_closed})};
  const auto request = w.admit(9);
  const auto lease = w.lend(direction::fetch, request, {0, 8});
  REQUIRE(lease);
  const auto op = w.submit(direction::fetch, *lease, request);
  REQUIRE(op);
  {
    const auto reader = w.roots->guard(*lease);
    REQUIRE(reader);
    w.provider->last().fail("a torn unit");
    w.advance(500ms);
    w.provider->last().end_access();
    w.advance(3s);
    CHECK(w.of(*op).releases == 0);  // its reader keeps it
    CHECK(w.provider->climbs == 0);
  }
  w.advance(300ms);
  CHECK(w.of(*op).releases == 1);
}

TEST_CASE("2.4 ladder: rungs in the provider's order, each before the fatal end of the grace") {
  world w{climbing({proof_source::endpoint_closed, proof_source::flush})};
  w.fetch(w.admit(9));
  w.advance(7999ms);
  CHECK(w.provider->climbed == std::vector<proof_source>{proof_source::flush, proof_source::endpoint_closed});
  CHECK(w.containments() == 0);
  w.advance(1s);
  CHECK(w.containments() == 1);  // neither has proven anything
}

TEST_CASE("2.4 ladder: others that a rung takes down are named, fail first and are proven one by one") {
  world w{climbing({proof_source::endpoint_closed})};
  const auto first = w.fetch(w.admit(9));
  auto& one = w.provider->last();
  w.advance(3s);
  const auto second = w.fetch(w.admit(9, 1000));
  auto& other = w.provider->last();
  w.provider->takes_down = [&] {
    other.fail("its endpoint was closed");
    return std::vector<std::shared_ptr<attempt>>{w.provider->attempts.back()};
  };
  w.advance(3500ms);
  CHECK(w.provider->climbed.size() == 1);
  CHECK(w.of(second).events.front() == "outcome failed(its endpoint was closed)");
  CHECK(count(w, journal_kind::operation_taken_down) == 1);
  CHECK(w.slots().free < w.slots().total);
  one.end_access_by(proof_source::endpoint_closed);
  w.advance(200ms);
  CHECK(w.of(first).events.back() == "released");
  CHECK(w.of(second).events.back() != "released");
  other.end_access_by(proof_source::endpoint_closed);
  w.advance(200ms);
  CHECK(w.of(second).events.back() == "released");
}

TEST_CASE("2.4 ladder: a climb that throws, or a provider without rungs, changes nothing") {
  SUBCASE("throws") {
    world w{climbing({proof_source::endpoint_closed})};
    const auto op = w.fetch(w.admit(9));
    w.provider->takes_down = []() -> std::vector<std::shared_ptr<attempt>> {
      throw std::runtime_error{"no"};
    };
    w.advance(7s);
    CHECK(w.provider->climbs == 1);
    CHECK(count(w, journal_kind::rung_climbed) == 0);  // it was not climbed
    w.provider->last().end_access();
    w.advance(300ms);
    CHECK(w.of(op).events.back() == "released");
  }
  SUBCASE("no rungs") {
    auto o = climbing({proof_source::endpoint_closed});
    o.provider.rungs = {};
    world w{o};
    const auto op = w.fetch(w.admit(9));
    w.advance(7s);
    CHECK(w.provider->climbs == 0);
    w.provider->last().end_access();
    w.advance(300ms);
    CHECK(w.of(op).events.back() == "released");
  }
}
