// The checker against journals written by hand, continued: rules 6 and 7, the form of records, what is
// missing.
#include <doctest/doctest.h>

#include "tests/src/journal_by_hand.hpp"

using namespace kvlease;
using namespace kvlease::test;

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
    h.lender(kind::lease_ready, {.lease = sid(3), .request = sid(1)});
    h.lender(kind::lease_failed, {.lease = sid(1)});
    h.lender(kind::lease_granted, {.lease = sid(2), .value = 4});
    keeps(h);
  }
  SUBCASE("one that needs no slots has waited") {
    open(1), open(2);
    breaks(h, "6.2", h.lender(kind::lease_granted, {.lease = sid(1)}));
  }
  SUBCASE("a slot that is lent") {
    h.lend(1);
    open(2);
    h.lender(kind::lease_granted, {.lease = sid(2), .value = 4});
    breaks(h, "6.2", h.lender(kind::slots_lent, {.lease = sid(2), .other = 7, .value = 4}));
  }
  SUBCASE("more than were granted") {
    open(1);
    h.lender(kind::lease_granted, {.lease = sid(1), .value = 4});
    h.lender(kind::slots_lent, {.lease = sid(1), .other = 4, .value = 2});
    breaks(h, "6.2", h.lender(kind::slots_lent, {.lease = sid(1), .other = 6, .value = 2}));
  }
  SUBCASE("granted twice") {
    h.lend(1);
    breaks(h, "6.2", h.lender(kind::lease_granted, {.lease = sid(1), .value = 4}));
  }
  SUBCASE("a lease that is ready fails") {
    h.lend(1);
    breaks(h, "6.2", h.lender(kind::lease_failed, {.lease = sid(1)}));
  }
}

TEST_CASE("6.4 journal check: a pin stays until the copy is complete") {
  hand h;
  const auto pinned = [&h](std::uint64_t pin, std::uint64_t rows = 4) {
    return h.manager(kind::rows_pinned,
                     {.lease = sid(1), .request = sid(1), .other = sid(pin), .value = rows});
  };
  h.lend(1), h.submit(1), h.decide(1), h.end_access(1);
  SUBCASE("pinned unasked") { breaks(h, "6.4", pinned(1)); }
  h.mark(1);
  SUBCASE("of the engine's own") {
    SUBCASE("kept") {
      h.manager(kind::rows_pinned, {.request = sid(1), .other = sid(1), .value = 2});
      h.manager(kind::rows_kept_pinned, {.other = sid(1)});
      keeps(h);
      SUBCASE("and gone") { breaks(h, "6.4", h.manager(kind::rows_unpinned, {.other = sid(1)})); }
    }
    SUBCASE("no rows") {
      breaks(h, "6.4", h.manager(kind::rows_pinned, {.request = sid(1), .other = sid(1)}));
    }
  }
  SUBCASE("more rows than were asked for") { breaks(h, "6.4", pinned(1, 5)); }
  SUBCASE("rows of a request that was freed") {
    h.manager(kind::request_freed, {.request = sid(1)});
    SUBCASE("none") {
      pinned(1, 0);
      h.lender(kind::lease_unpinned, {.lease = sid(1), .other = sid(1)});
      keeps(h);
    }
    SUBCASE("some") { breaks(h, "6.4", pinned(1)); }
  }
  SUBCASE("copied unpinned") {
    breaks(h, "6.4", h.lender(kind::copy_started, {.lease = sid(1), .other = sid(1), .value = 4}));
  }
  pinned(1);
  SUBCASE("copied, and its holder is gone") {
    hand p;
    p.without = {kind::copy_started, kind::copy_completed, kind::lease_unpinned, kind::rows_unpinned,
                 kind::lease_ready};
    p.lend(1, direction::publish);
    p.without.clear();
    p.lender(kind::lease_withdrawn, {.lease = sid(1)});
    p.lender(kind::lease_failed, {.lease = sid(1)});
    breaks(p, "6.4",
           p.lender(kind::copy_started, {.detail = 1, .lease = sid(1), .other = sid(1), .value = 4}));
  }
  SUBCASE("fewer copied than pinned") {
    breaks(h, "6.4", h.lender(kind::copy_started, {.lease = sid(1), .other = sid(1), .value = 3}));
  }
  SUBCASE("it goes, and nothing was copied") {
    breaks(h, "6.4", h.lender(kind::lease_unpinned, {.lease = sid(1), .other = sid(1)}));
  }
  h.lender(kind::copy_started, {.lease = sid(1), .other = sid(1), .value = 4});
  SUBCASE("at the lender") {
    breaks(h, "6.4", h.lender(kind::lease_unpinned, {.lease = sid(1), .other = sid(1)}));
  }
  SUBCASE("at the manager") { breaks(h, "6.4", h.manager(kind::rows_unpinned, {.other = sid(1)})); }
  SUBCASE("kept by the manager") { breaks(h, "6.4", h.manager(kind::rows_kept_pinned, {.other = sid(1)})); }
  SUBCASE("another's") {
    h.lender(kind::copy_completed, {.lease = sid(1), .other = sid(1)});
    breaks(h, "6.4", h.lender(kind::lease_unpinned, {.lease = sid(1), .other = sid(2)}));
  }
  SUBCASE("lost: for good") {
    h.lender(kind::copy_lost, {.lease = sid(1), .other = sid(1)});
    breaks(h, "6.4", h.manager(kind::rows_unpinned, {.other = sid(1)}));
  }
}

