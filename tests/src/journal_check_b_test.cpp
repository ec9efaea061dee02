// The checker against journals written by hand, continued: rule 5.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/src/journal_by_hand.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE("5.1 journal check: the hold, then each part once, then leases") {
  hand h;
  const auto started = [&h](std::uint64_t n) {
    return h.adapter(kind::registration_started, {.operation = sid(1), .other = sid(n)});
  };
  SUBCASE("before the hold") {
    const auto hold = std::ranges::find(h.records, kind::hold_taken, &journal_record::kind);
    const auto at = hold->sequence;
    for (auto it = h.records.erase(hold); it != h.records.end(); ++it) --it->sequence;
    breaks(h, "5.1", at);
  }
  SUBCASE("a part that there is not") { breaks(h, "5.1", started(2)); }
  SUBCASE("the hold again") { breaks(h, "5.1", h.lender(kind::hold_taken, {.other = sid(2)})); }
  SUBCASE("tracked again") {
    breaks(h, "5.1",
           h.arbiter(kind::registrations_tracked, {.operation = sid(9), .other = sid(2), .value = span}));
  }
  SUBCASE("another claim") {
    breaks(h, "5.1", h.adapter(kind::registration_closing, {.operation = sid(2), .other = sid(1)}));
  }
  SUBCASE("made, and not started") {
    breaks(h, "5.1", h.adapter(kind::registration_made, {.operation = sid(1), .other = sid(1)}));
  }
  SUBCASE("lent before") {
    h.records.pop_back();
    breaks(h, "5.1", (h.lend(1), h.records.size() - 3));
  }
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
  SUBCASE("accepted unqueued") { breaks(h, "5.3", h.of(kind::submission_accepted, 1)); }
  SUBCASE("rejected unqueued") { breaks(h, "5.3", h.of(kind::submission_rejected, 1)); }
  SUBCASE("withdrawn unqueued") { breaks(h, "5.3", h.of(kind::submission_withdrawn, 1)); }
  SUBCASE("escaped unqueued") { breaks(h, "5.3", h.of(kind::submission_escaped, 1)); }
  SUBCASE("called unqueued") { breaks(h, "5.3", h.worker(kind::submission_entered, {.operation = sid(2)})); }
  h.of(kind::submission_queued, 1);
  SUBCASE("called after it was withdrawn") {
    h.decide(1, outcome_detail::cancelled), h.drain(1, drain_cause::unsuccessful);
    h.of(kind::submission_withdrawn, 1);
    breaks(h, "5.3", h.worker(kind::submission_entered, {.operation = sid(2)}));
  }
  SUBCASE("withdrawn without an outcome") { breaks(h, "5.3", h.of(kind::submission_withdrawn, 1)); }
  SUBCASE("withdrawn after it was called") {
    h.worker(kind::submission_entered, {.operation = sid(2)});
    breaks(h, "5.3", h.of(kind::submission_withdrawn, 1));
  }
  SUBCASE("called twice") {
    h.worker(kind::submission_entered, {.operation = sid(2)});
    breaks(h, "5.3", h.worker(kind::submission_entered, {.operation = sid(2)}));
  }
  SUBCASE("handed over twice") { breaks(h, "5.3", h.of(kind::submission_queued, 1)); }
  SUBCASE("accepted uncalled") { breaks(h, "5.3", h.of(kind::submission_accepted, 1)); }
  SUBCASE("escaped uncalled") { breaks(h, "5.3", h.of(kind::submission_escaped, 1)); }
}

TEST_CASE("5.4 journal check: one proof in flight") {
  hand h;
  h.lend(1), h.admit(1), h.expose(1);
  SUBCASE("of nothing") {
    breaks(h, "5.4", h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(1)}));
  }
  h.run(1);
  SUBCASE("two") { breaks(h, "5.4", h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(2)})); }
  SUBCASE("an answer to another") { breaks(h, "5.4", h.of(kind::access_ended, 1, 3)); }
  SUBCASE("accepted, and none is started") {
    h.records.pop_back();
    breaks(h, "5.4", h.report(1, outcome_detail::failed));
  }
  SUBCASE("a retry is another") {
    h.dispute(1);
    h.drain(1, drain_cause::disputed);
    h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(2)});
    h.of(kind::access_ended, 1, 2);
    keeps(h);
  }
}

TEST_CASE("5.5 journal check: cancelled at the provider after its outcome, once") {
  hand h;
  h.lend(1), h.submit(1);
  SUBCASE("before") { breaks(h, "5.5", h.adapter(kind::cancel_asked, {.operation = sid(2)})); }
  SUBCASE("twice") {
    h.fail(1);
    breaks(h, "5.5", h.adapter(kind::cancel_asked, {.operation = sid(2)}));
  }
  SUBCASE("never") {
    h.decide(1, outcome_detail::failed), h.drain(1, drain_cause::unsuccessful), h.end_access(1);
    breaks(h, "5.5", h.adapter(kind::lease_finish_asked, {.operation = sid(2), .lease = sid(1)}));
  }
}

