// Retirement deadlines (semantics 4, scenarios 3.1-3.4): the request clock, then the grace clock, and the
// fatal latch that covers the whole runtime. Pure: time is an argument, and every call first commits what
// has elapsed by it (4.2). Owned by the deadline arbiter; not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/contract.hpp"
#include "messages/ids.hpp"
#include "messages/retirement.hpp"

namespace kvlease {

/// Something that memory may still be touched by; compared by identity. An operation is one.
using claim_id = operation_id;

class retirement {
 public:
  explicit retirement(incarnation of) : owners_drawn_{of} {}

  // Each call below commits elapsed timeouts first; what that and the call brought about is in
  // take_events(), in order.

  /// Errors: state "admission is closed" after fatal, shutdown or stop.
  result<owner_id> create_owner(time_point now, request_id request, direction way, transfer_timeout timeout);
  /// Retains `claims` before anything can escape; the first exposure starts the request clock. False when the
  /// owner is unknown, closed, complete or draining, or fatal has won (4.1).
  bool expose(time_point now, owner_id owner, const std::vector<claim_id>& claims);
  /// Seals successful delivery (4.6).
  void complete_pieces(time_point now, owner_id owner);
  bool is_complete(time_point now, owner_id owner);
  /// Starts drain unless it runs: grace is the owner's timeout from now, never reset (4.4, 4.5).
  void request_drain(time_point now, owner_id owner, const std::string& reason);
  /// May `claim` be released? False once fatal (4.7). Idempotent before.
  bool settle(time_point now, owner_id owner, claim_id claim);
  /// Puts a disputed claim back under the clock (4.7). Ignored for a closed owner.
  void retain_unproven(time_point now, owner_id owner, claim_id claim, const std::string& reason);
  bool can_retire(time_point now, owner_id owner);
  /// False while a claim is held or fatal; else the owner is no longer tracked. Repeatable.
  bool close(time_point now, owner_id owner);

  /// Commits all that has elapsed.
  void advance(time_point now);
  /// Closes admission for good and starts drain, "shutdown", on every owner (4.10).
  void request_shutdown(time_point now);
  /// Errors: state "retained owners", which lists them (4.10).
  result<void> stop(time_point now);

  std::vector<retirement_event> take_events();
  /// When advance() will next have something to do.
  std::optional<time_point> next_deadline() const;
  const std::optional<fatal_record>& fatal() const noexcept { return fatal_; }
  bool admission_open() const noexcept { return !closed_ && !fatal_; }

  struct owner_view {
    owner_id owner;
    request_id request;
    direction way;
    std::optional<time_point> request_deadline;
    std::optional<time_point> drain_started;
    std::optional<time_point> fatal_at;
    std::string reason;
    std::size_t claims = 0;
  };
  std::optional<owner_view> view(owner_id owner) const;
  std::vector<owner_view> owners() const;
  /// At most `most` owners behind `after`, by id.
  std::vector<owner_view> owners(owner_id after, std::size_t most) const;
  /// The one whose grace ends first, of those that drain: fatal expiry is due then, for all. Empty: none
  /// drains with a claim, or fatal has been latched.
  std::optional<owner_view> first_grace() const;
  std::size_t tracked() const noexcept { return owners_.size(); }

 private:
  struct owner_state {
    request_id request;
    direction way;
    transfer_timeout timeout;
    std::optional<time_point> request_deadline;
    std::optional<time_point> drain_started;
    std::string reason;
    std::set<claim_id> claims;
    bool pieces_complete = false;
    bool request_expired = false;
    std::optional<time_point> armed;  ///< this owner's entry in deadlines_
    std::optional<time_point> grace;  ///< and in graces_
  };

  owner_state* find(owner_id owner);
  owner_view view_of(owner_id owner, const owner_state& o) const;
  /// The next boundary of `o`, or none (scenarios 3.2).
  std::optional<time_point> boundary(const owner_state& o) const;
  void rearm(owner_id id, owner_state& o);
  static std::optional<time_point> end_of_grace(const owner_state& o);
  void check(time_point now, owner_id id, owner_state& o);
  void start_drain(time_point at, owner_id id, owner_state& o, const std::string& reason);

  id_source<owner_id> owners_drawn_;
  std::map<owner_id, owner_state> owners_;  ///< in order, so that slices of it can be shown
  std::set<std::pair<time_point, owner_id>> deadlines_;
  std::set<std::pair<time_point, owner_id>> graces_;  ///< ends of graces alone, to be shown
  std::optional<fatal_record> fatal_;
  std::vector<retirement_event> events_;
  bool closed_ = false;
  bool stopped_ = false;
};

}  // namespace kvlease
