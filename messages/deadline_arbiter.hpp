// The deadline arbiter: retirement owners, clocks, the outcome latch, the fatal latch. The one linearization
// point of a runtime.
#pragma once

#include <string>
#include <vector>

#include "messages/common.hpp"
#include "messages/host.hpp"
#include "messages/operation.hpp"

namespace kvlease {

// ---- host → arbiter
/// For a host that makes the retirement owner itself; submit takes one unused owner.
struct create_owner {
  request_id request;
  direction way = direction::fetch;
  transfer_timeout timeout;
};
/// For an owner that was made and never submitted.
struct close_owner {
  owner_id owner;
};
/// Only once the adapter is down: cancels in its place.
struct cancel_directly {
  operation_id operation;
  cancelled_by who = cancelled_by::local;
};

// ---- adapter → arbiter
struct expose_operation {
  exposure what;
  host_actor host;
};
struct track_registrations {
  operation_id registrations;
  transfer_timeout timeout;
};
struct commit_outcome {
  operation_id operation;
  outcome value;
};
struct retain_claim {
  operation_id operation;
  std::string reason;
};
struct settle_claim {
  operation_id operation;
};
struct claim_retired {
  operation_id operation;
  operation_times times;
};

// ---- supervisor → arbiter
struct close_admission {};
struct stop_arbiter {};
struct watch_fatal {
  host_actor watcher;
};

// ---- to itself
struct deadline_due {
  std::uint64_t generation = 0;
};

// ---- arbiter → adapter (and outcome_committed, fatal_record to the host as host.hpp says)
struct exposure_granted {
  operation_id operation;
};
struct exposure_refused {
  operation_id operation;
  std::string reason;
};
struct outcome_committed {
  operation_id operation;
  outcome value;
};
struct claim_settled {
  settle_token token;
};
struct claim_refused {
  operation_id operation;
};

using deadline_arbiter_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about),
          caf::result<owner_id>(create_owner), caf::result<done>(close_owner),
          caf::result<done>(cancel_directly), void(expose_operation), void(track_registrations),
          void(commit_outcome), void(retain_claim), void(settle_claim), void(claim_retired),
          caf::result<done>(close_admission), caf::result<done>(stop_arbiter), void(watch_fatal),
          void(deadline_due)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::owner_id);
KVLEASE_LOCAL_MESSAGE(kvlease::create_owner);
KVLEASE_LOCAL_MESSAGE(kvlease::close_owner);
KVLEASE_LOCAL_MESSAGE(kvlease::cancel_directly);
KVLEASE_LOCAL_MESSAGE(kvlease::expose_operation);
KVLEASE_LOCAL_MESSAGE(kvlease::track_registrations);
KVLEASE_LOCAL_MESSAGE(kvlease::commit_outcome);
KVLEASE_LOCAL_MESSAGE(kvlease::retain_claim);
KVLEASE_LOCAL_MESSAGE(kvlease::settle_claim);
KVLEASE_LOCAL_MESSAGE(kvlease::claim_retired);
KVLEASE_LOCAL_MESSAGE(kvlease::close_admission);
KVLEASE_LOCAL_MESSAGE(kvlease::stop_arbiter);
KVLEASE_LOCAL_MESSAGE(kvlease::watch_fatal);
KVLEASE_LOCAL_MESSAGE(kvlease::deadline_due);
KVLEASE_LOCAL_MESSAGE(kvlease::exposure_granted);
KVLEASE_LOCAL_MESSAGE(kvlease::exposure_refused);
KVLEASE_LOCAL_MESSAGE(kvlease::outcome_committed);
KVLEASE_LOCAL_MESSAGE(kvlease::claim_settled);
KVLEASE_LOCAL_MESSAGE(kvlease::claim_refused);