TEST_CASE("5.6 journal check: marked after the end of access, once, and only what was delivered") {
  hand h;
  h.lend(1), h.submit(1);
  const journal_record mark{.operation = sid(2), .lease = sid(1), .value = 4};
  SUBCASE("before the end of access") {
    h.decide(1);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("without an outcome") {
    h.end_access(1);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("by the lender") { breaks(h, "5.6", h.lender(kind::lease_finishing, {.lease = sid(1)})); }
  SUBCASE("by the lender, unasked") {
    h.decide(1), h.end_access(1);
    breaks(h, "5.6", h.lender(kind::lease_finishing, {.lease = sid(1)}));
  }
  SUBCASE("by the lender, which knows of no outcome") {
    h.decide(1), h.end_access(1);
    h.adapter(kind::lease_finish_asked, mark);
    breaks(h, "5.6", h.lender(kind::lease_finishing, {.lease = sid(1)}));
  }
  SUBCASE("copied unfinished") {
    breaks(h, "5.6", h.lender(kind::copy_started, {.lease = sid(1), .other = sid(1)}));
  }
  SUBCASE("twice") {
    h.decide(1), h.end_access(1);
    h.adapter(kind::lease_finish_asked, mark);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("rows of a failure") {
    h.fail(1), h.end_access(1);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, mark));
  }
  SUBCASE("fewer than were delivered") {
    h.decide(1), h.end_access(1);
    breaks(h, "5.6", h.adapter(kind::lease_finish_asked, {.operation = sid(2), .lease = sid(1), .value = 3}));
  }
  SUBCASE("copies end before their event") {
    h.decide(1), h.end_access(1), h.mark(1);
    h.manager(kind::rows_pinned, {.lease = sid(1), .request = sid(1), .other = sid(1), .value = 4});
    h.lender(kind::copy_started, {.lease = sid(1), .other = sid(1), .value = 4});
    SUBCASE("none is complete") { breaks(h, "5.6", h.of(kind::copies_ended, 1)); }
    SUBCASE("none is lost") { breaks(h, "5.6", h.of(kind::copies_disputed, 1)); }
    SUBCASE("another is complete") {
      breaks(h, "5.6", h.lender(kind::copy_completed, {.lease = sid(1), .other = sid(2)}));
    }
    SUBCASE("another starts") {
      breaks(h, "5.6", h.lender(kind::copy_started, {.lease = sid(1), .other = sid(2), .value = 4}));
    }
  }
  SUBCASE("copies end that were not awaited") { breaks(h, "5.6", h.of(kind::copies_ended, 1)); }
}

TEST_CASE("5.7 journal check: a publish waits for its copy") {
  hand h;
  h.without = {kind::copy_completed, kind::lease_unpinned, kind::rows_unpinned};
  SUBCASE("ready before it") {
    h.lend(1, direction::publish);
    breaks(h, "5.7", h.records.size());
  }
  SUBCASE("taken before it") {
    h.without.push_back(kind::lease_ready);
    h.lend(1, direction::publish);
    breaks(h, "5.2", (h.admit(1, direction::publish), h.records.size()));
  }
  SUBCASE("the wrong way") {
    h.lend(1);
    h.submit(1), h.decide(1), h.end_access(1), h.mark(1);
    h.manager(kind::rows_pinned, {.lease = sid(1), .request = sid(1), .other = sid(1), .value = 4});
    breaks(h, "6.3",
           h.lender(kind::copy_started, {.detail = 1, .lease = sid(1), .other = sid(1), .value = 4}));
  }
}

TEST_CASE("5.8 journal check: teardown comes last") {
  hand h;
  h.lend(1), h.submit(1);
  const auto of_parts = [&h](kind k) { return h.adapter(k, {.operation = sid(1), .other = sid(1)}); };
  SUBCASE("a registration goes while an operation is open") {
    breaks(h, "5.8", of_parts(kind::registration_closing));
  }
  SUBCASE("the hold goes while an operation is open") {
    breaks(h, "5.8", h.lender(kind::hold_released, {.other = sid(1)}));
  }
  h.decide(1), h.end_access(1), h.finish(1), h.settle(1), h.release(1);
  SUBCASE("the hold goes before the registration") {
    breaks(h, "5.8", h.lender(kind::hold_released, {.other = sid(1)}));
  }
  SUBCASE("the claim is settled before the registration is closed") {
    breaks(h, "5.8", h.arbiter(kind::claim_settled, {.operation = sid(1), .other = sid(1)}));
  }
  SUBCASE("closed that was not being closed") { breaks(h, "5.8", of_parts(kind::registration_closed)); }
  SUBCASE("two at once") {
    of_parts(kind::registration_closing);
    breaks(h, "5.8", of_parts(kind::registration_closing));
  }
  SUBCASE("at the second attempt") {
    of_parts(kind::registration_closing);
    of_parts(kind::registration_kept);
    of_parts(kind::registration_closing);
    of_parts(kind::registration_closed);
    keeps(h);
    SUBCASE("and the claim undrained") {
      breaks(h, "5.8", h.arbiter(kind::claim_settled, {.operation = sid(1), .other = sid(1)}));
    }
    SUBCASE("and the hold unsettled") { breaks(h, "5.8", h.lender(kind::hold_released, {.other = sid(1)})); }
  }
  SUBCASE("torn down after fatal") {
    h.arbiter(kind::claim_retained, {.operation = sid(1), .other = sid(1)});
    const auto due = h.at + 1000 + static_cast<std::int64_t>(span);
    h.arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(drain_cause::disputed),
                                    .operation = sid(1),
                                    .other = sid(1),
                                    .value = static_cast<std::uint64_t>(h.at + 1000)});
    h.at = due;
    h.arbiter(kind::fatal_latched, {.other = sid(1), .value = static_cast<std::uint64_t>(due)});
    breaks(h, "5.8", of_parts(kind::registration_closing));
  }
}
