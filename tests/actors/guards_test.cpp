// Guards of the actors that no case of a rule takes away by itself: each case is named by its rule, and
// stands with the mutant (actors/guard.hpp) that it kills.
#include <doctest/doctest.h>

#include <thread>

#include "actors/adapter.hpp"
#include "actors/guard.hpp"
#include "cuda/cuda_actor.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using enum actor_kind;

// ---- the adapter and the backend

const broken_by foreign_parts{actor_mutation::bad_extent_keeps_lease, "5.2 a lease that no extent*"};
TEST_CASE("5.2 a lease that no extent can be built of stays with its holder") {
  world w;
  w.skip_journal_check();  // it sends what no actor would
  one_fetch f{w, false};
  // An adapter that knows other parts: the view's rows lie outside of them.
  auto& in = w.in();
  auto other = w.parts().at(0);
  other.address += std::uintptr_t{1} << 30;
  const auto stranger =
      spawn_adapter(*in.system, {incarnation{3}, w.roots, {other}, *transfer_timeout::make(5s)});
  auto wires = std::make_shared<wiring>(*in.parts.actors);
  wires->adapter = stranger;
  in.send(stranger, wired{wires});
  const registration_id live = id_source<registration_id>{incarnation{3}}.next();
  const operation_id claim = id_source<operation_id>{incarnation{3}}.next();
  // It is told what its peers would tell it until it accepts.
  in.options.step_by_hand = true;
  caf::anon_send(stranger, exposure_granted{claim});
  caf::anon_send(stranger, parts_held{hold_id{9}});
  caf::anon_send(stranger, registration_done{live, {}});
  in.options.step_by_hand = false;
  in.run();
  const auto got = ask<operation_id>(
      in, stranger,
      submit{f.lease, direction::fetch, f.request, *transfer_timeout::make(5s), in.host, std::nullopt});
  REQUIRE_FALSE(got.has_value());
  CHECK(got.error().code == errc::invalid);
  CHECK(w.provider->submissions == 0);
  in.send(stranger, quit_now{});
  f.submit();  // nobody owns it
  CHECK(w.provider->submissions == 1);
}

const broken_by route_dropped{actor_mutation::route_of_publish_ignored, "5.2 a publish takes no route"};
TEST_CASE("5.2 a publish takes no route") {
  world w;
  const auto along = w.open_route("good");
  REQUIRE(along.has_value());
  const auto r = w.admit(13);
  w.compute(r, 2, std::byte{0x5a});
  const auto lease = w.lend(direction::publish, r, {0, 8});
  REQUIRE(lease.has_value());
  const auto got = ask<operation_id>(w.in(), w.in().parts.actors->adapter,
                                     submit{*lease, direction::publish, r, *transfer_timeout::make(5s),
                                            w.in().host, std::nullopt, end_of_sequence::yes, *along});
  REQUIRE_FALSE(got.has_value());
  CHECK(got.error().code == errc::invalid);
  CHECK(contains(got.error().text, "only a fetch has a route"));
  CHECK(w.provider->submissions == 0);
  CHECK(w.submit(direction::publish, *lease, r).has_value());
}

const broken_by called_late{actor_mutation::withdrawn_is_called, "5.3 a withdrawn*"};
TEST_CASE("5.3 a withdrawn submission is not called, also while its memory is kept") {
  world w;
  one_fetch f{w, false};
  w.hold_workers(true, false);
  f.submit();
  auto reader = *w.roots->guard(f.lease);  // keeps the roots
  REQUIRE(w.cancel(f.op).has_value());
  CHECK(f.host().events == strings{"outcome cancelled(local)"});
  REQUIRE(w.roots->extent(f.op) != nullptr);
  w.hold_workers(false, false);
  CHECK(w.provider->submissions == 0);
  reader.drop();
  w.advance(a_while);
  CHECK(f.host().events.back() == "released");
  CHECK(w.provider->submissions == 0);
}

