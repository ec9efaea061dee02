// Semantics 4.1-4.6: the clocks. T is 5 s; virtual time.
#include <doctest/doctest.h>

#include <algorithm>
#include <caf/scheduled_actor.hpp>
#include <map>

#include "actors/guard.hpp"
#include "messages/proof_collector.hpp"
#include "src/retirement.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

const broken_by guards[] = {
    {mutation::expose_always, "4.1 *"},        {mutation::expose_without_claim, "4.1 *"},
    {mutation::expose_without_clock, "4.1 *"}, {mutation::exclusive_boundary, "4.2 *"},
    {mutation::commit_skips_elapsed, "4.2 *"}, {mutation::skip_elapsed, "4.2 *"},
    {mutation::drain_from_notice, "4.3 *"},    {mutation::timeout_without_outcome, "4.3 *"},
    {mutation::drain_restarts, "4.4 *"},       {mutation::failure_without_drain, "4.4 *"},
    {mutation::fatal_admits, "4.5 *"},         {mutation::fatal_of_one_owner, "4.5 *"},
    {mutation::settle_after_fatal, "4.5 *"},   {mutation::complete_hides_claims, "4.6 *"},
    {mutation::complete_keeps_clock, "4.6 *"},
};

using lines = std::vector<std::string>;

/// The arbiter's facts about the request's retirement owner; empty where it has none.
std::map<std::string, std::string> owner_of(world& w, request_id request) {
  const auto s = w.look();
  REQUIRE(s.has_value());
  for (const auto& entry : s->actors) {
    if (entry.kind != actor_kind::deadline_arbiter) continue;
    for (const auto& row : entry.report.rows) {
      std::map<std::string, std::string> facts{row.facts.begin(), row.facts.end()};
      if (facts["request"] == to_string(request)) return facts;
    }
  }
  return {};
}

/// `m` lies in the arbiter's mailbox before any timer that comes due in `by`; then all of it runs.
template <class Message>
void tell_arbiter_late(world& w, Message m, std::chrono::nanoseconds by) {
  caf::anon_send(w.in().parts.actors->deadline_arbiter, std::move(m));
  w.in().scheduler->advance_time(by);
  w.run();
}

/// Everything runs but the arbiter, which is as if it were slow.
void run_all_but_arbiter(world& w) {
  const auto& jobs = w.in().scheduler->jobs;
  const auto other = [](caf::resumable* job) {
    const auto* actor = dynamic_cast<caf::scheduled_actor*>(job);
    return actor == nullptr || std::string{actor->name()} != "kvlease.deadline_arbiter";
  };
  for (;;) {
    const auto it = std::ranges::find_if(jobs, other);
    if (it == jobs.end()) return;
    w.step(static_cast<std::size_t>(it - jobs.begin()));
  }
}

struct one_fetch {
  explicit one_fetch(world_options o = {}) : w{std::move(o)} {
    request = w.admit(13);
    start = w.now();
    op = w.fetch(request);
  }
  scripted_attempt& attempt() { return w.provider->last(); }
  world w;
  request_id request;
  operation_id op;
  time_point start;
};

}  // namespace

TEST_CASE("4.1 expose retains the claim and starts the clock before anything can escape") {
  world w;
  w.hold_workers(true, false);
  const auto request = w.admit(13);
  const auto op = w.fetch(request);
  auto facts = owner_of(w, request);
  CHECK(w.provider->submissions == 0);
  CHECK(facts["claims"] == "1");
  CHECK(facts["request_deadline_in"] == "5000.000 ms");
  w.advance(2s);
  REQUIRE(w.run_one_submit_job());  // the provider is called late: the clock runs since the exposure
  CHECK(w.provider->submissions == 1);
  w.hold_workers(false, false);
  w.advance(3s - 1ns);
  CHECK(w.of(op).events.empty());
  w.advance(1ns);
  CHECK(w.of(op).events == lines{"outcome failed(transfer timeout)"});
}

TEST_CASE("4.1 expose answers no where nothing may begin any more") {
  world w;
  const auto request = w.admit(13);
  const auto lease = *w.lend(direction::fetch, request, {0, 8});
  result<owner_id> owner = w.create_owner(request, 5s);
  REQUIRE(owner.has_value());
  SUBCASE("drain has begun") { REQUIRE(w.close_admission().has_value()); }
  SUBCASE("the owner is closed, or unknown") { owner = owner_id{owner->value + 1000}; }
  const auto op = w.submit(direction::fetch, lease, request, *owner);
  REQUIRE(op.has_value());
  w.advance(1s);
  CHECK(w.provider->submissions == 0);
  CHECK(w.of(*op).events == lines{"outcome cancelled(local)", "released"});
  CHECK(w.slots().free == 8);
  w.advance(60s);
  CHECK_FALSE(w.fatal().has_value());
}

