// The model that a journal is checked against: what has been seen so far of each actor, request, lease,
// operation, owner and slot. Part of src/journal_check.hpp; one file of steps for each actor that writes.
//
// Three things make a record due, or out of place:
//   - the state of what it is about;
//   - what its actor noted before it: an actor handles one message at a time, so what a message brings about
//     stands together in that actor's records (owed);
//   - what another actor sent: messages between two actors arrive in the order in which they were sent, and
//     a sender notes before it sends (the lines).
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "messages/contract.hpp"
#include "src/journal_check.hpp"

namespace kvlease {

inline std::string journal_id(std::uint64_t value) { return to_string(operation_id{value}); }

/// What has been seen of one operation.
struct operation_model {
  using number = std::uint64_t;
  /// Of its access, as the adapter has it.
  enum class phase : std::uint8_t { exposing, queued, running, disputed, escaped, ended };
  number lease = 0, request = 0, owner = 0, proof = 0, served = 0, reported_served = 0;
  direction way = direction::fetch;
  phase access = phase::exposing;
  bool granted = false, refused = false, entered = false, attempt = false;
  bool rejected = false, withdrawn = false;  ///< proof by itself (2.2)
  bool reported_any = false, cancel_asked = false, finish_asked = false;
  bool copies = false, copies_lost = false, settled = false, claim_refused = false, released = false;
  std::optional<std::uint8_t> value, reported;
  std::int64_t last = 0;  ///< the time of what its next record follows from
  number copies_at = 0;   ///< the record of their end: the settlement was asked for right behind it
  bool ended() const noexcept { return access == phase::ended; }
  bool delivered() const noexcept { return value == static_cast<std::uint8_t>(outcome_detail::delivered); }
};

struct slots_model {
  std::uint64_t part = 0, first = 0, count = 0;
  friend bool operator==(const slots_model&, const slots_model&) = default;
};
struct lease_model {
  using number = std::uint64_t;
  enum class phase : std::uint8_t { waiting, pinning, copying, ready, marking, marking_copy, done, lost };
  number request = 0, operation = 0, place = 0, slots = 0, rows = 0, pin = 0, pinned = 0, copy = 0;
  direction way = direction::fetch;
  phase at = phase::waiting;
  bool doomed = false;  ///< its holder was told that it fails
  bool awaiting = false, finishing = false;
  number guards = 0;
  std::vector<slots_model> runs;
};
struct owner_model {
  using number = std::uint64_t;
  number request = 0, span = 0, operation = 0;
  bool registrations = false, claim = false, complete = false, expired = false, retained = false;
  std::optional<std::int64_t> deadline, drain;
  std::optional<std::int64_t> armed;  ///< its entry in journal_model::due
};
/// The staging parts, from the hold to the last deregistration.
struct registrations_model {
  using number = std::uint64_t;
  number claim = 0, owner = 0, hold = 0, opening = 0, closing = 0;
  std::vector<number> live;
  bool held = false, failed = false, complete = false, retained = false, settled = false;
};

struct journal_model {
  using number = std::uint64_t;
  using kind = journal_kind;
  static constexpr std::size_t actors = static_cast<std::size_t>(actor_kind::inspector) + 1;

  explicit journal_model(incarnation i) : runtime{i} {}

  incarnation runtime;
  std::optional<broken_rule> broken;
  bool whole = true;
  number count = 0, last = 0;

  // ---- actors
  std::array<bool, actors> up{}, down{};
  std::array<std::int64_t, actors> latest{};  ///< time of its last record
  std::int64_t newest = 0;                    ///< of all
  number stops_asked = 0;

  // ---- what there is
  std::map<number, bool> requests;  ///< freed?
  std::unordered_map<number, operation_model> operations;
  std::size_t open_operations = 0;
  std::unordered_map<number, lease_model> leases;
  std::unordered_map<number, owner_model> owners;
  registrations_model registrations;
  std::vector<number> pool;                          ///< slots a part
  std::map<number, number> line;                     ///< leases that wait for slots, by place
  std::map<std::pair<number, number>, number> lent;  ///< (part, slot) -> lease
  std::map<std::pair<number, number>, number> lost;  ///< quarantined, likewise
  struct pin_model {
    number lease = 0;
    bool given_up = false;
  };
  std::unordered_map<number, pin_model> pins;
  std::set<number> climbed_proofs;  ///< for which a rung of the ladder was climbed
  number newest_request = 0, newest_operation = 0, newest_lease = 0, newest_proof = 0, newest_copy = 0,
         newest_registration = 0, newest_pin = 0, newest_hold = 0, newest_owner = 0;
  bool fatal = false, closed = false, shut = false, stopped = false;

