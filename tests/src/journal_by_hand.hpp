// Journals written by hand, for the tests of their checker.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
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
    for (const auto k : {actor_kind::manager, actor_kind::lender, actor_kind::adapter, actor_kind::backend,
                         actor_kind::proof_collector, actor_kind::deadline_arbiter, actor_kind::cuda,
                         actor_kind::supervisor, actor_kind::inspector})
      add(k, kind::actor_up, {.value = static_cast<std::uint64_t>(k)});
    lender(kind::slots_freed, {.value = 64});  // the pool as it begins
    manager(kind::request_admitted, {.request = sid(1)});
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
    if (way == direction::publish) copy(n, way);
    lender(kind::lease_ready, {.lease = sid(n), .request = sid(1)});
    if (way == direction::publish) manager(kind::rows_unpinned, {.other = sid(copies)});
  }
  void copy(std::uint64_t n, direction way) {
    const auto number = ++copies;
    manager(kind::rows_pinned, {.lease = sid(n), .request = sid(1), .other = sid(number), .value = 4});
    lender(kind::copy_started,
           {.detail = static_cast<std::uint8_t>(way), .lease = sid(n), .other = sid(number), .value = 4});
    lender(kind::copy_completed, {.lease = sid(n), .other = sid(number)});
    lender(kind::lease_unpinned, {.lease = sid(n), .other = sid(number)});
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
  /// A record of operation n + 1 that names all that it has.
  std::uint64_t of(kind k, std::uint64_t n, std::uint64_t other = 0) {
    return adapter(
        k, {.operation = sid(n + 1), .lease = sid(n), .request = sid(1), .other = other ? sid(other) : 0});
  }
  void run(std::uint64_t n) {
    of(kind::submission_queued, n);
    worker(kind::submission_entered, {.operation = sid(n + 1)});
    of(kind::submission_accepted, n);
    adapter(kind::proof_started, {.operation = sid(n + 1), .other = sid(n)});
  }
  void submit(std::uint64_t n, direction way = direction::fetch) {
    admit(n, way);
    expose(n);
    run(n);
  }
  /// An outcome that the provider reports, or that it does not: then the host or the clock brings it about.
  std::uint64_t decide(std::uint64_t n, outcome_detail d = outcome_detail::delivered) {
    const bool served = d == outcome_detail::delivered;
    if (served || d == outcome_detail::failed) report(n, d);
    return arbiter(kind::outcome_committed, {.detail = static_cast<std::uint8_t>(d),
                                             .operation = sid(n + 1),
                                             .other = sid(n + 1),
                                             .value = served ? 4U : 0U});
  }
  std::uint64_t report(std::uint64_t n, outcome_detail d) {
    return adapter(kind::outcome_reported, {.detail = static_cast<std::uint8_t>(d),
                                            .operation = sid(n + 1),
                                            .value = d == outcome_detail::delivered ? 4U : 0U});
  }
  /// An outcome that is no success: drain starts, and the provider is asked to stop.
  void fail(std::uint64_t n, outcome_detail d = outcome_detail::failed) {
    decide(n, d);
    drain(n, drain_cause::unsuccessful);
    adapter(kind::cancel_asked, {.operation = sid(n + 1)});
  }
  std::uint64_t drain(std::uint64_t n, drain_cause why, std::optional<std::int64_t> from = std::nullopt) {
    return arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(why),
                                         .operation = sid(n + 1),
                                         .other = sid(n + 1),
                                         .value = static_cast<std::uint64_t>(from.value_or(at + 1000))});
  }
  std::uint64_t end_access(std::uint64_t n) { return of(kind::access_ended, n, n); }
  std::uint64_t dispute(std::uint64_t n) {
    const auto first = of(kind::access_disputed, n, n);
    arbiter(kind::claim_retained, {.operation = sid(n + 1), .other = sid(n + 1)});
    return first;
  }
  /// Marks, up to what the lender notes of it.
  void mark(std::uint64_t n, std::uint64_t rows = 4, std::uint64_t guards = 0) {
    lender(kind::lease_awaiting, {.lease = sid(n)});
    adapter(kind::lease_finish_asked, {.operation = sid(n + 1), .lease = sid(n), .value = rows});
    lender(kind::lease_finishing, {.lease = sid(n), .value = guards});
  }
  void finish(std::uint64_t n, std::uint64_t rows = 4) {
    mark(n, rows);
    if (rows > 0) copy(n, direction::fetch);
    if (rows > 0) manager(kind::rows_unpinned, {.other = sid(copies)});
    of(kind::copies_ended, n);
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
    arbiter(kind::admission_closed);
    arbiter(kind::drain_started, {.detail = static_cast<std::uint8_t>(drain_cause::shutdown),
                                  .operation = sid(1),
                                  .other = sid(1),
                                  .value = static_cast<std::uint64_t>(at + 1000)});
    arbiter(kind::claim_retained, {.operation = sid(1), .other = sid(1)});
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

}  // namespace kvlease::test
