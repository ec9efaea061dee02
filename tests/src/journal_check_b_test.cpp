// The checker against journals written by hand, continued: rules 5.7 to 7.
#include <doctest/doctest.h>

#include "tests/src/journal_by_hand.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE("5.7 journal check: a publish waits for its copy") {
  hand h;
  h.without = {kind::copy_completed, kind::lease_unpinned, kind::rows_unpinned};
  SUBCASE("ready before it") {
    h.lend(1, direction::publish);
    breaks(h, "5.7", h.records.size());
  }
  SUBCASE("submitted before it") {
    h.without.push_back(kind::lease_ready);
    h.lend(1, direction::publish);
    h.records.clear();  // a journal that begins late knows nothing of the lease's readiness
    hand late;
    late.without = h.without;
    late.lend(1, direction::publish);
    late.without.clear();
    const auto at = late.worker(kind::submission_entered, {.operation = sid(2)});
    CHECK_FALSE(late.verdict().broken.has_value());  // of an operation that it does not know
    CHECK(at == late.records.size());
  }
}

TEST_CASE("5.8 journal check: teardown comes last") {
  hand h;
  h.lend(1), h.submit(1);
  SUBCASE("a registration goes while an operation is open") {
    breaks(h, "5.8", h.adapter(kind::registration_closing, {.operation = sid(1), .other = sid(1)}));
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
  SUBCASE("torn down after fatal") {
    h.arbiter(kind::fatal_latched, {.other = sid(9)});
    breaks(h, "5.8", h.adapter(kind::registration_closing, {.operation = sid(1), .other = sid(1)}));
  }
}

TEST_CASE("6.2 journal check: first come, first served; no slot twice") {
  hand h;
  const auto open = [&h](std::uint64_t n) {
    h.lender(kind::lease_opened, {.lease = sid(n), .request = sid(1)});
  };
  SUBCASE("overtaken") {
    open(1), open(2);
    breaks(h, "6.2", h.lender(kind::lease_granted, {.lease = sid(2), .value = 4}));
  }
  SUBCASE("not by one that needs no slots, nor past one that has given up") {
    open(1), open(2), open(3);
    h.lender(kind::lease_granted, {.lease = sid(3)});
    h.lender(kind::lease_failed, {.lease = sid(1)});
    h.lender(kind::lease_granted, {.lease = sid(2), .value = 4});
    keeps(h);
  }
  SUBCASE("a slot that is lent") {
    h.lend(1);
    open(2);
    h.lender(kind::lease_granted, {.lease = sid(2), .value = 4});
    breaks(h, "6.2", h.lender(kind::slots_lent, {.lease = sid(2), .other = 7, .value = 4}));
  }
  SUBCASE("granted twice") {
    h.lend(1);
    breaks(h, "6.2", h.lender(kind::lease_granted, {.lease = sid(1), .value = 4}));
  }
}

TEST_CASE("6.4 journal check: a pin stays until the copy is complete") {
  hand h;
  h.lend(1), h.submit(1), h.decide(1), h.end_access(1);
  h.adapter(kind::lease_finish_asked, {.operation = sid(2), .lease = sid(1), .value = 4});
  h.lender(kind::lease_finishing, {.lease = sid(1)});
  h.manager(kind::rows_pinned, {.lease = sid(1), .request = sid(1), .other = sid(5), .value = 4});
  h.lender(kind::copy_started, {.lease = sid(1), .other = sid(7), .value = 4});
  SUBCASE("at the lender") {
    breaks(h, "6.4", h.lender(kind::lease_unpinned, {.lease = sid(1), .other = sid(5)}));
  }
  SUBCASE("at the manager") { breaks(h, "6.4", h.manager(kind::rows_unpinned, {.other = sid(5)})); }
  SUBCASE("lost: for good") {
    h.lender(kind::copy_lost, {.lease = sid(1), .other = sid(7)});
    breaks(h, "6.4", h.manager(kind::rows_unpinned, {.other = sid(5)}));
  }
}

TEST_CASE("6.5 journal check: slots whose copy is not complete") {
  hand h;
  h.lend(1);
  SUBCASE("given back while it is under way") {
    hand p;
    p.without = {kind::copy_completed, kind::lease_unpinned, kind::rows_unpinned, kind::lease_ready};
    p.lend(1, direction::publish);
    p.without.clear();
    breaks(p, "6.5", p.lender(kind::slots_freed, {.lease = sid(1), .other = 4, .value = 4}));
  }
  SUBCASE("given back though unproven") {
    h.lender(kind::slots_quarantined, {.lease = sid(1), .other = 4, .value = 4});
    breaks(h, "6.5", h.lender(kind::slots_freed, {.lease = sid(1), .other = 4, .value = 4}));
  }
  SUBCASE("lent though quarantined") {
    h.lender(kind::slots_quarantined, {.lease = sid(1), .other = 4, .value = 4});
    h.lender(kind::lease_opened, {.lease = sid(2)});
    h.lender(kind::lease_granted, {.lease = sid(2), .value = 1});
    breaks(h, "6.5", h.lender(kind::slots_lent, {.lease = sid(2), .other = 5, .value = 1}));
  }
}

TEST_CASE("7.1 journal check: ids rise, and are of this runtime") {
  hand h;
  h.whole_fetch(1);
  SUBCASE("a lease again") { breaks(h, "7.1", h.lender(kind::lease_opened, {.lease = sid(1)})); }
  SUBCASE("an operation again") {
    h.lend(2);
    breaks(h, "7.1", h.adapter(kind::operation_admitted, {.operation = sid(2), .lease = sid(2)}));
  }
  SUBCASE("foreign") { breaks(h, "7.1", h.lender(kind::lease_opened, {.lease = 9})); }
  SUBCASE("a number that comes back") {
    h.records.push_back(h.records.back());
    breaks(h, "7.1", h.records.back().sequence);
  }
}

TEST_CASE("7.5 journal check: retired before it is released") {
  hand h;
  h.lend(1), h.submit(1);
  breaks(h, "7.5", h.arbiter(kind::claim_retired, {.operation = sid(2), .other = sid(2)}));
}

TEST_CASE("7.10 journal check: slots are conserved") {
  hand h;
  h.lend(1);
  const journal_record back{.lease = sid(1), .other = 4, .value = 4};
  SUBCASE("twice back") {
    h.lender(kind::lease_withdrawn, {.lease = sid(1)});
    h.lender(kind::slots_freed, back);
    breaks(h, "7.10", h.lender(kind::slots_freed, back));
  }
  SUBCASE("another's") {
    h.lend(2);
    breaks(h, "7.10", h.lender(kind::slots_freed, {.lease = sid(2), .other = 4, .value = 4}));
  }
}

TEST_CASE("journal check: what is missing is not held against it") {
  hand h;
  h.whole_fetch(1), h.whole_fetch(2), h.whole_fetch(3);
  for (std::size_t from = 1; from < h.records.size(); ++from) {
    const std::vector<journal_record> late(h.records.begin() + static_cast<std::ptrdiff_t>(from),
                                           h.records.end());
    const auto v = check_journal(runtime, late);
    INFO(from << " " << (v.broken ? v.broken->what : std::string{}));
    CHECK_FALSE(v.broken.has_value());
    CHECK_FALSE(v.whole);
  }
}

TEST_CASE("7.10 journal check: a run of slots that no part has") {
  hand h;
  breaks(h, "7.10",
         h.lender(kind::slots_lent, {.lease = sid(1), .other = 0, .value = std::uint64_t{1} << 63}));
}
