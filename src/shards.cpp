#include "src/shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace kvlease {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::uint16_t>::max();  // what names hold
constexpr shard whole{1, 0};

result<void> check(const tensor_parallel& at) {
  if (at.rank >= 0 && at.rank < at.size && at.size <= most) return {};
  return fail(errc::invalid, fmt::format("tensor parallel rank {} of {}, must be 0 <= rank < size <= {}",
                                         at.rank, at.size, most));
}

/// What a rank holds that shares with no other.
shard own(const tensor_parallel& at) { return at.attention_dp ? whole : shard{at.size, at.rank}; }

/// The share of one buffer, or none where it does not count. Precondition: check(at) passed.
result<std::optional<shard>> share_of(const tensor_parallel& at, const split_buffer& buffer) {
  switch (buffer.split) {
    case buffer_split::replicated:
    case buffer_split::local_only:
      return std::nullopt;
    case buffer_split::recurrent:
      return own(at);
    case buffer_split::heads:
      break;
  }
  const auto share = head_shard(at, buffer.total_heads, buffer.rank_heads);
  if (!share) return tl::unexpected{share.error()};
  return *share;
}

}  // namespace

buffer_split split_of(const cache_buffer& buffer, group_kind kind) noexcept {
  if (!buffer.transfer) return buffer_split::local_only;
  if (buffer.mapper == buffer_mapper::replicated) return buffer_split::replicated;
  return kind == group_kind::state ? buffer_split::recurrent : buffer_split::heads;
}

result<shard> head_shard(const tensor_parallel& at, std::int64_t total_heads, std::int64_t rank_heads) {
  if (auto ok = check(at); !ok) return tl::unexpected{std::move(ok).error()};
  if (total_heads < 1 || total_heads > most || rank_heads < 1 || rank_heads > most)
    return fail(errc::invalid, fmt::format("{} heads with {} on each rank, must both be from 1 to {}",
                                           total_heads, rank_heads, most));
  if (at.size == 1 || at.attention_dp) return whole;
  const auto first_head = [&](std::int64_t rank) { return rank * total_heads / at.size; };
  for (std::int64_t rank = 0; rank < at.size; ++rank)
    if (first_head(rank) % rank_heads != 0) return own(at);
  const std::int64_t count = std::max(total_heads / rank_heads, std::int64_t{1});
  return shard{count, std::min(first_head(at.rank) / rank_heads, count - 1)};
}

result<shard> group_shard(const tensor_parallel& at, std::span<const split_buffer> buffers) {
  if (auto ok = check(at); !ok) return tl::unexpected{std::move(ok).error()};
  shard group = whole;
  for (const split_buffer& buffer : buffers) {
    const auto share = share_of(at, buffer);
    if (!share) return tl::unexpected{share.error()};
    if (!*share || **share == whole) continue;
    if (group != whole && group != **share) return own(at);
    group = **share;
  }
  return group;
}

}  // namespace kvlease
