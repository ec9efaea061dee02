// Journals written by hand, for the tests of their checker.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "messages/contract.hpp"
#include "src/journal_check.hpp"

namespace kvlease::test {

using kind = journal_kind;

inline constexpr std::int64_t second = 1'000'000'000;
inline constexpr std::uint64_t span = 5 * second;
inline constexpr incarnation runtime{7};

inline std::uint64_t sid(std::uint64_t n) { return (std::uint64_t{runtime.value} << id_sequence_bits) + n; }

/// Writes a journal as a runtime would; a test leaves out, repeats or adds a record.
struct hand {
  std::vector<journal_record> records;
  std::int64_t at = second;
  std::uint64_t copies = 0;
  std::vector<kind> without;  ///< kinds that are left out from now on

  std::uint64_t add(actor_kind from, kind k, journal_record r = {}) {
    for (const auto w : without)
      if (w == k) return 0;
    r.kind = k;
    r.from = from;
    r.at = at += 1000;
    r.sequence = records.size() + 1;
    records.push_back(r);
    return r.sequence;
  }
  std::uint64_t lender(kind k, journal_record r = {}) { return add(actor_kind::lender, k, r); }
  std::uint64_t adapter(kind k, journal_record r = {}) { return add(actor_kind::adapter, k, r); }
  std::uint64_t arbiter(kind k, journal_record r = {}) { return add(actor_kind::deadline_arbiter, k, r); }
  std::uint64_t manager(kind k, journal_record r = {}) { return add(actor_kind::manager, k, r); }
  std::uint64_t worker(kind k, journal_record r = {}) { return add(actor_kind::backend, k, r); }

  hand() {
    add(actor_kind::adapter, kind::actor_up);
    arbiter(kind::registrations_tracked, {.operation = sid(1), .other = sid(1), .value = span});
    lender(kind::hold_taken, {.other = sid(1)});
    adapter(kind::registration_started, {.operation = sid(1), .other = sid(1)});
    adapter(kind::registration_made, {.operation = sid(1), .other = sid(1)});
  }

  // Things are numbered alike: lease n, operation n + 1, owner n + 1, slots from 4 n.
  void lend(std::uint64_t n, direction way = direction::fetch) {
    lender(kind::lease_opened,
           {.detail = static_cast<std::uint8_t>(way), .lease = sid(n), .request = sid(1)});
    lender(kind::lease_granted, {.lease = sid(n), .value = 4});
    lender(kind::slots_lent, {.lease = sid(n), .other = 4 * n, .value = 4});
    if (way == direction::publish) copy(n);
    lender(kind::lease_ready, {.lease = sid(n), .request = sid(1)});
  }
  void copy(std::uint64_t n) {
    const auto number = ++copies;
    manager(kind::rows_pinned, {.lease = sid(n), .request = sid(1), .other = sid(number), .value = 4});
    lender(kind::copy_started, {.lease = sid(n), .other = sid(number), .value = 4});
    lender(kind::copy_completed, {.lease = sid(n), .other = sid(number)});
    lender(kind::lease_unpinned, {.lease = sid(n), .other = sid(number)});
    manager(kind::rows_unpinned, {.other = sid(number)});
  }
  void admit(std::uint64_t n, direction way = direction::fetch) {
    adapter(kind::operation_admitted, {.detail = static_cast<std::uint8_t>(way),
                                       .operation = sid(n + 1),
                                       .lease = sid(n),
                                       .request = sid(1)});
  }
  void expose(std::uint64_t n) {
    arbiter(kind::exposed, {.operation = sid(n + 1), .other = sid(n + 1), .value = span});
  }
  void run(std::uint64_t n) {
    adapter(kind::submission_queued, {.operation = sid(n + 1)});
    worker(kind::submission_entered, {.operation = sid(n + 1)});
    adapter(kind::submission_accepted, {.operation = sid(n + 1)});
    adapter(kind::proof_started, {.operation = sid(n + 1), .other = sid(n)});
  }
  void submit(std::uint64_t n, direction way = direction::fetch) {
    admit(n, way);
    expose(n);
    run(n);
  }
  std::uint64_t decide(std::uint64_t n, outcome_detail d = outcome_detail::delivered) {
    return arbiter(kind::outcome_committed,
                   {.detail = static_cast<std::uint8_t>(d), .operation = sid(n + 1), .other = sid(n + 1)});
  }
  std::uint64_t end_access(std::uint64_t n) {
    return adapter(kind::access_ended, {.operation = sid(n + 1), .other = sid(n)});
  }
  void finish(std::uint64_t n, std::uint64_t rows = 4) {
    adapter(kind::lease_finish_asked, {.operation = sid(n + 1), .lease = sid(n), .value = rows});
    lender(kind::lease_finishing, {.lease = sid(n)});
    copy(n);
    adapter(kind::copies_ended, {.operation = sid(n + 1), .lease = sid(n)});
  }
  std::uint64_t settle(std::uint64_t n) {
    return arbiter(kind::claim_settled, {.operation = sid(n + 1), .other = sid(n + 1)});
  }
  std::uint64_t release(std::uint64_t n) {
    const auto first = adapter(kind::operation_released, {.operation = sid(n + 1), .lease = sid(n)});
    lender(kind::lease_returned, {.lease = sid(n)});
    lender(kind::slots_freed, {.lease = sid(n), .other = 4 * n, .value = 4});
    arbiter(kind::claim_retired, {.operation = sid(n + 1), .other = sid(n + 1)});
    return first;
  }
  void whole_fetch(std::uint64_t n) {
    lend(n);
    submit(n);
    decide(n);
    end_access(n);
    finish(n);
    settle(n);
    release(n);
  }
  void close() {
    adapter(kind::registration_closing, {.operation = sid(1), .other = sid(1)});
    adapter(kind::registration_closed, {.operation = sid(1), .other = sid(1)});
    arbiter(kind::claim_settled, {.operation = sid(1), .other = sid(1)});
    lender(kind::hold_released, {.other = sid(1)});
    arbiter(kind::claim_retired, {.operation = sid(1), .other = sid(1)});
  }
  journal_verdict verdict() const { return check_journal(runtime, records); }
};

inline void keeps(const hand& h) {
  const auto v = h.verdict();
  INFO((v.broken ? v.broken->rule + " " + v.broken->what : std::string{}));
  CHECK_FALSE(v.broken.has_value());
  CHECK(v.whole);
  CHECK(v.records == h.records.size());
}

inline void breaks(const hand& h, const std::string& rule, std::uint64_t at) {
  const auto v = h.verdict();
  REQUIRE(v.broken.has_value());
  INFO(v.broken->what);
  CHECK(v.broken->rule == rule);
  CHECK(v.broken->sequence == at);
  CHECK(v.broken->what.starts_with(to_string(h.records.at(at - 1).kind)));
}

inline std::uint64_t drain(hand& h, std::uint64_t n, drain_cause why, std::int64_t from) {
  return h.arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(why),
                                         .operation = sid(n + 1),
                                         .other = sid(n + 1),
                                         .value = static_cast<std::uint64_t>(from)});
}

}  // namespace kvlease::test
