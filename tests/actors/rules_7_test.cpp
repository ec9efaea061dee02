// Semantics 7.1, 7.3 and 7.4: what actors add. The rest stands in rules_7b_test.cpp, real threads in
// rules_7c_test.cpp.
#include <doctest/doctest.h>

#include <set>

#include "actors/guard.hpp"
#include "actors/supervisor.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using enum actor_kind;

constexpr std::byte b{0x5a};

/// What may be written again: nothing is, as long as an operation's memory is retained.
void check_retained(world& w, std::int64_t slots) {
  const auto c = w.slots();
  CHECK(c.conserved());
  CHECK(c.free == c.total - slots);
  CHECK(w.roots->operations() == 1);
  REQUIRE_FALSE(w.roots->release_memory());
}

/// The memory of the only operation has come back.
void check_released(world& w, const one_fetch& f) {
  CHECK(f.host().releases == 1);
  CHECK(w.slots().free == w.slots().total);
  CHECK(w.roots->operations() == 0);
}

// ---- 7.1

const broken_by late_proofs{mutation::stale_proof_counts, "7.1 *"};
const broken_by repeated_finish{mutation::finish_repeats, "7.1 *"};
const broken_by adapter_fooled{actor_mutation::adapter_believes_foreign_down, "7.1 ids*"};
const broken_by lender_fooled{actor_mutation::lender_believes_foreign_down, "7.1 ids*"};
const broken_by manager_fooled{actor_mutation::manager_believes_foreign_down, "7.1 ids*"};
const broken_by arbiter_fooled{actor_mutation::arbiter_believes_foreign_down, "7.1 ids*"};
const broken_by stale_answer{actor_mutation::stale_answer_counts, "7.1 ids*"};

