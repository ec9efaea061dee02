// Semantics 5.4 to 5.8, on the real actors. 5.1 to 5.3: rules_5_test.cpp.
#include <doctest/doctest.h>

#include "actors/guard.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

using namespace kvlease;
using namespace kvlease::test;

// ---- 5.4 proofs

static const broken_by two{mutation::two_proofs, "5.4 one proof*"};
TEST_CASE("5.4 one proof is in flight for an attempt, never two") {
  world w;
  one_fetch f{w};
  const auto proofs = [&] { return w.figure(actor_kind::proof_collector, "proofs"); };
  CHECK(proofs() == 1);
  CHECK(w.retry_proof(f.op).has_value());
  CHECK(w.retry_proof(f.op).has_value());
  CHECK(proofs() == 1);
  CHECK(w.figure(actor_kind::proof_collector, "in_flight") == 1);
  f.at->access = access_state::unproven;
  w.advance(a_while);
  CHECK(w.figure(actor_kind::proof_collector, "in_flight") == 0);
  f.at->access = access_state::running;
  CHECK(w.retry_proof(f.op).has_value());
  CHECK(w.retry_proof(f.op).has_value());
  CHECK(proofs() == 2);
  f.at->end_access();
  f.at->deliver_all();
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(w.retry_proof(f.op).error().code == errc::unknown);  // released
  CHECK(proofs() == 2);
}

static const broken_by no_proof{mutation::dispute_is_proof, "5.4 disputed*"};
static const broken_by by_itself{mutation::dispute_retries_itself, "5.4 disputed*"};
static const broken_by thrown_ended{actor_mutation::broken_proof_is_end, "5.4 disputed*"};
static const broken_by false_ended{actor_mutation::false_proof_is_end, "5.4 disputed*"};
static const broken_by untold_ended{actor_mutation::unproven_is_end, "5.4 disputed*"};
TEST_CASE("5.4 disputed evidence starts drain and waits for an explicit retry") {
  bool pollable = true;
  std::function<void(scripted_attempt&)> dispute = [](auto& a) { a.access = access_state::unproven; };
  SUBCASE("a poll that can't tell") {}
  SUBCASE("a poll that throws") {
    dispute = [](auto& a) { a.proof_throws = true; };
  }
  SUBCASE("a wait that answers false") { pollable = false; }
  SUBCASE("a wait that throws") {
    pollable = false;
    dispute = [](auto& a) { a.proof_throws = true; };
  }
  world w{{.provider = {.pollable = pollable}}};
  w.provider->on_attempt = dispute;
  one_fetch f{w};
  f.at->deliver_all();
  w.advance(a_while);
  CHECK(f.host().events.front() == "outcome delivered(2)");
  REQUIRE(f.host().events.size() == 2);
  CHECK(contains(f.host().events[1], "retained: backend access end unproven"));
  CHECK(contains(drain_reason(w, f.request), "backend access end unproven"));
  CHECK(fact(w, f.op, "access") == "disputed");
  CHECK(f.at->proofs == 1);
  f.at->access = access_state::ended;
  f.at->proof_throws = false;
  w.advance(1s);
  CHECK(f.at->proofs == 1);
  CHECK(f.host().releases == 0);
  CHECK(f.marked() == none);
  SUBCASE("a retry proves it") {
    CHECK(w.retry_proof(f.op).has_value());
    w.advance(a_while);
    CHECK(f.at->proofs == 2);
    CHECK(w.figure(actor_kind::proof_collector, "proofs") == 2);
    CHECK(f.host().events.back() == "released");
    CHECK(f.marked() == both);
    w.advance(60s);
    CHECK_FALSE(w.fatal().has_value());
  }
  SUBCASE("without one, fatal at T from the dispute") {
    w.advance(3s);
    CHECK_FALSE(w.fatal().has_value());
    w.advance(1s);
    CHECK(w.fatal().has_value());
  }
}

static const broken_by unasked{actor_mutation::prove_at_dead_collector, "5.4 a proof collector*"};
TEST_CASE("5.4 a proof collector that is gone disputes what it was asked, also later") {
  world w;
  one_fetch f{w, false};
  SUBCASE("in flight") {
    f.submit();
    w.kill(actor_kind::proof_collector);
  }
  SUBCASE("asked afterwards") {
    w.hold_workers(true, false);
    f.submit();
    w.kill(actor_kind::proof_collector);
    w.hold_workers(false, false);
  }
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(a_while);
  CHECK(f.host().releases == 0);
  CHECK(f.host().retentions >= 1);
  CHECK(fact(w, f.op, "access") == "disputed");
  CHECK(w.retry_proof(f.op).has_value());
  CHECK(fact(w, f.op, "access") == "disputed");
  w.advance(5s);
  CHECK(w.fatal().has_value());
}

