// The proof collector: proofs in flight. It polls what can be polled, attempt by attempt, and runs blocking
// quiesce calls on its workers (semantics 2.4).
#pragma once

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
          void(access_polled), void(poll_access)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::collect_proof);
KVLEASE_LOCAL_MESSAGE(kvlease::access_polled);
KVLEASE_LOCAL_MESSAGE(kvlease::poll_access);
KVLEASE_LOCAL_MESSAGE(kvlease::access_ended);
KVLEASE_LOCAL_MESSAGE(kvlease::access_unproven);
