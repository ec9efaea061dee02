// The checker against journals written by hand: one that keeps every rule, and for each rule one that breaks
// it, found at the record that does. Rules 1 to 5.6; the rest is in journal_check_b_test.cpp.
#include <doctest/doctest.h>

#include "tests/src/journal_by_hand.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE("journal check: a journal that keeps every rule") {
  hand h;
  h.whole_fetch(1);
  h.lend(2, direction::publish);
  h.submit(2, direction::publish);
  h.end_access(2);
  h.decide(2);
  h.adapter(kind::lease_finish_asked, {.operation = sid(3), .lease = sid(2)});
  h.lender(kind::lease_finishing, {.lease = sid(2)});
  h.adapter(kind::copies_ended, {.operation = sid(3), .lease = sid(2)});
  h.settle(2);
  h.release(2);
  h.close();
  h.arbiter(kind::arbiter_stopped);
  keeps(h);
  CHECK(h.verdict().operations_open == 0);
  CHECK(h.verdict().leases_open == 0);
}

TEST_CASE("1.1 journal check: settled without an outcome") {
  hand h;
  h.lend(1), h.submit(1), h.end_access(1), h.finish(1);
  breaks(h, "1.1", (h.settle(1), h.records.size()));
}

TEST_CASE("1.2 journal check: settled or released before the evidence") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1);
  SUBCASE("settled before the end of access") { breaks(h, "1.2", (h.settle(1), h.records.size())); }
  SUBCASE("settled before the copies") {
    h.end_access(1);
    breaks(h, "1.2", (h.settle(1), h.records.size()));
  }
  SUBCASE("released unsettled") {
    h.end_access(1), h.finish(1);
    const auto at = h.release(1);
    breaks(h, "1.2", at);
  }
  SUBCASE("slots back while the operation has them") {
    breaks(h, "1.2", h.lender(kind::slots_freed, {.lease = sid(1), .other = 4, .value = 4}));
  }
}

TEST_CASE("1.3 journal check: a second outcome") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1, outcome_detail::failed);
  breaks(h, "1.3", (h.decide(1), h.records.size()));
}

TEST_CASE("1.4 journal check: a read guard that release did not wait for") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1), h.end_access(1);
  h.adapter(kind::lease_finish_asked, {.operation = sid(2), .lease = sid(1)});
  h.lender(kind::lease_finishing, {.lease = sid(1), .value = 1});
  SUBCASE("it waits") {
    h.lender(kind::guards_gone, {.lease = sid(1)});
    h.adapter(kind::copies_ended, {.operation = sid(2), .lease = sid(1)});
    h.settle(1), h.release(1);
    keeps(h);
  }
  SUBCASE("it does not") {
    breaks(h, "1.4", h.adapter(kind::copies_ended, {.operation = sid(2), .lease = sid(1)}));
  }
}

TEST_CASE("2.4 journal check: access ends without a proof") {
  hand h;
  h.lend(1), h.submit(1);
  breaks(h, "2.4", h.adapter(kind::access_ended, {.operation = sid(2)}));
}

TEST_CASE("4.1 journal check: exposure") {
  hand h;
  h.lend(1), h.admit(1);
  SUBCASE("submitted before it is exposed") {
    breaks(h, "4.1", h.adapter(kind::submission_queued, {.operation = sid(2)}));
  }
  SUBCASE("the request clock is started again") {
    h.expose(1);
    breaks(h, "4.1", (h.expose(1), h.records.size()));
  }
  SUBCASE("while the owner drains") {
    h.arbiter(kind::owner_created, {.request = sid(1), .other = sid(2), .value = span});
    drain(h, 1, drain_cause::unsuccessful, h.at);
    breaks(h, "4.1", (h.expose(1), h.records.size()));
  }
}