// ---- 5.5 cancellation

static const broken_by early{mutation::cancel_before_commit, "5.5 cancel*"};
static const broken_by again{mutation::cancel_repeats, "5.5 cancel*"};
TEST_CASE("5.5 cancellation commits the outcome, then asks the provider once") {
  world w;
  one_fetch f{w};
  strings heard_by_then;
  f.at->on_cancel = [&] { heard_by_then = f.host().events; };
  std::string outcome = "outcome cancelled(local)";
  SUBCASE("by this side") { REQUIRE(w.cancel(f.op).has_value()); }
  SUBCASE("by the peer") {
    REQUIRE(w.cancel(f.op, cancelled_by::peer).has_value());
    outcome = "outcome cancelled(peer)";
  }
  SUBCASE("by the deadline") {
    w.advance(5s);
    outcome = "outcome failed(transfer timeout)";
  }
  SUBCASE("by a failure of its own") {
    f.at->fail("line cut");
    w.advance(a_while);
    outcome = "outcome failed(line cut)";
  }
  CHECK(heard_by_then == strings{outcome});
  CHECK(f.at->cancels == 1);
  CHECK(fact(w, f.op, "cancel") == "requested");
  CHECK(fact(w, f.op, "cancel_error").empty());
  REQUIRE(w.cancel(f.op).has_value());
  REQUIRE(w.cancel(f.op, cancelled_by::peer).has_value());
  w.close_adapter();
  CHECK(f.at->cancels == 1);
  CHECK(f.host().releases == 0);  // an acknowledgement is no proof
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{outcome, "released"});
  CHECK(f.marked() == none);
}

static const broken_by error_lost{actor_mutation::cancel_error_lost, "5.5 a provider*"};
TEST_CASE("5.5 a provider's error in cancel is recorded, and obstructs nothing") {
  world w;
  one_fetch f{w}, other{w};
  SUBCASE("it throws") {
    f.at->cancel_throws = true;
    REQUIRE(w.cancel(f.op).has_value());
    CHECK(fact(w, f.op, "cancel_error") == "cancel broke");
    CHECK(fact(w, f.op, "cancel").empty());
  }
  SUBCASE("it does not cancel") {
    f.at->cancel_answer = cancel_disposition::unsupported;
    REQUIRE(w.cancel(f.op).has_value());
    CHECK(fact(w, f.op, "cancel") == "unsupported");
    CHECK(fact(w, f.op, "cancel_error").empty());
  }
  SUBCASE("it is stuck: the request runs outside arbitration") {
    w.hold_workers(true, false);
    REQUIRE(w.cancel(f.op).has_value());
    CHECK(f.host().events == strings{"outcome cancelled(local)"});
    CHECK(fact(w, f.op, "cancel").empty());
  }
  CHECK(f.host().releases == 0);
  for (const auto& a : w.provider->attempts) a->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
  w.hold_workers(false, false);
  other.at->deliver_all();
  w.advance(a_while);
  CHECK(other.host().events == strings{"outcome delivered(2)", "released"});
  CHECK(other.marked() == both);
}

// ---- 5.6 marks and copies

static const broken_by mark_early{mutation::release_at_outcome, "5.6 marks*"};
static const broken_by mark_failed{mutation::mark_undelivered, "5.6 marks*"};
static const broken_by mark_unknown{mutation::unknown_served, "5.6 marks*"};
static const broken_by mask_wide{mutation::mask_widened, "5.6 marks*"};
TEST_CASE("5.6 marks come after access end, for the served whole rows only") {
  world w;
  one_fetch f{w};
  marks expected = none;
  SUBCASE("all") { f.at->deliver_all(), expected = both; }
  SUBCASE("the first") { f.at->deliver({0}), expected = first; }
  SUBCASE("a hole is not filled in") { f.at->deliver({1}), expected = {false, true}; }
  SUBCASE("a miss") { f.at->deliver({}); }
  SUBCASE("failed") { f.at->fail("line cut"); }
  SUBCASE("cancelled") {
    REQUIRE(w.cancel(f.op).has_value());
    f.at->deliver_all();
  }
  SUBCASE("what was not asked for") { f.at->value = delivered{{"someone else's"}}; }
  const bool strange = f.at->value == outcome{delivered{{"someone else's"}}};
  w.advance(1s);
  CHECK(f.host().outcomes == 1);
  CHECK(std::holds_alternative<failed>(*f.host().value) ==
        (strange || f.at->value == outcome{failed{"line cut"}}));
  CHECK(f.host().releases == 0);
  CHECK(f.marked() == none);
  CHECK(w.figure(actor_kind::cuda, "copies") == 0);
  CHECK(fact(w, f.op, "copies") == "not_started");
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(f.marked() == expected);
  CHECK(w.device->rows_copied() == static_cast<std::uint64_t>(std::ranges::count(expected, true)));
  CHECK(w.figure(actor_kind::cuda, "copies") == (expected == none ? 0 : 1));
}