TEST_CASE("6.5 journal check: slots whose copy is not complete") {
  hand h;
  h.lend(1);
  const journal_record slots{.lease = sid(1), .other = 4, .value = 4};
  SUBCASE("given back while it is under way") {
    hand p;
    p.without = {kind::copy_completed, kind::lease_unpinned, kind::rows_unpinned, kind::lease_ready};
    p.lend(1, direction::publish);
    p.without.clear();
    breaks(p, "6.5", p.lender(kind::slots_freed, slots));
  }
  SUBCASE("quarantined, and nothing was lost") { breaks(h, "6.5", h.lender(kind::slots_quarantined, slots)); }
  SUBCASE("a read whose copy is lost") {
    hand p;
    p.without = {kind::copy_completed, kind::lease_unpinned, kind::rows_unpinned, kind::lease_ready};
    p.lend(1, direction::publish);
    p.without.clear();
    p.lender(kind::copy_lost, {.lease = sid(1), .other = sid(1)});
    p.lender(kind::slots_quarantined, slots);
    SUBCASE("fails") { breaks(p, "6.5", p.lender(kind::lease_opened, {.lease = sid(2), .request = sid(1)})); }
    SUBCASE("and can't be given up") {
      p.lender(kind::lease_failed, {.lease = sid(1)});
      keeps(p);
      breaks(p, "5.2", p.lender(kind::lease_withdrawn, {.lease = sid(1)}));
    }
  }
  SUBCASE("given back, and not returned") { breaks(h, "6.5", h.lender(kind::slots_freed, slots)); }
  SUBCASE("lost") {
    h.submit(1), h.decide(1), h.end_access(1), h.mark(1);
    h.manager(kind::rows_pinned, {.lease = sid(1), .request = sid(1), .other = sid(1), .value = 4});
    h.lender(kind::copy_started, {.lease = sid(1), .other = sid(1), .value = 4});
    h.lender(kind::copy_lost, {.lease = sid(1), .other = sid(1)});
    SUBCASE("and not quarantined") {
      breaks(h, "6.5", h.lender(kind::lease_opened, {.lease = sid(2), .request = sid(1)}));
    }
    h.lender(kind::slots_quarantined, slots);
    SUBCASE("given back though unproven") { breaks(h, "6.5", h.lender(kind::slots_freed, slots)); }
    SUBCASE("lent though quarantined") {
      h.lender(kind::lease_opened, {.lease = sid(2), .request = sid(1)});
      h.lender(kind::lease_granted, {.lease = sid(2), .value = 1});
      breaks(h, "6.5", h.lender(kind::slots_lent, {.lease = sid(2), .other = 5, .value = 1}));
    }
    SUBCASE("disputed twice") {
      h.of(kind::copies_disputed, 1);
      breaks(h, "5.6", h.of(kind::copies_disputed, 1));
    }
  }
  SUBCASE("returned unasked") { breaks(h, "6.5", h.lender(kind::lease_returned, {.lease = sid(1)})); }
}

TEST_CASE("6.7 journal check: the order of a shutdown") {
  hand h;
  h.add(actor_kind::supervisor, kind::stop_asked, {.value = second});
  h.close();
  h.lender(kind::lender_shut);
  SUBCASE("twice") { breaks(h, "6.7", h.lender(kind::lender_shut)); }
  SUBCASE("stopped before the arbiter") {
    breaks(h, "6.7", h.add(actor_kind::supervisor, kind::stop_ended, {.value = 1}));
  }
  SUBCASE("in order") {
    h.arbiter(kind::arbiter_stopped);
    h.add(actor_kind::supervisor, kind::stop_ended, {.value = 1});
    keeps(h);
    SUBCASE("and again, unasked") {
      breaks(h, "7.8", h.add(actor_kind::supervisor, kind::stop_ended, {.value = 1}));
    }
    SUBCASE("the arbiter again") { breaks(h, "4.10", h.arbiter(kind::arbiter_stopped)); }
  }
  SUBCASE("lent behind it") {
    h.lender(kind::lease_opened, {.lease = sid(1), .request = sid(1)});
    breaks(h, "6.7", h.lender(kind::lease_granted, {.lease = sid(1), .value = 4}));
  }
}