TEST_CASE(
    "7.1 ids carry a generation and an incarnation: late, duplicate and foreign messages change nothing") {
  world w{{.check_journal = false}};
  const auto& a = *w.in().parts.actors;
  const auto elsewhere = [](auto id) { return id_source<decltype(id)>{incarnation{2}}.next(); };

  SUBCASE("an id is never given out twice, and tells its runtime") {
    std::set<std::uint64_t> leases, operations, requests;
    for (int i = 0; i < 3; ++i) {
      one_fetch f{w};
      f.at->deliver_all();
      f.at->end_access();
      w.advance(a_while);
      check_released(w, f);
      CHECK(f.lease.runtime() == w.in().runtime);
      CHECK(f.op.runtime() == w.in().runtime);
      leases.insert(f.lease.value);
      operations.insert(f.op.value);
      requests.insert(f.request.value);
      CHECK(w.free(f.request).has_value());
    }
    CHECK(leases.size() == 3);
    CHECK(operations.size() == 3);
    CHECK(requests.size() == 3);
    CHECK(w.look()->runtime == w.in().runtime);
  }
  SUBCASE("late: the answer to an earlier proof") {
    one_fetch f{w};
    const proof_id first_proof{(std::uint64_t{1} << id_sequence_bits) + 1};
    f.at->deliver_all();
    f.at->access = access_state::unproven;
    w.advance(a_while);
    f.at->access = access_state::running;
    REQUIRE(w.retry_proof(f.op).has_value());
    REQUIRE(w.figure(proof_collector, "proofs") == 2);
    w.in().send(a.adapter, access_ended{f.op, first_proof, proof_source::terminal_status});
    w.in().send(a.adapter, access_unproven{f.op, first_proof, "late"});
    w.in().send(a.proof_collector, access_polled{{{f.op, first_proof, access_state::ended}}, false});
    CHECK(w.figure(adapter, "rejected") == 2);
    CHECK(w.figure(proof_collector, "rejected") == 1);
    CHECK(fact(w, f.op, "access") == "running");
    CHECK(f.marked() == none);
    check_retained(w, 2);
    f.at->end_access();
    w.advance(a_while);
    check_released(w, f);
  }
  SUBCASE("duplicate: what an operation has heard before") {
    w.device->hold();
    one_fetch f{w};
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    REQUIRE(fact(w, f.op, "copies") == "pending");
    const auto before = w.figure(lender, "rejected");
    w.in().send(a.lender, finish_lease{f.lease, {{true, true}}});
    w.in().send(a.lender, rows_pinned{f.lease, pin_id{(std::uint64_t{1} << id_sequence_bits) + 9}, {0, 1}});
    w.in().send(a.lender, return_lease{f.lease});
    CHECK(w.figure(lender, "rejected") == before + 3);
    w.in().send(a.adapter, submission_accepted{f.op, std::nullopt});
    w.in().send(a.adapter, outcome_committed{f.op, failed{"again"}});
    w.in().send(a.deadline_arbiter, commit_outcome{f.op, failed{"again"}});
    CHECK(w.figure(adapter, "rejected") == 2);
    CHECK(w.figure(deadline_arbiter, "rejected") == 1);
    CHECK(w.provider->submissions == 1);
    CHECK(w.device->queued() == 2);  // one batch and its event
    check_retained(w, 2);
    w.device->open();
    w.advance(a_while);
    CHECK(f.host().events == strings{"outcome delivered(2)", "released"});
    // And all of it once more, when the operation is over.
    w.in().send(a.lender, return_lease{f.lease});
    w.in().send(a.lender, guards_gone{f.lease});
    w.in().send(a.adapter, access_ended{f.op, proof_id{1}, proof_source::terminal_status});
    w.in().send(a.deadline_arbiter, claim_retired{f.op, {}});
    CHECK(w.figure(lender, "rejected") == before + 5);
    CHECK(w.figure(adapter, "rejected") == 3);
    CHECK(w.figure(deadline_arbiter, "rejected") == 2);
    CHECK(f.host().events.size() == 2);
    check_released(w, f);
    REQUIRE(w.free(f.request).has_value());
    CHECK(w.manager->counts().free == w.manager->counts().total);  // no page was pinned twice
  }
  SUBCASE("foreign: ids of another runtime") {
    one_fetch f{w};
    const auto op = elsewhere(operation_id{});
    const auto lease = elsewhere(lease_id{});
    CHECK(w.cancel(op).error().code == errc::unknown);
    CHECK(w.retry_proof(op).error().code == errc::unknown);
    CHECK(w.withdraw(lease).error().code == errc::unknown);
    CHECK(w.free(elsewhere(request_id{})).error().code == errc::unknown);
    CHECK(w.submit(direction::fetch, lease, f.request).error().code == errc::invalid);
    w.in().send(a.adapter, access_ended{op, proof_id{1}, proof_source::terminal_status});
    w.in().send(a.adapter, copies_ended{lease});
    w.in().send(a.adapter, peer_down{backend, incarnation{2}});
    CHECK(w.figure(adapter, "rejected") == 3);
    w.in().send(a.deadline_arbiter, peer_down{adapter, incarnation{2}});
    w.in().send(a.deadline_arbiter, commit_outcome{op, failed{"foreign"}});
    w.in().send(a.deadline_arbiter, settle_claim{op});
    w.in().send(a.deadline_arbiter, retain_claim{op, "foreign"});
    CHECK(w.figure(deadline_arbiter, "rejected") == 3);
    const auto before = w.figure(lender, "rejected");
    w.in().send(a.lender, copy_complete{elsewhere(copy_id{})});
    w.in().send(a.lender, return_lease{lease});
    w.in().send(a.lender, peer_down{manager, incarnation{2}});
    CHECK(w.figure(lender, "rejected") == before + 3);
    w.in().send(a.manager, copy_complete{elsewhere(copy_id{})});
    w.in().send(a.manager, unpin_rows{elsewhere(pin_id{})});
    w.in().send(a.manager, peer_down{cuda, incarnation{2}});
    CHECK(w.figure(manager, "rejected") == 2);
    w.in().send(a.inspector, peer_down{lender, incarnation{2}});
    CHECK(w.alive(lender));
    CHECK(f.host().events.empty());
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    check_released(w, f);
    CHECK(f.marked() == both);
  }
}

// ---- 7.3

