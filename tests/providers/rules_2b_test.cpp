// Semantics 2.8 to 2.15, over every provider of tests/providers/provider_contract.hpp. 2.1 to 2.7:
// rules_2_test.cpp.
#include <doctest/doctest.h>

#include "tests/providers/provider_contract.hpp"

namespace kvlease::test {
namespace {

// ---- 2.8 publishing

TEST_CASE("2.8 publishing again merges units and removes none") {
  each_store([](publish_bench& b) {
    b.fill(0, 0, 1);
    b.fill(0, 1, 2);
    b.fill(1, 0, 3);
    CHECK(served_of(b.finish(b.publish({at("a", 0, 0), at("b", 0, 1)}))) == std::set<bytes>{"a", "b"});
    CHECK(served_of(b.finish(b.publish({at("b", 0, 1), at("c", 1, 0)}))) == std::set<bytes>{"b", "c"});
    b.clear();
    const auto o = b.finish(b.fetch({at("a", 2, 4), at("b", 2, 5), at("c", 1, 3)}));
    CHECK(served_of(o) == std::set<bytes>{"a", "b", "c"});
    CHECK(b.holds(2, 4, 1));
    CHECK(b.holds(2, 5, 2));
    CHECK(b.holds(1, 3, 3));
  });
}

TEST_CASE("2.8 visible is a whole unit or none of it, while its extent is under way") {
  each_store([](publish_bench& b) {
    for (std::int64_t i = 0; i < 4; ++i) b.fill(0, i, static_cast<unsigned char>(i + 1));
    const auto a = b.publish({at("0", 0, 0), at("1", 0, 1), at("2", 0, 2), at("3", 0, 3)});
    do {
      const auto seen = b.fetch({at("0", 0, 4), at("1", 0, 5), at("2", 0, 6), at("3", 0, 7)});
      REQUIRE(b.outcome_of(seen));
      REQUIRE(b.delivering().quiesce({&seen, 1}));
      for (std::int64_t i = 0; i < 4; ++i) {
        const bool served = served_of(seen->poll()).contains(std::to_string(i));
        CHECK(b.holds(0, 4 + i, served ? std::byte(i + 1) : untouched));
        b.fill(0, 4 + i, std::to_integer<unsigned char>(untouched));
      }
    } while (b.exec->run_one());
    CHECK(served_of(b.finish(a)) == std::set<bytes>{"0", "1", "2", "3"});
  });
}

TEST_CASE("2.8 names are scoped by the extent's name, byte for byte") {
  each_store([](publish_bench& b) {
    b.fill(0, 0, 1);
    b.finish(b.publish({at("c", 0, 0)}, "ab"));
    b.clear();
    CHECK(served_of(b.finish(b.fetch({at("bc", 0, 0)}, "a"))).empty());
    CHECK(b.all_untouched());
  });
}

TEST_CASE("2.8 a publish only reads") {
  each_publisher([](publish_bench& b) {
    b.grant_all(lease_id{3}, false);
    const auto o = b.finish(b.publish({at("a", 0, 0), at("b", 1, 0)}));
    CHECK(served_of(o) == std::set<bytes>{"a", "b"});
    CHECK(b.all_untouched());
  });
}

// ---- 2.9 registrations

bool fails(contract_bench& b) {
  const auto a = extent_of({at("a", 0, 0)});
  const auto made = b.subject().as_publishes() ? b.publishing().publish(a) : b.fetching().fetch(a);
  return reason_of(b.finish(made)) != "(not failed)";
}

TEST_CASE("2.9 overlap with a live registration is rejected and registers nothing") {
  each_registrar([](contract_bench& b) {
    auto& pools = *b.subject().as_registers_pools();
    const auto first = b.parts[0].address;
    const auto middle = pools.register_pool(first + 256, 512);
    for (const auto& [offset, size] :
         {std::pair<std::size_t, std::size_t>{256, 512}, {0, 257}, {0, 2048}, {300, 1}, {767, 100}})
      CHECK_THROWS(pools.register_pool(first + offset, size));
    CHECK(fails(b));  // slot 0 never became registered by what was refused
    const auto before = pools.register_pool(first, 256);
    const auto after = pools.register_pool(first + 768, 256);
    CHECK_FALSE(fails(b));
    middle->close();
    before->close();
    after->close();
  });
}

TEST_CASE("2.9 closing is idempotent by handle: an old one never revokes a later registration") {
  each_registrar([](contract_bench& b) {
    auto& pools = *b.subject().as_registers_pools();
    const auto first = b.parts[0].address;
    const auto old = pools.register_pool(first, 2048);
    old->close();
    old->close();
    const auto current = pools.register_pool(first, 2048);
    old->close();
    CHECK_THROWS(pools.register_pool(first, 2048));
    CHECK_FALSE(fails(b));
    current->close();
    CHECK(fails(b));
  });
}

TEST_CASE("2.9 closing neither waits for the end of access nor proves it") {
  each_registrar([](contract_bench& b) {
    if (b.subject().as_publishes() == nullptr) return;
    b.register_pools();
    const auto a = b.publishing().publish(extent_of({at("a", 0, 0), at("b", 1, 0)}));
    const bool running = b.exec->pending() > 0;
    for (auto& handle : b.handles) handle->close();  // returns, whatever is under way
    CHECK((b.exec->pending() > 0) == running);
    if (auto* p = b.subject().as_pollable(); p && b.stepped())
      CHECK((p->poll_access(*a).state == access_state::ended) == !running);
    b.finish(a);
    if (auto* p = b.subject().as_pollable()) CHECK(p->poll_access(*a).state == access_state::ended);
  });
}

// ---- 2.10 unregistered memory

TEST_CASE("2.10 an unregistered source has failed before any byte moves") {
  each_registrar([](contract_bench& b) {
    if (b.subject().as_publishes() == nullptr) return;
    const auto some = b.subject().as_registers_pools()->register_pool(b.parts[0].address, 512);
    const auto o = b.finish(b.publishing().publish(extent_of({at("a", 0, 0), at("b", 0, 2)})));
    CHECK(reason_of(o) != "(not failed)");
    CHECK(b.touches->touched_bytes() == 0);
    some->close();
  });
}

TEST_CASE("2.10 an unregistered destination has failed before any byte moves") {
  each_fetcher([](fetch_bench& b) {
    if (b.subject().as_registers_pools() == nullptr) return;
    b.handles[1]->close();
    const auto o = b.finish(b.fetch({at("a", 0, 0), at("b", 1, 0)}));
    CHECK(reason_of(o) != "(not failed)");
    CHECK(b.all_untouched());
    CHECK(b.subject().counters().failures > b.before.failures);
  });
}

// ---- 2.11 unserved destinations

TEST_CASE("2.11 a miss is delivered, and its destination stays") {
  each_fetcher([](fetch_bench& b) {
    CHECK(served_of(b.finish(b.fetch({at("absent", 0, 0), at("gone", 1, 1)}))) == std::set<bytes>{});
    CHECK(b.all_untouched());
    CHECK(b.subject().counters().misses == b.before.misses + 2);
  });
}

TEST_CASE("2.11 units are served whole, the others' bytes stay") {
  each_fetcher([](fetch_bench& b) {
    CHECK(served_of(b.finish(b.fetch_all())) == std::set<bytes>{"a", "b"});
    CHECK(b.holds(0, 1, 1));
    CHECK(b.holds(1, 0, 2));
    CHECK(b.holds(2, 2, untouched));
    CHECK(b.holds(0, 0, untouched));
    CHECK(b.holds(1, 1, untouched));
  });
}

// ---- 2.12 cancellation

TEST_CASE("2.12 a cancel is requested or unsupported, again and again, also late") {
  each_fetcher([](fetch_bench& b) {
    const auto a = b.fetch_all();
    const auto first = request_cancel(*a);
    CHECK(request_cancel(*a) == first);
    const auto o = b.finish(a);
    REQUIRE(o);
    CHECK_FALSE(std::holds_alternative<failed>(*o));
    if (const auto* c = std::get_if<cancelled>(&*o)) CHECK_FALSE(c->by_peer());
    CHECK(request_cancel(*a) == first);
    CHECK(a->poll() == o);
  });
}

TEST_CASE("2.12 a cancel acknowledges nothing about memory") {
  each_fetcher([](fetch_bench& b) {
    const auto a = b.fetch_all();
    const bool running = b.exec->pending() > 0;
    request_cancel(*a);
    if (auto* p = b.subject().as_pollable(); p && b.stepped())
      CHECK((p->poll_access(*a).state == access_state::ended) == !running);
    b.finish(a);
  });
}

TEST_CASE("2.12 a cancelled publish rolls nothing back") {
  each_store([](publish_bench& b) {
    b.fill(0, 0, 1);
    b.finish(b.publish({at("a", 0, 0)}));
    const auto a = b.publish({at("a", 0, 0), at("b", 0, 1)});
    request_cancel(*a);
    b.finish(a);
    CHECK(served_of(b.finish(b.fetch({at("a", 0, 3)}))) == std::set<bytes>{"a"});
  });
}

// ---- 2.13 statuses

TEST_CASE("2.13 what can't be carried out has failed, never been served or missed") {
  each_fetcher([](fetch_bench& b) {
    CHECK(reason_of(b.finish(b.fetch({at("a", 0, 1), at("b", 7, 0)}))) != "(not failed)");
    CHECK(reason_of(b.finish(b.fetch({at("a", 1, 0)}))) != "(not failed)");  // of another size
  });
  each_publisher([](publish_bench& b) {
    CHECK(reason_of(b.finish(b.publish({at("a", 1, 6)}))) != "(not failed)");  // no memory there
  });
}

// ---- 2.15 counters

TEST_CASE("2.15 each unit counts once, as hit, miss or failure") {
  each_fetcher([](fetch_bench& b) {
    CHECK_FALSE(b.subject().describe().empty());
    b.finish(b.fetch_all());
    b.finish(b.fetch({at("a", 0, 1), at("b", 0, 99)}));
    const auto after = b.subject().counters();
    CHECK(after.hits >= b.before.hits + 2);
    CHECK(after.misses == b.before.misses + 1);
    CHECK(after.failures >= b.before.failures + 1);
    CHECK(after.hits + after.misses + after.failures ==
          b.before.hits + b.before.misses + b.before.failures + 5);
  });
}

}  // namespace
}  // namespace kvlease::test