TEST_CASE("4.1 expose answers no after fatal expiry") {
  one_fetch f;
  f.w.skip_journal_check();  // it sends what no actor would
  f.w.advance(10s);
  REQUIRE(f.w.fatal().has_value());
  auto& in = f.w.in();
  const operation_id late{f.op.value + 1000};  // as an adapter would that has not heard yet
  in.send(in.parts.actors->deadline_arbiter,
          expose_operation{
              {late, std::nullopt, f.request, direction::fetch, *transfer_timeout::make(5s), f.w.now()},
              in.host});
  REQUIRE_FALSE(f.w.of(late).events.empty());
  CHECK(f.w.of(late).events[0] == "outcome cancelled(local)");
  CHECK(f.w.provider->submissions == 1);
}

TEST_CASE("4.1 the pieces' completion refuses an exposure, and the first one alone sets the clock") {
  retirement r{incarnation{1}};
  const auto at = [](int s) { return time_point{std::chrono::seconds{s}}; };
  const auto owner = *r.create_owner(at(0), request_id{1}, direction::fetch, *transfer_timeout::make(5s));
  REQUIRE(r.expose(at(1), owner, {operation_id{1}}));
  REQUIRE(r.expose(at(3), owner, {operation_id{2}}));
  CHECK(r.view(owner)->request_deadline == at(6));
  CHECK(r.view(owner)->claims == 2);
  r.complete_pieces(at(4), owner);
  CHECK_FALSE(r.expose(at(4), owner, {operation_id{3}}));
  CHECK(r.view(owner)->claims == 2);
}

TEST_CASE("4.2 an elapsed request timeout is committed before any other transition") {
  std::chrono::nanoseconds when = 5s;
  bool success = true;
  SUBCASE("a success at the deadline") {}
  SUBCASE("a success behind it") { when = 7s; }
  SUBCASE("a success before it") { when = 5s - 1ns; }
  SUBCASE("a cancel at the deadline") { success = false; }
  SUBCASE("a cancel before it") {
    when = 5s - 1ns;
    success = false;
  }
  one_fetch f;
  f.w.skip_journal_check();  // it sends what no actor would
  const bool in_time = when < 5s;
  lines expected{"outcome failed(transfer timeout)"};
  if (success) {
    f.attempt().deliver_all();
    tell_arbiter_late(f.w, commit_outcome{f.op, *f.attempt().value}, when);
    if (in_time) expected = {"outcome delivered(2)"};
  } else {
    tell_arbiter_late(f.w, commit_outcome{f.op, cancelled{cancelled_by::local}}, when);
    if (in_time) expected = {"outcome cancelled(local)"};
  }
  CHECK(f.w.of(f.op).events == expected);
  if (!in_time) CHECK(owner_of(f.w, f.request)["reason"] == "transfer timeout");
}

TEST_CASE("4.2 an elapsed timeout comes before a dispute: reason and start are the timeout's") {
  one_fetch f;
  f.w.skip_journal_check();  // it sends what no actor would
  tell_arbiter_late(f.w, retain_claim{f.op, "disputed"}, 6s);
  CHECK(owner_of(f.w, f.request)["reason"] == "transfer timeout");
  CHECK(owner_of(f.w, f.request)["draining_for"] == "1000.000 ms");
  REQUIRE(f.w.of(f.op).events.size() == 2);
  CHECK(f.w.of(f.op).events[0] == "outcome failed(transfer timeout)");
}

TEST_CASE("4.2 an elapsed grace is committed before a settlement") {
  one_fetch f;
  CHECK(f.w.cancel(f.op).has_value());
  f.w.advance(4900ms);
  f.attempt().end_access();
  std::chrono::nanoseconds rest = 100ms;
  bool in_time = false;
  SUBCASE("at the deadline") {}
  SUBCASE("behind it") { rest = 3s; }
  SUBCASE("before it") {
    rest = 100ms - 1ns;
    in_time = true;
  }
  caf::anon_send(f.w.in().parts.actors->proof_collector, poll_access{});
  run_all_but_arbiter(f.w);  // the adapter's question waits in the arbiter's mailbox
  f.w.in().scheduler->advance_time(rest);
  f.w.run();
  CHECK(f.w.fatal().has_value() == !in_time);
  CHECK(f.w.of(f.op).releases == (in_time ? 1 : 0));
  CHECK(f.w.roots->operations() == (in_time ? 0 : 1));
  CHECK(f.w.slots() == (in_time ? slot_counts{8, 8, 0, 0, 0} : slot_counts{8, 6, 0, 2, 0}));
}

