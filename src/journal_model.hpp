// The model that a journal is checked against: what has been seen so far of each operation, lease, owner and
// slot. Part of src/journal_check.hpp; one file of steps for the memory, one for the operations, one for the
// clocks.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "messages/contract.hpp"
#include "src/journal_check.hpp"

namespace kvlease {

inline std::string journal_id(std::uint64_t value) { return to_string(operation_id{value}); }

/// What has been seen of one operation.
struct operation_model {
  using number = std::uint64_t;
  number lease = 0, owner = 0, proof = 0;
  direction way = direction::fetch;
  bool granted = false, refused = false, queued = false, entered = false, withdrawn = false, attempt = false;
  bool nothing_submitted = false;  ///< rejected or withdrawn: proof by itself (2.2)
  bool ended = false, finish_asked = false, copies = false, settled = false;
  std::optional<std::uint8_t> value;
  bool registrations = false;
};
struct lease_model {
  using number = std::uint64_t;
  direction way = direction::fetch;
  bool granted = false, ready = false, finishing = false, copied = false, lost = false;
  number slots = 0, copy = 0, guards = 0, place = 0;
};
struct owner_model {
  using number = std::uint64_t;
  number request = 0, span = 0;
  bool registrations = false;
  std::optional<std::int64_t> deadline, drain;
};

struct journal_model {
  using number = std::uint64_t;
  using kind = journal_kind;

  explicit journal_model(incarnation i) : runtime{i} {}

  incarnation runtime;
  std::optional<broken_rule> broken;
  /// Holds unless fatal is latched at the same time: then it was latched first.
  std::optional<broken_rule> suspended;
  std::int64_t suspended_at = 0;
  bool whole = true;
  number count = 0, last = 0;

  std::unordered_map<number, operation_model> operations;
  std::unordered_map<number, lease_model> leases;
  std::unordered_map<number, owner_model> owners;
  std::unordered_map<number, number> by_lease;  ///< lease -> its operation
  std::map<number, number>
      line;  ///< leases that may wait for slots, in their order: by the number of their record
  std::map<std::pair<number, number>, number> lent;          ///< (part, slot) -> lease
  std::map<std::pair<number, number>, number> lost;          ///< quarantined, likewise
  std::unordered_map<number, std::pair<number, bool>> pins;  ///< manager's: pin -> (lease, its copy runs)
  std::unordered_map<number, number> pin_of_lease;
  std::unordered_set<number> registered;
  number newest_operation = 0, newest_lease = 0, newest_proof = 0, newest_copy = 0, newest_registration = 0;
  std::unordered_set<number> holds;
  bool fatal = false, closed = false, shut = false;

  void fail(const journal_record& r, std::string rule, std::string what) {
    if (!broken)
      broken =
          broken_rule{r.sequence, std::move(rule), fmt::format("{}: {}", to_string(r.kind), std::move(what))};
  }
  operation_model* op(const journal_record& r) {
    const auto it = operations.find(r.operation);
    return it == operations.end() ? nullptr : &it->second;
  }
  lease_model* lease(number id) {
    const auto it = leases.find(id);
    return it == leases.end() ? nullptr : &it->second;
  }
  owner_model* owner(number id) {
    const auto it = owners.find(id);
    return it == owners.end() ? nullptr : &it->second;
  }
  number owner_of_lease(number lease) const {
    const auto it = by_lease.find(lease);
    return it == by_lease.end() ? 0 : it->second;
  }
  bool open_operations() const {
    return std::ranges::any_of(operations, [](const auto& o) { return !o.second.registrations; });
  }

  /// Ids rise and are never given twice (7.1).
  bool fresh(const journal_record& r, number id, number& newest, std::string_view what) {
    if (whole && id <= newest) {
      fail(r, "7.1",
           fmt::format("{} {} is not new: {} was given before", what, journal_id(id), journal_id(newest)));
      return false;
    }
    newest = std::max(newest, id);
    return true;
  }
  void check_ids(const journal_record& r) {
    for (const auto id : {r.operation, r.lease, r.request})
      if (id != 0 && operation_id{id}.runtime() != runtime)
        fail(r, "7.1", fmt::format("id {} is of another runtime than {}", journal_id(id), runtime.value));
  }

  // Each of these is one record of its kind.
  void step(const journal_record& r);
  void lender_step(const journal_record& r);
  void adapter_step(const journal_record& r);
  void evidence_step(const journal_record& r, operation_model& o);
  void registration_step(const journal_record& r);
  void arbiter_step(const journal_record& r);
  void clock_step(const journal_record& r);
  void claim_step(const journal_record& r);
  void slots_step(const journal_record& r);
  void manager_step(const journal_record& r);
  void release_step(const journal_record& r, operation_model& o);
};

}  // namespace kvlease