const broken_by rootless{mutation::free_with_roots, "7.3 *"};
const broken_by unsettled{mutation::release_unsettled, "7.3 *"};

TEST_CASE("7.3 roots live in the ledger: only a settle token erases them") {
  world w{{.check_journal = false}};
  one_fetch f{w};
  const std::weak_ptr<scripted_attempt> attempt = f.at;
  f.at.reset();
  w.provider->attempts.clear();  // nobody but the ledger keeps it now
  REQUIRE_FALSE(attempt.expired());

  SUBCASE("an actor's end destroys its state, and no root") {
    for (const auto kind : {adapter, backend, proof_collector, lender, manager, cuda}) {
      w.kill(kind);
      CHECK_FALSE(w.alive(kind));
      CHECK_FALSE(attempt.expired());
      CHECK(w.roots->extent(f.op) != nullptr);
      CHECK(w.roots->rest().size() == 2);
    }
    const auto rest = w.roots->rest();
    CHECK(any_contains(rest, "operation " + to_string(f.op) + " on lease " + to_string(f.lease)));
    CHECK(any_contains(rest, "registration "));
    const auto gone = w.roots->release_memory();
    REQUIRE_FALSE(gone);
    CHECK(gone.error().code == errc::state);
    CHECK(contains(gone.error().text, "staging memory is kept for 2 roots"));
    for (const auto& p : w.parts()) CHECK(*reinterpret_cast<const std::byte*>(p.address) == std::byte{0x11});
  }
  SUBCASE("no message but the token lets them go") {
    const auto& a = *w.in().parts.actors;
    const auto locked = attempt.lock();
    w.in().send(a.lender, return_lease{f.lease});
    w.in().send(a.backend, forget_attempt{f.op});
    w.in().send(a.deadline_arbiter, claim_retired{f.op, {}});
    check_retained(w, 2);
    CHECK(w.roots->rest().size() == 2);
  }
  SUBCASE("the arbiter's word does, and nothing of the operation before it") {
    w.in().options.step_by_hand = true;
    const auto locked = attempt.lock();
    locked->deliver_all();
    locked->end_access();
    w.run_random(7, a_while);
    const auto& t = w.trace();
    const auto token = std::ranges::find(t, "kvlease.adapter <- kvlease::claim_settled");
    REQUIRE(token != t.end());
    const auto back = std::ranges::find(t, "kvlease.lender <- kvlease::return_lease");
    CHECK(token < back);
    check_released(w, f);
  }
  SUBCASE("what is left when the runtime goes is reported") {
    const auto report = w.stop();
    CHECK_FALSE(report.stopped);
    CHECK(any_contains(report.retained, "operation " + to_string(f.op)));
    CHECK(any_contains(report.retained, "registration "));
    check_retained(w, 2);
  }
}

// ---- 7.4

const broken_by lost_answer{mutation::lost_answer_is_rejection, "7.4 *"};
const broken_by deaf{mutation::deaf_to_down, "7.4 *"};

