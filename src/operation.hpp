// One operation on leased memory, from submission to release: a pure state machine (semantics 1, 5).
// Events say what other actors reported; effects say what the adapter must do. Any order of events is legal:
// evidence and outcome come as they come, and duplicates change nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "messages/operation.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// Events, named by what has happened.
namespace op_event {
struct granted {};  ///< arbiter: exposure is granted
struct refused {};  ///< arbiter: it is not; the outcome comes by itself
struct accepted {   ///< provider: an attempt exists
  bool cancellable = false;
};
struct rejected {  ///< provider: nothing escaped (2.2)
  std::string reason;
};
struct withdrawn {};  ///< the token was taken back before any worker entered the call
struct escaped {      ///< provider: an error after which no attempt exists
  std::string reason;
};
struct reported {  ///< provider: an outcome, not yet committed
  outcome value;
};
struct decided {  ///< arbiter: the outcome that won
  outcome value;
};
struct access_ended {  ///< collector
  proof_id proof;
};
struct access_unproven {
  proof_id proof;
  std::string reason;
};
struct copies_ended {};  ///< lender: copies complete, no read guard left
struct copies_unproven {
  std::string reason;
};
struct authorised {};  ///< arbiter: the claim is settled
struct not_authorised {};
struct cancel {  ///< host
  cancelled_by who = cancelled_by::local;
};
struct retry_proof {};  ///< host, or a step of the proof ladder
struct fatal {};
struct backend_down {            ///< the backend actor is gone
  bool token_withdrawn = false;  ///< proof that its worker never entered the call
  bool attempt_rooted = false;   ///< the call had returned an attempt
};
struct collector_down {};
struct lender_down {};
}  // namespace op_event

using operation_event =
    std::variant<op_event::granted, op_event::refused, op_event::accepted, op_event::rejected,
                 op_event::withdrawn, op_event::escaped, op_event::reported, op_event::decided,
                 op_event::access_ended, op_event::access_unproven, op_event::copies_ended,
                 op_event::copies_unproven, op_event::authorised, op_event::not_authorised, op_event::cancel,
                 op_event::retry_proof, op_event::fatal, op_event::backend_down, op_event::collector_down,
                 op_event::lender_down>;

/// Effects, named by what to do.
namespace op_effect {
struct start_backend {};        ///< → backend: call the provider
struct withdraw_submission {};  ///< take the token back, if no worker has entered the call
struct commit {                 ///< → arbiter
  outcome value;
};
struct collect_proof {};   ///< → collector, under a fresh proof id
struct request_cancel {};  ///< → backend, at most once
struct finish_lease {      ///< → lender: mark these rows (a write), wait for copies and guards
  row_masks masks;
};
struct awaiting_proof {};  ///< → lender: the outcome is known, the slots wait for evidence
struct retain {            ///< → arbiter
  std::string reason;
};
struct settle {};   ///< → arbiter
struct release {};  ///< erase the roots, → lender: slots back, → arbiter: retired
}  // namespace op_effect

using operation_effect =
    std::variant<op_effect::start_backend, op_effect::withdraw_submission, op_effect::commit,
                 op_effect::collect_proof, op_effect::request_cancel, op_effect::finish_lease,
                 op_effect::awaiting_proof, op_effect::retain, op_effect::settle, op_effect::release>;

/// Second answer of semantics 1, with the steps before there is anything to answer.
enum class access_phase : std::uint8_t {
  exposing,  ///< the arbiter has not answered
  queued,    ///< handed to the backend; the provider may or may not have been called
  running,
  disputed,  ///< unproven; a retry may prove it
  escaped,   ///< unproven, and no handle exists to prove it by
  ended,
};
/// Third answer of semantics 1.
enum class copy_phase : std::uint8_t { not_started, pending, complete, unproven };
/// Where the claim stands.
enum class claim_phase : std::uint8_t { held, settling, released, fatal };

std::string_view to_string(access_phase p) noexcept;
std::string_view to_string(copy_phase p) noexcept;
std::string_view to_string(claim_phase p) noexcept;

class operation {
 public:
  /// `view` is what the lease lent; it decides which served names are legal.
  operation(direction way, std::shared_ptr<const region_view> view) : way_{way}, view_{std::move(view)} {}

  std::vector<operation_effect> apply(const operation_event& event);

  /// Names the proof that collect_proof has just been issued under; answers to other proofs are stale (7.1).
  void proof_started(proof_id p) noexcept { proof_ = p; }

  const std::optional<outcome>& decided() const noexcept { return outcome_; }
  access_phase access() const noexcept { return access_; }
  copy_phase copies() const noexcept { return copies_; }
  claim_phase claim() const noexcept { return claim_; }
  bool proof_in_flight() const noexcept { return proof_.has_value(); }
  /// Events that were duplicate, late or impossible here.
  std::uint64_t rejected() const noexcept { return rejected_; }

 private:
  using effects = std::vector<operation_effect>;

  void on(const op_event::granted&, effects&);
  void on(const op_event::refused&, effects&);
  void on(const op_event::accepted&, effects&);
  void on(const op_event::rejected&, effects&);
  void on(const op_event::withdrawn&, effects&);
  void on(const op_event::escaped&, effects&);
  void on(const op_event::reported&, effects&);
  void on(const op_event::decided&, effects&);
  void on(const op_event::access_ended&, effects&);
  void on(const op_event::access_unproven&, effects&);
  void on(const op_event::copies_ended&, effects&);
  void on(const op_event::copies_unproven&, effects&);
  void on(const op_event::authorised&, effects&);
  void on(const op_event::not_authorised&, effects&);
  void on(const op_event::cancel&, effects&);
  void on(const op_event::retry_proof&, effects&);
  void on(const op_event::fatal&, effects&);
  void on(const op_event::backend_down&, effects&);
  void on(const op_event::collector_down&, effects&);
  void on(const op_event::lender_down&, effects&);

  void propose(outcome value, effects& out);
  void collect(effects& out);
  void maybe_cancel(effects& out);
  /// Marks, copies, settles: whatever the evidence now allows, and no more.
  void advance(effects& out);

  direction way_;
  std::shared_ptr<const region_view> view_;
  std::optional<outcome> outcome_;
  access_phase access_ = access_phase::exposing;
  copy_phase copies_ = copy_phase::not_started;
  claim_phase claim_ = claim_phase::held;
  std::optional<proof_id> proof_;
  bool has_attempt_ = false;
  bool cancel_sent_ = false;
  bool reported_ = false;
  std::uint64_t rejected_ = 0;
};

}  // namespace kvlease
