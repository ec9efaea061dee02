// Scenarios 7.C (SL-32 to SL-38): cancellation in the lifetime of an operation. The other rows:
// lifetime_test.cpp.
#include <doctest/doctest.h>

#include "tests/actors/one_operation.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE("SL-32 unsupported cancellation") {
  world w{{.provider = {.cancellable = false}}};
  one_fetch f{w};
  REQUIRE(w.cancel(f.op, cancelled_by::peer).has_value());
  CHECK(f.host().events == strings{"outcome cancelled(peer)"});
  CHECK(fact(w, f.op, "cancel") == "unsupported");
  CHECK(fact(w, f.op, "cancel_error").empty());
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.roots->operations() == 1);
  f.at->end_access();
  w.advance(a_while);
  check_close(w);
}

TEST_CASE("SL-33 commit before one request, outside arbitration") {
  world w;
  one_fetch f{w};
  w.device->hold();
  int seen = 0;
  f.at->on_cancel = [&] { seen += f.host().value == cancelled_here ? 1 : 0; };
  w.hold_workers(true, false);  // the request waits for its worker: the arbiter answers all the same
  REQUIRE(w.cancel(f.op).has_value());
  CHECK(f.host().value == cancelled_here);
  CHECK(f.at->cancels == 0);
  CHECK(w.figure(actor_kind::deadline_arbiter, "owners") == 2);
  w.hold_workers(false, false);
  REQUIRE(w.cancel(f.op).has_value());
  w.advance(a_while);
  CHECK_FALSE(w.close_adapter().first);
  CHECK_FALSE(w.close_adapter().first);
  CHECK(f.at->cancels == 1);
  CHECK(seen == 1);
  CHECK(fact(w, f.op, "cancel") == "requested");
  check_kept(w, f.host());
  f.at->end_access();
  w.advance(a_while);
  // Nothing was served, so no copy is pending here: SL-07 has the copy barrier.
  CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
  CHECK(w.cancel(f.op).error().code == errc::unknown);
  CHECK(f.at->cancels == 1);
  CHECK(f.host().releases == 1);
}

TEST_CASE("SL-34 race, unobserved success") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  REQUIRE(w.cancel(f.op).has_value());
  CHECK(f.host().value == cancelled_here);
  CHECK(f.at->cancels == 1);
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
  CHECK(f.marked() == none);
}

TEST_CASE("SL-35 race, committed success") {
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  w.advance(a_while);
  REQUIRE(w.cancel(f.op).has_value());
  CHECK(f.at->cancels == 0);
  f.at->end_access();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome delivered(2)", "released"});
  CHECK(f.at->cancels == 0);
  CHECK(f.marked() == both);
}

TEST_CASE("SL-36 cancel error is diagnostic") {
  world w;
  one_fetch f{w}, second{w};
  f.at->cancel_throws = true;
  f.at->fail("line cut");
  second.at->deliver_all();
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome failed(line cut)"});
  CHECK(fact(w, f.op, "cancel_error") == "cancel broke");
  CHECK(fact(w, f.op, "cancel").empty());
  CHECK(second.host().events == strings{"outcome delivered(2)"});
  CHECK(fact(w, second.op, "cancel_error").empty());
  f.at->end_access();
  second.at->end_access();
  w.advance(a_while);
  CHECK(f.host().releases == 1);
  CHECK(second.host().releases == 1);
  CHECK(f.at->cancels == 1);
  CHECK(second.at->cancels == 0);
}

TEST_CASE("SL-37 a timeout is forwarded when a worker comes to it, and moves no deadline") {
  world w;
  one_fetch f{w};
  w.hold_workers(true, true);
  w.advance(8s);
  CHECK(f.host().value == timed_out);
  CHECK(f.at->cancels == 0);
  w.hold_workers(false, true);
  CHECK(f.at->cancels == 1);
  w.advance(1999ms);
  CHECK_FALSE(w.fatal().has_value());
  w.advance(1ms);
  REQUIRE(w.fatal().has_value());
  CHECK(w.fatal()->deadline - w.fatal()->started == 5s);
  CHECK(w.fatal()->deadline == w.now());
  f.at->end_access();
  w.hold_workers(false, false);
  w.advance(a_while);
  check_kept(w, f.host());
  CHECK(f.at->cancels == 1);
}

TEST_CASE("SL-38 prior quiescence survives cancel") {
  world w;
  one_fetch f{w};
  f.at->end_access();
  w.advance(a_while);
  CHECK(fact(w, f.op, "access") == "ended");
  const auto asked = f.at->proofs;
  REQUIRE(w.cancel(f.op).has_value());
  w.advance(a_while);
  CHECK(f.host().events == strings{"outcome cancelled(local)", "released"});
  CHECK(f.at->cancels == 1);
  CHECK(f.at->proofs == asked);
  CHECK(w.figure(actor_kind::proof_collector, "proofs") == 1);
}
