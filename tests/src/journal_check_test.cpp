// The checker against journals written by hand: one that keeps every rule, and for each rule those that break
// it, found at the record that does. Rules 1 to 4; rule 5 is in journal_check_b_test.cpp, the rest in
// journal_check_c_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>

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
  h.finish(2, 0);
  h.settle(2);
  h.release(2);
  h.close();
  h.arbiter(kind::arbiter_stopped);
  keeps(h);
  CHECK(h.verdict().operations_open == 0);
  CHECK(h.verdict().leases_open == 0);
}

TEST_CASE("1.1 journal check: the lender waits for evidence before there is an outcome") {
  hand h;
  h.lend(1), h.submit(1), h.end_access(1);
  breaks(h, "1.1", h.lender(kind::lease_awaiting, {.lease = sid(1)}));
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
  h.lend(1), h.submit(1), h.fail(1);
  breaks(h, "1.3", h.arbiter(kind::outcome_committed, {.operation = sid(2), .other = sid(2), .value = 4}));
}

TEST_CASE("1.4 journal check: a read guard that release did not wait for") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1), h.end_access(1);
  h.mark(1, 4, 1);
  h.copy(1, direction::fetch);
  h.manager(kind::rows_unpinned, {.other = sid(1)});
  SUBCASE("it waits") {
    h.lender(kind::guards_gone, {.lease = sid(1)});
    h.of(kind::copies_ended, 1);
    h.settle(1), h.release(1);
    keeps(h);
  }
  SUBCASE("it does not") { breaks(h, "1.4", h.of(kind::copies_ended, 1)); }
  SUBCASE("nor do the slots") {
    breaks(h, "1.4", h.lender(kind::slots_freed, {.lease = sid(1), .other = 4, .value = 4}));
  }
  SUBCASE("one that there was not") {
    h.lender(kind::guards_gone, {.lease = sid(1)});
    breaks(h, "1.4", h.lender(kind::guards_gone, {.lease = sid(1)}));
  }
}

TEST_CASE("2.4 journal check: access ends without a proof") {
  hand h;
  h.lend(1), h.submit(1);
  breaks(h, "2.4", h.of(kind::access_ended, 1));
}

TEST_CASE("1.5 journal check: an outcome that nobody reported") {
  hand h;
  h.lend(1), h.submit(1);
  SUBCASE("delivered") {
    breaks(h, "1.5", h.arbiter(kind::outcome_committed, {.operation = sid(2), .other = sid(2), .value = 4}));
  }
  SUBCASE("more than was reported") {
    h.report(1, outcome_detail::delivered);
    breaks(h, "1.5", h.arbiter(kind::outcome_committed, {.operation = sid(2), .other = sid(2), .value = 5}));
  }
  SUBCASE("units of a failure") {
    h.report(1, outcome_detail::failed);
    breaks(h, "1.5",
           h.arbiter(kind::outcome_committed, {.detail = static_cast<std::uint8_t>(outcome_detail::failed),
                                               .operation = sid(2),
                                               .other = sid(2),
                                               .value = 1}));
  }
  SUBCASE("failed, for no reason but a fatal expiry that is not latched") {
    h.arbiter(
        kind::outcome_committed,
        {.detail = static_cast<std::uint8_t>(outcome_detail::failed), .operation = sid(2), .other = sid(2)});
    breaks(h, "4.5", h.drain(1, drain_cause::unsuccessful));
  }
}

TEST_CASE("2.3 journal check: an attempt's outcome is reported once") {
  hand h;
  h.lend(1), h.admit(1), h.expose(1);
  SUBCASE("and of an attempt") { breaks(h, "2.3", h.report(1, outcome_detail::failed)); }
  SUBCASE("twice") {
    h.run(1);
    h.report(1, outcome_detail::failed);
    breaks(h, "2.3", h.report(1, outcome_detail::failed));
  }
}

TEST_CASE("4.1 journal check: exposure") {
  hand h;
  h.lend(1), h.admit(1);
  SUBCASE("submitted before it is exposed") { breaks(h, "4.1", h.of(kind::submission_queued, 1)); }
  SUBCASE("exposed twice") {
    h.expose(1);
    breaks(h, "4.1", (h.expose(1), h.records.size()));
  }
  SUBCASE("decided, and was not exposed") { breaks(h, "4.1", h.decide(1, outcome_detail::cancelled)); }
  SUBCASE("with an owner of the host's") {
    h.arbiter(kind::owner_created, {.request = sid(1), .other = sid(2), .value = span});
    SUBCASE("as it should be") {
      h.expose(1);
      keeps(h);
    }
    SUBCASE("for another time") {
      breaks(h, "4.1", h.arbiter(kind::exposed, {.operation = sid(2), .other = sid(2), .value = span + 1}));
    }
    SUBCASE("that is closed") {
      h.arbiter(kind::owner_closed, {.other = sid(2)});
      breaks(h, "4.1", (h.expose(1), h.records.size()));
    }
    SUBCASE("that is in use") {
      h.expose(1);
      h.lend(2), h.admit(2);
      breaks(h, "4.1", h.arbiter(kind::exposed, {.operation = sid(3), .other = sid(2), .value = span}));
    }
    SUBCASE("that is in use, and closed") {
      h.expose(1);
      breaks(h, "4.10", h.arbiter(kind::owner_closed, {.other = sid(2)}));
    }
  }
  SUBCASE("refused") {
    h.arbiter(kind::admission_closed);
    h.arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(drain_cause::shutdown),
                                    .operation = sid(1),
                                    .other = sid(1),
                                    .value = static_cast<std::uint64_t>(h.at + 1000)});
    h.arbiter(kind::exposure_refused, {.operation = sid(2)});
    SUBCASE("without an outcome") {
      breaks(h, "4.1", h.arbiter(kind::claim_retained, {.operation = sid(1), .other = sid(1)}));
    }
    SUBCASE("with another than cancelled") {
      breaks(h, "4.1",
             h.arbiter(kind::outcome_committed,
                       {.detail = static_cast<std::uint8_t>(outcome_detail::failed), .operation = sid(2)}));
    }
  }
}

