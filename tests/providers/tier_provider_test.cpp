// Tiers over scripted providers: which tier is asked for what, when, and what proves the end.
#include "src/providers/tier/tier_provider.hpp"

#include <doctest/doctest.h>

#include "tests/providers/provider_fixture.hpp"
#include "tests/scripted_provider.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

struct tiers_fixture : staging_fixture {
  explicit tiers_fixture(std::size_t count = 2, bool past_failures = false, scripted_options options = {},
                         std::vector<bool> required = {}) {
    tier_stack stack{{}, past_failures};
    for (std::size_t i = 0; i < count; ++i) {
      stores.push_back(std::make_shared<scripted_provider>(options));
      stack.tiers.push_back({stores.back(), required.empty() || required[i]});
    }
    subject = std::make_shared<tier_provider>(std::move(stack), context);
    handles = register_all(*subject);
  }

  /// Every tier was looked at; a scripted provider notifies nobody.
  void look(const std::shared_ptr<attempt>& a) {
    for (int i = 0; i < 3; ++i) {
      subject->poll_access(*a);
      exec->run_all();
    }
  }
  scripted_attempt& in(std::size_t tier) { return stores[tier]->last(); }
  std::size_t asked(std::size_t tier) const { return stores[tier]->attempts.size(); }
  access_answer access(const std::shared_ptr<attempt>& a) { return subject->poll_access(*a); }

  std::vector<std::shared_ptr<scripted_provider>> stores;
  std::shared_ptr<tier_provider> subject;
  std::vector<std::unique_ptr<registration>> handles;
  const cache_extent three = extent_of({at("a", 0, 0), at("b", 0, 1), at("c", 1, 0)});
};

std::set<bytes> names_in(const cache_extent& e) {
  std::set<bytes> names;
  for (const auto& u : e.units()) names.insert(u.name());
  return names;
}

}  // namespace

TEST_CASE("tier: a unit that the first tier has is asked of no other") {
  tiers_fixture f;
  const auto a = f.subject->fetch(f.three);
  f.look(a);
  CHECK(f.asked(0) == 1);
  CHECK_FALSE(a->poll());
  f.in(0).deliver_all();
  f.look(a);
  CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b", "c"});
  CHECK(f.access(a).state == access_state::running);  // the tier has not proven it
  f.in(0).end_access();
  f.look(a);
  CHECK(f.access(a).state == access_state::ended);
  CHECK(f.asked(1) == 0);
}

TEST_CASE(
    "tier: what is missing is asked of the next tier once the first one's access has ended, not before") {
  tiers_fixture f{3};
  const auto a = f.subject->fetch(f.three);
  f.in(0).deliver({1});
  f.look(a);
  CHECK(f.asked(1) == 0);  // it may still write a's and c's slots
  CHECK_FALSE(a->poll());
  f.in(0).end_access();
  f.look(a);
  REQUIRE(f.asked(1) == 1);
  CHECK(names_in(f.in(1).extent) == std::set<bytes>{"a", "c"});
  f.in(1).deliver({});
  f.in(1).end_access();
  f.look(a);
  REQUIRE(f.asked(2) == 1);
  f.in(2).deliver({1});
  f.look(a);
  CHECK(served_of(a->poll()) == std::set<bytes>{"b", "c"});
  CHECK(f.access(a).state == access_state::running);
  f.in(2).end_access();
  f.look(a);
  CHECK(f.access(a).state == access_state::ended);
  CHECK(f.subject->counters() == unit_counters{.hits = 2, .misses = 1, .failures = 0});
}

TEST_CASE("tier: a unit whose earlier attempt can't be proven stays unserved, and its memory retained") {
  tiers_fixture f;
  const auto a = f.subject->fetch(f.three);
  f.in(0).deliver({0});
  f.in(0).access = access_state::unproven;
  f.look(a);
  CHECK(f.asked(1) == 0);
  CHECK(served_of(a->poll()) == std::set<bytes>{"a"});
  CHECK(f.access(a).state == access_state::unproven);
  CHECK_FALSE(f.subject->quiesce({&a, 1}));
  f.in(0).end_access();  // the proof comes after all
  f.look(a);
  CHECK(f.access(a).state == access_state::ended);
  CHECK(f.subject->quiesce({&a, 1}));
  CHECK(f.asked(1) == 0);
}

