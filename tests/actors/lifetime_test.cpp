// Scenarios 7.C (SL): the lifetime of what an operation holds. A case a row, named by its id. SL-32 to SL-38,
// the rows of the cancel extension: lifetime_cancel_test.cpp.
// Rows that C++'s types or the construction of a runtime answer: lifetime_rest_test.cpp.
#include <doctest/doctest.h>

#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

/// One publish of two committed blocks, at the provider.
struct one_publish {
  explicit one_publish(world& w)
      : request{w.admit(13)}, op{w.publish(request)}, at{w.provider->attempts.back()} {}
  request_id request;
  operation_id op;
  std::shared_ptr<scripted_attempt> at;
};

void publish(bool access_first) {
  world w;
  one_publish p{w};
  const auto copies = w.figure(actor_kind::cuda, "copies");
  if (access_first)
    p.at->end_access();
  else
    p.at->deliver_all();
  w.advance(a_while);
  CHECK(w.of(p.op).events == (access_first ? strings{} : strings{"outcome delivered(2)"}));
  check_kept(w, w.of(p.op));
  p.at->end_access();
  p.at->deliver_all();
  w.advance(a_while);
  CHECK(w.of(p.op).events == strings{"outcome delivered(2)", "released"});
  CHECK(w.figure(actor_kind::cuda, "copies") == copies);
  check_close(w);
}

void fetch(bool access_first) {
  world w;
  one_fetch f{w};
  if (access_first)
    f.at->end_access();
  else
    f.at->deliver_all();
  w.advance(a_while);
  CHECK(f.host().events == (access_first ? strings{} : strings{"outcome delivered(2)"}));
  check_kept(w, f.host());
  CHECK(f.marked() == none);
  f.at->end_access();
  f.at->deliver_all();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome delivered(2)", "released"});
  CHECK(f.marked() == both);
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  check_close(w);
}

}  // namespace

TEST_CASE("SL-01 publish, access first") { publish(true); }

TEST_CASE("SL-02 publish, outcome first") { publish(false); }

TEST_CASE("SL-03 fetch, access first") { fetch(true); }

TEST_CASE("SL-04 fetch, outcome first") { fetch(false); }

TEST_CASE("SL-05 miss") {
  world w;
  one_fetch f{w};
  f.at->deliver({});
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome miss", "released"});
  CHECK(f.marked() == none);
}

TEST_CASE("SL-06 partial") {
  world w;
  one_fetch f{w};
  f.at->deliver({0});
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome delivered(1)", "released"});
  CHECK(f.marked() == first);
}

TEST_CASE("SL-07 copy barrier over request exit and shutdown") {
  world w;
  one_fetch f{w};
  w.device->hold();
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  REQUIRE(w.free(f.request).has_value());
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  check_kept(w, f.host());
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register"});
  w.device->open();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome delivered(2)", "released"});
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  check_close(w);
}

TEST_CASE("SL-08 failed is stable") {
  world w;
  one_fetch f{w};
  f.at->fail("line cut");
  w.advance(a_while);
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome failed(line cut)", "released"});
  CHECK(f.marked() == none);
}

TEST_CASE("SL-09 cancelled is stable") {
  world w;
  one_fetch f{w};
  REQUIRE(w.cancel(f.op).has_value());
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
  CHECK(f.marked() == none);
}

TEST_CASE("SL-10 request timeout under a blocked proof") {
  world w;
  one_fetch f{w};
  w.hold_workers(false, true);
  w.advance(4999ms);
  CHECK(f.host().events.empty());
  w.advance(1ms);
  CHECK(f.host().events == strings{"outcome failed(transfer timeout)"});
  f.at->deliver_all();
  f.at->end_access();
  w.hold_workers(false, false);
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome failed(transfer timeout)", "released"});
  CHECK(f.marked() == none);
}

