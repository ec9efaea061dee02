// Semantics 5.1 to 5.3, on the real actors. 5.4 to 5.8: rules_5b_test.cpp.
#include <doctest/doctest.h>

#include "actors/adapter.hpp"
#include "actors/guard.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

/// Replaces the adapter, before it is started, by one for which staging has two parts of one name.
void make_two_parts(world& w) {
  auto& in = w.in();
  auto half = w.parts().at(0);
  half.nbytes /= 2, half.slots /= 2;
  auto other = half;
  other.address += static_cast<std::uintptr_t>(half.nbytes);
  auto wires = std::make_shared<wiring>(*in.parts.actors);
  w.kill(actor_kind::supervisor);  // it must not take the old adapter's end for a failure
  w.kill(actor_kind::adapter);
  wires->adapter =
      spawn_adapter(*in.system, {in.runtime, w.roots, {half, other}, *transfer_timeout::make(5s)});
  in.parts.actors = wires;
  const auto greet = [&](const auto&... actors) { (in.send(actors, wired{wires}), ...); };
  greet(wires->adapter, wires->lender, wires->backend, wires->proof_collector, wires->deadline_arbiter,
        wires->inspector);
}

std::size_t place(const strings& trace, const std::string& line) {
  return static_cast<std::size_t>(std::ranges::find(trace, line) - trace.begin());
}

}  // namespace

static const broken_by profile_guard{mutation::profile_unchecked, "5.1 the profile*"};
TEST_CASE("5.1 the profile is validated before anything is held, registered or opened") {
  world w;
  auto& in = w.in();
  int opened = 0;
  paged_manager_options pages;
  pages.tokens_per_block = 4;
  pages.pool_groups = {{64, 8}};
  pages.layer_groups = {{.pool_group = 0, .layers = {0}}};
  auto manager = paged_manager::make(pages, {*w.device->allocate_device(512)});
  REQUIRE(manager.has_value());
  auto profile = supported_profile("scripted-1");
  std::string field, value;
  SUBCASE("dtype") { profile.cache_dtype = value = "float8", field = "cache_dtype"; }
  SUBCASE("an unknown feature") { profile.extra_features = {value = "warp drive"}, field = "extra_features"; }
  SUBCASE("a blank backend revision") { profile.backend_revision = value = " ", field = "backend_revision"; }
  auto made = spawn_runtime(*in.system, {.runtime = incarnation{2},
                                         .profile = profile,
                                         .device = w.device,
                                         .manager = *std::move(manager),
                                         .staging_slots = {2},
                                         .scope = "other",
                                         .open_provider =
                                             [&](const provider_context&) {
                                               ++opened;
                                               return std::make_shared<scripted_provider>();
                                             },
                                         .registration_timeout = *transfer_timeout::make(5s),
                                         .contain = [](const fatal_record&) {}});
  CHECK(opened == 0);
  if (made) in.send(made->actors->supervisor, quit_now{});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == errc::invalid);
  CHECK(contains(made.error().text, field));
  CHECK(contains(made.error().text, "'" + value + "'") != (field == "extra_features"));
  CHECK(contains(made.error().text, value));
}

static const broken_by hold_guard{mutation::register_before_hold, "5.1 the hold*"};
static const broken_by started_again{actor_mutation::started_twice, "5.1 the hold*"};
TEST_CASE("5.1 the hold comes before any registration, and each part is registered once") {
  world w{{.start = false, .step_by_hand = true}};
  make_two_parts(w);
  w.run();
  w.in().send(w.in().parts.actors->adapter, start_adapter{});
  while (w.ready() > 0) w.step();
  const auto held = place(w.trace(), "kvlease.adapter <- kvlease::parts_held");
  const auto registered = place(w.trace(), "kvlease.backend <- kvlease::register_part");
  REQUIRE(registered < w.trace().size());
  CHECK(held < registered);
  CHECK(w.provider->log == strings{"register", "register"});
  CHECK(contains(registrations(w), "registered: 2 of 2 parts live"));
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
  CHECK(w.start().error().code == errc::state);  // once
  CHECK(w.provider->log.size() == 2);
}

