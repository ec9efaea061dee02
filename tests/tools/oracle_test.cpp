// The oracle by hand and by the published trace; the content of blocks.
#include "tools/replay/oracle.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <unordered_set>
#include <vector>

#include "tools/replay/content.hpp"
#include "tools/replay/generate.hpp"

namespace {

using namespace kvlease::replay;
using bytes = std::vector<std::byte>;

trace by_hand(std::vector<std::pair<std::uint32_t, std::vector<std::uint64_t>>> prompts) {
  trace t{"hand", "test", 4, {}};
  for (auto& [tokens, blocks] : prompts) {
    t.requests.push_back({std::chrono::milliseconds{0}, tokens, 1, std::move(blocks)});
  }
  return t;
}

bytes name_of(int n) {
  bytes name(54, std::byte{0x5A});
  std::memcpy(name.data() + 16, &n, sizeof n);
  return name;
}

}  // namespace

TEST_CASE("oracle: nothing known, nothing hit") {
  CHECK(count_hits(by_hand({})) == oracle_counts{0, 0, 0, 0});
  CHECK(count_hits(by_hand({{9, {0, 1, 2}}})) == oracle_counts{1, 2, 2, 0});
}

TEST_CASE("oracle: a partial block is neither fetched nor published") {
  // 3 tokens: no whole block. 4 tokens of the same id: whole for the first time.
  CHECK(count_hits(by_hand({{3, {0}}, {4, {0}}, {5, {0, 1}}})) == oracle_counts{3, 2, 1, 1});
}

TEST_CASE("oracle: the last token is always computed, so a repeated prompt of whole blocks misses its last") {
  CHECK(count_hits(by_hand({{8, {0, 1}}, {8, {0, 1}}, {9, {0, 1, 2}}})) == oracle_counts{3, 6, 2, 1 + 2});
}

TEST_CASE("oracle: only a prefix hits") {
  // The third prompt knows 0, then leaves both others; the fourth follows the first to its end.
  CHECK(count_hits(by_hand({{12, {0, 1, 2}}, {12, {0, 3, 4}}, {13, {0, 5, 6, 7}}, {13, {0, 1, 2, 8}}})) ==
        oracle_counts{4, 12, 7, 0 + 1 + 1 + 3});
}

TEST_CASE("oracle: generated workloads reuse their prefixes") {
  for (const char* workload : {"conversation", "agents"}) {
    CAPTURE(workload);
    const auto t = generate(workload, 2000, 512, 3);
    REQUIRE(t.has_value());
    const auto counts = count_hits(*t);
    CHECK(counts.hit_blocks * 2 > counts.block_refs);
    CHECK(counts.hit_blocks < counts.block_refs);
    CHECK(counts.distinct_blocks + counts.hit_blocks <= counts.block_refs);
  }
}

TEST_CASE("oracle: the Mooncake conversation trace gives its published figures") {
  const char* named = std::getenv("KVLEASE_TRACE");
  const std::string path =
      named != nullptr ? named : KVLEASE_SOURCE_DIR "/../shared/traces/mooncake-conversation.jsonl";
  if (named == nullptr && !std::filesystem::exists(path)) {
    MESSAGE("SKIP: KVLEASE_TRACE is not set and " << path << " does not exist");
    return;
  }
  const auto t = load_trace(path, trace_format::automatic, {});
  REQUIRE_MESSAGE(t.has_value(), (t ? "" : t.error().text));
  CHECK(t->format == "mooncake");
  CHECK(t->requests.back().at > std::chrono::seconds{3'500});
  CHECK(count_hits(*t) == oracle_counts{12'031, 276'491, 170'899, 105'592});
}

TEST_CASE("content: tokens follow from the id, stay below 2^31, and a shorter block is a prefix") {
  std::vector<std::uint32_t> one(513), again(513), other(513), shorter(128), odd(7);
  block_tokens(42, one);
  block_tokens(42, again);
  block_tokens(43, other);
  block_tokens(42, shorter);
  block_tokens(42, odd);
  block_tokens(42, {});
  CHECK(one == again);
  CHECK(one != other);
  CHECK(std::equal(shorter.begin(), shorter.end(), one.begin()));
  CHECK(std::equal(odd.begin(), odd.end(), one.begin()));
  CHECK(std::all_of(one.begin(), one.end(), [](std::uint32_t token) { return token < (1U << 31); }));
  CHECK(block_seed(42) == block_seed(42));

  std::unordered_set<std::uint64_t> seeds;
  std::unordered_set<std::uint64_t> starts;
  for (std::uint64_t id = 0; id < 100'000; ++id) {
    std::uint32_t first[2];
    block_tokens(id, first);
    seeds.insert(block_seed(id));
    starts.insert((std::uint64_t{first[0]} << 32) | first[1]);
  }
  CHECK(seeds.size() == 100'000);
  CHECK(starts.size() == 100'000);
}

TEST_CASE("content: a block's bytes follow from its name, every byte of it") {
  bytes one(65'536), again(65'536), other(65'536);
  const bytes name = name_of(1);
  fill_block(name, one);
  fill_block(name, again);
  CHECK(one == again);
  for (std::size_t i = 0; i < name.size(); ++i) {
    bytes changed = name;
    changed[i] ^= std::byte{1};
    fill_block(changed, other);
    if (other == one) FAIL_CHECK("byte " << i << " of the name does not count");
    if (check_block(changed, one)) FAIL_CHECK("byte " << i << " of the name is not checked");
  }
}

TEST_CASE("content: no two 32-byte pieces of blocks are equal") {
  std::unordered_set<std::string> pieces;
  constexpr std::size_t block = 65'536;
  for (int n = 0; n < 16; ++n) {
    bytes filled(block);
    fill_block(name_of(n), filled);
    for (std::size_t at = 0; at < block; at += 32) {
      pieces.emplace(reinterpret_cast<const char*>(filled.data()) + at, 32);
    }
  }
  CHECK(pieces.size() == 16 * block / 32);
}

TEST_CASE("content: a check sees each wrong byte, at any length") {
  const bytes name = name_of(3);
  CHECK(check_block(name, {}));
  for (const std::size_t size : {1U, 7U, 8U, 9U, 4'096U, 4'097U, 12'301U}) {
    CAPTURE(size);
    bytes block(size);
    fill_block(name, block);
    CHECK(check_block(name, block));
    CHECK_FALSE(check_block(name_of(4), block));
    bool all_seen = true;
    for (std::size_t i = 0; i<size; i += size> 100 ? 61 : 1) {
      block[i] ^= std::byte{0x10};
      all_seen = all_seen && !check_block(name, block);
      block[i] ^= std::byte{0x10};
    }
    block.back() ^= std::byte{1};
    CHECK_FALSE(check_block(name, block));
    CHECK(all_seen);
  }
}