TEST_CASE("SL-11 fatal beats late proof") {
  world w;
  one_fetch f{w};
  w.hold_workers(false, true);
  w.advance(10s);
  REQUIRE(w.fatal().has_value());
  f.at->deliver_all();
  f.at->end_access();
  w.hold_workers(false, false);
  w.advance(a_while);
  CHECK(f.host().outcomes == 1);
  CHECK(f.host().value == timed_out);
  CHECK(f.host().final);
  check_kept(w, f.host());
  CHECK(f.marked() == none);
  CHECK(fact(w, f.op, "copies") == "not_started");
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register"});
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
}

TEST_CASE("SL-12 rejected submission") {
  world w;
  w.provider->on_submit = [](const cache_extent&) { throw submission_rejected{"full"}; };
  one_fetch f{w};
  CHECK(f.host().events == strings{"outcome failed(submission rejected: full)", "released"});
  CHECK(w.figure(actor_kind::proof_collector, "proofs") == 0);
  CHECK(w.provider->quiesces == 0);
  check_close(w);
}

TEST_CASE("SL-13 escaped submission") {
  world w;
  w.provider->on_submit = [](const cache_extent&) { throw std::runtime_error{"half way"}; };
  one_fetch f{w};
  CHECK(std::holds_alternative<failed>(f.host().value.value()));
  check_kept(w, f.host());
  w.advance(4999ms);
  CHECK_FALSE(w.fatal().has_value());
  w.advance(1ms);
  REQUIRE(w.fatal().has_value());
  CHECK(w.fatal()->deadline - w.fatal()->started == 5s);
  CHECK(w.fatal()->noticed == w.fatal()->deadline);
  CHECK(w.figure(actor_kind::proof_collector, "proofs") == 0);
  check_kept(w, f.host());
}

namespace {

void disputed_once(bool throws) {
  world w{{.provider = {.pollable = false}}};
  w.provider->on_attempt = [throws](scripted_attempt& a) { a.proof_throws = throws; };
  one_fetch f{w};  // its one proof is asked at once, and does not say true
  f.at->deliver_all();
  w.advance(1s);
  CHECK(f.host().releases == 0);
  CHECK(f.marked() == none);
  CHECK(w.provider->quiesces == 1);
  f.at->proof_throws = false;
  f.at->end_access();
  w.advance(1s);
  CHECK(f.host().releases == 0);
  CHECK(w.provider->quiesces == 1);
  REQUIRE(w.retry_proof(f.op).has_value());
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(f.marked() == both);
  CHECK(w.provider->quiesces == 2);
}

void copy_error(const std::function<void(host_device&)>& fault) {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  fault(*w.device);
  f.at->end_access();
  w.advance(a_while);
  w.advance(a_while);
  REQUIRE(w.device->faults_struck() == 1);
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  check_kept(w, f.host());
  w.advance(5s);
  CHECK(w.fatal().has_value());
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  check_kept(w, f.host());
  CHECK(w.slots().quarantined == 2);
}

}  // namespace

TEST_CASE("SL-14 proof false") { disputed_once(false); }

TEST_CASE("SL-16 proof raises") { disputed_once(true); }

TEST_CASE("SL-18 copy error: mark") {
  copy_error([](host_device& d) { d.fail_next_enqueue(1); });
}

TEST_CASE("SL-19 copy error: record") {
  copy_error([](host_device& d) { d.fail_next_record(); });
}

TEST_CASE("SL-20 copy error: query") {
  copy_error([](host_device& d) { d.fail_next_query(); });
}

TEST_CASE("SL-21 unknown served name") {
  world w;
  one_fetch f{w};
  f.at->value = delivered{{"not requested"}};
  f.at->end_access();
  w.advance(a_while);
  CHECK(std::holds_alternative<failed>(f.host().value.value()));
  CHECK(f.host().releases == 1);
  CHECK(f.marked() == none);
}