TEST_CASE("4.2 journal check: an outcome after the deadline that is not the timeout") {
  hand h;
  h.lend(1), h.submit(1);
  h.at += span;
  SUBCASE("of the operation itself") { breaks(h, "4.2", h.decide(1)); }
  SUBCASE("or anything else that the arbiter does") {
    breaks(h, "4.2", h.arbiter(kind::owner_closed, {.other = sid(2)}));
  }
}

TEST_CASE("4.3 journal check: the timeout is at the deadline") {
  hand h;
  h.lend(1), h.submit(1);
  const auto exposed = std::ranges::find(h.records, kind::exposed, &journal_record::kind);
  REQUIRE(exposed != h.records.end());
  const auto deadline = exposed->at + static_cast<std::int64_t>(span);
  SUBCASE("early") { breaks(h, "4.3", h.decide(1, outcome_detail::timed_out)); }
  SUBCASE("the drain before it") { breaks(h, "4.3", h.drain(1, drain_cause::timeout, deadline)); }
  SUBCASE("drain from when it was noticed") {
    h.at = deadline + second;
    h.decide(1, outcome_detail::timed_out);
    breaks(h, "4.3", h.drain(1, drain_cause::timeout));
  }
  SUBCASE("no drain") {
    h.at = deadline + second;
    h.decide(1, outcome_detail::timed_out);
    breaks(h, "4.4", h.arbiter(kind::owner_created, {.other = sid(3), .value = span}));
  }
  SUBCASE("as it should be") {
    h.at = deadline + second;
    h.decide(1, outcome_detail::timed_out);
    h.drain(1, drain_cause::timeout, deadline);
    keeps(h);
  }
}

TEST_CASE("4.4 journal check: drain starts once, now, and for a reason that there is") {
  hand h;
  h.lend(1), h.submit(1);
  SUBCASE("twice") {
    h.decide(1, outcome_detail::failed);
    h.drain(1, drain_cause::unsuccessful);
    breaks(h, "4.4", h.drain(1, drain_cause::disputed));
  }
  SUBCASE("later") {
    h.decide(1, outcome_detail::failed);
    breaks(h, "4.4", h.drain(1, drain_cause::unsuccessful, h.at + second));
  }
  SUBCASE("never") {
    h.decide(1, outcome_detail::failed);
    h.lend(2), h.admit(2);
    breaks(h, "4.4", (h.expose(2), h.records.size()));
  }
  SUBCASE("without an outcome") { breaks(h, "4.4", h.drain(1, drain_cause::unsuccessful)); }
  SUBCASE("of a success") {
    h.decide(1);
    breaks(h, "4.4", h.drain(1, drain_cause::unsuccessful));
  }
  SUBCASE("without a dispute") { breaks(h, "4.4", h.drain(1, drain_cause::disputed)); }
  SUBCASE("without a shutdown") { breaks(h, "4.10", h.drain(1, drain_cause::shutdown)); }
  SUBCASE("an outcome between a dispute and its drain") {
    h.dispute(1);
    breaks(h, "4.4", h.decide(1, outcome_detail::failed));
  }
}

