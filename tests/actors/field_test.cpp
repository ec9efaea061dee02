// Failures that the field has shipped (design: field-scenarios), by their ids, on virtual time. In each:
// memory is freed only on proof, the outcome is there at once, slot states add up, and nothing is exposed.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "actors/guard.hpp"
#include "src/providers/memory_provider.hpp"
#include "tests/mutations.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

std::uintptr_t slot_of(world& w, lease_id lease, std::size_t row) {
  return w.of(lease).view->runs()[0].where()->addresses[row];
}

/// Every slot is accounted for, and no detector has seen anything.
void check_sound(world& w) {
  CHECK(w.slots().conserved());
  CHECK(w.exposure_bytes() == 0);
  CHECK(w.manager->check_invariants().has_value());
}

void finish_all(world& w) {
  for (auto& a : w.provider->attempts) {
    if (!a->value) a->deliver({});
    a->end_access();
  }
  w.advance(1s);
}

std::string fact(world& w, actor_kind kind, const std::string& id, const std::string& name) {
  const auto s = w.look();
  REQUIRE(s.has_value());
  for (const auto& entry : s->actors)
    if (entry.kind == kind)
      for (const auto& row : entry.report.rows)
        if (row.id == id)
          for (const auto& [key, value] : row.facts)
            if (key == name) return value;
  return "";
}

}  // namespace

TEST_CASE("F1 an aborted request's slot goes to nobody until its write has ended") {
  world w{{.slots = 2}};
  const auto first = w.admit(9), second = w.admit(9, 500);
  const auto lease = *w.lend(direction::fetch, first, {0, 8});
  const auto op = *w.submit(direction::fetch, lease, first);
  const auto waiting = *w.lend(direction::fetch, second, {0, 8});
  REQUIRE(w.cancel(op));
  REQUIRE(w.free(first));
  CHECK(w.of(op).events == std::vector<std::string>{"outcome cancelled(local)"});
  w.advance(2s);
  CHECK(w.of(waiting).view == nullptr);
  const auto address = slot_of(w, lease, 0);
  std::memset(reinterpret_cast<void*>(address), 0x66, 64);  // the write lands now, by right
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).releases == 1);
  REQUIRE(w.of(waiting).view != nullptr);
  CHECK(slot_of(w, waiting, 0) == address);
  std::memset(reinterpret_cast<void*>(address), 0x11, 64);  // the canary of its new holder
  const auto next = *w.submit(direction::fetch, waiting, second);
  w.provider->last().deliver({0});
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(next).releases == 1);
  CHECK(w.page(second, 0) == std::vector<std::byte>(64, std::byte{0x11}));
  check_sound(w);
}

TEST_CASE("F2 nothing is freed by the clock, and the report says what is awaited") {
  world w{{.slots = 4, .timeout = std::chrono::hours{72}}};
  const auto stuck_request = w.admit(9), other = w.admit(9, 500);
  const auto stuck = w.fetch(stuck_request, 2);
  auto& hung = w.provider->last();
  for (const auto span : {std::chrono::seconds{30}, std::chrono::seconds{600}, std::chrono::seconds{86400}}) {
    w.advance(span);
    CHECK(w.of(stuck).releases == 0);
    CHECK(w.slots() == slot_counts{4, 2, 2, 0, 0});
    CHECK(fact(w, actor_kind::adapter, to_string(stuck), "access") == "running");
    CHECK(fact(w, actor_kind::adapter, to_string(stuck), "outcome") == "pending");
  }
  const auto op = w.fetch(other, 2);  // only that lease is withheld
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(1s);
  CHECK(w.of(op).releases == 1);
  hung.fail("at last");
  hung.end_access();
  w.advance(1s);
  CHECK(w.of(stuck).releases == 1);
  check_sound(w);
}

static const broken_by lends_too_early{mutation::lend_unregistered, "F23 *"};
TEST_CASE("F23 nothing is lent from memory that is not registered") {
  world w{{.start = false}};
  const auto r = w.admit(9);
  const auto early = w.lend(direction::fetch, r, {0, 8});
  REQUIRE_FALSE(early.has_value());
  CHECK(early.error().code == errc::state);
  CHECK(early.error().text.find("not registered") != std::string::npos);
  CHECK(early.error().text.find(w.parts()[0].name) != std::string::npos);  // the region
  CHECK(w.slots() == slot_counts{8, 8, 0, 0, 0});
  REQUIRE(w.start());
  CHECK(w.lend(direction::fetch, r, {0, 8}).has_value());
}

