// Semantics 1: three answers, never one.
#include <doctest/doctest.h>

#include "actors/guard.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

const broken_by guards[] = {
    {mutation::outcome_waits_for_release, "1.1 *"},
    {mutation::release_at_outcome, "1.2 *"},
    {mutation::settle_before_copies, "1.2 *"},
    {mutation::release_unsettled, "1.2 *"},
    {mutation::last_outcome_wins, "1.3 *"},
    {mutation::ignore_read_guards, "1.4 *"},
    {mutation::error_as_miss, "1.5 *"},
    {mutation::miss_as_error, "1.5 *"},
};

using lines = std::vector<std::string>;

/// The memory of one operation over two slots is held, and its roots are there.
void check_kept(world& w, operation_id op) {
  CHECK(w.of(op).releases == 0);
  CHECK(w.slots().free == 6);
  CHECK(w.slots().conserved());
  CHECK(w.roots->operations() == 1);
  CHECK(w.exposure_bytes() == 0);
}
void check_released(world& w, operation_id op) {
  CHECK(w.of(op).releases == 1);
  CHECK(w.slots() == slot_counts{8, 8, 0, 0, 0});
  CHECK(w.roots->operations() == 0);
  CHECK(w.exposure_bytes() == 0);
}

}  // namespace

TEST_CASE("1.1 a logical outcome is visible at once and waits for no proof") {
  world w;
  const auto request = w.admit(13);
  const auto op = w.fetch(request);
  std::string expected;
  SUBCASE("delivered") {
    w.provider->last().deliver_all();
    w.advance(100ms);
    expected = "outcome delivered(2)";
  }
  SUBCASE("failed") {
    w.provider->last().fail("no such peer");
    w.advance(100ms);
    expected = "outcome failed(no such peer)";
  }
  SUBCASE("cancelled, in no time at all") {
    CHECK(w.cancel(op, cancelled_by::peer).has_value());
    expected = "outcome cancelled(peer)";
  }
  SUBCASE("timed out") {
    w.advance(5s);
    expected = "outcome failed(transfer timeout)";
  }
  SUBCASE("delivered, with the proof already disputed") {
    w.provider->last().access = access_state::unproven;
    w.advance(100ms);
    CHECK(w.of(op).events.empty());  // retained is told after the outcome (7.5)
    w.provider->last().deliver_all();
    w.advance(200ms);
    REQUIRE(w.of(op).events.size() == 2);
    CHECK(w.of(op).events[1].starts_with("retained: "));
    CHECK(w.of(op).outcomes == 1);
    return;
  }
  CHECK(w.of(op).events == lines{expected});
  CHECK(w.slots().awaiting_proof == 2);
  check_kept(w, op);
  w.advance(1s);
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).events == lines{expected, "released"});
  const auto& t = w.of(op).times;
  CHECK(t.outcome < t.access_ended);
  CHECK(t.access_ended <= t.released);
}

static const broken_by running_ended{actor_mutation::running_is_end, "1.2 memory*"};
TEST_CASE("1.2 memory comes back on access end and copies and settlement alone") {
  world w{{.hold_stream = true}};
  const auto op = w.fetch(w.admit(13));
  auto& attempt = w.provider->last();
  SUBCASE("outcome first") {
    attempt.deliver_all();
    w.advance(200ms);
    check_kept(w, op);
    attempt.end_access();
    w.advance(200ms);
  }
  SUBCASE("access end first") {
    attempt.end_access();
    w.advance(200ms);
    CHECK(w.of(op).events.empty());
    check_kept(w, op);
    attempt.deliver_all();
    w.advance(200ms);
  }
  SUBCASE("both at once") {
    attempt.deliver_all();
    attempt.end_access();
    w.advance(200ms);
  }
  check_kept(w, op);  // the copies are queued on the stream
  w.device->run(1);   // the rows; their event has not passed
  w.advance(200ms);
  check_kept(w, op);
  w.device->open();
  w.advance(200ms);
  check_released(w, op);
}

