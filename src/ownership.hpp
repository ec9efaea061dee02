// Owners that several writers share (scenarios 3.5): a sender's operations, one a participant, and a
// receiver's destination that a sealed cohort of writers fills. Both stand on one retirement owner, whose
// claims they hold and settle. Pure; time is an argument. The actors' own operations (src/operation.hpp) need
// neither: these are for hosts whose transfers have several physical owners.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/retirement.hpp"

namespace kvlease {

/// Where the physical side of one sender's operation stands. Only not_submitted and backend_done are drained.
enum class send_state : std::uint8_t {
  admitted,
  not_submitted,
  submitting,
  submitted,
  in_doubt,
  backend_done
};

std::string_view to_string(send_state s) noexcept;

class send_owner {
 public:
  using participant = std::uint64_t;
  /// Asks the retained backend handle whether its access has ended. May throw; nothing but true is a proof.
  using completion_query = std::function<bool()>;

  /// Precondition: `owner` is tracked by `clocks`. Both outlive this object.
  send_owner(retirement& clocks, owner_id owner) : clocks_{clocks}, owner_{owner} {}
  /// The roots of what is unproven stay alive until the process ends, on purpose (7.3).
  ~send_owner();
  send_owner(const send_owner&) = delete;
  send_owner& operator=(const send_owner&) = delete;

  /// False when the participant is known already.
  bool begin(participant who, claim_id claim);
  /// Exposes the operation, then keeps `root`. Errors: unknown; state "admission is closed", and the
  /// operation is not submitted; state when it is under way.
  result<void> submit(time_point now, participant who, std::shared_ptr<void> root);
  /// The backend took it: `done` is asked from now on. Errors: unknown, state.
  result<void> submitted(participant who, completion_query done);
  /// Nothing can be said of the backend's access: roots stay, drain starts. Repeatable.
  void in_doubt(time_point now, participant who);
  /// Nothing was submitted. Idempotent. Errors: unknown; state once it was.
  result<void> retire_unsubmitted(participant who);
  /// The backend said done. False, and in doubt, when the claim can't be settled.
  bool retire_done(time_point now, participant who);
  /// What to ask about an operation in doubt. The asking may block: it happens outside this object, and the
  /// answer counts at the time that it comes back.
  std::optional<completion_query> ask(participant who) const;
  /// True: the operation's roots are dropped. False unless it is in doubt still.
  bool answered(time_point now, participant who, bool done);
  /// Both in one, for a query that takes no time. What it throws is no proof.
  bool poll_in_doubt(time_point now, participant who);

  bool drained(time_point now);
  std::optional<send_state> state(participant who) const;

 private:
  struct op {
    claim_id claim;
    send_state at = send_state::admitted;
    std::shared_ptr<void> root;
    completion_query done;
  };
  op* find(participant who);
  bool finish(time_point now, op& o);

  retirement& clocks_;
  owner_id owner_;
  std::map<participant, op> ops_;
};

/// One destination and its writers. A writer is a rank; the cohort is sealed once, before or after
/// publication.
class receive_owner {
 public:
  using rank = std::int64_t;
  /// What a writer's report brought.
  struct reported {
    bool accepted = false;
    bool all_succeeded = false;
    friend bool operator==(const reported&, const reported&) = default;
  };

  receive_owner(retirement& clocks, owner_id owner, claim_id claim)
      : clocks_{clocks}, owner_{owner}, claim_{claim} {}

  /// Exposes the destination; once. False when refused or begun before. Its end is finish or abort.
  bool begin_publication(time_point now);
  /// All of them in one exposure, or none. Precondition: they share one retirement owner.
  static bool begin_publication(time_point now, std::span<receive_owner* const> together);
  /// `count` writers, who they are, and who might have been chosen. Resealing alike is a no-op.
  /// Errors: invalid for a negative count, members that are not `count`, candidates that are fewer or do not
  /// cover them; state for another seal, and where a rank that it leaves out has reported: the evidence is
  /// invalid then.
  result<void> seal(std::int64_t count, std::set<rank> members, std::set<rank> candidates);
  void finish_publication(time_point now);
  /// The publication stopped: only the writers that were reached can still write.
  void abort_publication(time_point now, const std::set<rank>& reached);
  /// Nobody will be told of the destination. Ignored from begin_publication on: somebody may have been.
  void cancel_unpublished(time_point now);

  // Evidence about an owner that the clocks have closed is ignored.

  /// A writer's word. Duplicates: not accepted. Errors: state for a contradiction, a rank outside the cohort
  /// or a report before publication; the evidence is invalid then, and the destination retained.
  result<reported> writer_result(time_point now, rank who, bool succeeded, bool wait_for_local_copy);
  /// First time true: retains and drains.
  bool writer_in_doubt(time_point now, rank who);
  /// Ends a writer in doubt as failed. False for any other.
  bool writer_settled(time_point now, rank who);
  /// Proof that the rank will not write any more, without a result. Ignored before publication, of which it
  /// says nothing, and from a candidate that was not chosen. Errors: state for a rank that nobody knows.
  result<void> session_quiesced(time_point now, rank who);
  /// Repeatable.
  void finish_local_completion(time_point now);

  bool drained() const;
  bool local_completion_pending() const noexcept { return local_pending_; }
  bool evidence_valid() const noexcept { return valid_; }
  bool claim_held() const noexcept { return claimed_; }
  /// Every writer was told and has succeeded. Says nothing of access or local copies.
  bool all_succeeded() const;
  bool begun() const noexcept { return exposed_; }
  bool publishing() const noexcept { return publishing_; }
  bool knows(rank who) const { return members_.contains(who) || candidates_.contains(who); }
  const std::set<rank>& members() const noexcept { return members_; }

 private:
  bool tracked() const { return clocks_.view(owner_).has_value(); }
  bool all_reported_success() const;
  void retain(time_point now, const std::string& reason);
  error invalidate(time_point now, const std::string& what);
  void settle_when_drained(time_point now);

  retirement& clocks_;
  owner_id owner_;
  claim_id claim_;
  bool exposed_ = false, publishing_ = false, published_ = false, unpublished_ = false;
  bool sealed_ = false, valid_ = true, claimed_ = false;
  bool local_wanted_ = false, local_pending_ = false;
  std::set<rank> members_, candidates_;
  std::map<rank, bool> results_;
  std::set<rank> quiesced_, doubted_;
};

}  // namespace kvlease