TEST_CASE("F3 a cancel that is acknowledged proves nothing") {
  world w{{.timeout = std::chrono::seconds{60}}};
  const auto r = w.admit(9);
  const auto op = w.fetch(r, 2);
  REQUIRE(w.cancel(op));
  w.advance(100ms);
  CHECK(w.provider->last().cancels == 1);
  CHECK(fact(w, actor_kind::adapter, to_string(op), "cancel") == "requested");
  w.advance(4s);
  CHECK(w.of(op).releases == 0);
  CHECK(w.slots().awaiting_proof == 2);
  w.advance(900ms);
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome cancelled(local)", "released"});
  check_sound(w);
}

TEST_CASE("F4 one unit of eight errs while its siblings run") {
  world w{{.tokens_per_block = 4, .slots = 8}};
  const auto r = w.admit(33);
  const auto op = w.fetch(r, 8);
  w.provider->last().fail("unit 3 broke");
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome failed(unit 3 broke)"});
  CHECK(w.slots() == slot_counts{8, 0, 0, 8, 0});
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.slots() == slot_counts{8, 8, 0, 0, 0});
  check_sound(w);
}

TEST_CASE("F7 an exception out of a poll, a proof or a copy costs its own operation only") {
  world w;
  const auto r = w.admit(9), later = w.admit(9, 500);
  SUBCASE("the outcome poll") {
    w.provider->on_attempt = [](scripted_attempt& a) { a.poll_throws = true; };
    const auto op = w.fetch(r, 2);
    w.advance(200ms);
    CHECK(w.of(op).events == std::vector<std::string>{"outcome failed(poll failed: poll broke)"});
    CHECK(w.slots().awaiting_proof == 2);
    w.provider->last().end_access();
    w.advance(200ms);
    CHECK(w.of(op).releases == 1);
  }
  SUBCASE("the proof") {
    w.provider->on_attempt = [](scripted_attempt& a) { a.proof_throws = true; };
    const auto op = w.fetch(r, 2);
    w.provider->last().deliver_all();
    w.advance(200ms);
    CHECK(w.of(op).retentions == 1);
    CHECK(w.of(op).releases == 0);
    w.provider->last().proof_throws = false;
    w.provider->last().end_access();
    REQUIRE(w.retry_proof(op));
    w.advance(200ms);
    CHECK(w.of(op).releases == 1);
  }
  SUBCASE("the copy") {
    const auto op = w.fetch(r, 2);
    w.device->fail_next_record();
    w.provider->last().deliver_all();
    w.provider->last().end_access();
    w.advance(200ms);
    CHECK(w.of(op).releases == 0);
    CHECK(w.slots().quarantined == 2);
  }
  w.provider->on_attempt = nullptr;
  const auto good = w.fetch(later, 2);
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(good).releases == 1);
  check_sound(w);
}

TEST_CASE("F8 every mask of hits over eight units is served exactly") {
  world w{{.tokens_per_block = 1, .page_bytes = 64, .pages = 16, .slots = 8}};
  for (unsigned mask = 0; mask < 256; ++mask) {
    const auto r = w.admit(9, 1 + mask * 16);
    REQUIRE(w.grow(r, 8));
    const auto pages = *w.manager->rows(r, {0, 8});
    for (const auto& row : pages) std::memset(reinterpret_cast<void*>(row.address), 0, 64);
    const auto lease = *w.lend(direction::fetch, r, {0, 8});
    const auto op = *w.submit(direction::fetch, lease, r);
    std::vector<std::size_t> served;
    for (std::size_t i = 0; i < 8; ++i) {
      // What is not served may have been written all the same: a unit without a verdict counts for nothing.
      std::memset(reinterpret_cast<void*>(slot_of(w, lease, i)), 0x40 + static_cast<int>(i), 64);
      if ((mask >> i & 1u) != 0) served.push_back(i);
    }
    w.provider->last().deliver(served);
    w.provider->last().end_access();
    w.advance(200ms);
    REQUIRE(w.of(op).releases == 1);
    REQUIRE(std::get<delivered>(*w.of(op).value).served().size() == served.size());
    for (std::size_t i = 0; i < 8; ++i) {
      const bool hit = (mask >> i & 1u) != 0;
      REQUIRE(w.page(r, static_cast<std::int64_t>(i))[0] ==
              (hit ? static_cast<std::byte>(0x40 + i) : std::byte{0}));
    }
    std::int64_t prefix = 0;
    while (prefix < 8 && (mask >> prefix & 1u) != 0) ++prefix;
    REQUIRE(w.ready_from(r)->value() == readiness{prefix, 0});
    REQUIRE(w.slots() == slot_counts{8, 8, 0, 0, 0});
    REQUIRE(w.free(r));
  }
  check_sound(w);
}

