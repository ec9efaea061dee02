#include "src/providers/fault_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("faults: parse") {
  const auto plan = parse_faults("partial=0.05,fail=0.02,late=1e-1", 42);
  REQUIRE(plan);
  CHECK(plan->seed == 42);
  CHECK(plan->probability == std::array<double, 9>{0, 0.05, 0.02, 0, 0, 0, 0.1, 0, 0});
  CHECK(plan->late == 10ms);
  REQUIRE(parse_faults("", 1));
  CHECK(parse_faults("", 1)->probability == std::array<double, 9>{});
  CHECK(parse_faults("miss=1", 1));
  CHECK(parse_faults("miss=0.5,hang=0.5", 1));
  CHECK(parse_faults("miss=.1,partial=.1,fail=.1,reject=.1,escape=.1,hang=.1,late=.1,unproven=.1,stubborn=.2",
                     1));
}

TEST_CASE("faults: a bad plan is refused by name") {
  const auto refused = [](const char* text, const char* naming) {
    CAPTURE(text);
    const auto plan = parse_faults(text, 1);
    REQUIRE_FALSE(plan);
    CHECK(plan.error().code == errc::invalid);
    CHECK(plan.error().text.find(naming) != std::string::npos);
  };
  refused("explode=0.1", "explode");
  refused("explode=0.1", "miss, partial, fail, reject, escape, hang, late, unproven, stubborn");
  refused("Miss=0.1", "Miss");
  refused("miss=0.1,miss=0.1", "given twice: \"miss\"");
  refused("miss", "miss");
  refused("miss=", "miss=");
  refused("miss=many", "miss=many");
  refused("miss=0.1x", "miss=0.1x");
  refused("miss= 0.1", "miss= 0.1");
  refused("miss=1.01", "miss=1.01");
  refused("miss=-0.1", "miss=-0.1");
  refused("miss=nan", "miss=nan");
  refused("miss=inf", "miss=inf");
  refused("miss=0.1,", "unknown fault: \"\"");
  refused(",miss=0.1", "unknown fault: \"\"");
  refused("miss=0.6,hang=0.6", "1.2");
}

TEST_CASE("faults: 7.9 strikes are a function of seed and submission, at the given rate") {
  const auto plan = *parse_faults("miss=0.1,fail=0.2,late=0.3", 5);
  auto other = plan;
  other.seed = 6;
  std::array<int, fault_kind_count> counts{};
  int same = 0;
  for (std::uint64_t n = 0; n < 10000; ++n) {
    const auto k = strike(plan, n);
    CHECK(k == strike(plan, n));
    same += k == strike(other, n);
    if (k) ++counts[static_cast<std::size_t>(*k)];
    const auto delay = late_delay(plan, n);
    const int times = k == fault_kind::late && late_shape_of(plan, n) == late_shape::silent ? 2 : 1;
    if (delay < times * plan.late / 4 || delay > times * plan.late) FAIL("delay out of bounds");
  }
  CHECK(std::abs(counts[0] - 1000) < 150);
  CHECK(std::abs(counts[2] - 2000) < 200);
  CHECK(std::abs(counts[6] - 3000) < 200);
  CHECK(counts[1] + counts[3] + counts[4] + counts[5] + counts[7] + counts[8] == 0);
  CHECK(same < 4000);
  // The numbers themselves: another machine or compiler must draw the same.
  CHECK(draw(plan, 0, fault_draw::kind) == 0x2f1231225630cdae);
  CHECK(draw(plan, 1, fault_draw::delay) == 0x550f8874d139ee4);
}

TEST_CASE("faults: a partial submission keeps a proper, rising subset") {
  const fault_plan plan{.seed = 8};
  std::set<std::vector<std::size_t>> seen;
  for (std::uint64_t n = 0; n < 200; ++n) {
    CHECK(partial_units(plan, n, 0).empty());
    CHECK(partial_units(plan, n, 1).empty());
    const auto kept = partial_units(plan, n, 3);
    CHECK((kept.size() == 1 || kept.size() == 2));
    CHECK(std::set<std::size_t>(kept.begin(), kept.end()).size() == kept.size());
    CHECK(std::ranges::is_sorted(kept));
    seen.insert(kept);
  }
  CHECK(seen.size() == 6);
}

}  // namespace
}  // namespace kvlease::test
