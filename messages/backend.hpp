// The backend: one provider and its attempts. It calls the provider only on its bounded workers; what they
// find comes back as messages. Roots (extent, attempt) are in the ledger; messages carry ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/common.hpp"
#include "messages/contract.hpp"
#include "messages/operation.hpp"
#include "messages/staging.hpp"

namespace kvlease {

// ---- adapter → backend
struct start_submission {
  operation_id operation;
  direction way = direction::fetch;
  std::optional<route_id> along;  ///< of a fetch; a foreign or closed one is rejected (2.7)
};
/// Asks the attempt to stop, once; its outcome is awaited no longer.
struct cancel_attempt {
  operation_id operation;
};
/// The operation is released.
struct forget_attempt {
  operation_id operation;
};
struct register_part {
  registration_id registration;
  part span;
};
struct close_registration {
  registration_id registration;
};

// ---- host → backend
struct probe_units {
  bytes extent;
  std::set<bytes> names;
};
/// Prepares a per-request source plan; answered with its id. Errors: unsupported, invalid (the hint),
/// provider.
struct open_route {
  std::string hint;
};
/// Errors: unknown; provider when the close failed: the route is open still and can be closed again.
struct close_route {
  route_id route;
};
struct probe_answer {
  std::optional<std::set<bytes>> hits;
};

// ---- worker → backend
struct probe_done {
  std::uint64_t ticket = 0;
  probe_answer value;
  std::string problem;
};
struct route_done {
  std::uint64_t ticket = 0;
  std::optional<route_id> route;
  std::optional<error> problem;
};
struct submission_accepted {
  operation_id operation;
  std::optional<outcome> value;  ///< where the attempt had one at once
};
struct submission_refused {
  operation_id operation;
  std::string reason;
};
struct submission_withdrawn {
  operation_id operation;
};
struct submission_escaped {
  operation_id operation;
  std::string reason;
};
struct cancel_answered {
  operation_id operation;
  std::optional<cancel_disposition> disposition;
  std::string problem;  ///< a provider's error: recorded, obstructs nothing (5.5)
};
struct registration_done {
  registration_id registration;
  std::string problem;  ///< empty: registered
};
struct registration_closed {
  registration_id registration;
  std::string problem;  ///< empty: closed; else the same handle can be retried
};
/// What the provider counts, as of the last look at it.
struct provider_figures {
  std::uint64_t hits = 0, misses = 0, failures = 0;  ///< units
};
struct outcomes_polled {
  std::vector<operation_outcome> found;
};
/// The provider says that something has advanced, or the next look is due.
struct poll_outcomes {
  std::uint64_t generation = 0;
};

// ---- backend → adapter: accepted, refused, withdrawn, escaped, cancel_answered, registration_* as above,
// and
struct outcome_reported {
  operation_id operation;
  outcome value;
};

using backend_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about), void(start_submission),
          void(cancel_attempt), void(forget_attempt), void(register_part), void(close_registration),
          caf::result<probe_answer>(probe_units), caf::result<route_id>(open_route),
          caf::result<done>(close_route), void(probe_done), void(route_done), void(submission_accepted),
          void(submission_refused), void(submission_withdrawn), void(submission_escaped),
          void(cancel_answered), void(registration_done), void(registration_closed), void(provider_figures),
          void(outcomes_polled), void(poll_outcomes)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::start_submission);
KVLEASE_LOCAL_MESSAGE(kvlease::cancel_attempt);
KVLEASE_LOCAL_MESSAGE(kvlease::forget_attempt);
KVLEASE_LOCAL_MESSAGE(kvlease::register_part);
KVLEASE_LOCAL_MESSAGE(kvlease::close_registration);
KVLEASE_LOCAL_MESSAGE(kvlease::probe_units);
KVLEASE_LOCAL_MESSAGE(kvlease::probe_answer);
KVLEASE_LOCAL_MESSAGE(kvlease::probe_done);
KVLEASE_LOCAL_MESSAGE(kvlease::route_id);
KVLEASE_LOCAL_MESSAGE(kvlease::open_route);
KVLEASE_LOCAL_MESSAGE(kvlease::close_route);
KVLEASE_LOCAL_MESSAGE(kvlease::route_done);
KVLEASE_LOCAL_MESSAGE(kvlease::submission_accepted);
KVLEASE_LOCAL_MESSAGE(kvlease::submission_refused);
KVLEASE_LOCAL_MESSAGE(kvlease::submission_withdrawn);
KVLEASE_LOCAL_MESSAGE(kvlease::submission_escaped);
KVLEASE_LOCAL_MESSAGE(kvlease::cancel_answered);
KVLEASE_LOCAL_MESSAGE(kvlease::registration_done);
KVLEASE_LOCAL_MESSAGE(kvlease::registration_closed);
KVLEASE_LOCAL_MESSAGE(kvlease::provider_figures);
KVLEASE_LOCAL_MESSAGE(kvlease::outcomes_polled);
KVLEASE_LOCAL_MESSAGE(kvlease::poll_outcomes);
KVLEASE_LOCAL_MESSAGE(kvlease::outcome_reported);
