#include "tools/replay/oracle.hpp"

#include <algorithm>
#include <unordered_set>

namespace kvlease::replay {

oracle_counts count_hits(const trace& t) {
  oracle_counts counts;
  std::unordered_set<std::uint64_t> known;
  for (const trace_request& request : t.requests) {
    ++counts.requests;
    if (request.input_tokens == 0 || t.tokens_per_block == 0) continue;  // a trace built by hand
    const std::size_t whole =
        std::min<std::size_t>(request.input_tokens / t.tokens_per_block, request.blocks.size());
    const std::size_t may_fetch =
        std::min<std::size_t>((request.input_tokens - 1) / t.tokens_per_block, whole);
    std::size_t hits = 0;
    while (hits < may_fetch && known.contains(request.blocks[hits])) ++hits;
    counts.block_refs += whole;
    counts.hit_blocks += hits;
    known.insert(request.blocks.begin(), request.blocks.begin() + static_cast<std::ptrdiff_t>(whole));
  }
  counts.distinct_blocks = known.size();
  return counts;
}

}  // namespace kvlease::replay