static const broken_by failed_registration{mutation::failed_registration_admits, "5.1 a failed*"};
static const broken_by problem_lost{actor_mutation::failed_registration_is_done, "5.1 a failed*"};
TEST_CASE("5.1 a failed registration keeps what there is, closes admission and starts grace") {
  world w{{.start = false}};
  w.skip_journal_check();  // it sends what no actor would
  make_two_parts(w);
  w.provider->fail_registration = 1;
  const auto started = w.start();
  REQUIRE_FALSE(started.has_value());
  CHECK(contains(started.error().text, "registration broke"));
  CHECK(w.provider->log == strings{"register", "register"});
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
  CHECK(w.roots->rest().size() == 1);
  CHECK(contains(drain_reason(w, request_id{}), "pool registration failed"));
  w.in().send(w.in().parts.actors->lender,
              parts_registered{});  // the lender believes it, the adapter must not
  one_fetch f{w, false};
  const auto refused = w.submit(direction::fetch, f.lease, f.request);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::state);
  CHECK(contains(refused.error().text, "not accepting"));
  CHECK(w.start().error().code == errc::state);
  REQUIRE(w.withdraw(f.lease).has_value());
  SUBCASE("only close is left: it revokes what succeeded, then the hold") {
    w.close_adapter();
    CHECK(w.close_adapter().first);
    CHECK(w.provider->log == strings{"register", "register", "deregister"});
    CHECK(w.figure(actor_kind::lender, "holds") == 0);
    CHECK(w.roots->rest().empty());
    w.advance(60s);
    CHECK_FALSE(w.fatal().has_value());
  }
  SUBCASE("grace is T from the failure") {
    w.advance(4999ms);
    CHECK_FALSE(w.fatal().has_value());
    w.advance(1ms);
    CHECK(w.fatal().has_value());
  }
}

TEST_CASE("5.1 a start that can't end is answered") {
  world w{{.start = false}};
  SUBCASE("the lender is gone") { w.kill(actor_kind::lender); }
  SUBCASE("the backend is gone") { w.kill(actor_kind::backend); }
  SUBCASE("stopped before") { CHECK(w.close_adapter().first); }
  const auto started = w.start();
  REQUIRE_FALSE(started.has_value());
  CHECK(started.error().code == errc::state);
  CHECK(w.provider->log.empty());
}

static const broken_by twice{mutation::lease_submitted_twice, "5.2 a submission*"};
static const broken_by foreign_owner{actor_mutation::foreign_owner_admitted, "5.2 a submission*"};
static const broken_by owner_again{actor_mutation::owner_used_twice, "5.2 a submission*"};
TEST_CASE("5.2 a submission that fails its checks leaves the lease with the caller and starts no clock") {
  world w;
  one_fetch f{w, false};
  const auto owner = w.create_owner(f.request, 5s);
  REQUIRE(owner.has_value());
  const auto tracked = w.figure(actor_kind::deadline_arbiter, "owners");
  auto lease = f.lease;
  auto way = direction::fetch;
  auto request = f.request;
  std::optional<owner_id> with = *owner;
  errc code = errc::invalid;
  std::string says;
  std::optional<operation_id> open;
  SUBCASE("a lease that is not ready") { lease = lease_id{f.lease.value + 1}, says = "not ready"; }
  SUBCASE("the wrong direction") { way = direction::publish, says = "for a fetch"; }
  SUBCASE("another's request") { request = w.admit(13), says = "is request"; }
  SUBCASE("a retirement owner of another arbiter") {
    with = owner_id{owner->value + (std::uint64_t{1} << id_sequence_bits)}, says = "retirement watchdog";
  }
  SUBCASE("a retirement owner in use") {
    one_fetch other{w, false};
    open = *w.submit(direction::fetch, other.lease, other.request, with);
    code = errc::state, says = "own retirement";
  }
  SUBCASE("a lease that an operation owns") {
    open = *w.submit(direction::fetch, f.lease, f.request);
    code = errc::state, says = "already owned";
  }
  const auto submissions = w.provider->submissions;
  const auto got = w.submit(way, lease, request, with);
  REQUIRE_FALSE(got.has_value());
  CHECK(got.error().code == code);
  CHECK(contains(got.error().text, says));
  CHECK(w.provider->submissions == submissions);
  CHECK(w.roots->operations() == (open ? 1U : 0U));
  CHECK(w.figure(actor_kind::deadline_arbiter, "owners") - (open && says == "already owned" ? 1 : 0) ==
        tracked);
  if (open) {
    w.provider->last().deliver_all();
    w.provider->last().end_access();
  }
  w.advance(100s);
  CHECK_FALSE(w.fatal().has_value());
  if (open) CHECK(w.of(*open).events == strings{"outcome delivered(2)", "released"});
  if (says == "already owned") return;
  // The same lease and, where it is still unused, the same owner.
  const auto fresh = says == "own retirement" ? std::nullopt : std::optional{*owner};
  CHECK(w.submit(direction::fetch, f.lease, f.request, fresh).has_value());
  CHECK(w.provider->submissions == submissions + 1);
}

