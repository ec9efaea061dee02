// The adapter: operations on leases, and the registrations of the staging parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "messages/backend.hpp"
#include "messages/common.hpp"
#include "messages/deadline_arbiter.hpp"
#include "messages/host.hpp"
#include "messages/lender.hpp"
#include "messages/proof_collector.hpp"

namespace kvlease {

// ---- host → adapter
/// Answered with the operation's id, or a call error that leaves the lease with the caller and starts no
/// clock (5.2). What becomes of it is told by the arbiter.
struct submit {
  lease_id lease;
  direction way = direction::fetch;
  request_id request;
  transfer_timeout timeout;
  host_actor host;
  std::optional<owner_id> owner;  ///< absent: the operation gets one of its own
  end_of_sequence is_last = end_of_sequence::yes;
  std::optional<route_id> along;  ///< of a fetch; the caller closes it
};
struct cancel_operation {
  operation_id operation;
  cancelled_by who = cancelled_by::local;
};
/// Starts a new proof for disputed access; nothing when one is in flight or there is none to retry.
struct retry_proof {
  operation_id operation;
};

// ---- supervisor → adapter
/// Answered when every part is registered, or with the first failure.
struct start_adapter {};
/// May be repeated; waits for nothing (5.8).
struct close_adapter {};
struct adapter_rest {
  bool closed = false;
  std::vector<std::string> waiting_for;  ///< a line each: operations, registrations, hold
};

using adapter_actor = iface<
    void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
    caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about),
    caf::result<operation_id>(submit), caf::result<done>(cancel_operation), caf::result<done>(retry_proof),
    caf::result<done>(start_adapter), caf::result<adapter_rest>(close_adapter),
    // from the arbiter
    void(exposure_granted), void(exposure_refused), void(outcome_committed), void(claim_settled),
    void(claim_refused), void(fatal_record),
    // from the backend
    void(submission_accepted), void(submission_refused), void(submission_withdrawn), void(submission_escaped),
    void(outcome_reported), void(cancel_answered), void(registration_done), void(registration_closed),
    // from the collector
    void(access_ended), void(access_unproven), void(rung_climbed),
    // from the lender
    void(parts_held), void(copies_ended), void(copies_lost)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::operation_id);
KVLEASE_LOCAL_MESSAGE(kvlease::submit);
KVLEASE_LOCAL_MESSAGE(kvlease::cancel_operation);
KVLEASE_LOCAL_MESSAGE(kvlease::retry_proof);
KVLEASE_LOCAL_MESSAGE(kvlease::start_adapter);
KVLEASE_LOCAL_MESSAGE(kvlease::close_adapter);
KVLEASE_LOCAL_MESSAGE(kvlease::adapter_rest);
