// Which share of a layer group's content a tensor-parallel rank holds (scenarios 6.4). Ranks that hold the
// same content must name it alike, and ranks that do not must not; identity::make takes the answer. Values
// and pure functions: any thread.
#pragma once

#include <cstdint>
#include <span>

#include "messages/error.hpp"
#include "src/layout.hpp"
#include "src/names.hpp"

namespace kvlease {

/// A rank among those that split attention heads.
struct tensor_parallel {
  std::int64_t size = 1;
  std::int64_t rank = 0;      ///< 0 <= rank < size
  bool attention_dp = false;  ///< attention is not split: each rank serves other requests with all heads
};

/// How the content of a buffer lies over the ranks.
enum class buffer_split : std::uint8_t {
  heads,       ///< each rank holds its heads
  replicated,  ///< each rank holds all
  local_only,  ///< no peer reads it
  recurrent,   ///< each rank holds a state of its own
};

struct split_buffer {
  buffer_split split = buffer_split::heads;
  std::int64_t total_heads = 0;  ///< for `heads`: in the model
  std::int64_t rank_heads = 0;   ///< for `heads`: on each rank
};

/// How a declared buffer splits: local-only before replicated before what its group's kind says.
buffer_split split_of(const cache_buffer& buffer, group_kind kind) noexcept;

/// The share of `total_heads` heads of which each rank holds `rank_heads`, from its first head
/// floor(rank * total_heads / size) on. Fewer heads than ranks are held by several ranks, which share. Where
/// the first head of any rank lies within a share, each rank's is its own.
/// Errors: invalid for a rank outside 0 <= rank < size <= 65535 and for heads outside 1 .. 65535.
result<shard> head_shard(const tensor_parallel& at, std::int64_t total_heads, std::int64_t rank_heads);

/// The share of a layer group with these buffers: whole if each is, the one share if those that are not whole
/// agree, else the rank's own. Replicated and local-only buffers do not count.
/// Errors: as head_shard.
result<shard> group_shard(const tensor_parallel& at, std::span<const split_buffer> buffers);

}  // namespace kvlease