TEST_CASE("4.3 the request deadline brings the outcome, and drain starts at it") {
  one_fetch f;
  std::chrono::nanoseconds noticed = 5s;
  SUBCASE("noticed at once") { f.w.advance(5s); }
  SUBCASE("noticed late") {
    noticed = 7s;
    f.w.in().scheduler->advance_time(7s);
    f.w.run();
  }
  CHECK(f.w.of(f.op).events == lines{"outcome failed(transfer timeout)"});
  auto facts = owner_of(f.w, f.request);
  CHECK(facts["reason"] == "transfer timeout");
  CHECK(facts["draining_for"] == (noticed == 5s ? "0.000 ms" : "2000.000 ms"));
  CHECK(f.attempt().cancels == 1);  // the outcome is forwarded (scenarios 4.5)
  f.w.advance(5s);
  REQUIRE(f.w.fatal().has_value());
  CHECK(f.w.fatal()->started == f.start + 5s);
  CHECK(f.w.fatal()->deadline == f.start + 10s);
}

TEST_CASE("4.3 a committed outcome stays at the request deadline, and drain starts all the same") {
  one_fetch f;
  f.attempt().deliver_all();
  f.w.advance(5s);
  CHECK(f.w.of(f.op).events == lines{"outcome delivered(2)"});
  CHECK(owner_of(f.w, f.request)["reason"] == "transfer timeout");
  CHECK(owner_of(f.w, f.request)["draining_for"] == "0.000 ms");
}

TEST_CASE("4.3 a disputed proof takes no answer away: the deadline still brings one") {
  one_fetch f;
  f.attempt().access = access_state::unproven;
  f.w.advance(2s);
  CHECK(f.w.of(f.op).events.empty());
  f.w.advance(3s);
  REQUIRE_FALSE(f.w.of(f.op).events.empty());
  CHECK(f.w.of(f.op).events[0] == "outcome failed(transfer timeout)");
}

TEST_CASE("4.4 drain starts once, at the first trigger") {
  one_fetch f;
  f.w.skip_journal_check();  // it sends what no actor would
  f.w.advance(1s);
  std::string reason;
  auto first = f.start + 1s;
  SUBCASE("timeout") {
    f.w.advance(4s);
    first = f.start + 5s;
    reason = "transfer timeout";
  }
  SUBCASE("failure") {
    f.w.in().send(f.w.in().parts.actors->deadline_arbiter, commit_outcome{f.op, failed{"x"}});
    reason = "delivery failed or cancelled";
  }
  SUBCASE("cancellation") {
    CHECK(f.w.cancel(f.op).has_value());
    reason = "delivery failed or cancelled";
  }
  SUBCASE("disputed evidence") {
    f.w.in().send(f.w.in().parts.actors->deadline_arbiter, retain_claim{f.op, "disputed"});
    reason = "disputed";
  }
  SUBCASE("shutdown") {
    CHECK(f.w.close_admission().has_value());
    reason = "shutdown";
  }
  CHECK(owner_of(f.w, f.request)["reason"] == reason);
  // Each trigger again, later: neither start nor reason moves.
  f.w.advance(1s);
  CHECK(f.w.cancel(f.op).has_value());
  f.w.in().send(f.w.in().parts.actors->deadline_arbiter, commit_outcome{f.op, failed{"late"}});
  f.w.advance(1s);
  f.attempt().access = access_state::unproven;
  f.w.in().send(f.w.in().parts.actors->deadline_arbiter, retain_claim{f.op, "late dispute"});
  CHECK(f.w.close_admission().has_value());
  CHECK(owner_of(f.w, f.request)["reason"] == reason);
  f.w.advance(first + 5s - 1ns - f.w.now());
  CHECK_FALSE(f.w.fatal().has_value());
  f.w.advance(1ns);
  REQUIRE(f.w.fatal().has_value());
  CHECK(f.w.fatal()->started == first);
  CHECK(f.w.fatal()->reason == reason);
}

TEST_CASE("4.5 fatal is latched with its facts at the end of a grace that nothing extends") {
  one_fetch f;
  f.w.advance(2s);
  CHECK(f.w.cancel(f.op).has_value());
  for (int i = 0; i < 4; ++i) {
    f.w.advance(1s);
    CHECK(f.w.cancel(f.op).has_value());
    CHECK(f.w.retry_proof(f.op).has_value());
  }
  CHECK_FALSE(f.w.fatal().has_value());
  std::chrono::nanoseconds late = 0ns;
  SUBCASE("noticed at once") {}
  SUBCASE("noticed late") { late = 3s; }
  f.w.in().scheduler->advance_time(1s + late);
  f.w.run();
  REQUIRE(f.w.fatal().has_value());
  const auto& record = *f.w.fatal();
  CHECK(record.request == f.request);
  CHECK(record.way == direction::fetch);
  CHECK(record.reason == "delivery failed or cancelled");
  CHECK(record.started == f.start + 2s);
  CHECK(record.deadline == f.start + 7s);
  CHECK(record.noticed == f.start + 7s + late);
}