  // ---- the lines: what was sent and has not shown at its receiver
  struct sent {
    kind what;  ///< the record that will show it
    number about = 0;
    std::int64_t at = 0;
    number sequence = 0;  ///< of the record that told of it
  };
  std::deque<sent> to_manager, to_lender, to_arbiter;

  // ---- owed: what must stand next in an actor's records
  struct due_record {
    kind what;
    number about = 0;  ///< lease or operation
    number other = 0;  ///< pin, or first slot
    number value = 0;  ///< slots
    number part = 0;
    bool others_first = false;  ///< leases that wait may fail or be granted before
    std::string_view rule = "7.1";
  };
  std::deque<due_record> lender_owes, adapter_owes, arbiter_owes;
  kind lender_last = kind::actor_up;
  number lender_last_lease = 0;

  // ---- the clocks
  std::set<std::pair<std::int64_t, number>> due;  ///< (when, owner)
  std::set<number> drains_due;                    ///< owners whose drain has to start now
  bool fatal_due = false;                         ///< an outcome that only fatal expiry explains
  bool shutdown_due = false;

  void fail(const journal_record& r, std::string_view rule, std::string what) {
    if (!broken)
      broken = broken_rule{r.sequence, std::string{rule},
                           fmt::format("{}: {}", to_string(r.kind), std::move(what))};
  }
  operation_model* op(number id) {
    const auto it = operations.find(id);
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
  /// The lender has noted all that the last message about the lease has brought about; it tells others
  /// behind.
  bool lender_is_done_with(number id) const {
    for (const auto& d : lender_owes)
      if (d.about == id) return false;
    return true;
  }
  /// Where records are missing, an actor may have ended unseen.
  bool may_be_down(actor_kind k) const { return !whole || down[static_cast<std::size_t>(k)]; }
  bool is_up(actor_kind k) const { return !whole || up[static_cast<std::size_t>(k)]; }

  /// Ids rise and are never given twice (7.1); `consecutive`: each one drawn is noted.
  bool fresh(const journal_record& r, number id, number& newest_one, std::string_view what,
             bool consecutive = true);
  /// `r`, or what it is an answer `as`, is the next in the line. False, and a rule is broken, where another
  /// was sent before it.
  bool arrives(const journal_record& r, std::deque<sent>& line_of, number about, std::string_view rule,
               std::optional<kind> as = std::nullopt);
  /// `r` is among what its actor owes, and is that next. False, and a rule is broken, where another is due.
  /// `was_due` is set when `r` paid.
  bool pays(const journal_record& r, std::deque<due_record>& owes, number about, bool& was_due);
  /// The record names what its operation or lease has.
  bool names_its_own(const journal_record& r, const operation_model& o);

  // Each of these is one record of its writer.
  void step(const journal_record& r);
  void time_step(const journal_record& r);
  void actors_step(const journal_record& r);
  void manager_step(const journal_record& r);
  void lender_step(const journal_record& r);
  void adapter_step(const journal_record& r);
  void arbiter_step(const journal_record& r);

  // ---- of the lender
  void lease_step(const journal_record& r, lease_model& l, bool was_due);
  void fail_step(const journal_record& r, lease_model& l, bool was_due);
  void withdraw_step(const journal_record& r, lease_model& l);
  void finish_step(const journal_record& r, lease_model& l);
  void copy_step(const journal_record& r, lease_model& l);
  void unpin_step(const journal_record& r, lease_model& l, bool was_due);
  void slots_step(const journal_record& r, lease_model* l, bool was_due);
  void pool_step(const journal_record& r);
  void lose(number id, lease_model& l);
  void owe_slots(kind what, number id, const lease_model& l, std::string_view rule);
  void close_lease(number id);
  void hold_step(const journal_record& r);
  // ---- of the adapter
  void admit_step(const journal_record& r);
  void registration_step(const journal_record& r);
  void access_step(const journal_record& r, operation_model& o);
  void evidence_step(const journal_record& r, operation_model& o);
  void copies_step(const journal_record& r, operation_model& o);
  void release_step(const journal_record& r, operation_model& o);
  // ---- of the arbiter
  void clock_step(const journal_record& r);
  void expose_step(const journal_record& r);
  void drain_step(const journal_record& r);
  void fatal_step(const journal_record& r);
  void outcome_step(const journal_record& r);
  void claim_step(const journal_record& r);
  bool overtakes_none(const journal_record& r, number asked);
  void elapsed_step(const journal_record& r);
  void rearm(number id);
  /// `at` + `span`, at most the last time that there is.
  static std::int64_t later(std::int64_t at, number span);
};

}  // namespace kvlease
