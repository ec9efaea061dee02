// How a runtime climbs the proof ladder; what the rungs are, a provider says (kvlease/provider.hpp).
#pragma once

#include <vector>

#include "messages/contract.hpp"

namespace kvlease {

/// The proof ladder (architecture.md, "Proof has a source"): for an access that does not end by itself.
struct ladder_options {
  std::vector<proof_source> rungs;  ///< that may be climbed; none: the ladder is off
  double climb_after = 0.5;         ///< of the grace: the first rung; the others share what is left
};

}  // namespace kvlease