TEST_CASE("7.1 journal check: ids rise, are of this runtime, and name what there is") {
  hand h;
  h.whole_fetch(1);
  SUBCASE("a lease again") {
    breaks(h, "7.1", h.lender(kind::lease_opened, {.lease = sid(1), .request = sid(1)}));
  }
  SUBCASE("an operation again") {
    h.lend(2);
    breaks(h, "7.1",
           h.adapter(kind::operation_admitted, {.operation = sid(2), .lease = sid(2), .request = sid(1)}));
  }
  SUBCASE("a pin that leaves one out") {
    breaks(h, "7.1", h.manager(kind::rows_pinned, {.request = sid(1), .other = sid(9), .value = 1}));
  }
  SUBCASE("foreign") { breaks(h, "7.1", h.lender(kind::lease_opened, {.lease = 9, .request = sid(1)})); }
  SUBCASE("foreign, where it is another id") {
    breaks(h, "7.1", h.manager(kind::rows_unpinned, {.other = 9}));
  }
  SUBCASE("none") { breaks(h, "7.1", h.lender(kind::lease_opened, {.request = sid(1)})); }
  SUBCASE("one that its kind does not have") {
    breaks(h, "7.1", h.lender(kind::lender_shut, {.lease = sid(1)}));
  }
  SUBCASE("a number that comes back") {
    h.records.push_back(h.records.back());
    breaks(h, "7.1", h.records.back().sequence);
  }
  SUBCASE("released, and goes on") {
    breaks(h, "7.1", h.adapter(kind::proof_started, {.operation = sid(2), .other = sid(2)}));
  }
  SUBCASE("of another request") {
    h.lend(2), h.admit(2), h.expose(2);
    breaks(h, "7.1",
           h.adapter(kind::submission_queued, {.operation = sid(3), .lease = sid(2), .request = sid(2)}));
  }
  SUBCASE("what there never was") {
    SUBCASE("a request") { breaks(h, "7.1", h.manager(kind::request_freed, {.request = sid(2)})); }
    SUBCASE("a lease") { breaks(h, "7.1", h.lender(kind::lease_awaiting, {.lease = sid(9)})); }
    SUBCASE("an operation") { breaks(h, "7.1", h.of(kind::submission_queued, 8)); }
    SUBCASE("an owner") { breaks(h, "7.1", h.arbiter(kind::owner_closed, {.other = sid(9)})); }
  }
}

TEST_CASE("7.4 journal check: actors are up once, and are silent behind their death") {
  hand h;
  const auto lender = static_cast<std::uint64_t>(actor_kind::lender);
  SUBCASE("up twice") { breaks(h, "7.4", h.lender(kind::actor_up, {.value = lender})); }
  SUBCASE("not up") {
    hand late;
    late.records.erase(late.records.begin());
    for (auto& r : late.records) --r.sequence;
    breaks(late, "7.4", 10);
  }
  h.add(actor_kind::supervisor, kind::actor_down, {.value = lender});
  SUBCASE("down twice") {
    breaks(h, "7.4", h.add(actor_kind::supervisor, kind::actor_down, {.value = lender}));
  }
  SUBCASE("it goes on") { breaks(h, "7.4", h.lender(kind::lender_shut)); }
  SUBCASE("of no actor") { breaks(h, "form", h.add(actor_kind::supervisor, kind::actor_down, {.value = 9})); }
}

TEST_CASE("7.5 journal check: retired before it is released") {
  hand h;
  h.lend(1), h.submit(1);
  breaks(h, "7.5", h.arbiter(kind::claim_retired, {.operation = sid(2), .other = sid(2)}));
}

TEST_CASE("7.7 journal check: a lease that is given up fails, or its slots come back") {
  hand h;
  SUBCASE("one that waits") {
    h.lender(kind::lease_opened, {.lease = sid(1), .request = sid(1)});
    h.lender(kind::lease_withdrawn, {.lease = sid(1)});
    breaks(h, "7.7", h.lender(kind::lease_opened, {.lease = sid(2), .request = sid(1)}));
  }
  SUBCASE("one that is ready") {
    h.lend(1);
    h.lender(kind::lease_withdrawn, {.lease = sid(1)});
    breaks(h, "6.5", h.lender(kind::lease_opened, {.lease = sid(2), .request = sid(1)}));
  }
}

