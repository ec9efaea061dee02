#include <doctest/doctest.h>

#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE("world: a fetch from lend to released") {
  world w;
  const auto r = w.admit(13);
  const auto op = w.fetch(r, 3);
  REQUIRE(w.provider->attempts.size() == 1);
  w.provider->last().deliver_all();
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome delivered(3)"});
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome delivered(3)", "released"});
  CHECK(w.ready_from(r)->value() == readiness{12, 0});
  CHECK(w.slots() == slot_counts{8, 8, 0, 0, 0});
  CHECK(w.stop().stopped);
  CHECK(w.exposure_bytes() == 0);
}
