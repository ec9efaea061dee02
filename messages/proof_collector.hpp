// The proof collector: proofs in flight. It polls what can be polled, attempt by attempt, and runs blocking
// quiesce calls on its workers (semantics 2.4).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/common.hpp"
#include "messages/contract.hpp"

namespace kvlease {

// ---- adapter → collector
struct collect_proof {
  operation_id operation;
  proof_id proof;
};
/// The operation has failed or was cancelled, and its grace runs from now on. The rungs of the proof ladder,
/// where some are configured, are climbed within it.
struct grace_runs {
  operation_id operation;
  proof_id proof;
  std::chrono::nanoseconds grace{0};
};

// ---- collector → itself
/// The next rung of the ladder is due, unless the proof has come.
struct climb_rung {
  operation_id operation;
  proof_id proof;
  std::size_t rung = 0;  ///< index into those that are configured and offered
  std::chrono::nanoseconds pause{0};
};

// ---- worker → collector
struct access_polled {
  struct answer {
    operation_id operation;
    proof_id proof;
    access_state state = access_state::running;
    proof_source source = proof_source::terminal_status;
    std::string reason;  ///< of `unproven`
  };
  std::vector<answer> answers;
  bool round = true;  ///< false: a blocking proof, in no round of polls
};
struct poll_access {
  std::uint64_t generation = 0;
};
/// A rung was climbed, on a worker. That proves nothing yet.
struct rung_climbed {
  operation_id operation;
  proof_id proof;
  proof_source rung = proof_source::terminal_status;
  std::vector<operation_id>
      taken_down;       ///< others that the rung ends too: the provider has failed them already
  std::string problem;  ///< what the provider threw; empty: nothing
};

// ---- collector → adapter
struct access_ended {
  operation_id operation;
  proof_id proof;
  proof_source source = proof_source::terminal_status;
};
struct access_unproven {
  operation_id operation;
  proof_id proof;
  std::string reason;
};

using proof_collector_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about), void(collect_proof),
          void(grace_runs), void(access_polled), void(poll_access), void(climb_rung), void(rung_climbed)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::collect_proof);
KVLEASE_LOCAL_MESSAGE(kvlease::grace_runs);
KVLEASE_LOCAL_MESSAGE(kvlease::access_polled);
KVLEASE_LOCAL_MESSAGE(kvlease::poll_access);
KVLEASE_LOCAL_MESSAGE(kvlease::climb_rung);
KVLEASE_LOCAL_MESSAGE(kvlease::rung_climbed);
KVLEASE_LOCAL_MESSAGE(kvlease::access_ended);
KVLEASE_LOCAL_MESSAGE(kvlease::access_unproven);
