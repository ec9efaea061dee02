// Built-in workloads, for a replay without a trace file. A workload is a pure function of its four arguments,
// on every machine: whole-number arithmetic only, no <random> distributions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tools/replay/trace.hpp"

namespace kvlease::replay {

/// `requests` requests (1 to 10,000,000) of blocks of `tokens_per_block` tokens (1 to 65,536), by time.
/// Ids are prefix-chained as in the Mooncake trace; a partial last block has an id of its own.
///
/// "conversation": users of a few applications, each with a system prompt and documents that users share,
/// some far more than others. A turn's prompt is the last prompt, its answer and new text. Measured over
/// 12,000 requests (seeds 1 to 4): prompts of 180 to 75,528 tokens, 8,500 to 10,100 on average; 3 requests a
/// second.
///
/// "agents": sessions that grow by tool outputs, and subagents that branch off the shared tools prompt or off
/// all of their parent's context. A context at its limit (100,000 tokens) is cut to a summary. Measured
/// likewise: prompts of 2,099 to 99,993 tokens, 16,500 to 18,800 on average; 4 to 5 requests a second.
///
/// Both start with no session, so a shorter trace has shorter prompts (agents: about 9,000 over 200).
///
/// Errors: invalid, naming the workload or the number and its rule.
result<trace> generate(std::string_view workload, std::size_t requests, std::uint32_t tokens_per_block,
                       std::uint64_t seed);

}  // namespace kvlease::replay
