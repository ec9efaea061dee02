// Which share a rank holds, row by row of scenarios 7.L (LY-15 to LY-21).
#include "src/shards.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <vector>

#include "tests/src/refused.hpp"

namespace kvlease {
namespace {

using test::check_refused;
using shards = std::vector<shard>;
using buffers = std::vector<split_buffer>;

constexpr split_buffer replicated{.split = buffer_split::replicated};
constexpr split_buffer local_only{.split = buffer_split::local_only};
constexpr split_buffer state{.split = buffer_split::recurrent};

/// A buffer of `total` heads, as evenly over the ranks as can be.
split_buffer heads(std::int64_t total, std::int64_t ranks) {
  return {.total_heads = total, .rank_heads = (total + ranks - 1) / ranks};
}

/// What each of `ranks` ranks holds of a group.
shards over(std::int64_t ranks, const buffers& group, bool attention_dp = false) {
  shards out;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto share = group_shard({ranks, rank, attention_dp}, group);
    REQUIRE(share.has_value());
    out.push_back(*share);
  }
  return out;
}

shards own(std::int64_t ranks) {
  shards out;
  for (std::int64_t rank = 0; rank < ranks; ++rank) out.push_back({ranks, rank});
  return out;
}

shards whole(std::size_t ranks) { return shards(ranks, shard{1, 0}); }

TEST_CASE("LY-15 KV-head shares: one head over eight ranks is whole everywhere") {
  CHECK(over(8, {heads(1, 8), heads(1, 8)}) == whole(8));
}

TEST_CASE("LY-15 KV-head shares: eight heads over four ranks are four shares") {
  CHECK(over(4, {heads(8, 4), heads(8, 4)}) == own(4));
}

TEST_CASE("LY-15 KV-head shares: two heads over four ranks are two shares of two ranks each") {
  CHECK(over(4, {heads(2, 4)}) == shards{{2, 0}, {2, 0}, {2, 1}, {2, 1}});
}

TEST_CASE("LY-15 KV-head shares: with attention DP, or one rank, the group is whole") {
  CHECK(over(4, {heads(8, 1)}, true) == whole(4));
  CHECK(over(4, {heads(8, 4)}, true) == whole(4));
  CHECK(over(1, {heads(8, 1)}) == whole(1));
}

TEST_CASE("LY-16 unaligned heads: each rank's share is its own") {
  const auto of = [](std::int64_t total, std::int64_t ranks, std::int64_t each) {
    return over(ranks, {{.total_heads = total, .rank_heads = each}});
  };
  CHECK(of(6, 4, 2) == own(4));
  CHECK(of(12, 8, 2) == own(8));
  CHECK(of(8, 4, 2) == own(4));
  CHECK(of(2, 4, 1) == shards{{2, 0}, {2, 0}, {2, 1}, {2, 1}});
  CHECK(of(1, 4, 1) == whole(4));
  // 9 heads over 3 and over 6 ranks: the first heads are 0, 1, 3, 4, 6, 7 in the latter.
  CHECK(of(9, 3, 3) == own(3));
  CHECK(of(9, 6, 2) == own(6));
  // More heads on a rank than there are: one share. A head more than the shares hold makes no share more.
  CHECK(of(1, 4, 2) == whole(4));
  CHECK(of(5, 2, 2) == own(2));
  CHECK(head_shard({65535, 65534}, 65535, 1) == shard{65535, 65534});
}

TEST_CASE("LY-17 replicated buffers do not count; one head-sharded buffer makes the group a share") {
  CHECK(over(2, {replicated}) == whole(2));
  CHECK(over(2, {}) == whole(2));
  CHECK(over(2, {replicated, heads(8, 2), replicated}) == own(2));
  // Nor does one that is whole for want of heads, wherever it stands.
  const shards two{{2, 0}, {2, 0}, {2, 0}, {2, 0}, {2, 1}, {2, 1}, {2, 1}, {2, 1}};
  CHECK(over(8, {heads(1, 8), heads(2, 8), replicated}) == two);
  CHECK(over(8, {heads(2, 8), heads(1, 8)}) == two);
}

TEST_CASE("LY-18 local-only buffers do not count") {
  CHECK(over(2, {replicated, local_only}) == whole(2));
  CHECK(over(4, {heads(2, 4), local_only}) == over(4, {heads(2, 4)}));
}

TEST_CASE("LY-19 groups are judged one by one") {
  const tensor_parallel at{.size = 2, .rank = 0};
  CHECK(group_shard(at, buffers{heads(8, 2)}) == shard{2, 0});
  CHECK(group_shard(at, buffers{replicated}) == shard{1, 0});
}

TEST_CASE("LY-20 mixed shares: each rank alone, names disjoint") {
  struct mix {
    std::int64_t ranks, first, second;
  };
  for (const auto& [ranks, first, second] : std::vector<mix>{{8, 8, 4}, {8, 4, 8}, {6, 3, 2}, {6, 2, 3}}) {
    CAPTURE(ranks);
    CAPTURE(first);
    const buffers group{{.total_heads = first, .rank_heads = 1}, {.total_heads = second, .rank_heads = 1}};
    const shards shares = over(ranks, group);
    CHECK(shares == own(ranks));
    std::set<block_name> names;
    const std::vector<std::byte> layout{std::byte{1}};
    for (const shard& share : shares) {
      const auto id = identity::make({}, layout, {{0, 1}}, {share}).value();
      for (std::uint64_t salt = 0; salt < 3; ++salt) names.insert(id.name(0, root_key({{}, salt})).value());
    }
    CHECK(names.size() == 3 * static_cast<std::size_t>(ranks));
  }
  // Equal shares are one, however many buffers hold them; a third that differs is seen too.
  CHECK(over(8, {heads(4, 8), heads(4, 8)}) == over(8, {heads(4, 8)}));
  CHECK(over(8, {heads(4, 8), heads(4, 8), heads(2, 8)}) == own(8));
}

TEST_CASE("LY-21 recurrent state: each rank's is its own") {
  CHECK(over(2, {state, state}) == own(2));
  CHECK(over(1, {state}) == whole(1));
  CHECK(over(4, {state}, true) == whole(4));
  CHECK(over(2, {state, replicated}) == own(2));
}

TEST_CASE("scenarios 6.4 how a declared buffer splits") {
  const cache_buffer plain{.layer = 0, .role = "key"};
  cache_buffer same = plain;
  same.mapper = buffer_mapper::replicated;
  cache_buffer local = same;
  local.transfer = false;
  for (const group_kind kind : {group_kind::attention, group_kind::state}) {
    CHECK(split_of(same, kind) == buffer_split::replicated);
    CHECK(split_of(local, kind) == buffer_split::local_only);
  }
  CHECK(split_of(plain, group_kind::attention) == buffer_split::heads);
  CHECK(split_of(plain, group_kind::state) == buffer_split::recurrent);
}

TEST_CASE("scenarios 6.4 refused: ranks and heads out of range, in any kind of group") {
  for (const tensor_parallel& at :
       std::vector<tensor_parallel>{{0, 0}, {2, 2}, {2, -1}, {65536, 0}, {-1, -2}}) {
    check_refused(group_shard(at, buffers{replicated}), errc::invalid, "must be 0 <= rank < size <= 65535");
    check_refused(head_shard(at, 8, 2), errc::invalid, "must be 0 <= rank < size <= 65535");
  }
  constexpr auto huge = std::numeric_limits<std::int64_t>::max();
  for (const auto& [total, each] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 1}, {1, 0}, {-8, 2}, {8, -2}, {huge, 1}, {1, huge}})
    for (const bool attention_dp : {false, true}) {
      check_refused(head_shard({4, 1, attention_dp}, total, each), errc::invalid, "from 1 to 65535");
      check_refused(group_shard({4, 1, attention_dp}, buffers{{.total_heads = total, .rank_heads = each}}),
                    errc::invalid, "from 1 to 65535");
    }
}

}  // namespace
}  // namespace kvlease