TEST_CASE("4.2 journal check: an outcome after the deadline that is not the timeout") {
  hand h;
  h.lend(1), h.submit(1);
  h.at += span;
  const auto at = h.decide(1);
  SUBCASE("found once time goes on") {
    h.arbiter(kind::owner_created, {.other = sid(9), .value = span});
    breaks(h, "4.2", at);
  }
  SUBCASE("found where the journal ends with it") { breaks(h, "4.2", at); }
  SUBCASE("but fatal at the same time came first") {
    h.records.back().detail = static_cast<std::uint8_t>(outcome_detail::failed);
    h.at -= 1000;
    h.arbiter(kind::fatal_latched, {.other = sid(9)});
    keeps(h);
  }
}

TEST_CASE("4.3 journal check: the timeout is at the deadline") {
  hand h;
  h.lend(1), h.submit(1);
  const auto deadline = h.records.at(10).at + static_cast<std::int64_t>(span);
  REQUIRE(h.records.at(10).kind == kind::exposed);
  SUBCASE("early") { breaks(h, "4.3", h.decide(1, outcome_detail::timed_out)); }
  SUBCASE("drain from when it was noticed") {
    h.at = deadline + second;
    h.decide(1, outcome_detail::timed_out);
    breaks(h, "4.3", drain(h, 1, drain_cause::timeout, h.at));
  }
  SUBCASE("as it should be") {
    h.at = deadline + second;
    h.decide(1, outcome_detail::timed_out);
    drain(h, 1, drain_cause::timeout, deadline);
    keeps(h);
  }
}

TEST_CASE("4.4 journal check: a drain that starts twice, or later than now") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1, outcome_detail::failed);
  SUBCASE("twice") {
    drain(h, 1, drain_cause::unsuccessful, h.at);
    breaks(h, "4.4", drain(h, 1, drain_cause::disputed, h.at));
  }
  SUBCASE("later") { breaks(h, "4.4", drain(h, 1, drain_cause::disputed, h.at + second)); }
}

TEST_CASE("4.5 journal check: grace and fatal") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1, outcome_detail::failed);
  const auto due = h.at + static_cast<std::int64_t>(span);
  drain(h, 1, drain_cause::unsuccessful, h.at);
  const auto fatal = [&h](std::int64_t end) {
    return h.arbiter(kind::fatal_latched, {.other = sid(2), .value = static_cast<std::uint64_t>(end)});
  };
  SUBCASE("extended") {
    h.at = due + 2 * second;
    breaks(h, "4.5", fatal(due + second));
  }
  SUBCASE("early") { breaks(h, "4.5", fatal(due)); }
  SUBCASE("settled past it") {
    h.end_access(1), h.finish(1, 0);
    h.at = due;
    breaks(h, "4.5", h.settle(1));
  }
  SUBCASE("latched twice") {
    h.at = due - 1000;
    fatal(due);
    breaks(h, "4.5", fatal(due));
  }
  SUBCASE("admits") {
    h.lend(2), h.admit(2);
    h.at = due - 1000;
    fatal(due);
    SUBCASE("an exposure") { breaks(h, "4.5", (h.expose(2), h.records.size())); }
    SUBCASE("an owner") {
      breaks(h, "4.5", h.arbiter(kind::owner_created, {.other = sid(9), .value = span}));
    }
    SUBCASE("a registration") {
      breaks(h, "4.5", h.adapter(kind::registration_started, {.operation = sid(1), .other = sid(2)}));
    }
  }
}

TEST_CASE("4.7 journal check: settled after fatal") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1), h.end_access(1), h.finish(1);
  h.arbiter(kind::fatal_latched, {.other = sid(9)});
  breaks(h, "4.7", h.settle(1));
}

TEST_CASE("4.10 journal check: shutdown") {
  hand h;
  h.lend(1), h.admit(1);
  SUBCASE("admits") {
    h.arbiter(kind::admission_closed);
    breaks(h, "4.10", (h.expose(1), h.records.size()));
  }
  SUBCASE("stops with owners retained") { breaks(h, "4.10", h.arbiter(kind::arbiter_stopped)); }
}

