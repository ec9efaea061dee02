// The contract suite that every provider passes (semantics 2.14), one SUBCASE a rule. Call it from a
// TEST_CASE of the provider; it skips what the provider does not offer.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/src/provider_fixture.hpp"

namespace kvlease::test {

struct provider_under_test {
  std::shared_ptr<provider> subject;
  /// Lets the provider finish what it was given. Null: the fixture's executor runs dry.
  std::function<void()> drive;
  /// Puts a unit into what it fetches from. Null: it is published through the subject.
  std::function<void(const bytes& extent, const bytes& name, std::span<const std::byte> data)> store;
};

using provider_maker = std::function<provider_under_test(const provider_context&)>;

/// One subject over real memory, registered.
class contract_bench : public staging_fixture {
 public:
  explicit contract_bench(const provider_maker& make) : under_{make(context)} {}

  provider& subject() { return *under_.subject; }
  fetches& fetching() { return *subject().as_fetches(); }
  publishes& publishing() { return *subject().as_publishes(); }
  deliveries& delivering() {
    return subject().as_fetches() ? static_cast<deliveries&>(fetching()) : publishing();
  }

  void drive() {
    if (under_.drive) return under_.drive();
    exec->run_all();
  }
  void register_pools() { handles = register_all(subject()); }

  /// After it the source can serve `name`, each byte of which is `value`.
  void source_has(const char* name, std::int64_t group, unsigned char value) {
    const auto where = slot(group, 5);
    const std::vector<std::byte> before(where.begin(), where.end());
    fill(group, 5, value);
    if (under_.store) {
      under_.store("extent", name, where);
    } else {
      REQUIRE(served_of(finish(publishing().publish(extent_of({at(name, group, 5)})))).contains(name));
    }
    std::ranges::copy(before, where.begin());
  }

  /// To the end of one attempt, outcome and access.
  std::optional<outcome> finish(const std::shared_ptr<attempt>& a) {
    drive();
    REQUIRE(a);
    delivering().settle({&a, 1});
    REQUIRE(delivering().quiesce({&a, 1}));
    return a->poll();
  }

  std::vector<std::unique_ptr<registration>> handles;