const broken_by sent_to_nobody{actor_mutation::submit_to_dead_backend, "7.4 an exposure*"};
TEST_CASE("7.4 an exposure that is granted after the backend's death submits nothing and fails at once") {
  world w;
  w.skip_journal_check();  // it sends what no actor would
  one_fetch f{w, false};
  auto& in = w.in();
  in.options.step_by_hand = true;
  f.op = operation_id{(std::uint64_t{1} << id_sequence_bits) + 2};  // after the registrations' claim
  in.send(in.parts.actors->adapter,
          submit{f.lease, direction::fetch, f.request, *transfer_timeout::make(5s), in.host, {}});
  w.step();                                                           // the adapter has asked for exposure
  in.send(in.parts.actors->adapter, peer_down{backend, in.runtime});  // ahead of the grant
  in.options.step_by_hand = false;
  w.run();
  CHECK(w.provider->submissions == 0);
  CHECK(f.host().events == strings{"outcome failed(backend is down)", "released"});
}

// ---- the manager: 6.4 for the engine's own copies

/// A copy into a request's pages, asked for and under way; its answer once there is one.
struct page_write {
  explicit page_write(world& in) : w{in}, request{w.admit(9)} {
    REQUIRE(w.grow(request, 8).has_value());
    auto buffer = std::make_shared<std::vector<std::byte>>(128, std::byte{0x77});
    w.in().system->spawn([to = in.in().parts.actors->manager, r = request, buffer,
                          said = said_](caf::event_based_actor* self) {
      self->request(to, caf::infinite, move_pages{r, {0, 8}, copy_kind::host_to_device, buffer})
          .then([said](done) { *said = "done"; }, [said](caf::error& e) { *said = to_string(from_caf(e)); });
    });
    w.run();
  }
  std::string answer() const { return *said_; }

  world& w;
  request_id request;

 private:
  std::shared_ptr<std::string> said_ = std::make_shared<std::string>();  ///< the asker may outlive this
};

const broken_by loose_pin{actor_mutation::move_unpinned_early, "6.4 pages*"};
TEST_CASE("6.4 pages that the engine's own copy writes are nobody else's until it has run") {
  world w{{.pages = 2, .hold_stream = true}};
  page_write m{w};
  CHECK(m.answer().empty());
  REQUIRE(w.free(m.request).has_value());
  CHECK(w.manager->counts().pinned == 2);
  const auto heir = w.admit(9, 500);
  CHECK(w.grow(heir, 8).error().code == errc::no_memory);
  w.device->open();
  w.advance(a_while);
  CHECK(m.answer() == "done");
  CHECK(w.manager->counts().pinned == 0);
  CHECK(w.grow(heir, 8).has_value());
}

const broken_by lost_pin{actor_mutation::lost_move_unpinned, "6.4 an engine's copy*"};
TEST_CASE("6.4 an engine's copy that can't be proven keeps its pages for good") {
  world w{{.pages = 2, .hold_stream = true}};
  page_write m{w};
  w.device->fail_next_query();
  w.device->open();
  w.advance(a_while);
  CHECK(contains(m.answer(), "page access is unproven"));
  REQUIRE(w.free(m.request).has_value());
  CHECK(w.manager->counts().pinned == 2);
  CHECK(w.figure(manager, "pinned_for_good") == 1);
  CHECK(w.grow(w.admit(9, 500), 8).error().code == errc::no_memory);
}

const broken_by unheard{actor_mutation::moves_unanswered, "7.4 the CUDA actor*"};
const broken_by asked_the_dead{actor_mutation::move_at_dead_cuda, "7.4 the CUDA actor*"};
TEST_CASE("7.4 the CUDA actor dies: the engine's copies are answered, and later ones refused") {
  world w{{.pages = 2, .hold_stream = true}};
  page_write m{w};
  w.kill(cuda);
  CHECK(contains(m.answer(), "the CUDA actor is down"));
  REQUIRE(w.free(m.request).has_value());
  CHECK(w.manager->counts().pinned == 2);
  const auto other = w.admit(5, 300);
  auto buffer = std::make_shared<std::vector<std::byte>>();
  const auto late = ask<done>(w.in(), w.in().parts.actors->manager,
                              move_pages{other, {0, 0}, copy_kind::host_to_device, buffer});
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == errc::state);
}

// ---- the deadline arbiter