TEST_CASE("1.2 nothing else ever frees it") {
  world w;
  const auto request = w.admit(13);
  const auto op = w.fetch(request);
  auto& attempt = w.provider->last();
  bool dead = false;
  SUBCASE("a timeout") { w.advance(9s); }
  SUBCASE("a cancellation and its acknowledgement") {
    CHECK(w.cancel(op).has_value());
    w.advance(1s);
    CHECK(attempt.cancels == 1);
  }
  SUBCASE("the request's exit") {
    CHECK(w.free(request).has_value());
    w.advance(1s);
  }
  SUBCASE("the provider's failure") {
    attempt.fail("gone");
    w.advance(1s);
  }
  SUBCASE("an error instead of proof") {
    attempt.fail("gone");
    attempt.proof_throws = true;
    w.advance(1s);
    CHECK(w.of(op).retentions == 1);
    attempt.proof_throws = false;
    CHECK(w.retry_proof(op).has_value());
  }
  SUBCASE("the death of the backend actor") {
    w.kill(actor_kind::backend);
    w.advance(1s);
  }
  SUBCASE("the death of the proof collector") {
    CHECK(w.cancel(op).has_value());
    w.kill(actor_kind::proof_collector);
    attempt.end_access();
    dead = true;
  }
  SUBCASE("the death of the adapter") {
    w.kill(actor_kind::adapter);
    attempt.deliver_all();
    attempt.end_access();
    dead = true;
  }
  SUBCASE("the death of the arbiter: nobody is left who could settle") {
    w.kill(actor_kind::deadline_arbiter);
    attempt.deliver_all();
    attempt.end_access();
    dead = true;
  }
  SUBCASE("a refused close of the adapter") { CHECK_FALSE(w.close_adapter().first); }
  SUBCASE("shutdown") {
    const auto report = w.stop(1s);
    CHECK_FALSE(report.stopped);
    CHECK_FALSE(report.retained.empty());
  }
  check_kept(w, op);
  if (dead) {
    w.advance(30s);
    check_kept(w, op);
    return;
  }
  attempt.deliver_all();  // for the one without an outcome
  attempt.end_access();
  w.advance(900ms);
  check_released(w, op);
}

TEST_CASE("1.2 the death of the lender frees nothing: nobody can say that the copies have ended") {
  world w;
  const auto op = w.fetch(w.admit(13));
  w.kill(actor_kind::lender);
  w.advance(1s);
  w.provider->last().end_access();
  w.advance(30s);
  CHECK(w.of(op).outcomes == 1);
  CHECK(w.of(op).releases == 0);
  CHECK(w.roots->operations() == 1);
}

TEST_CASE("1.2 memory whose claim is settled after fatal expiry stays") {
  world w;
  const auto op = w.fetch(w.admit(13));
  SUBCASE("access still running") { w.advance(10s); }
  SUBCASE("copies unproven") {
    w.device->fail_next_query();
    w.provider->last().deliver_all();
    w.provider->last().end_access();
    w.advance(10s);
    CHECK(w.slots().quarantined == 2);
  }
  REQUIRE(w.fatal().has_value());
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(60s);
  check_kept(w, op);
  CHECK(w.of(op).final);
}

TEST_CASE("1.3 the first committed outcome wins and never changes") {
  world w;
  w.skip_journal_check();  // it sends what no actor would
  const auto request = w.admit(13);
  const auto op = w.fetch(request);
  auto& attempt = w.provider->last();
  auto& in = w.in();
  const auto& peers = *in.parts.actors;
  lines expected;
  SUBCASE("a success that nobody has committed loses against a local cancel") {
    attempt.deliver_all();
    CHECK(w.cancel(op).has_value());
    expected = {"outcome cancelled(local)"};
  }
  SUBCASE("a cancel and a success on their way together: the first to arrive") {
    caf::anon_send(peers.adapter, cancel_operation{op, cancelled_by::local});
    in.send(peers.adapter, outcome_reported{op, delivered{{}}});
    expected = {"outcome cancelled(local)"};
  }
  SUBCASE("the other way round") {
    attempt.deliver({0});
    caf::anon_send(peers.adapter, outcome_reported{op, *attempt.value});
    in.send(peers.adapter, cancel_operation{op, cancelled_by::local});
    expected = {"outcome delivered(1)"};
  }
  SUBCASE("a late success after a timeout stays a failure") {
    w.advance(5s);
    attempt.deliver_all();
    expected = {"outcome failed(transfer timeout)"};
  }
  SUBCASE("a late failure after a success stays a success") {
    attempt.deliver_all();
    w.advance(200ms);
    attempt.fail("late");
    CHECK(w.cancel(op).has_value());
    expected = {"outcome delivered(2)"};
  }
  SUBCASE("a second commitment at the arbiter is counted") {
    in.send(peers.deadline_arbiter, commit_outcome{op, failed{"first"}});
    const auto rejected = w.figure(actor_kind::deadline_arbiter, "rejected");
    in.send(peers.deadline_arbiter, commit_outcome{op, delivered{{}}});
    CHECK(w.figure(actor_kind::deadline_arbiter, "rejected") == rejected + 1);
    expected = {"outcome failed(first)"};
  }
  w.advance(200ms);
  CHECK(w.of(op).events == expected);
  const bool success = expected[0].starts_with("outcome delivered");
  w.provider->last().end_access();
  w.advance(200ms);
  expected.emplace_back("released");
  CHECK(w.of(op).events == expected);
  // What the memory holds is used as the outcome says, not as the provider's late word would have it.
  CHECK((w.device->rows_copied() > 0) == success);
}