/// The backend dies while its worker is inside the provider's call.
const broken_by deaf_to_backend{actor_mutation::backend_death_ignored, "7.4 the backend*"};
const broken_by mute{actor_mutation::death_untold, "7.4 the backend*"};
TEST_CASE("7.4 the backend dies: what had no answer counts as undelivered") {
  world w;
  one_fetch f{w, false};
  w.hold_workers(true, false);
  const outcome lost{failed{"backend is down"}};

  SUBCASE("before a worker entered the call: nothing was submitted") {
    f.submit();
    w.kill(backend);
    CHECK(f.host().value == lost);
    check_released(w, f);
    while (w.run_one_submit_job()) continue;
    CHECK(w.provider->submissions == 0);
  }
  SUBCASE("inside the call: unproven for good") {
    f.submit();
    w.provider->on_submit = [&](const cache_extent&) { w.kill(backend); };
    REQUIRE(w.run_one_submit_job());
    CHECK(f.host().events == strings{"outcome failed(backend is down)",
                                     "retained: submission escaped without an Attempt: backend is down"});
    w.provider->last().end_access();
    w.advance(1s);
    check_retained(w, 2);
  }
  SUBCASE("the answer is lost on its way: the rooted attempt is asked") {
    f.submit();
    w.in().options.step_by_hand = true;
    w.kill(backend);  // ahead of the worker's answer in the mailbox
    REQUIRE(w.run_one_submit_job());
    w.in().options.step_by_hand = false;
    w.run();
    CHECK(f.host().events == strings{"outcome failed(backend is down)"});
    check_retained(w, 2);
    w.provider->last().end_access();
    w.advance(a_while);
    check_released(w, f);
    CHECK(f.marked() == none);
  }
  SUBCASE("while the attempt runs") {
    w.hold_workers(false, false);
    f.submit();
    w.kill(backend);
    CHECK(f.host().value == lost);
    check_retained(w, 2);
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    check_released(w, f);
    CHECK(f.marked() == none);
  }
  CHECK_FALSE(w.alive(backend));
  const auto lease = w.lend(direction::fetch, w.admit(13, 100), {0, 4});
  REQUIRE(lease.has_value());
  CHECK(w.submit(direction::fetch, *lease, f.request).error().code == errc::state);
}

const broken_by deaf_to_collector{actor_mutation::collector_death_ignored, "7.4 the proof*"};
const broken_by deaf_to_adapter{actor_mutation::adapter_death_ignored, "7.4 the proof*"};
const broken_by past_adapter{actor_mutation::cancel_past_adapter, "7.4 the proof*"};
TEST_CASE("7.4 the proof collector or the adapter dies: the operation fails, its memory is retained") {
  world w;
  one_fetch f{w};
  SUBCASE("the collector") {
    w.kill(proof_collector);
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    CHECK(f.host().events ==
          strings{"outcome delivered(2)", "retained: backend access end unproven: proof collector is down"});
  }
  SUBCASE("the adapter, before an outcome") {
    CHECK(w.cancel_directly(f.op).error().code == errc::state);
    w.kill(adapter);
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    CHECK(f.host().events == strings{"outcome failed(adapter is down)", "retained: adapter is down"});
    CHECK(w.cancel_directly(f.op).has_value());
    CHECK(f.host().outcomes == 1);
  }
  SUBCASE("the adapter, after the outcome") {
    f.at->deliver_all();
    w.advance(a_while);
    w.kill(adapter);
    CHECK(f.host().events == strings{"outcome delivered(2)", "retained: adapter is down"});
  }
  CHECK(f.marked() == none);
  check_retained(w, 2);
  w.advance(10s);  // nobody can prove anything any more: grace runs out
  REQUIRE(w.fatal().has_value());
  CHECK(f.host().final);
  check_retained(w, 2);
}

const broken_by deaf_to_cuda{actor_mutation::cuda_death_ignored, "7.4 a peer*"};
const broken_by deaf_to_manager{actor_mutation::manager_death_ignored, "7.4 a peer*"};
TEST_CASE("7.4 a peer of the copies dies: no copy is taken for done") {
  world w{{.hold_stream = true}};
  one_fetch f{w};
  const auto waiting = w.lend(direction::fetch, w.admit(41, 100), {0, 32});
  REQUIRE(waiting.has_value());
  REQUIRE_FALSE(w.of(*waiting).view);
  const auto finish = [&] {
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
  };
  std::string reason;
  SUBCASE("the manager, while the attempt runs") {
    w.kill(manager);
    finish();
    reason = "the manager is down";
  }
  SUBCASE("the manager, before it has pinned") {
    w.in().options.step_by_hand = true;
    f.at->deliver_all();
    f.at->end_access();
    bool killed = false;
    step_until(
        w, 1, [&] { return killed; },
        [&](const std::string& actor, const caf::mailbox_element& m) {
          if (actor != "kvlease.lender" || !m.content().match_elements<finish_lease>()) return;
          w.kill(manager);  // ahead of what the lender is about to ask
          killed = true;
        });
    w.in().options.step_by_hand = false;
    w.advance(a_while);
    reason = "the manager is down";
  }
  SUBCASE("the CUDA actor, with the copy under way") {
    finish();
    REQUIRE(fact(w, f.op, "copies") == "pending");
    w.kill(cuda);
    reason = "the CUDA actor is down";
  }
  SUBCASE("the CUDA actor, before the copy") {
    w.kill(cuda);
    finish();
    reason = "the CUDA actor is down";
  }
  CHECK(f.host().events ==
        strings{"outcome delivered(2)", "retained: local copy evidence unavailable: " + reason});
  CHECK(w.slots().quarantined == 2);
  check_retained(w, 2);
  REQUIRE(w.of(*waiting).failure.has_value());  // nothing could ever be copied into its pages
  CHECK(w.of(*waiting).failure->text == reason);
  CHECK(w.lend(direction::fetch, f.request, {0, 4}).error().text == reason + ": nothing is lent");
  w.advance(10s);
  CHECK(w.fatal().has_value());
  check_retained(w, 2);
}