TEST_CASE("SL-22 source copy not ready") {
  world w;
  const auto r = w.admit(13);
  w.compute(r, 2, std::byte{0x5a});
  w.device->hold();
  const auto lease = *w.lend(direction::publish, r, {0, 8});
  const auto owner = *w.create_owner(r, 5s);
  const auto early = w.submit(direction::publish, lease, r, owner);
  REQUIRE_FALSE(early.has_value());
  CHECK(early.error().code == errc::invalid);
  CHECK(contains(early.error().text, "not ready"));
  w.advance(100s);
  CHECK(w.provider->submissions == 0);
  CHECK(w.slots().free == 6);
  CHECK_FALSE(w.fatal().has_value());
  w.device->open();
  w.advance(1s);
  CHECK(w.submit(direction::publish, lease, r, owner).has_value());
  CHECK(w.provider->submissions == 1);
}

TEST_CASE("SL-23 deregistration fails once") {
  world w;
  w.provider->fail_closes = 1;
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
  w.close_adapter();
  CHECK(w.close_adapter().first);
  CHECK(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register", "deregister", "deregister"});
  CHECK(w.figure(actor_kind::lender, "holds") == 0);
  CHECK(w.stop_arbiter().has_value());
}

TEST_CASE("SL-24 shutdown drains first") {
  world w;
  one_fetch f{w}, other{w, false};
  CHECK_FALSE(w.close_adapter().first);
  CHECK(f.host().value == cancelled_here);
  CHECK(w.provider->log == strings{"register"});
  const auto late = w.submit(direction::fetch, other.lease, other.request);
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == errc::state);
  CHECK(contains(late.error().text, "not accepting"));
  REQUIRE(w.withdraw(other.lease).has_value());
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(f.marked() == none);
  check_close(w);
}

// SL-25 registration fails midway: rules_5_test.cpp "5.1 a failed registration ...", with its two parts.
// SL-26 profile before hold: rules_5_test.cpp "5.1 the profile ...": spawn_runtime validates it.

TEST_CASE("SL-27 lease submitted twice") {
  world w;
  one_fetch f{w};
  const auto again = w.submit(direction::fetch, f.lease, f.request, *w.create_owner(f.request, 5s));
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error().code == errc::state);
  CHECK(contains(again.error().text, "already owned"));
  CHECK(w.provider->submissions == 1);
}

TEST_CASE("SL-28 a retired operation leaves nothing behind") {
  world w;
  one_fetch f{w};
  const std::weak_ptr<scripted_attempt> attempt = f.at;
  const std::weak_ptr<const region_view> view = w.of(f.lease).view;
  f.at->deliver_all();
  f.at->end_access();
  w.advance(a_while);
  REQUIRE(f.host().releases == 1);
  f.at = nullptr;
  w.provider->attempts.clear();
  w.in().leases.clear();
  w.run();
  CHECK(attempt.expired());
  CHECK(view.expired());
  CHECK(w.roots->operations() == 0);
  CHECK(w.figure(actor_kind::lender, "leases_open") == 0);
  CHECK(w.figure(actor_kind::adapter, "operations_open") == 0);
  CHECK(w.figure(actor_kind::deadline_arbiter, "owners") == 1);  // the registrations'
}

TEST_CASE("SL-30 deadline reuse") {
  world w;
  one_fetch f{w, false}, second{w, false};
  const auto owner = *w.create_owner(f.request, 5s);
  const auto op = *w.submit(direction::fetch, f.lease, f.request, owner);
  const auto reused = w.submit(direction::fetch, second.lease, second.request, owner);
  REQUIRE_FALSE(reused.has_value());
  CHECK(reused.error().code == errc::state);
  CHECK(contains(reused.error().text, "own retirement"));
  w.advance(5s);
  CHECK(w.of(op).value == timed_out);
  CHECK(w.provider->submissions == 1);
  CHECK(w.withdraw(second.lease).has_value());
}

TEST_CASE("SL-31 foreign watchdog") {
  world w;
  one_fetch f{w, false};
  const owner_id foreign{(std::uint64_t{2} << id_sequence_bits) + 1};
  const auto got = w.submit(direction::fetch, f.lease, f.request, foreign);
  REQUIRE_FALSE(got.has_value());
  CHECK(got.error().code == errc::invalid);
  CHECK(contains(got.error().text, "retirement watchdog"));
  CHECK(w.provider->submissions == 0);
  CHECK(w.withdraw(f.lease).has_value());
}
