// Semantics 2.1 to 2.7, over every provider of tests/providers/provider_contract.hpp. 2.8 to 2.15:
// rules_2b_test.cpp; what the runtime makes of a provider's answers: tests/actors/rules_2_test.cpp.
#include <doctest/doctest.h>

#include <thread>

#include "tests/providers/provider_contract.hpp"

namespace kvlease::test {
namespace {

// ---- 2.1 units and extents

TEST_CASE("2.1 negative coordinates and duplicate names are rejected at construction") {
  for (const auto& [group, local] : {std::pair<std::int64_t, std::int64_t>{-1, 0}, {0, -1}, {-1, -1}}) {
    const auto bad = unit::make({.name = "a", .local_group = group, .local = local});
    REQUIRE_FALSE(bad.has_value());
    CHECK(bad.error().code == errc::invalid);
  }
  CHECK(unit::make({.name = "", .local_group = 0, .local = 0}).has_value());
  const auto twice = cache_extent::make("extent", {at("a", 0, 0), at("a", 1, 1)}, end_of_sequence::no);
  REQUIRE_FALSE(twice.has_value());
  CHECK(twice.error().code == errc::invalid);
  CHECK(cache_extent::make("", {}, end_of_sequence::yes).has_value());
}

TEST_CASE("2.1 an extent without units is valid: nothing is served, nothing is accepted") {
  each_fetcher([](fetch_bench& b) { CHECK(served_of(b.finish(b.fetch({}))) == std::set<bytes>{}); });
  each_publisher([](publish_bench& b) { CHECK(served_of(b.finish(b.publish({}))) == std::set<bytes>{}); });
}

TEST_CASE("2.1 coordinates are the process's own: a unit is found by its name, wherever it goes") {
  each_store([](publish_bench& b) {
    b.fill(0, 0, 9);
    b.finish(b.publish({at("a", 0, 0)}));
    b.clear();
    CHECK(served_of(b.finish(b.fetch({at("a", 2, 5)}))) == std::set<bytes>{"a"});
    CHECK(b.holds(2, 5, 9));
    CHECK(b.holds(0, 0, untouched));
  });
}

TEST_CASE("2.1 a store that is addressed by names does not read the end marker") {
  each_store([](publish_bench& b) {
    b.fill(0, 0, 9);
    const auto ends = *cache_extent::make("extent", {at("a", 0, 0)}, end_of_sequence::yes);
    CHECK(served_of(b.finish(b.publishing().publish(ends))) == std::set<bytes>{"a"});
    CHECK(served_of(b.finish(b.fetch({at("a", 0, 3)}))) == std::set<bytes>{"a"});
    CHECK(served_of(b.finish(b.fetching().fetch(ends))) == std::set<bytes>{"a"});
  });
}

// ---- 2.2 rejected submissions

TEST_CASE("2.2 a rejected submission has left no trace: no work, no access, no count") {
  each_fetcher([](fetch_bench& b) {
    foreign_route other;
    const auto jobs = b.exec->pending();
    CHECK_THROWS_AS(b.fetching().fetch(b.all, &other), submission_rejected);
    CHECK(b.exec->pending() == jobs);
    b.drive();
    CHECK(b.all_untouched());
    CHECK(b.subject().counters() == b.before);
    CHECK(b.touches->touched_bytes() == b.touched);
  });
}

TEST_CASE("2.2 what can't be carried out is an attempt that fails, not an exception") {
  each_fetcher([](fetch_bench& b) {
    std::shared_ptr<attempt> a;
    CHECK_NOTHROW(a = b.fetch({at("a", 0, 1), at("b", 7, 0)}));
    CHECK(reason_of(b.finish(a)) != "(not failed)");
  });
}

// ---- 2.3 outcomes

TEST_CASE("2.3 an outcome stays as it was given, and polling for it never blocks") {
  each_fetcher([](fetch_bench& b) {
    const auto a = b.fetch_all();
    for (int i = 0; i < 100; ++i) a->poll();  // returns, whether the work has begun or not
    const auto o = b.finish(a);
    REQUIRE(o);
    request_cancel(*a);
    b.drive();
    for (int i = 0; i < 3; ++i) CHECK(a->poll() == o);
  });
}

// ---- 2.4 the end of access

TEST_CASE("2.4 each attempt's access is answered by itself, and ends") {
  each_fetcher([](fetch_bench& b) {
    const auto first = b.fetch_all();
    b.finish(first);
    const auto second = b.fetch({at("a", 0, 3)});
    CHECK(b.fetching().quiesce({&first, 1}));
    if (auto* p = b.subject().as_pollable()) {
      CHECK(p->poll_access(*first).state == access_state::ended);
      b.finish(second);
      CHECK(p->poll_access(*second).state == access_state::ended);
      CHECK(p->poll_access(*second).source == proof_source::terminal_status);
    }
    b.finish(second);
    CHECK(b.fetching().quiesce({}));
  });
}

TEST_CASE("2.4 an answer of running starts nothing, and is asked again") {
  each_fetcher([](fetch_bench& b) {
    auto* p = b.subject().as_pollable();
    if (p == nullptr) return;
    const auto a = b.fetch_all();
    const auto jobs = b.exec->pending();
    const auto touched = b.touches->touched_bytes();
    const auto state = p->poll_access(*a).state;
    for (int i = 0; i < 100; ++i) {
      const auto again = p->poll_access(*a).state;
      CHECK((again == state || (!b.stepped() && again == access_state::ended)));
    }
    CHECK(b.exec->pending() == jobs);
    if (b.stepped()) {
      CHECK((state == access_state::ended) == (jobs == 0));
      CHECK(b.touches->touched_bytes() == touched);
    }
    b.finish(a);
    CHECK(p->poll_access(*a).state == access_state::ended);
  });
}

TEST_CASE("2.4 the access of a foreign attempt is never proven") {
  each_fetcher([](fetch_bench& b) {
    const std::shared_ptr<attempt> other = std::make_shared<foreign_attempt>();
    CHECK_FALSE(b.fetching().quiesce({&other, 1}));
    if (auto* p = b.subject().as_pollable()) CHECK(p->poll_access(*other).state != access_state::ended);
  });
}

TEST_CASE("2.4 no byte moves after access has ended") {
  each_fetcher([](fetch_bench& b) {
    b.finish(b.fetch_all());
    b.clear();
    b.grant_all(lease_id{2}, true);
    b.drive();
    CHECK(b.all_untouched());
  });
}

// ---- 2.5 waiting for outcomes

TEST_CASE("2.5 settle waits for the listed attempts only, from another thread too") {
  each_fetcher([](fetch_bench& b) {
    const auto listed = b.fetch_all();
    std::thread waiter{[&] { b.fetching().settle({&listed, 1}); }};
    b.drive();
    waiter.join();
    CHECK(listed->poll());
    b.finish(listed);
    const auto unlisted = b.fetch_all();
    b.fetching().settle({&listed, 1});
    b.finish(unlisted);
  });
}

// ---- 2.6 probes

TEST_CASE("2.6 a probe answers a subset of what was asked, moves and reserves nothing") {
  each_fetcher([](fetch_bench& b) {
    const auto hits = b.fetching().probe("extent", {"a", "absent"});
    if (hits) CHECK(*hits == std::set<bytes>{"a"});
    const auto other = b.fetching().probe("another extent", {"a"});
    if (other) CHECK(other->empty());
    const auto nothing = b.fetching().probe("extent", {});
    if (nothing) CHECK(nothing->empty());
    CHECK(b.all_untouched());
    CHECK(b.subject().counters() == b.before);
  });
}

// ---- 2.7 routes

TEST_CASE("2.7 a bad hint is an error value, never a rejected submission, and touches no cache memory") {
  each_fetcher([](fetch_bench& b) {
    const auto opened = b.fetching().open_route("no such source \xff");
    REQUIRE_FALSE(opened);
    CHECK((opened.error().code == errc::unsupported || opened.error().code == errc::invalid));
    CHECK(b.touches->touched_bytes() == b.touched);
  });
}

TEST_CASE("2.7 a foreign route is rejected at submission") {
  each_fetcher([](fetch_bench& b) {
    foreign_route other;
    CHECK_THROWS_AS(b.fetching().fetch(b.all, &other), submission_rejected);
    CHECK(served_of(b.finish(b.fetch_all())) == std::set<bytes>{"a", "b"});  // without one it is served
  });
}

}  // namespace
}  // namespace kvlease::test