const broken_by deaf_to_lender{actor_mutation::lender_death_ignored, "7.4 the lender*"};
TEST_CASE("7.4 the lender dies: no lease, no release") {
  world w;
  one_fetch f{w};
  SUBCASE("before the outcome") { w.kill(lender); }
  SUBCASE("after the outcome, before the proof") {
    f.at->deliver_all();
    w.advance(a_while);
    w.kill(lender);
  }
  SUBCASE("with the copy under way") {
    w.device->hold();
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    REQUIRE(fact(w, f.op, "copies") == "pending");
    w.kill(lender);
  }
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().outcomes == 1);
  CHECK(f.host().events.back() == "retained: local copy evidence unavailable: lender is down");
  CHECK(w.roots->operations() == 1);
  CHECK_FALSE(w.lend(direction::fetch, f.request, {0, 4}).has_value());
  CHECK_FALSE(w.ready_from(f.request).has_value());
}

const broken_by deaf_to_arbiter{actor_mutation::arbiter_death_ignored,
                                "7.4 a dead arbiter is fatal: nothing*"};
TEST_CASE("7.4 a dead arbiter is fatal: nothing is settled or admitted any more") {
  world w;
  one_fetch f{w};
  w.kill(deadline_arbiter);
  f.at->deliver_all();
  f.at->end_access();
  w.advance(60s);
  CHECK(f.host().releases == 0);
  CHECK(f.marked() == none);
  CHECK(w.figure(adapter, "fatal") == 1);
  check_retained(w, 2);
  const auto lease = w.lend(direction::fetch, w.admit(13, 100), {0, 4});
  REQUIRE(lease.has_value());
  const auto refused = w.submit(direction::fetch, *lease, f.request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::state);
  const auto report = w.stop();
  CHECK_FALSE(report.stopped);
  CHECK(any_contains(report.retained, "actor deadline_arbiter is down"));
}

const broken_by uncontained{actor_mutation::arbiter_death_uncontained, "7.4 a dead arbiter is fatal: the*"};
TEST_CASE("7.4 a dead arbiter is fatal: the supervisor contains what the arbiter can't report any more") {
  world w;
  const one_fetch f{w};
  std::vector<fatal_record> contained;
  const auto watcher = spawn_supervisor(
      *w.in().system, {.roots = w.roots, .contain = [&](const fatal_record& r) { contained.push_back(r); }});
  w.in().send(watcher, wired{w.in().parts.actors});
  w.kill(backend);
  CHECK(contained.empty());
  w.kill(deadline_arbiter);
  REQUIRE(contained.size() == 1);
  CHECK(contained[0].reason == "the deadline arbiter is down");
  CHECK(contained[0].noticed == w.now());
  w.in().send(watcher, quit_now{});
}

TEST_CASE("7.4 who only watches may die: operations go on") {
  world w;
  one_fetch f{w};
  SUBCASE("the inspector") { w.kill(inspector); }
  SUBCASE("the supervisor") { w.kill(supervisor); }
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome delivered(2)", "released"});
  check_released(w, f);
}

}  // namespace
}  // namespace kvlease::test
