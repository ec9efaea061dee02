// What a cache that never forgets would serve of a trace: the figure that a replay is checked by.
// Counted from the trace alone. Nothing of the lender is used, so that an error there cannot hide here.
#pragma once

#include <cstddef>

#include "tools/replay/trace.hpp"

namespace kvlease::replay {

struct oracle_counts {
  std::size_t requests = 0;
  std::size_t block_refs = 0;       ///< whole blocks of all prompts
  std::size_t distinct_blocks = 0;  ///< whole blocks known at the end
  std::size_t hit_blocks = 0;       ///< whole blocks that a fetch serves

  friend bool operator==(const oracle_counts&, const oracle_counts&) = default;
};

/// The lender's rules, requests one after the other: of a prompt of L tokens, the whole blocks count; the
/// longest known prefix of at most floor((L - 1) / tokens_per_block) blocks hits, for the model must compute
/// at least one token itself; then all whole blocks become known.
oracle_counts count_hits(const trace& t);

}  // namespace kvlease::replay