TEST_CASE("4.5 journal check: grace and fatal") {
  hand h;
  h.lend(1), h.submit(1), h.fail(1);
  const auto due = static_cast<std::int64_t>(h.records.at(h.records.size() - 2).value + span);
  const auto fatal = [&h](std::int64_t end) {
    return h.arbiter(kind::fatal_latched,
                     {.request = sid(1), .other = sid(2), .value = static_cast<std::uint64_t>(end)});
  };
  SUBCASE("extended") {
    h.at = due + 2 * second;
    breaks(h, "4.5", fatal(due + second));
  }
  SUBCASE("early") {
    h.at = due - 2000;
    breaks(h, "4.5", fatal(due));
  }
  SUBCASE("settled past it") {
    h.end_access(1), h.finish(1, 0);
    h.at = due;
    breaks(h, "4.5", h.settle(1));
  }
  SUBCASE("of an owner that has nothing left") {
    h.end_access(1), h.finish(1, 0), h.settle(1);
    h.at = due;
    breaks(h, "4.5", fatal(due));
  }
  SUBCASE("latched twice") {
    h.at = due;
    fatal(due);
    breaks(h, "4.5", fatal(due));
  }
  SUBCASE("an operation has no outcome") {
    h.lend(2), h.submit(2);
    h.at = due;
    breaks(h, "4.5", fatal(due));
  }
  SUBCASE("of another's request") {
    h.at = due;
    breaks(h, "7.1",
           h.arbiter(kind::fatal_latched, {.other = sid(2), .value = static_cast<std::uint64_t>(due)}));
  }
  SUBCASE("admits") {
    h.lend(2), h.admit(2);
    h.at = due;
    fatal(due);
    SUBCASE("an exposure") { breaks(h, "4.5", (h.expose(2), h.records.size())); }
    SUBCASE("an owner") {
      breaks(h, "4.5", h.arbiter(kind::owner_created, {.other = sid(3), .value = span}));
    }
    SUBCASE("an owner's end") { breaks(h, "4.5", h.arbiter(kind::owner_closed, {.other = sid(1)})); }
    SUBCASE("a registration") {
      breaks(h, "4.5", h.adapter(kind::registration_started, {.operation = sid(1), .other = sid(2)}));
    }
  }
}

TEST_CASE("4.7 journal check: settled after fatal") {
  hand h;
  h.lend(1), h.submit(1), h.end_access(1), h.fail(1), h.finish(1, 0);
  h.lend(2), h.submit(2), h.end_access(2), h.decide(2), h.finish(2);
  const auto drain = std::ranges::find(h.records, kind::drain_started, &journal_record::kind);
  const auto due = static_cast<std::int64_t>(drain->value + span);
  h.at = due;
  h.arbiter(kind::fatal_latched,
            {.request = sid(1), .other = sid(2), .value = static_cast<std::uint64_t>(due)});
  SUBCASE("settled") { breaks(h, "4.7", h.settle(2)); }
  SUBCASE("refused") {
    h.arbiter(kind::claim_refused, {.operation = sid(3), .other = sid(3)});
    keeps(h);
    SUBCASE("twice") {
      breaks(h, "4.7", h.arbiter(kind::claim_refused, {.operation = sid(3), .other = sid(3)}));
    }
  }
}

TEST_CASE("4.7 journal check: a claim is retained for a reason, settled once, refused after fatal only") {
  hand h;
  h.lend(1), h.submit(1);
  SUBCASE("retained for none") {
    breaks(h, "4.7", h.arbiter(kind::claim_retained, {.operation = sid(2), .other = sid(2)}));
  }
  SUBCASE("refused") {
    h.decide(1), h.end_access(1), h.finish(1);
    breaks(h, "4.7", h.arbiter(kind::claim_refused, {.operation = sid(2), .other = sid(2)}));
  }
  SUBCASE("settled twice") {
    h.decide(1), h.end_access(1), h.finish(1), h.settle(1);
    breaks(h, "4.7", h.settle(1));
  }
  SUBCASE("settled ahead of a dispute that was told before") {
    h.of(kind::access_disputed, 1, 1);
    h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(2)});
    h.of(kind::access_ended, 1, 2);
    h.decide(1), h.finish(1);
    breaks(h, "4.7", h.settle(1));
  }
}

TEST_CASE("4.9 journal check: a deadline that nobody looks at") {
  hand h;
  h.lend(1), h.submit(1);
  h.at += span + 61 * second;
  breaks(h, "4.9", h.manager(kind::request_admitted, {.request = sid(2)}));
}

TEST_CASE("4.10 journal check: shutdown") {
  hand h;
  h.lend(1), h.admit(1);
  SUBCASE("admits") {
    h.arbiter(kind::admission_closed);
    h.arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(drain_cause::shutdown),
                                    .operation = sid(1),
                                    .other = sid(1),
                                    .value = static_cast<std::uint64_t>(h.at + 1000)});
    breaks(h, "4.10", (h.expose(1), h.records.size()));
  }
  SUBCASE("makes an owner") {
    h.arbiter(kind::admission_closed);
    h.arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(drain_cause::shutdown),
                                    .operation = sid(1),
                                    .other = sid(1),
                                    .value = static_cast<std::uint64_t>(h.at + 1000)});
    breaks(h, "4.10", h.arbiter(kind::owner_created, {.other = sid(2), .value = span}));
  }
  SUBCASE("an owner does not drain") {
    h.arbiter(kind::admission_closed);
    breaks(h, "4.10", h.arbiter(kind::claim_retained, {.operation = sid(1), .other = sid(1)}));
  }
  SUBCASE("closed twice") {
    h.arbiter(kind::admission_closed);
    h.arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(drain_cause::shutdown),
                                    .operation = sid(1),
                                    .other = sid(1),
                                    .value = static_cast<std::uint64_t>(h.at + 1000)});
    breaks(h, "4.10", h.arbiter(kind::admission_closed));
  }
  SUBCASE("stops with owners retained") { breaks(h, "4.10", h.arbiter(kind::arbiter_stopped)); }
}