const broken_by late_timer{actor_mutation::timer_not_advanced, "4.9 a deadline*"};
TEST_CASE("4.9 a deadline that is nearer than the armed one fires at its own time") {
  world w;
  static_cast<void>(w.fetch(w.admit(5), 1));
  const auto request = w.admit(5, 100);
  const auto lease = *w.lend(direction::fetch, request, {0, 4});
  w.advance(13ms);
  const auto quick = *w.submit(direction::fetch, lease, request, std::nullopt, 20ms);
  w.advance(20ms - 1ns);
  CHECK(w.of(quick).events.empty());
  w.advance(1ns);
  CHECK(w.of(quick).events == strings{"outcome failed(transfer timeout)"});
}

const broken_by late_watcher{actor_mutation::late_watcher_untold, "4.5 who watches*"};
TEST_CASE("4.5 who watches for the fatal expiry after it is told at once") {
  world w;
  one_fetch f{w};
  w.advance(10s);
  REQUIRE(w.fatal().has_value());
  const auto record = *std::exchange(w.in().fatal, std::nullopt);
  w.in().send(w.in().parts.actors->deadline_arbiter, watch_fatal{w.in().host});
  REQUIRE(w.fatal().has_value());
  CHECK(*w.fatal() == record);
}

// ---- the supervisor: 7.8, the order of 6.7

const broken_by admission_kept{actor_mutation::stop_skips_admission, "7.8 a refused*"};
TEST_CASE("7.8 a refused shutdown has closed admission all the same") {
  world w;
  one_fetch f{w};
  CHECK_FALSE(w.stop(10ms).stopped);
  const auto owner = w.create_owner(f.request, 1s);
  REQUIRE_FALSE(owner.has_value());
  CHECK(contains(owner.error().text, "admission is closed"));
}

const broken_by lender_skipped{actor_mutation::stop_skips_lender, "7.8 what is lent*"};
TEST_CASE("7.8 what is lent and was never submitted keeps the runtime, and is listed") {
  world w;
  one_fetch f{w, false};
  const auto report = w.stop(50ms);
  CHECK_FALSE(report.stopped);
  CHECK(any_contains(report.retained, "lender: 1 leases"));
  REQUIRE(w.withdraw(f.lease).has_value());
  CHECK(w.stop().stopped);
}

const broken_by owners_skipped{actor_mutation::stop_skips_arbiter, "7.8 a retirement owner*"};
TEST_CASE("7.8 a retirement owner that a host has not closed keeps the runtime, and is listed") {
  world w;
  const auto owner = w.create_owner(w.admit(5), 5s);
  REQUIRE(owner.has_value());
  const auto report = w.stop(50ms);
  CHECK_FALSE(report.stopped);
  CHECK(any_contains(report.retained, "retained owners"));
}

TEST_CASE("7.8 quarantined slots keep the runtime, and are counted") {
  world w;
  const auto r = w.admit(13);
  w.compute(r, 2, std::byte{0x5a});
  w.device->fail_next_record();
  const auto lease = w.lend(direction::publish, r, {0, 8});
  REQUIRE(lease.has_value());
  REQUIRE(w.of(*lease).failure.has_value());
  static_cast<void>(w.withdraw(*lease));
  REQUIRE(w.slots().quarantined == 2);
  const auto report = w.stop(50ms);
  CHECK_FALSE(report.stopped);
  CHECK(any_contains(report.retained, "2 slots quarantined"));
  for (const auto& p : w.parts()) CHECK(*reinterpret_cast<const std::byte*>(p.address) == std::byte{0x5a});
}

// ---- the CUDA actor

// Its case is in tests/cuda/cuda_actor_test.cpp. Devices in trouble: troubled_device_test.cpp.
const broken_by any_depth{actor_mutation::queue_unbounded, "CUDA actor: copies beyond*"};

const broken_by too_many_polls{actor_mutation::stale_poll_counts, "5.6 one poll*"};
TEST_CASE("5.6 one poll of the oldest event is under way, however many copies wait") {
  const auto queries_with = [](std::size_t copies) {
    world w{{.hold_stream = true}};
    std::vector<std::unique_ptr<page_write>> moves;
    for (std::size_t i = 0; i < copies; ++i) {
      moves.push_back(std::make_unique<page_write>(w));
      w.advance(100us);
    }
    const auto before = w.figure(cuda, "queries");
    w.advance(500ms);
    return w.figure(cuda, "queries") - before;
  };
  const auto alone = queries_with(1);
  CHECK(alone > 10);
  CHECK(queries_with(4) <= alone + 20);
}

}  // namespace
}  // namespace kvlease::test
