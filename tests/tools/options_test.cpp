#include "tools/replay/options.hpp"

#include <doctest/doctest.h>

using namespace kvlease::replay;

TEST_CASE("options: durations") {
  CHECK(parse_duration("5s")->count() == doctest::Approx(5));
  CHECK(parse_duration("200ms")->count() == doctest::Approx(0.2));
  CHECK(parse_duration("1.5s")->count() == doctest::Approx(1.5));
  CHECK(parse_duration("50us")->count() == doctest::Approx(50e-6));
  CHECK(parse_duration("2m")->count() == doctest::Approx(120));
  for (const auto* bad : {"", "s", "5", "5 s", "5h", "five", "5s "}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_duration(bad).has_value());
  }
}

TEST_CASE("options: a trace's block size is its own") {
  replay_options o;
  o.requests = 5;
  o.tokens_per_block = 64;
  const auto plan = plan_replay(o);
  REQUIRE(plan.has_value());
  CHECK(plan->tokens_per_block == 64);
  CHECK(plan->pool_blocks >= 1);
}