TEST_CASE("tier: a failure does not fall through, unless it is said to") {
  SUBCASE("by default it fails the fetch") {
    tiers_fixture f;
    const auto a = f.subject->fetch(f.three);
    f.in(0).fail("disk on fire");
    f.in(0).end_access();
    f.look(a);
    CHECK(reason_of(a->poll()) == "tier 0: disk on fire");
    CHECK(f.asked(1) == 0);
  }
  SUBCASE("what a tier before has served stays served") {
    tiers_fixture f;
    const auto a = f.subject->fetch(f.three);
    f.in(0).deliver({0});
    f.in(0).end_access();
    f.look(a);
    f.in(1).fail("gone");
    f.in(1).end_access();
    f.look(a);
    CHECK(served_of(a->poll()) == std::set<bytes>{"a"});
    CHECK(f.access(a).state == access_state::ended);
  }
  SUBCASE("past=failures asks the next tier, after the proof") {
    tiers_fixture f{2, true};
    const auto a = f.subject->fetch(f.three);
    f.in(0).fail("disk on fire");
    f.look(a);
    CHECK(f.asked(1) == 0);
    f.in(0).end_access();
    f.look(a);
    REQUIRE(f.asked(1) == 1);
    f.in(1).deliver_all();
    f.in(1).end_access();
    f.look(a);
    CHECK(served_of(a->poll()).size() == 3);
  }
  SUBCASE("a later tier that rejects leaves the units unserved") {
    tiers_fixture f;
    f.stores[1]->on_submit = [](const cache_extent&) { throw submission_rejected{"not today"}; };
    const auto a = f.subject->fetch(f.three);
    f.in(0).deliver({0});
    f.in(0).end_access();
    f.look(a);
    CHECK(served_of(a->poll()) == std::set<bytes>{"a"});
    CHECK(f.access(a).state == access_state::ended);
  }
}

TEST_CASE(
    "tier: 2.2 a submission that escapes without a handle is never proven; a rejected one left nothing") {
  tiers_fixture f;
  f.stores[0]->on_submit = [](const cache_extent&) { throw std::runtime_error{"half sent"}; };
  const auto a = f.subject->fetch(f.three);
  f.look(a);
  CHECK(reason_of(a->poll()) == "tier 0: half sent");
  CHECK(f.access(a).state == access_state::unproven);
  CHECK(f.asked(1) == 0);
  f.stores[0]->on_submit = [](const cache_extent&) { throw submission_rejected{"full"}; };
  CHECK_THROWS_AS(f.subject->fetch(f.three), submission_rejected);
}

TEST_CASE("tier: a publish goes to all at once, and is delivered for what every required tier holds") {
  tiers_fixture f{3, false, {}, {true, true, false}};
  const auto a = f.subject->publish(f.three);
  for (std::size_t i = 0; i < 3; ++i) CHECK(f.asked(i) == 1);
  f.in(0).deliver({0, 1});
  f.look(a);
  CHECK_FALSE(a->poll());
  f.in(1).deliver({1, 2});
  f.look(a);
  CHECK(served_of(a->poll()) == std::set<bytes>{"b"});  // the optional tier is not waited for
  f.in(0).end_access();
  f.in(1).end_access();
  f.look(a);
  CHECK(f.access(a).state == access_state::running);  // but it still reads
  f.in(2).fail("away");
  f.in(2).end_access();
  f.look(a);
  CHECK(f.access(a).state == access_state::ended);
  CHECK(served_of(a->poll()) == std::set<bytes>{"b"});
}