TEST_CASE("7.10 journal check: slots are conserved") {
  hand h;
  SUBCASE("a pool that begins anew") {
    h.lend(1);
    breaks(h, "7.10", h.lender(kind::slots_freed, {.extra = 1, .value = 4}));
  }
  SUBCASE("a part that begins twice") {
    h.records.resize(10);
    breaks(h, "7.10", h.lender(kind::slots_freed, {.value = 64}));
  }
  SUBCASE("slots that no part has") {
    h.lender(kind::lease_opened, {.lease = sid(1), .request = sid(1)});
    h.lender(kind::lease_granted, {.lease = sid(1), .value = 4});
    SUBCASE("behind its end") {
      breaks(h, "7.10", h.lender(kind::slots_lent, {.lease = sid(1), .other = 61, .value = 4}));
    }
    SUBCASE("another part") {
      breaks(h, "7.10", h.lender(kind::slots_lent, {.extra = 1, .lease = sid(1), .value = 4}));
    }
    SUBCASE("a run that no part has") {
      breaks(h, "7.10", h.lender(kind::slots_lent, {.lease = sid(1), .value = std::uint64_t{1} << 63}));
    }
  }
  SUBCASE("slots that are not lent") {
    h.lend(1);
    breaks(h, "7.10", h.lender(kind::slots_freed, {.lease = sid(1), .other = 20, .value = 4}));
  }
  SUBCASE("another lease's slots") {
    h.lend(1), h.lend(2);
    breaks(h, "7.10", h.lender(kind::slots_freed, {.lease = sid(2), .other = 4, .value = 4}));
  }
  SUBCASE("twice back") {
    h.lend(1);
    h.lender(kind::lease_withdrawn, {.lease = sid(1)});
    const journal_record back{.lease = sid(1), .other = 4, .value = 4};
    h.lender(kind::slots_freed, back);
    breaks(h, "7.1", h.lender(kind::slots_freed, back));  // there is no such lease any more
  }
  SUBCASE("another's") {
    h.lend(1), h.lend(2);
    h.lender(kind::lease_withdrawn, {.lease = sid(2)});
    breaks(h, "6.5", h.lender(kind::slots_freed, {.lease = sid(2), .other = 4, .value = 4}));
  }
}

TEST_CASE("journal check: the form of a record") {
  hand h;
  SUBCASE("no kind") { breaks(h, "form", h.lender(static_cast<kind>(journal_kind_count))); }
  SUBCASE("another actor's") { breaks(h, "form", h.adapter(kind::lender_shut)); }
  SUBCASE("no actor") { breaks(h, "form", h.add(static_cast<actor_kind>(9), kind::lender_shut)); }
  SUBCASE("a value that it does not have") { breaks(h, "form", h.lender(kind::lender_shut, {.value = 1})); }
  SUBCASE("a part that it does not have") { breaks(h, "form", h.lender(kind::lender_shut, {.extra = 1})); }
  SUBCASE("a detail that stands for nothing") {
    breaks(h, "form", h.lender(kind::lease_opened, {.detail = 2, .lease = sid(1), .request = sid(1)}));
  }
  SUBCASE("before the start") {
    h.at = -2000;
    breaks(h, "form", h.lender(kind::lender_shut));
  }
  SUBCASE("before its actor's last") {
    h.at -= 20'000;
    breaks(h, "form", h.adapter(kind::registration_closing, {.operation = sid(1), .other = sid(1)}));
  }
  SUBCASE("long before another actor's") {
    h.at += 100 * second;
    h.manager(kind::request_freed, {.request = sid(1)});
    h.at -= 61 * second;
    breaks(h, "form", h.lender(kind::lender_shut));
  }
  SUBCASE("before what it follows from") {
    h.lend(1), h.admit(1);
    h.records.back().at += 5000;
    breaks(h, "form", (h.expose(1), h.records.size()));
  }
  SUBCASE("accepted before it was called") {
    h.lend(1), h.admit(1), h.expose(1);
    h.of(kind::submission_queued, 1);
    h.worker(kind::submission_entered, {.operation = sid(2)});
    h.records.back().at += 5000;
    breaks(h, "form", h.of(kind::submission_accepted, 1));
  }
  SUBCASE("called before it was submitted") {
    h.lend(1), h.admit(1), h.expose(1);
    h.of(kind::submission_queued, 1);
    h.at -= 2000;
    breaks(h, "form", h.worker(kind::submission_entered, {.operation = sid(2)}));
  }
  SUBCASE("a stop that is neither") {
    h.add(actor_kind::supervisor, kind::stop_asked, {.value = second});
    breaks(h, "form", h.add(actor_kind::supervisor, kind::stop_ended, {.value = 2}));
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