static const broken_by withdrawn_under_operation{actor_mutation::owned_lease_withdrawn, "F14 *"};
TEST_CASE("F14 released twice, unknown, or by the wrong hand: a typed error and no change") {
  world w;
  const auto r = w.admit(9);
  const auto lease = *w.lend(direction::fetch, r, {0, 8});
  const auto op = *w.submit(direction::fetch, lease, r);
  const auto before = w.slots();
  CHECK(w.withdraw(lease).error().code == errc::state);  // an operation owns it
  CHECK(w.withdraw(lease_id{lease.value + 77}).error().code == errc::unknown);
  CHECK(w.cancel(operation_id{op.value + 77}).error().code == errc::unknown);
  CHECK(w.slots() == before);
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).releases == 1);
  CHECK(w.withdraw(lease).error().code == errc::unknown);
  CHECK(w.cancel(op).error().code == errc::unknown);
  CHECK(w.of(op).events.size() == 2);
  const auto unsubmitted = *w.lend(direction::publish, r, {0, 0});
  CHECK(w.withdraw(unsubmitted).has_value());
  CHECK(w.withdraw(unsubmitted).error().code == errc::unknown);
  check_sound(w);
}

TEST_CASE("F15 the request exits at every point, in every order with the evidence") {
  // o: outcome, a: end of access, c: the stream opens, x: the request exits and another takes its pages
  std::string order = "acox";
  std::ranges::sort(order);
  int orders = 0;
  do {
    CAPTURE(order);
    world w{{.pages = 4, .slots = 2, .hold_stream = true}};
    const auto r = w.admit(9);
    const auto lease = *w.lend(direction::fetch, r, {0, 8});
    const auto op = *w.submit(direction::fetch, lease, r);
    for (std::size_t i = 0; i < 2; ++i) std::memset(reinterpret_cast<void*>(slot_of(w, lease, i)), 0x66, 64);
    std::optional<request_id> heir;
    for (const char step : order) {
      if (step == 'o') w.provider->last().deliver_all();
      if (step == 'a') w.provider->last().end_access();
      if (step == 'c') w.device->open();
      if (step == 'x') {
        REQUIRE(w.free(r));
        heir = w.admit(9, 500);
        REQUIRE(w.grow(*heir, 8));  // four pages: also while two of them are pinned
        const auto pages = *w.manager->rows(*heir, {0, 8});
        for (const auto& row : pages) std::memset(reinterpret_cast<void*>(row.address), 0x11, row.nbytes);
      }
      w.advance(200ms);
    }
    CHECK(w.of(op).events == std::vector<std::string>{"outcome delivered(2)", "released"});
    for (std::int64_t i = 0; i < 2; ++i) CHECK(w.page(*heir, i)[0] == std::byte{0x11});
    CHECK(w.slots() == slot_counts{2, 2, 0, 0, 0});
    CHECK(w.manager->counts().pinned == 0);
    check_sound(w);
    ++orders;
  } while (std::ranges::next_permutation(order).found);
  CHECK(orders == 24);
}

TEST_CASE("F16 a request leases again while its old lease is unproven") {
  world w{{.slots = 4}};
  const auto r = w.admit(9);
  const auto old = w.publish(r, 2);
  auto& old_attempt = w.provider->last();
  old_attempt.deliver_all();
  old_attempt.access = access_state::unproven;
  w.advance(200ms);
  CHECK(w.of(old).retentions == 1);
  const auto lease = *w.lend(direction::publish, r, {0, 8});
  const auto fresh = *w.submit(direction::publish, lease, r);
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(fresh).releases == 1);  // the evidence of the new generation
  CHECK(w.of(old).releases == 0);
  old_attempt.end_access();
  REQUIRE(w.retry_proof(old));
  w.advance(200ms);
  CHECK(w.of(old).releases == 1);
  check_sound(w);
}