static const broken_by fatal_admits{actor_mutation::fatal_admits_operations, "4.5 fatal covers*"};
TEST_CASE("4.5 fatal covers the whole runtime, and is final") {
  one_fetch f;
  f.w.skip_journal_check();  // it sends what no actor would
  const auto other = f.w.admit(13, 100);
  const auto bystander = f.w.fetch(other);
  auto& theirs = f.w.provider->last();
  const auto third = f.w.admit(13, 200);
  const auto lease = *f.w.lend(direction::fetch, third, {0, 8});
  CHECK(f.w.cancel(f.op).has_value());
  f.w.advance(4s);
  SUBCASE("with the other open") {}
  SUBCASE("with the other delivered") {
    theirs.deliver_all();
    f.w.advance(200ms);
    CHECK(f.w.of(bystander).events == lines{"outcome delivered(2)"});
  }
  f.w.advance(1s);
  REQUIRE(f.w.fatal().has_value());
  const auto record = *f.w.fatal();

  // Nothing is admitted or exposed ...
  const auto refused = f.w.submit(direction::fetch, lease, third);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::state);
  const auto owner = f.w.create_owner(third, 5s);
  REQUIRE_FALSE(owner.has_value());
  CHECK(owner.error().text.find("admission is closed") != std::string::npos);
  // ... and no late evidence settles, of nobody: not as the adapter asks, nor as anyone could.
  for (const auto& a : f.w.provider->attempts) {
    a->deliver_all();
    a->end_access();
  }
  f.w.advance(30s);
  const auto settle = [&](operation_id op) {
    f.w.in().send(f.w.in().parts.actors->deadline_arbiter, settle_claim{op});
  };
  settle(f.op);
  settle(bystander);
  for (const auto op : {f.op, bystander}) {
    CHECK(f.w.of(op).releases == 0);
    CHECK(f.w.of(op).outcomes == 1);
    CHECK(f.w.of(op).final);
  }
  for (const auto request : {f.request, other}) CHECK(owner_of(f.w, request)["claims"] == "1");
  CHECK(f.w.roots->operations() == 2);
  CHECK(f.w.slots() == slot_counts{8, 2, 2, 4, 0});
  CHECK(*f.w.fatal() == record);
  CHECK(f.w.exposure_bytes() == 0);
}

TEST_CASE("4.5 another runtime is not concerned") {
  one_fetch f;
  world second;
  const auto op = second.fetch(second.admit(13));
  f.w.advance(10s);
  REQUIRE(f.w.fatal().has_value());
  CHECK_FALSE(second.fatal().has_value());
  second.provider->last().deliver_all();
  second.provider->last().end_access();
  second.advance(200ms);
  CHECK(second.of(op).releases == 1);
}

TEST_CASE("4.6 a delivery whose claim is settled has no timeout any more") {
  one_fetch f;
  f.attempt().deliver_all();
  f.w.advance(200ms);
  SUBCASE("released") {
    f.attempt().end_access();
    f.w.advance(200ms);
    CHECK(f.w.of(f.op).events == lines{"outcome delivered(2)", "released"});
    CHECK(owner_of(f.w, f.request).empty());
  }
  SUBCASE("settled, with the owner still there") {
    f.w.skip_journal_check();
    f.w.in().send(f.w.in().parts.actors->deadline_arbiter, settle_claim{f.op});
    f.w.advance(60s);
    auto facts = owner_of(f.w, f.request);
    CHECK(facts["claims"] == "0");
    CHECK_FALSE(facts.contains("draining_for"));
  }
  f.w.advance(60s);
  CHECK_FALSE(f.w.fatal().has_value());
  CHECK(f.w.of(f.op).outcomes == 1);
}

TEST_CASE("4.6 a delivery's claim is watched until it is settled") {
  one_fetch f;
  f.attempt().deliver_all();
  f.w.advance(5s);
  CHECK(owner_of(f.w, f.request)["draining_for"] == "0.000 ms");
  SUBCASE("settled within the grace") {
    f.attempt().end_access();
    f.w.advance(200ms);
    CHECK(f.w.of(f.op).releases == 1);
    f.w.advance(60s);
    CHECK_FALSE(f.w.fatal().has_value());
  }
  SUBCASE("never settled") {
    f.w.advance(5s);
    REQUIRE(f.w.fatal().has_value());
    CHECK(f.w.fatal()->deadline == f.start + 10s);
  }
  CHECK(std::holds_alternative<delivered>(*f.w.of(f.op).value));
}
