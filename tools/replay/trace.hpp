// A trace: the requests that a real or a generated service received, as times, lengths and block ids.
// Loading promises what a replay builds on: every request has one id for each block of its prompt, ids are
// global over the trace, an id implies all that stands before it, and requests are in order of time.
// Plain values and pure functions: any thread, no shared state.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.hpp"

namespace kvlease::replay {

struct trace_request {
  std::chrono::milliseconds at{0};    ///< since the trace's start
  std::uint32_t input_tokens = 0;     ///< 1 or more
  std::uint32_t output_tokens = 0;    ///< may be 0
  std::vector<std::uint64_t> blocks;  ///< ceil(input_tokens / tokens_per_block) ids; the last may be partial
};

struct trace {
  std::string format;  ///< "mooncake", "qwen", "weka" or "generated"
  std::string source;  ///< the file, or the workload and its seed
  std::uint32_t tokens_per_block = 0;
  std::vector<trace_request> requests;  ///< by time; equal times keep the source's order
};

enum class trace_format : std::uint8_t {
  automatic,  ///< told from the fields of the first record
  mooncake,   ///< JSONL: 512-token blocks, `timestamp` in ms
  qwen,       ///< Qwen-Bailian JSONL: 16-token blocks, `timestamp` in seconds
  weka,       ///< agent sessions: one JSON session a file, or a session a line; ids local to the session
};

/// "auto", "mooncake", "qwen", "weka". Errors: invalid.
result<trace_format> parse_format(std::string_view name);

/// Loads all of the file, refuses it at its first bad line, then keeps the earliest `limit` requests.
///
/// Mooncake ids stay as they are, and an id with two predecessors is refused. Qwen and WEKA ids are
/// renumbered by (predecessor, id), so that an id implies its prefix even where the file does not promise it.
/// WEKA files leave a partial last block without an id: it gets one of its own. A WEKA subagent's times count
/// from the subagent entry when any of the file's lies before its entry, else from the session's start: both
/// are in use.
///
/// Errors: invalid "FILE:LINE: what, value, rule"; capacity above 4 GiB; io with the system's reason.
result<trace> load_trace(const std::string& path, trace_format format, std::optional<std::size_t> limit);

}  // namespace kvlease::replay