TEST_CASE("5.1 journal check: registered before the hold") {
  hand h;
  h.lender(kind::hold_released, {.other = sid(1)});
  hand fresh;
  fresh.records.erase(fresh.records.begin() + 2);
  fresh.records[2].sequence = 3, fresh.records[3].sequence = 4;
  breaks(fresh, "5.1", 3);
}

TEST_CASE("5.2 journal check: a lease that is not ready, or owned") {
  hand h;
  SUBCASE("not ready") { breaks(h, "5.2", (h.admit(1), h.records.size())); }
  h.lend(1), h.submit(1);
  SUBCASE("owned") {
    breaks(h, "5.2",
           h.adapter(kind::operation_admitted, {.operation = sid(9), .lease = sid(1), .request = sid(1)}));
  }
  SUBCASE("withdrawn from its operation") {
    breaks(h, "5.2", h.lender(kind::lease_withdrawn, {.lease = sid(1)}));
  }
}

TEST_CASE("5.3 journal check: withdrawn is never called, and nothing is called twice") {
  hand h;
  h.lend(1), h.admit(1), h.expose(1);
  h.adapter(kind::submission_queued, {.operation = sid(2)});
  SUBCASE("called after it was withdrawn") {
    h.adapter(kind::submission_withdrawn, {.operation = sid(2)});
    breaks(h, "5.3", h.worker(kind::submission_entered, {.operation = sid(2)}));
  }
  SUBCASE("withdrawn after it was called") {
    h.worker(kind::submission_entered, {.operation = sid(2)});
    breaks(h, "5.3", h.adapter(kind::submission_withdrawn, {.operation = sid(2)}));
  }
  SUBCASE("called twice") {
    h.worker(kind::submission_entered, {.operation = sid(2)});
    breaks(h, "5.3", h.worker(kind::submission_entered, {.operation = sid(2)}));
  }
  SUBCASE("handed over twice") {
    breaks(h, "5.3", h.adapter(kind::submission_queued, {.operation = sid(2)}));
  }
}

TEST_CASE("5.4 journal check: one proof in flight") {
  hand h;
  h.lend(1), h.submit(1);
  SUBCASE("two") { breaks(h, "5.4", h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(2)})); }
  SUBCASE("an answer to another") {
    breaks(h, "5.4", h.adapter(kind::access_ended, {.operation = sid(2), .other = sid(3)}));
  }
  SUBCASE("a retry is another") {
    h.adapter(kind::access_disputed, {.operation = sid(2), .other = sid(1)});
    h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(2)});
    h.adapter(kind::access_ended, {.operation = sid(2), .other = sid(2)});
    keeps(h);
  }
}

TEST_CASE("5.5 journal check: cancelled at the provider before its outcome") {
  hand h;
  h.lend(1), h.submit(1);
  breaks(h, "5.5", h.adapter(kind::cancel_asked, {.operation = sid(2)}));
}

TEST_CASE("5.6 journal check: marked after the end of access, once, and only what was delivered") {
  hand h;
  h.lend(1), h.submit(1);
  const journal_record mark{.operation = sid(2), .lease = sid(1), .value = 4};
  SUBCASE("before the end of access") {
    h.decide(1);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("by the lender") { breaks(h, "5.6", h.lender(kind::lease_finishing, {.lease = sid(1)})); }
  SUBCASE("copied unfinished") {
    breaks(h, "5.6", h.lender(kind::copy_started, {.lease = sid(1), .other = sid(7)}));
  }
  SUBCASE("twice") {
    h.decide(1), h.end_access(1);
    h.adapter(kind::lease_finish_asked, mark);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("rows of a failure") {
    h.decide(1, outcome_detail::failed), h.end_access(1);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("copies end before their event") {
    h.decide(1), h.end_access(1);
    h.adapter(kind::lease_finish_asked, mark);
    h.lender(kind::lease_finishing, {.lease = sid(1)});
    h.lender(kind::copy_started, {.lease = sid(1), .other = sid(7)});
    breaks(h, "5.6", h.adapter(kind::copies_ended, {.operation = sid(2), .lease = sid(1)}));
  }
}
