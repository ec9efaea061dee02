// The lender's behaviour in a whole runtime: the line for slots, and what becomes of leases
// (semantics 6.2-6.6).
#include <doctest/doctest.h>

#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using enum actor_kind;

/// Leases of eight slots, each of a request of its own that is long enough.
struct line {
  explicit line(world& world_) : w{world_} {}
  /// A fetch lease of `blocks` blocks; answers its place.
  std::size_t lend(std::int64_t blocks, std::optional<std::chrono::nanoseconds> wait = std::nullopt) {
    requests.push_back(w.admit(blocks * 4 + 1));
    const auto got = w.lend(direction::fetch, requests.back(), {0, blocks * 4}, wait);
    REQUIRE(got.has_value());
    leases.push_back(*got);
    return leases.size() - 1;
  }
  bool granted(std::size_t i) const { return w.of(leases[i]).view != nullptr; }
  std::string why(std::size_t i) const {
    return w.of(leases[i]).failure ? w.of(leases[i]).failure->text : std::string{};
  }
  void give_back(std::size_t i) { REQUIRE(w.withdraw(leases[i]).has_value()); }
  std::uintptr_t at(std::size_t i) const {
    return w.of(leases[i]).view->runs().at(0).where()->addresses.front();
  }

  world& w;
  std::vector<request_id> requests;
  std::vector<lease_id> leases;
};

TEST_CASE("6.1 a dropped lease or hold keeps the memory, and frees nothing") {
  world w;
  one_fetch f{w, false};
  SUBCASE("whoever held the lease is gone") {
    caf::anon_send_exit(w.in().host, caf::exit_reason::kill);
    w.advance(60s);
    CHECK(w.slots() == slot_counts{8, 6, 2, 0, 0});
  }
  SUBCASE("whoever held the parts is gone") {
    REQUIRE(w.withdraw(f.lease).has_value());
    w.kill(actor_kind::adapter);
    w.advance(60s);
    CHECK(w.figure(actor_kind::lender, "holds") == 1);
  }
  CHECK_FALSE(w.stop(50ms).stopped);
  CHECK_FALSE(w.roots->release_memory().has_value());
}

const broken_by overtakes{mutation::fifo_broken, "6.2 leases*"};
TEST_CASE("6.2 leases are granted strictly first come, first served") {
  world w;
  line l{w};
  const auto a = l.lend(3), b = l.lend(3), large = l.lend(5), small = l.lend(1), last = l.lend(2);
  CHECK(l.granted(a));
  CHECK(l.granted(b));
  CHECK_FALSE(l.granted(large));
  CHECK_FALSE(l.granted(small));  // would fit, but nobody overtakes the head
  l.give_back(a);
  CHECK(w.slots().free == 5);
  CHECK_FALSE(l.granted(large));  // five are free, in two runs: no hole is enough
  CHECK_FALSE(l.granted(small));
  l.give_back(b);
  CHECK(l.granted(large));
  CHECK(l.granted(small));
  CHECK(l.granted(last));
  CHECK(w.slots() == slot_counts{8, 0, 8, 0, 0});
  CHECK(l.at(large) < l.at(small));
  CHECK(l.at(small) < l.at(last));
}

TEST_CASE("6.2 slots are lent all or none, those without rows need none") {
  world w;
  line l{w};
  const auto all = l.lend(8);
  CHECK(l.granted(all));
  const auto behind = l.lend(1);
  CHECK_FALSE(l.granted(behind));
  const auto request = w.admit(9);
  const auto empty = w.lend(direction::fetch, request, {4, 4});
  REQUIRE(empty.has_value());
  CHECK(w.of(*empty).view->num_rows() == 0);  // at once, past the line
  const auto too_many = w.lend(direction::fetch, w.admit(37), {0, 36});
  REQUIRE_FALSE(too_many);
  CHECK(too_many.error().code == errc::invalid);
  CHECK(contains(too_many.error().text, "more staging slots than the 8 there are"));
  CHECK(w.figure(lender, "leases_open") == 3);
}