static const broken_by behind{mutation::settle_before_copies, "5.6 the event*"};
static const broken_by pending_ended{actor_mutation::pending_is_complete, "5.6 the event*"};
TEST_CASE("5.6 the event lies on the manager's stream right behind the copies") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  w.device->hold();
  f.at->end_access();
  w.advance(a_while);
  CHECK(w.device->queued() == 2);  // the rows, then the event
  CHECK(fact(w, f.op, "copies") == "pending");
  CHECK(w.device->run(1) == 1);
  w.advance(a_while);
  CHECK(w.device->rows_copied() == 2);
  CHECK(f.host().releases == 0);  // the bytes are there, and nothing says so yet
  CHECK(w.device->run(1) == 1);
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(w.slots().free == 8);
  CHECK(f.marked() == both);
}

static const broken_by lost{mutation::copy_error_is_done, "5.6 a mark*"};
static const broken_by mark_lost{actor_mutation::failed_enqueue_goes_on, "5.6 a mark*"};
static const broken_by record_lost{actor_mutation::failed_record_is_complete, "5.6 a mark*"};
static const broken_by query_lost{actor_mutation::failed_query_is_complete, "5.6 a mark*"};
TEST_CASE("5.6 a mark, record or query that fails leaves the copy unproven; marking is not repeated") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  SUBCASE("mark") { w.device->fail_next_enqueue(1); }
  SUBCASE("record") { w.device->fail_next_record(); }
  SUBCASE("query") { w.device->fail_next_query(); }
  f.at->end_access();
  w.advance(a_while);
  REQUIRE(w.device->faults_struck() == 1);
  CHECK(fact(w, f.op, "copies") == "unproven");
  REQUIRE(f.host().events.size() == 2);
  CHECK(contains(f.host().events[1], "retained: local copy evidence unavailable"));
  CHECK(contains(drain_reason(w, f.request), "local copy evidence unavailable"));
  CHECK(w.retry_proof(f.op).has_value());
  w.close_adapter();
  w.advance(4s);
  CHECK_FALSE(w.fatal().has_value());
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  CHECK(f.host().releases == 0);
  w.advance(1s);
  CHECK(w.fatal().has_value());
  CHECK(f.host().releases == 0);
  CHECK(w.slots().free == 6);
}

static const broken_by unfinished{actor_mutation::finish_at_dead_lender, "5.6 a lender*"};
TEST_CASE("5.6 a lender that is gone leaves the copy unproven") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  w.advance(a_while);
  w.kill(actor_kind::lender);
  f.at->end_access();
  w.advance(a_while);
  CHECK(fact(w, f.op, "copies") == "unproven");
  CHECK(f.host().releases == 0);
  CHECK(f.host().retentions == 1);
  w.advance(5s);
  CHECK(w.fatal().has_value());
}

// ---- 5.7 publishing

static const broken_by uncopied{mutation::publish_before_copy, "5.7 *"};
TEST_CASE(
    "5.7 a publish is submitted only once its copy out of the pages is complete, and copies nothing itself") {
  world w;
  const auto r = w.admit(13);
  w.compute(r, 2, std::byte{0x5a});
  const auto copies = w.figure(actor_kind::cuda, "copies");
  w.device->hold();
  const auto lease = *w.lend(direction::publish, r, {0, 8});
  w.advance(a_while);
  CHECK(w.device->queued() == 2);
  CHECK(w.of(lease).view == nullptr);
  const auto early_submit = w.submit(direction::publish, lease, r);
  REQUIRE_FALSE(early_submit.has_value());
  CHECK(early_submit.error().code == errc::invalid);
  CHECK(contains(early_submit.error().text, "not ready"));
  w.advance(100s);
  CHECK_FALSE(w.fatal().has_value());
  CHECK(w.provider->submissions == 0);
  SUBCASE("the copy completes") {
    w.device->open();
    w.advance(1s);
    REQUIRE(w.of(lease).view != nullptr);
    const auto op = *w.submit(direction::publish, lease, r);
    REQUIRE(w.provider->submissions == 1);
    CHECK(w.provider->last().way == direction::publish);
    for (const auto slot : w.of(lease).view->runs().at(0).where()->addresses)
      CHECK(*reinterpret_cast<const std::byte*>(slot) == std::byte{0x5a});
    w.provider->last().deliver_all();
    w.provider->last().end_access();
    w.advance(a_while);
    CHECK(w.of(op).events == strings{"outcome delivered(2)", "released"});
    CHECK(w.figure(actor_kind::cuda, "copies") == copies + 1);  // the lease's own
    CHECK(w.slots().free == 8);
  }
  SUBCASE("the copy is lost") {
    w.device->fail_next_query();
    w.device->open();
    w.advance(1s);
    CHECK(w.of(lease).failure.has_value());
    CHECK_FALSE(w.submit(direction::publish, lease, r).has_value());
    CHECK(w.provider->submissions == 0);
  }
}