static const broken_by unregistered{mutation::submit_unregistered, "5.2 admission*"};
static const broken_by still_open{mutation::close_keeps_admission, "5.2 admission*"};
TEST_CASE("5.2 admission needs complete registrations, and ends with close") {
  world w{{.start = false}};
  w.skip_journal_check();  // it sends what no actor would
  w.in().send(w.in().parts.actors->lender,
              parts_registered{});  // the lender believes it, the adapter must not
  one_fetch f{w, false};
  const auto refused = [&] {
    const auto got = w.submit(direction::fetch, f.lease, f.request);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::state);
    CHECK(contains(got.error().text, "not accepting"));
    CHECK(w.provider->submissions == 0);
    CHECK(w.figure(actor_kind::deadline_arbiter, "operations_open") <= 1);  // the registrations
  };
  refused();  // not started
  w.hold_workers(true, false);
  w.in().send(w.in().parts.actors->adapter, start_adapter{});
  CHECK(contains(registrations(w), "registering: 0 of 1"));
  refused();  // not complete
  w.hold_workers(false, false);
  CHECK(contains(registrations(w), "registered: 1 of 1"));
  SUBCASE("complete") { CHECK(w.submit(direction::fetch, f.lease, f.request).has_value()); }
  SUBCASE("closed") {
    w.close_adapter();
    refused();
    CHECK(w.withdraw(f.lease).has_value());
  }
}

static const broken_by dead_peer{actor_mutation::dead_peer_admits, "5.2 what*"};
TEST_CASE("5.2 what a provider does not offer, and what nobody could end, is refused") {
  SUBCASE("no fetch") {
    world w{{.provider = {.can_fetch = false}}};
    one_fetch f{w, false};
    CHECK(w.submit(direction::fetch, f.lease, f.request).error().code == errc::unsupported);
    CHECK(w.withdraw(f.lease).has_value());
  }
  for (const auto kind : {actor_kind::backend, actor_kind::proof_collector, actor_kind::lender}) {
    CAPTURE(to_string(kind));
    world w;
    one_fetch f{w, false};
    w.kill(kind);
    const auto got = w.submit(direction::fetch, f.lease, f.request);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::state);
    CHECK(contains(got.error().text, "is down"));
    CHECK(w.provider->submissions == 0);
  }
}

// ---- 5.3 crossing the boundary

static const broken_by refused{mutation::call_when_refused, "5.3 the provider*"};
static const broken_by decided{mutation::call_after_outcome, "5.3 the provider*"};
TEST_CASE("5.3 the provider is called only where exposure is granted and no outcome is committed") {
  world w{{.check_journal = false}};
  one_fetch f{w, false};
  SUBCASE("granted") {
    f.submit();
    CHECK(w.provider->submissions == 1);
    CHECK(f.host().events.empty());
  }
  SUBCASE("refused: an outcome, no call, nothing marked") {
    REQUIRE(w.close_admission().has_value());
    f.submit();
    CHECK(w.provider->submissions == 0);
    CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
    CHECK(f.marked() == none);
    CHECK(w.slots().free == 8);
  }
  SUBCASE("an outcome that the adapter knows before the grant") {
    auto& in = w.in();
    f.op = operation_id{(std::uint64_t{1} << id_sequence_bits) + 2};  // after the registrations' claim
    in.options.step_by_hand = true;
    in.send(in.parts.actors->adapter,
            submit{f.lease, direction::fetch, f.request, *transfer_timeout::make(5s), in.host, {}});
    w.step();
    in.send(in.parts.actors->adapter, outcome_committed{f.op, failed{"early"}});
    w.run();
    CHECK(w.provider->submissions == 0);
    CHECK(f.host().events == strings{"released"});
    CHECK(f.marked() == none);
  }
}