TEST_CASE("F17 pages that a queued publish copy reads are nobody else's until it has run") {
  world w{{.pages = 2, .slots = 2}};
  const auto r = w.admit(9);
  w.compute(r, 2, std::byte{0x5a});
  w.device->hold();
  const auto lease = *w.lend(direction::publish, r, {0, 8});
  CHECK(w.of(lease).view == nullptr);
  REQUIRE(w.free(r));
  CHECK(w.manager->counts().pinned == 2);
  const auto heir = w.admit(9, 500);
  CHECK(w.grow(heir, 8).error().code == errc::no_memory);
  w.device->open();
  w.advance(200ms);
  CHECK(w.manager->counts().pinned == 0);
  REQUIRE(w.of(lease).view != nullptr);
  w.compute(heir, 2, std::byte{0x11});
  const auto* staged = reinterpret_cast<const std::byte*>(slot_of(w, lease, 0));
  CHECK(staged[0] == std::byte{0x5a});
  CHECK(staged[127] == std::byte{0x5a});
  const auto op = *w.submit(direction::publish, lease, r);
  finish_all(w);
  CHECK(w.of(op).releases == 1);
  check_sound(w);
}

TEST_CASE("F17 a duplicate block that is found after its copy was queued goes only once the copy has run") {
  world w{{.pages = 4, .slots = 2, .reuse = true}};
  const auto original = w.admit(9), twin = w.admit(9);
  w.compute(original, 2, std::byte{0x5a});
  w.compute(twin, 2, std::byte{0x5a});  // resident already: its own pages are duplicates
  w.device->hold();
  const auto lease = w.lend(direction::publish, twin, {0, 8});
  REQUIRE(lease.has_value());
  REQUIRE(w.free(original));
  REQUIRE(w.free(twin));
  CHECK(w.manager->counts().pinned == 2);
  CHECK(w.manager->counts().free == 0);
  w.device->open();
  w.advance(200ms);
  CHECK(w.manager->counts().pinned == 0);
  CHECK(w.manager->counts().free == 2);
  REQUIRE(w.of(*lease).view != nullptr);
  CHECK(*reinterpret_cast<const std::byte*>(slot_of(w, *lease, 0)) == std::byte{0x5a});
  REQUIRE(w.withdraw(*lease));
  check_sound(w);
}

TEST_CASE("F18 twelve promised, ten served") {
  world w{{.tokens_per_block = 1, .slots = 12}};
  const auto r = w.admit(13);
  const auto op = w.fetch(r, 12);
  std::vector<std::size_t> ten(10);
  std::iota(ten.begin(), ten.end(), 0u);
  w.provider->last().deliver(ten);
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(std::get<delivered>(*w.of(op).value).served().size() == 10);
  CHECK(w.ready_from(r)->value() == readiness{10, 0});
  check_sound(w);
}

TEST_CASE("F20 a hundred routine timeouts whose access ends a second later") {
  world w{{.tokens_per_block = 1, .pages = 256, .slots = 100}};
  std::vector<operation_id> ops;
  for (std::uint32_t i = 0; i < 100; ++i) ops.push_back(w.fetch(w.admit(2, 1 + i * 4), 1));
  w.advance(5s);
  for (const auto op : ops) CHECK(w.of(op).value == outcome{failed{"transfer timeout"}});
  CHECK(w.slots() == slot_counts{100, 0, 0, 100, 0});
  w.advance(1s);
  for (auto& a : w.provider->attempts) a->end_access();
  w.advance(1s);
  for (const auto op : ops) CHECK(w.of(op).releases == 1);
  CHECK_FALSE(w.fatal().has_value());
  CHECK(w.slots() == slot_counts{100, 100, 0, 0, 0});
  check_sound(w);
}

static const broken_by recycled{actor_mutation::event_recycled_early, "F22 *"};
TEST_CASE("F22 the tables and events of a queued copy are its own until its event") {
  world w{{.slots = 4, .hold_stream = true}};
  std::vector<operation_id> ops;
  for (std::uint32_t i = 0; i < 2; ++i) ops.push_back(w.fetch(w.admit(9, 1 + i * 100), 2));
  for (auto& a : w.provider->attempts) {
    a->deliver_all();
    a->end_access();
  }
  w.advance(1s);
  CHECK(w.device->live_events() == 2);  // one each, none recycled while pending
  CHECK(w.device->queued() == 4);       // two batches, kept by the device, and their events
  w.device->run(2);
  w.advance(1s);
  CHECK(w.of(ops[0]).releases == 1);
  CHECK(w.of(ops[1]).releases == 0);
  w.device->open();
  w.advance(1s);
  CHECK(w.of(ops[1]).releases == 1);
  CHECK(w.device->live_events() == 0);
  CHECK(w.device->bad_recycles() == 0);
  check_sound(w);
}