// ---- 5.8 close

static const broken_by deregister{mutation::deregister_early, "5.8 close*"};
static const broken_by open_admission{mutation::close_keeps_admission, "5.8 close*"};
static const broken_by kept_operations{actor_mutation::close_keeps_operations, "5.8 close stops*"};
TEST_CASE("5.8 close stops admission, cancels, drains, deregisters, then releases the hold") {
  world w;
  one_fetch f{w}, waiting{w, false};
  const auto closed = [&] { return w.close_adapter().first; };
  CHECK_FALSE(closed());
  CHECK(f.host().events == strings{"outcome cancelled(local)"});
  CHECK(f.at->cancels == 1);
  CHECK(w.submit(direction::fetch, waiting.lease, waiting.request).error().code == errc::state);
  CHECK(any_contains(w.close_adapter().second, "access running"));
  CHECK(w.provider->log == strings{"register"});
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(f.marked() == none);
  CHECK(w.provider->log == strings{"register"});
  w.close_adapter();
  CHECK(closed());
  CHECK(w.provider->log == strings{"register", "deregister"});
  CHECK(w.figure(actor_kind::lender, "holds") == 0);
  CHECK(w.figure(actor_kind::deadline_arbiter, "owners") == 0);
  CHECK(closed());
  CHECK(w.provider->log.size() == 2);
  w.advance(60s);
  CHECK_FALSE(w.fatal().has_value());
}

static const broken_by half_closed{mutation::failed_close_counts, "5.8 a deregistration*"};
static const broken_by forgotten_handle{actor_mutation::broken_close_is_done, "5.8 a deregistration*"};
TEST_CASE("5.8 a deregistration that fails is retried on the same handle, and keeps the hold") {
  world w;
  w.provider->fail_closes = 1;
  CHECK_FALSE(w.close_adapter().first);
  const auto [closed, waits] = w.close_adapter();
  CHECK_FALSE(closed);
  CHECK(any_contains(waits, "deregistration failed: close broke"));
  CHECK(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register", "deregister", "deregister"});
  CHECK(w.figure(actor_kind::lender, "holds") == 0);
  CHECK(w.roots->rest().empty());
}

static const broken_by torn{mutation::teardown_after_fatal, "5.8 fatal of*"};
static const broken_by unaware{mutation::adapter_ignores_fatal, "5.8 after fatal*"};
static const broken_by untold_fatal{actor_mutation::fatal_untold, "5.8 after fatal*"};
TEST_CASE("5.8 after fatal nothing is marked or torn down") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  w.advance(a_while);
  f.at->access = access_state::unproven;
  w.advance(a_while);
  w.advance(5s);
  REQUIRE(w.fatal().has_value());
  f.at->end_access();
  CHECK(w.retry_proof(f.op).has_value());
  w.advance(a_while);
  CHECK(fact(w, f.op, "copies") == "not_started");
  CHECK(f.marked() == none);
  CHECK_FALSE(w.close_adapter().first);
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register"});
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
  CHECK(w.slots().awaiting_proof == 2);
  CHECK(f.host().releases == 0);
}

static const broken_by hold_early{mutation::hold_released_early, "5.8 fatal of*"};
TEST_CASE("5.8 fatal of the registrations themselves: the handle is not tried again") {
  world w;
  w.provider->fail_closes = 1;
  w.close_adapter();
  CHECK(w.provider->log == strings{"register", "deregister"});
  w.advance(5s);
  REQUIRE(w.fatal().has_value());
  CHECK_FALSE(w.close_adapter().first);
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register", "deregister"});
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
}

TEST_CASE("5.8 close waits for nothing: it answers while every worker is stuck") {
  world w;
  one_fetch f{w};
  w.hold_workers(true, true);
  CHECK_FALSE(w.close_adapter().first);
  CHECK(f.host().events == strings{"outcome cancelled(local)"});
}