static const broken_by kept_token{mutation::withdrawal_skipped, "5.3 a queued*"};
TEST_CASE("5.3 a queued submission is withdrawn by its outcome: proof that nothing was submitted") {
  world w;
  one_fetch f{w, false};
  w.hold_workers(true, false);  // all submit workers are stuck, or there are too few
  f.submit();
  CHECK(fact(w, f.op, "access") == "queued");
  SUBCASE("cancelled") {
    REQUIRE(w.cancel(f.op).has_value());
    CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
  }
  SUBCASE("timed out") {
    w.advance(5s);
    CHECK(f.host().events == strings{"outcome failed(transfer timeout)", "released"});
  }
  SUBCASE("the backend has died") {
    w.kill(actor_kind::backend);
    CHECK(f.host().events == strings{"outcome failed(backend is down)", "released"});
  }
  CHECK(w.slots().free == 8);  // while the workers are still stuck
  CHECK(w.figure(actor_kind::adapter, "submissions_queued") == 0);
  w.hold_workers(false, false);
  CHECK(w.provider->submissions == 0);
  CHECK(f.marked() == none);
  w.advance(60s);
  CHECK_FALSE(w.fatal().has_value());
  CHECK(w.figure(actor_kind::adapter, "rejected") == 0);
}

static const broken_by lost_call{mutation::lost_answer_is_rejection, "5.3 a call that was entered*"};
static const broken_by unrooted{actor_mutation::attempt_not_rooted, "5.3 a call that was entered*"};
TEST_CASE("5.3 a call that was entered can't be withdrawn; roots come before it") {
  world w;
  one_fetch f{w, false};
  w.hold_workers(true, false);
  f.submit();
  bool looked = false, dies = false;
  SUBCASE("cancelled during the call") {}
  SUBCASE("the backend dies during the call: escaped, no answer will come") { dies = true; }
  w.provider->on_submit = [&](const cache_extent& extent) {
    looked = true;
    CHECK(w.roots->extent(f.op).get() == &extent);
    CHECK(any_contains(w.roots->rest(), "operation " + to_string(f.op) + " on lease " + to_string(f.lease)));
    if (dies)
      w.kill(actor_kind::backend);
    else
      CHECK(w.cancel(f.op).has_value());
    CHECK(f.host().events.at(0) == (dies ? "outcome failed(backend is down)" : "outcome cancelled(local)"));
    CHECK(fact(w, f.op, "access") == (dies ? "escaped" : "queued"));
  };
  REQUIRE(w.run_one_submit_job());
  REQUIRE(looked);
  CHECK(w.roots->attempt_of(f.op) == w.provider->attempts.at(0));
  CHECK(f.host().releases == 0);
  w.provider->on_submit = {};
  w.provider->last().end_access();
  w.hold_workers(false, false);
  w.advance(a_while);
  CHECK(f.host().releases == (dies ? 0 : 1));
  CHECK(w.provider->last().cancels == (dies ? 0 : 1));
  CHECK(f.marked() == none);
}

static const broken_by escape{mutation::escape_is_rejection, "5.3 an error*"};
static const broken_by rejected_escapes{actor_mutation::rejected_is_escaped, "5.3 an error*"};
static const broken_by escaped_returns{actor_mutation::escaped_is_rejected, "5.3 an error*"};
TEST_CASE("5.3 an error out of submission: rejected is released at once, anything else is retained") {
  world w;
  one_fetch f{w, false};
  SUBCASE("rejected") {
    w.provider->on_submit = [](const cache_extent&) { throw submission_rejected{"not today"}; };
    f.submit();
    CHECK(f.host().events == strings{"outcome failed(submission rejected: not today)", "released"});
    CHECK(w.slots().free == 8);
    CHECK(w.figure(actor_kind::proof_collector, "proofs") == 0);
    w.advance(60s);
    CHECK_FALSE(w.fatal().has_value());
  }
  SUBCASE("anything else") {
    SUBCASE("thrown") {
      w.provider->on_submit = [](const cache_extent&) { throw std::runtime_error{"half way"}; };
    }
    SUBCASE("something that is no exception") {
      w.provider->on_submit = [](const cache_extent&) { throw 7; };
    }
    SUBCASE("no attempt") { w.provider->return_null = true; }
    f.submit();
    REQUIRE(f.host().events.size() == 2);
    CHECK(std::holds_alternative<failed>(*f.host().value));
    CHECK(contains(f.host().events[1], "retained: submission escaped without an Attempt"));
    CHECK(w.retry_proof(f.op).has_value());  // there is nothing to ask
    CHECK(w.figure(actor_kind::proof_collector, "proofs") == 0);
    CHECK(fact(w, f.op, "access") == "escaped");
    w.advance(4999ms);
    CHECK(f.host().releases == 0);
    CHECK_FALSE(w.fatal().has_value());
    w.advance(1ms);
    CHECK(w.fatal().has_value());
    CHECK(f.host().final);
    CHECK(w.slots().awaiting_proof == 2);
  }
  CHECK(f.marked() == none);
}