TEST_CASE("lending: who gives up waiting makes way") {
  world w;
  line l{w};
  const auto holder = l.lend(6), head = l.lend(4), next = l.lend(2);
  SUBCASE("withdrawn") { l.give_back(head); }
  SUBCASE("its time has run out") {
    l.give_back(head);
    l.give_back(next);
    const auto hurried = l.lend(4, 20ms), behind = l.lend(2);
    w.advance(20ms);
    CHECK(l.why(hurried) == "its time to wait has run out");
    CHECK(l.granted(behind));
    l.give_back(holder);
    CHECK(w.slots().free == 6);
    return;
  }
  SUBCASE("its request is freed") {
    REQUIRE(w.free(l.requests[head]).has_value());
    CHECK(l.why(head) == "the request was freed while the lease waited");
    CHECK(w.withdraw(l.leases[head]).error().code == errc::unknown);
  }
  CHECK(l.granted(next));
  CHECK_FALSE(l.granted(head));
  l.give_back(holder);
  CHECK_FALSE(l.granted(head));
  CHECK(w.slots() == slot_counts{8, 6, 2, 0, 0});
}

TEST_CASE("lending: all that waits fails together, none is granted in between") {
  world w;
  line l{w};
  const auto holder = l.lend(6), head = l.lend(4);
  SUBCASE("two leases of one request that is freed") {
    // A request has one unsettled fetch, so the second lease reads.
    const auto request = w.admit(33, 500);
    w.compute(request, 4, std::byte{1});
    const auto large = w.lend(direction::publish, request, {0, 16});
    const auto small = w.lend(direction::publish, request, {0, 8});
    l.give_back(head);
    REQUIRE_FALSE(w.of(*large).view);
    REQUIRE(w.free(request).has_value());
    for (const auto id : {*large, *small})
      CHECK(w.of(id).failure->text == "the request was freed while the lease waited");
    CHECK(w.figure(lender, "leases_open") == 1);
  }
  SUBCASE("at shutdown") {
    const auto small = l.lend(2);
    CHECK_FALSE(w.stop(10ms).stopped);
    for (const auto i : {head, small}) {
      CHECK_FALSE(l.granted(i));
      CHECK(l.why(i) == "the lender was shut down while the lease waited");
    }
    CHECK(w.figure(lender, "leases_open") == 1);
    l.give_back(holder);
    CHECK(w.stop().stopped);
  }
}

TEST_CASE("lending: a fetch into a cache with an unsettled one fails, and costs no slot") {
  world w;
  const one_fetch f{w};
  const auto second = w.lend(direction::fetch, f.request, {8, 12});
  REQUIRE(second.has_value());
  CHECK(w.of(*second).failure->text == "an unsettled fetch into the same cache");
  CHECK(w.slots().lent == 2);
}

TEST_CASE("6.3 a read lease is ready when its copy is complete, and not before") {
  world w;
  const auto request = w.admit(13);
  w.compute(request, 2, std::byte{0x5a});
  w.device->hold();
  const auto lease = w.lend(direction::publish, request, {0, 8});
  REQUIRE(lease.has_value());
  w.advance(1s);
  CHECK(w.of(*lease).view == nullptr);
  SUBCASE("complete") {
    w.device->open();
    w.advance(1s);
    REQUIRE(w.of(*lease).view != nullptr);
    for (const auto at : w.of(*lease).view->runs().at(0).where()->addresses)
      CHECK(*reinterpret_cast<const std::byte*>(at) == std::byte{0x5a});
  }
  SUBCASE("given up: the slots wait for the copy all the same") {
    REQUIRE(w.withdraw(*lease).has_value());
    CHECK(w.of(*lease).failure->text == "released while waiting");
    CHECK(w.slots() == slot_counts{8, 6, 0, 2, 0});
    w.device->open();
    w.advance(1s);
    CHECK(w.of(*lease).view == nullptr);
    CHECK(w.slots().free == 8);
  }
  SUBCASE("its request is freed: the pages stay pinned for the copy") {
    REQUIRE(w.free(request).has_value());
    CHECK(w.manager->counts().pinned == 2);
    w.device->open();
    w.advance(1s);
    CHECK(w.manager->counts().pinned == 0);
    CHECK(w.of(*lease).view != nullptr);
  }
  CHECK(w.exposure_bytes() == 0);
}