TEST_CASE("tier: a publish that a required tier fails or rejects has failed; the others' access counts") {
  SUBCASE("failed") {
    tiers_fixture f;
    const auto a = f.subject->publish(f.three);
    f.in(0).fail("full");
    f.in(1).deliver_all();
    f.look(a);
    CHECK(reason_of(a->poll()) == "tier 0: full");
  }
  SUBCASE("rejected after another had taken it") {
    tiers_fixture f;
    f.stores[1]->on_submit = [](const cache_extent&) { throw submission_rejected{"not today"}; };
    const auto a = f.subject->publish(f.three);
    f.in(0).deliver_all();
    f.look(a);
    CHECK(reason_of(a->poll()) == "tier 1 rejected the submission: not today");
    CHECK(f.access(a).state == access_state::running);
    f.in(0).end_access();
    f.look(a);
    CHECK(f.access(a).state == access_state::ended);
  }
  SUBCASE("rejected by the first: nothing has escaped") {
    tiers_fixture f;
    f.stores[0]->on_submit = [](const cache_extent&) { throw submission_rejected{"not today"}; };
    CHECK_THROWS_AS(f.subject->publish(f.three), submission_rejected);
    CHECK(f.asked(1) == 0);
  }
  SUBCASE("an optional tier may reject") {
    tiers_fixture f{2, false, {}, {false, true}};
    f.stores[0]->on_submit = [](const cache_extent&) { throw submission_rejected{"not today"}; };
    const auto a = f.subject->publish(f.three);
    f.in(1).deliver_all();
    f.in(1).end_access();
    f.look(a);
    CHECK(served_of(a->poll()).size() == 3);
  }
}

TEST_CASE("tier: 2.12 a cancel reaches what runs, asks no further tier and proves nothing") {
  tiers_fixture f;
  const auto a = f.subject->fetch(f.three);
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  CHECK(f.in(0).cancels == 1);
  f.in(0).deliver({0});  // it was too late there
  f.in(0).end_access();
  f.look(a);
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK(f.asked(1) == 0);
  CHECK(f.access(a).state == access_state::ended);
}

TEST_CASE("tier: a provider that can only be waited for is waited for on a worker") {
  tiers_fixture f{2, false, {.pollable = false}};
  const auto a = f.subject->fetch(f.three);
  f.in(0).deliver({0});
  f.in(0).end_access();
  f.look(a);
  REQUIRE(f.asked(1) == 1);
  f.in(1).deliver_all();
  f.in(1).end_access();
  f.look(a);
  CHECK(f.access(a).state == access_state::ended);
}

TEST_CASE("tier: 2.9 a span is registered with every tier or with none") {
  staging_fixture s;
  tier_stack stack;
  std::vector<std::shared_ptr<scripted_provider>> stores;
  for (int i = 0; i < 2; ++i) {
    stores.push_back(std::make_shared<scripted_provider>());
    stack.tiers.push_back({stores.back(), true});
  }
  tier_provider subject{stack, s.context};
  stores[1]->fail_registration = 0;
  CHECK_THROWS(subject.register_pool(0x1000, 64));
  CHECK(stores[0]->log == std::vector<std::string>{"register", "deregister"});
  const auto again = subject.register_pool(0x1000, 64);
  CHECK(again != nullptr);
  again->close();
  again->close();
  CHECK(stores[1]->log.back() == "deregister");
}

TEST_CASE("tier: a URI lists the tiers; what is wrong is named") {
  const auto refused = [](std::string_view uri) {
    const auto got = provider_from_uri(uri);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::invalid);
    return got.error().text;
  };
  CHECK(provider_from_uri("tier:memory:?bytes=1M,memory:?bytes=1G&background=off").has_value());
  CHECK(provider_from_uri("tier:?past=failures;memory:,optional+memory:").has_value());
  CHECK(refused("tier:") == "tier: 0 tiers, none of them required; at least one must be");
  CHECK(refused("tier:optional+memory:").find("none of them required") != std::string::npos);
  CHECK(refused("tier:memory:,tier:memory:").find("tier of tiers") != std::string::npos);
  CHECK(refused("tier:memory:?bytes=no").find("tier 0: memory: bytes is 'no'") != std::string::npos);
  CHECK(refused("tier:pigeon:").find("tier 0: 'pigeon:' names no provider") != std::string::npos);
  CHECK(refused("tier:?past=all;memory:").find("misses, failures") != std::string::npos);
  CHECK(refused("tier:?past=misses").find("';'") != std::string::npos);
}