static const broken_by guards_unseen{actor_mutation::guards_unasked, "1.4 release*"};
TEST_CASE("1.4 release waits for the last read guard") {
  auto way = direction::fetch;
  bool cancels = false, expires = false;
  SUBCASE("of a fetch") {}
  SUBCASE("of a publish") { way = direction::publish; }
  SUBCASE("of a cancelled fetch") { cancels = true; }
  SUBCASE("and fatal expiry does not replace it") { expires = true; }
  world w;
  const auto request = w.admit(13);
  const auto op = way == direction::fetch ? w.fetch(request) : w.publish(request);
  const auto lease = w.in().leases.rbegin()->first;
  auto first = *w.roots->guard(lease);
  auto second = *w.roots->guard(lease);
  CHECK(first.view().num_rows() == 2);
  auto& attempt = w.provider->last();
  if (cancels)
    CHECK(w.cancel(op).has_value());
  else
    attempt.deliver_all();
  attempt.end_access();
  w.advance(300ms);
  CHECK(w.of(op).outcomes == 1);
  check_kept(w, op);
  const auto late = w.roots->guard(lease);
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == errc::state);
  first.drop();
  w.advance(300ms);
  check_kept(w, op);
  if (expires) {
    w.advance(10s);
    REQUIRE(w.fatal().has_value());
    check_kept(w, op);
    second.drop();
    w.advance(10s);
    check_kept(w, op);
  } else {
    second = read_guard{};
    w.advance(300ms);
    check_released(w, op);
    CHECK(w.roots->guard(lease).error().code == errc::unknown);
  }
}

TEST_CASE("1.5 a miss and a partial delivery are no errors") {
  world w;
  const auto request = w.admit(13);
  const auto op = w.fetch(request);
  auto& attempt = w.provider->last();
  std::string expected;
  std::size_t served = 0;
  SUBCASE("miss") {
    attempt.deliver({});
    expected = "miss";
  }
  SUBCASE("partial") {
    attempt.deliver({0});
    expected = "delivered(1)";
    served = 1;
  }
  attempt.end_access();
  w.advance(300ms);
  CHECK(w.of(op).events == lines{"outcome " + expected, "released"});
  REQUIRE(std::holds_alternative<delivered>(*w.of(op).value));
  CHECK(std::get<delivered>(*w.of(op).value).served().size() == served);
  CHECK(w.ready_from(request)->value() == readiness{static_cast<std::int64_t>(served) * 4, 0});
}

TEST_CASE("1.5 an error of registration is the start's, never a miss") {
  world w{{.start = false}};
  w.provider->fail_registration = 0;
  const auto started = w.start();
  REQUIRE_FALSE(started.has_value());
  CHECK(started.error().code == errc::provider);
}

TEST_CASE("1.5 an error of capacity is the call's, never a miss") {
  world w{{.max_operations = 1}};
  const auto op = w.fetch(w.admit(5), 1);
  const auto request = w.admit(5, 90);
  const auto lease = *w.lend(direction::fetch, request, {0, 4});
  const auto refused = w.submit(direction::fetch, lease, request);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::capacity);
  w.advance(1s);
  CHECK(w.of(op).events.empty());
  CHECK(w.provider->submissions == 1);
}

static const broken_by poll_swallowed{actor_mutation::broken_poll_is_pending, "1.5 an error is never*"};
TEST_CASE("1.5 an error is never a miss") {
  world w;
  auto& p = *w.provider;
  std::string expected;
  SUBCASE("transport: the provider's failure") {
    p.on_attempt = [](scripted_attempt& a) { a.fail("transport"); };
    expected = "outcome failed(transport)";
  }
  SUBCASE("a poll that throws") {
    p.on_attempt = [](scripted_attempt& a) { a.poll_throws = true; };
    expected = "outcome failed(poll failed: poll broke)";
  }
  SUBCASE("a rejected submission") {
    p.on_submit = [](const cache_extent&) { throw submission_rejected{"unregistered"}; };
    expected = "outcome failed(submission rejected: unregistered)";
  }
  SUBCASE("a submission that throws") {
    p.on_submit = [](const cache_extent&) { throw std::runtime_error{"broke"}; };
    expected = "outcome failed(broke)";
  }
  SUBCASE("no attempt") {
    p.return_null = true;
    expected = "outcome failed(the provider returned no attempt)";
  }
  SUBCASE("names that nobody asked for") {
    p.on_attempt = [](scripted_attempt& a) { a.value = delivered{{"stranger"}}; };
    expected = "outcome failed(provider served what was not asked for: ";
  }
  const auto op = w.fetch(w.admit(13));
  w.advance(200ms);
  REQUIRE(w.of(op).outcomes == 1);
  CHECK(std::holds_alternative<failed>(*w.of(op).value));
  CHECK(w.of(op).events[0].starts_with(expected));
}