TEST_CASE("6.4 a read whose pages have gone while it waited fails, and copies nothing") {
  world w;
  line l{w};
  const auto holder = l.lend(8);
  const auto request = w.admit(13);
  w.compute(request, 2, std::byte{0x5a});
  const auto lease = w.lend(direction::publish, request, {0, 8});
  const auto rows = w.device->rows_copied();
  w.in().options.step_by_hand = true;  // freed under the lender's eyes: it has not heard of it when it grants
  w.in().send(w.in().parts.actors->manager, free_request{request});
  w.in().send(w.in().parts.actors->lender, withdraw_lease{l.leases[holder]});
  while (w.ready() > 0) w.step(w.ready() - 1);
  w.in().options.step_by_hand = false;
  w.run();
  REQUIRE(w.of(*lease).failure.has_value());
  CHECK(w.of(*lease).failure->text == "the request holds 0 of the 2 pages that were to be read");
  CHECK(w.device->rows_copied() == rows);
  CHECK(w.slots().free == 8);
}

TEST_CASE("6.4 pages that were freed and reused before a late mark are not written") {
  world w{{.pages = 3}};
  one_fetch f{w};  // holds two of the three pages
  f.at->deliver_all();
  w.advance(a_while);
  REQUIRE(f.host().outcomes == 1);
  SUBCASE("freed, and another request's by now") {
    REQUIRE(w.free(f.request).has_value());
    const auto next = w.admit(13, 700);
    w.compute(next, 3, std::byte{0x77});  // all pages are this one's
    f.at->end_access();
    w.advance(a_while);
    for (std::int64_t block = 0; block < 3; ++block)
      CHECK(w.page(next, block) == std::vector<std::byte>(64, std::byte{0x77}));
  }
  SUBCASE("freed, and nobody's") {
    const auto rows = w.device->rows_copied();
    REQUIRE(w.free(f.request).has_value());
    f.at->end_access();
    w.advance(a_while);
    CHECK(w.device->rows_copied() == rows);
  }
  SUBCASE("freed while the copy is under way: given to nobody until it is complete") {
    w.device->hold();
    f.at->end_access();
    w.advance(a_while);
    REQUIRE(w.free(f.request).has_value());
    CHECK(w.manager->counts().pinned == 2);
    const auto next = w.admit(13, 700);
    CHECK(w.grow(next, 12).error().code == errc::no_memory);
    w.device->open();
    w.advance(a_while);
    CHECK(w.manager->counts().pinned == 0);
    CHECK(w.grow(next, 12).has_value());
  }
  CHECK(f.host().events == strings{"outcome delivered(2)", "released"});
  CHECK(w.slots().free == 8);
}

const broken_by lost_copies{mutation::lost_copy_frees, "6.5 a slot*"};

TEST_CASE("6.5 a slot whose copy can't be proven complete is quarantined for good, and counted") {
  world w;
  SUBCASE("a write") {
    SUBCASE("enqueue fails in the middle") { w.device->fail_next_enqueue(1); }
    SUBCASE("record fails") { w.device->fail_next_record(); }
    SUBCASE("query fails") { w.device->fail_next_query(); }
    one_fetch f{w};
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    REQUIRE(w.device->faults_struck() == 1);
    CHECK(f.host().events.size() == 2);
    CHECK(f.host().events.back().starts_with("retained: local copy evidence unavailable"));
    CHECK(w.slots() == slot_counts{8, 6, 0, 0, 2});
    REQUIRE(w.free(f.request).has_value());
    CHECK(w.manager->counts().pinned == 2);  // for good as well (6.4)
    CHECK(w.ready_from(f.request).has_value() == false);
    w.advance(20s);
    CHECK(w.slots() == slot_counts{8, 6, 0, 0, 2});
  }
  SUBCASE("a read") {
    const auto request = w.admit(13);
    w.compute(request, 2, std::byte{1});
    w.device->fail_next_record();
    const auto lease = w.lend(direction::publish, request, {0, 8});
    REQUIRE(lease.has_value());
    REQUIRE(w.of(*lease).failure.has_value());
    CHECK(w.of(*lease).failure->code == errc::device);
    CHECK(w.of(*lease).view == nullptr);
    CHECK(w.slots() == slot_counts{8, 6, 0, 0, 2});
    CHECK_FALSE(w.withdraw(*lease).has_value());
  }
  // Who waits for what can never be had any more fails; who can still be served is.
  line l{w};
  const auto fits = l.lend(6);
  CHECK(l.granted(fits));
  const auto never = l.lend(7);
  CHECK_FALSE(l.granted(never));
  CHECK(contains(l.why(never), "are quarantined"));
  CHECK_FALSE(w.stop(50ms).stopped);
}