 private:
  provider_under_test under_;
};

/// A handle of no provider.
struct foreign_route final : route {
  void close() override {}
};
struct foreign_attempt final : attempt {
  std::optional<outcome> poll() override { return delivered{{}}; }
};

inline void check_fetch_contract(contract_bench& b) {
  b.source_has("a", 0, 1);
  b.source_has("b", 1, 2);
  const unit_counters before = b.subject().counters();
  const std::uint64_t touched = b.touches->touched_bytes();
  const auto all = extent_of({at("a", 0, 1), at("b", 1, 0), at("absent", 2, 2)});

  SUBCASE("1.5, 2.11: a miss is delivered, and its destination stays") {
    const auto o = b.finish(b.fetching().fetch(extent_of({at("absent", 0, 0), at("gone", 1, 1)})));
    CHECK(served_of(o) == std::set<bytes>{});
    CHECK(b.all_untouched());
    CHECK(b.subject().counters().misses == before.misses + 2);
  }
  SUBCASE("2.11: units are served whole, the others' bytes stay") {
    CHECK(served_of(b.finish(b.fetching().fetch(all))) == std::set<bytes>{"a", "b"});
    CHECK(b.holds(0, 1, 1));
    CHECK(b.holds(1, 0, 2));
    CHECK(b.holds(2, 2, untouched));
    CHECK(b.holds(0, 0, untouched));
    CHECK(b.holds(1, 1, untouched));
  }
  SUBCASE("2.15: each unit counts once, as hit, miss or failure") {
    b.finish(b.fetching().fetch(all));
    b.finish(b.fetching().fetch(extent_of({at("a", 0, 1), at("b", 0, 99)})));
    const unit_counters after = b.subject().counters();
    CHECK(after.hits >= before.hits + 2);
    CHECK(after.misses == before.misses + 1);
    CHECK(after.failures >= before.failures + 1);
    CHECK(after.hits + after.misses + after.failures == before.hits + before.misses + before.failures + 5);
  }
  SUBCASE("2.1: an extent without units is a miss") {
    CHECK(served_of(b.finish(b.fetching().fetch(extent_of({})))) == std::set<bytes>{});
  }
  SUBCASE("2.2, 2.7: a foreign route is rejected and nothing escapes") {
    foreign_route other;
    CHECK_THROWS_AS(b.fetching().fetch(all, &other), submission_rejected);
    b.drive();
    CHECK(b.all_untouched());
    CHECK(b.subject().counters() == before);
    CHECK(b.touches->touched_bytes() == touched);
  }
  SUBCASE("2.3: an outcome stays as it was given") {
    const auto a = b.fetching().fetch(all);
    const auto o = b.finish(a);
    REQUIRE(o);
    request_cancel(*a);
    b.drive();
    for (int i = 0; i < 3; ++i) CHECK(a->poll() == o);
  }
  SUBCASE("2.4: each attempt's access is answered by itself, and ends") {
    const auto first = b.fetching().fetch(all);
    b.finish(first);
    const auto second = b.fetching().fetch(extent_of({at("a", 0, 3)}));
    CHECK(b.fetching().quiesce({&first, 1}));
    if (auto* p = b.subject().as_pollable()) {
      CHECK(p->poll_access(*first).state == access_state::ended);
      b.finish(second);
      CHECK(p->poll_access(*second).state == access_state::ended);
      CHECK(p->poll_access(*second).source == proof_source::terminal_status);
    }
    b.finish(second);
    CHECK(b.fetching().quiesce({}));
  }
  SUBCASE("2.4: the access of a foreign attempt is never proven") {
    const std::shared_ptr<attempt> other = std::make_shared<foreign_attempt>();
    CHECK_FALSE(b.fetching().quiesce({&other, 1}));
    if (auto* p = b.subject().as_pollable()) CHECK(p->poll_access(*other).state != access_state::ended);
  }
  SUBCASE("2.4: no byte moves after access has ended") {
    const auto a = b.fetching().fetch(all);
    b.finish(a);
    b.clear();
    b.grant_all(lease_id{2}, true);
    b.drive();
    CHECK(b.all_untouched());
  }
  SUBCASE("2.5: settle waits for the listed attempts only, from another thread too") {
    const auto listed = b.fetching().fetch(all);
    std::thread waiter{[&] { b.fetching().settle({&listed, 1}); }};
    b.drive();
    waiter.join();
    CHECK(listed->poll());
    b.finish(listed);
    const auto unlisted = b.fetching().fetch(all);
    b.fetching().settle({&listed, 1});
    b.finish(unlisted);
  }
  SUBCASE("2.6: a probe answers a subset, moves and reserves nothing") {
    const auto hits = b.fetching().probe("extent", {"a", "absent"});
    if (hits) CHECK(*hits == std::set<bytes>{"a"});
    const auto other = b.fetching().probe("another extent", {"a"});
    if (other) CHECK(other->empty());
    CHECK(b.all_untouched());
    CHECK(b.subject().counters() == before);
  }
  SUBCASE("2.7: a bad hint is an error value, never a rejected submission") {
    const auto opened = b.fetching().open_route("no such source \xff");
    REQUIRE_FALSE(opened);
    CHECK((opened.error().code == errc::unsupported || opened.error().code == errc::invalid));
  }
  SUBCASE("2.12: a cancel is requested or unsupported, again and again, also late") {
    const auto a = b.fetching().fetch(all);
    const auto first = request_cancel(*a);
    CHECK(request_cancel(*a) == first);
    const auto o = b.finish(a);
    REQUIRE(o);
    CHECK_FALSE(std::holds_alternative<failed>(*o));
    if (const auto* c = std::get_if<cancelled>(&*o)) CHECK_FALSE(c->by_peer());
    CHECK(request_cancel(*a) == first);
    CHECK(a->poll() == o);
  }
  SUBCASE("2.13: what can't be carried out has failed, never been served") {
    const auto o = b.finish(b.fetching().fetch(extent_of({at("a", 0, 1), at("b", 7, 0)})));
    CHECK(reason_of(o) != "(not failed)");
  }
  SUBCASE("2.13: a stored unit of another size than its slot has failed, never been served or missed") {
    const auto o = b.finish(b.fetching().fetch(extent_of({at("a", 1, 0)})));
    CHECK(reason_of(o) != "(not failed)");
  }
  CHECK(b.touches->exposure_bytes() == 0);
}

inline void check_publish_contract(contract_bench& b) {
  SUBCASE("2.8: publishing again merges units and removes none") {
    if (!b.subject().as_fetches()) return;
    b.fill(0, 0, 1);
    b.fill(0, 1, 2);
    b.fill(1, 0, 3);
    CHECK(served_of(b.finish(b.publishing().publish(extent_of({at("a", 0, 0), at("b", 0, 1)})))) ==
          std::set<bytes>{"a", "b"});
    CHECK(served_of(b.finish(b.publishing().publish(extent_of({at("b", 0, 1), at("c", 1, 0)})))) ==
          std::set<bytes>{"b", "c"});
    b.clear();
    const auto o = b.finish(b.fetching().fetch(extent_of({at("a", 2, 4), at("b", 2, 5), at("c", 1, 3)})));
    CHECK(served_of(o) == std::set<bytes>{"a", "b", "c"});
    CHECK(b.holds(2, 4, 1));
    CHECK(b.holds(2, 5, 2));
    CHECK(b.holds(1, 3, 3));
  }
  SUBCASE("2.8: names are scoped by the extent's name, byte for byte") {
    if (!b.subject().as_fetches()) return;
    b.fill(0, 0, 1);
    b.finish(b.publishing().publish(extent_of({at("c", 0, 0)}, "ab")));
    b.clear();
    CHECK(served_of(b.finish(b.fetching().fetch(extent_of({at("bc", 0, 0)}, "a")))).empty());
    CHECK(b.all_untouched());
  }
  SUBCASE("2.8: a publish only reads") {
    b.grant_all(lease_id{3}, false);
    const auto o = b.finish(b.publishing().publish(extent_of({at("a", 0, 0), at("b", 1, 0)})));
    CHECK(served_of(o) == std::set<bytes>{"a", "b"});
    CHECK(b.all_untouched());
  }
  SUBCASE("2.12: a cancelled publish rolls nothing back") {
    b.fill(0, 0, 1);
    b.finish(b.publishing().publish(extent_of({at("a", 0, 0)})));
    const auto a = b.publishing().publish(extent_of({at("a", 0, 0), at("b", 0, 1)}));
    request_cancel(*a);
    b.finish(a);
    if (b.subject().as_fetches()) {
      const auto o = b.finish(b.fetching().fetch(extent_of({at("a", 0, 3)})));
      CHECK(served_of(o) == std::set<bytes>{"a"});
    }
  }
  SUBCASE("2.13: a source that resolves to no memory has failed") {
    const auto o = b.finish(b.publishing().publish(extent_of({at("a", 1, 6)})));
    CHECK(reason_of(o) != "(not failed)");
  }
  CHECK(b.touches->exposure_bytes() == 0);
}

inline void check_registration_contract(contract_bench& b, registers_pools& pools) {
  const std::uintptr_t first = b.parts[0].address;
  const auto a = extent_of({at("a", 0, 0)});
  const auto fails = [&] {
    const auto made = b.subject().as_publishes() ? b.publishing().publish(a) : b.fetching().fetch(a);
    return reason_of(b.finish(made)) != "(not failed)";
  };
  SUBCASE("2.9: overlap with a live registration is rejected and registers nothing") {
    const auto middle = pools.register_pool(first + 256, 512);
    for (const auto& [offset, size] :
         {std::pair<std::size_t, std::size_t>{256, 512}, {0, 257}, {0, 2048}, {300, 1}, {767, 100}}) {
      CHECK_THROWS(pools.register_pool(first + offset, size));
    }
    CHECK(fails());  // slot 0 never became registered by what was refused
    const auto before = pools.register_pool(first, 256);
    const auto after = pools.register_pool(first + 768, 256);
    CHECK_FALSE(fails());
    middle->close();
    before->close();
    after->close();
  }
  SUBCASE("2.9: closing is idempotent by handle") {
    const auto old = pools.register_pool(first, 2048);
    old->close();
    old->close();
    const auto current = pools.register_pool(first, 2048);
    old->close();
    CHECK_THROWS(pools.register_pool(first, 2048));
    CHECK_FALSE(fails());
    current->close();
    CHECK(fails());
  }
  SUBCASE("2.10: an unregistered source has failed before any byte moves") {
    if (!b.subject().as_publishes()) return;
    const auto some = pools.register_pool(first, 512);
    const auto o = b.finish(b.publishing().publish(extent_of({at("a", 0, 0), at("b", 0, 2)})));
    CHECK(reason_of(o) != "(not failed)");
    CHECK(b.touches->touched_bytes() == 0);
    some->close();
  }
  SUBCASE("2.10: an unregistered destination has failed before any byte moves") {
    if (!b.subject().as_fetches() || !b.subject().as_publishes()) return;
    b.register_pools();
    b.source_has("a", 0, 1);
    b.source_has("b", 1, 2);
    b.handles[1]->close();
    const unit_counters before = b.subject().counters();
    const auto o = b.finish(b.fetching().fetch(extent_of({at("a", 0, 0), at("b", 1, 0)})));
    CHECK(reason_of(o) != "(not failed)");
    CHECK(b.all_untouched());
    CHECK(b.subject().counters().failures > before.failures);
  }
}

/// All of the suite that the provider's capabilities allow. `make` is called anew for each SUBCASE.
inline void check_provider_contract(const provider_maker& make) {
  contract_bench b{make};
  CHECK_FALSE(b.subject().describe().empty());
  if (auto* pools = b.subject().as_registers_pools()) {
    SUBCASE("registers pools") { check_registration_contract(b, *pools); }
  }
  if (b.subject().as_publishes()) {
    SUBCASE("publishes") {
      b.register_pools();
      check_publish_contract(b);
    }
  }
  if (b.subject().as_fetches()) {
    SUBCASE("fetches") {
      b.register_pools();
      check_fetch_contract(b);
    }
  }
}

}  // namespace kvlease::test