TEST_CASE("6.5 quarantine fails those in the line that it has made impossible, and serves the others") {
  world w;
  w.device->hold();
  one_fetch f{w};
  line l{w};
  const auto large = l.lend(8), small = l.lend(3);
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK_FALSE(l.granted(small));
  w.device->fail_next_query();
  w.advance(a_while);
  CHECK(contains(l.why(large), "are quarantined"));
  CHECK(l.granted(small));
  CHECK(w.slots() == slot_counts{8, 3, 3, 0, 2});
}

TEST_CASE("6.6 readiness is none until the fetch settles, then what is really there") {
  world w;
  const auto request = w.admit(25);
  CHECK(*w.ready_from(request) == readiness{0, 0});
  const auto op = w.fetch(request, 5);
  auto& at = w.provider->last();
  CHECK_FALSE(w.ready_from(request)->has_value());
  const auto settle = [&] {
    w.advance(a_while);
    CHECK_FALSE(w.ready_from(request)->has_value());  // delivered, and not settled
    w.device->hold();
    at.end_access();
    w.advance(a_while);
    w.device->open();
    w.advance(a_while);
    REQUIRE(w.of(op).releases == 1);
  };
  SUBCASE("all of it") {
    at.deliver_all();
    settle();
    CHECK(*w.ready_from(request) == readiness{20, 0});
  }
  SUBCASE("a gap ends it, whatever has arrived behind") {
    at.deliver({0, 1, 3, 4});
    settle();
    CHECK(*w.ready_from(request) == readiness{8, 0});
    // A later fetch that fills the gap joins what had arrived.
    const auto again = w.lend(direction::fetch, request, {8, 12});
    REQUIRE(again.has_value());
    const auto second = w.submit(direction::fetch, *again, request);
    REQUIRE(second.has_value());
    w.provider->last().deliver_all();
    w.provider->last().end_access();
    w.advance(a_while);
    CHECK(*w.ready_from(request) == readiness{20, 0});
  }
  SUBCASE("nothing before the first gap") {
    at.deliver({1, 2, 3, 4});
    settle();
    CHECK(*w.ready_from(request) == readiness{0, 0});
  }
  SUBCASE("a miss settles it") {
    at.deliver({});
    settle();
    CHECK(*w.ready_from(request) == readiness{0, 0});
  }
  SUBCASE("a failure brings nothing, though bytes may lie in the slots") {
    at.fail("no");
    settle();
    CHECK(*w.ready_from(request) == readiness{0, 0});
  }
  CHECK(w.slots().free == 8);
}

TEST_CASE("6.6 a lost copy brings nothing, and settles the fetch") {
  world w;
  const auto request = w.admit(25);
  static_cast<void>(w.fetch(request, 5));
  w.device->fail_next_record();
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(a_while);
  CHECK(*w.ready_from(request) == readiness{0, 0});
}

TEST_CASE("lending: a lease that was given up settles its fetch with nothing") {
  world w;
  const one_fetch f{w, false};
  CHECK_FALSE(w.ready_from(f.request)->has_value());
  REQUIRE(w.withdraw(f.lease).has_value());
  CHECK(*w.ready_from(f.request) == readiness{0, 0});
  CHECK(w.slots().free == 8);
  CHECK(w.lend(direction::fetch, f.request, {0, 8}).has_value());
}

}  // namespace
}  // namespace kvlease::test
