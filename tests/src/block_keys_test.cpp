// Matching by keys, row by row of scenarios 7.O (BK-05 to BK-12); the keys themselves are in names_test.cpp.
// Our manager always matches by keys: a prompt's tokens count only by what they hash to. So where a row
// compares matching by keys with matching by tokens, a case walks a chain of keys through the reuse index and
// holds what a paged manager answers for the tokens against it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "src/names.hpp"
#include "src/paged_manager.hpp"
#include "src/reuse_index.hpp"
#include "tests/src/paged_manager_fixture.hpp"
#include "tests/src/refused.hpp"

namespace kvlease {
namespace {

using namespace paged_fixture;

constexpr std::int64_t tpb = 4;  // of one_pool()
constexpr request_id first_request{1};

std::vector<digest> keys_of(const token_list& tokens, const reuse_scope& scope = {}) {
  return block_keys(root_key(scope), tokens, tpb).value();
}

/// An index that holds one chain; block n of it has page 100 + n.
struct chain {
  reuse_index index{1};

  explicit chain(std::span<const digest> keys) {
    auto parent = cached_block::none;
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const std::array page{std::int64_t{100} + static_cast<std::int64_t>(n)};
      parent = index.insert(keys[n], parent, page, 0);
    }
    REQUIRE(index.check_invariants());
  }

  /// The pages of the blocks found, up to the first missing link.
  std::vector<std::int64_t> match(std::span<const digest> keys) const {
    std::vector<std::int64_t> pages;
    for (const digest& key : keys) {
      const auto b = index.find(key);
      if (b == cached_block::none) break;
      pages.push_back(index.pages(b)[0]);
    }
    return pages;
  }
};

/// A manager in which a request has computed the prompt, and what others then find of it.
struct computed {
  std::unique_ptr<paged_manager> manager = make_manager(one_pool(64));
  std::uint64_t next = 2;

  explicit computed(const token_list& prompt, const reuse_scope& scope = {}) {
    compute(*manager, first_request, {prompt, scope});
  }

  request_info admit(const token_list& prompt, const reuse_scope& scope = {}) {
    const auto info = manager->admit(request_id{next++}, {prompt, scope});
    REQUIRE(info.has_value());
    whole(*manager);
    return *info;
  }
  std::vector<std::int64_t> pages(request_id id) const {
    std::vector<std::int64_t> out;
    const auto rows = manager->rows(id, {0, manager->describe(id)->capacity_tokens}).value();
    for (const page_row& row : rows) out.push_back(row.page);
    return out;
  }
  /// Matched blocks. That they are the first pages of the first request is checked.
  std::size_t matched(const token_list& prompt, const reuse_scope& scope = {}) {
    const request_info info = admit(prompt, scope);
    CHECK(info.committed_tokens % tpb == 0);
    const auto found = pages(info.request);
    CHECK(static_cast<std::int64_t>(found.size()) * tpb == info.committed_tokens);
    const auto first = pages(first_request);
    CHECK(std::ranges::equal(found, std::span{first}.first(found.size())));
    return found.size();
  }
};

TEST_CASE("BK-05 by keys = by tokens") {
  // Thirteen tokens: three blocks, and the last token that is never matched.
  const token_list prompt = run(0, 13);
  computed manager{prompt};
  const chain index{keys_of(prompt)};
  CHECK(index.match(keys_of(prompt)) == std::vector<std::int64_t>{100, 101, 102});
  CHECK(manager.matched(prompt) == 3);
  // The same for prompts that differ in any one place.
  for (std::size_t at = 0; at < prompt.size(); ++at) {
    token_list other = prompt;
    other.ids[at] += 1000;
    CAPTURE(at);
    CHECK(manager.matched(other) == index.match(keys_of(other)).size());
    CHECK(manager.matched(other) == std::min<std::size_t>(at / tpb, 3));
  }
}

TEST_CASE("BK-06 an empty chain matches nothing, and is no error") {
  const token_list prompt = run(0, 13);
  computed manager{prompt};
  CHECK(chain{keys_of(prompt)}.match({}).empty());
  for (const std::int64_t tokens : {1, 2, 3}) {
    CHECK(keys_of(run(0, tokens)).empty());
    CHECK(manager.matched(run(0, tokens)) == 0);
    CHECK(manager.manager->block_keys(request_id{manager.next - 1}, {0, 0})->empty());
  }
  CHECK(chain{{}}.match(keys_of(prompt)).empty());
}

TEST_CASE("BK-07 the root alone is no block") {
  for (const reuse_scope& scope : scopes()) {
    const token_list prompt = run(0, 13);
    const chain index{keys_of(prompt, scope)};
    CHECK(index.match(std::vector{root_key(scope)}).empty());
    CHECK(index.index.size() == 3);
    computed manager{prompt, scope};
    CHECK(manager.matched(run(0, 1), scope) == 0);
  }
}

TEST_CASE("BK-08 a foreign root: no match, and the prompt as long as asked") {
  const token_list prompt = run(0, 13);
  computed manager{prompt, {7, 11}};
  const chain index{keys_of(prompt, {7, 11})};
  for (const reuse_scope& foreign : std::vector<reuse_scope>{{}, {7, {}}, {{}, 11}, {7, 12}, {11, 7}}) {
    CHECK(index.match(keys_of(prompt, foreign)).empty());
    const request_info info = manager.admit(prompt, foreign);
    CHECK(info.prompt_tokens == 13);
    CHECK(info.committed_tokens == 0);
    CHECK(info.capacity_tokens == 0);
    CHECK(manager.manager->block_keys(info.request, {0, 12})->size() == 3);
  }
  CHECK(manager.matched(prompt, {7, 11}) == 3);
}

TEST_CASE("BK-09 a fork stops at the first missing link") {
  // The tokens behind the fork are those that are resident, but under other keys.
  const token_list prompt = run(0, 17);
  computed manager{prompt};
  const chain index{keys_of(prompt)};
  token_list fork = prompt;
  fork.ids[6] = 999;
  CHECK(manager.matched(fork) == 1);
  CHECK(index.match(keys_of(fork)).size() == 1);
  for (std::size_t i = 1; i < 4; ++i) CHECK(index.index.find(keys_of(fork)[i]) == cached_block::none);
  // Both branches are found once the other is computed too, each to its end.
  compute(*manager.manager, request_id{90}, spec(fork));
  CHECK(manager.admit(fork).committed_tokens == 16);
  CHECK(manager.matched(prompt) == 4);
  // A chain with a key of another in its middle ends there, although its later keys are resident.
  auto broken = keys_of(prompt);
  broken[1] = keys_of(fork)[1];
  CHECK(index.match(broken).size() == 1);
  // A block that is passed over ends the chain as a missing one does: here, one that is pinned.
  const auto rows = manager.manager->rows(first_request, {4, 8}).value();
  REQUIRE(manager.manager->pin(pin_id{1}, first_request, rows).size() == 1);
  CHECK(manager.matched(prompt) == 1);
  REQUIRE(manager.manager->unpin(pin_id{1}));
  CHECK(manager.matched(prompt) == 4);
}

TEST_CASE("BK-10 a shorter chain ends on a block boundary") {
  const token_list prompt = run(0, 17);
  computed manager{prompt};
  const chain index{keys_of(prompt)};
  for (std::int64_t tokens = 1; tokens <= 17; ++tokens) {
    CAPTURE(tokens);
    // The last token is always computed again, so a chain that ends with its prompt gives up a block.
    CHECK(manager.matched(run(0, tokens)) == static_cast<std::size_t>((tokens - 1) / tpb));
    CHECK(index.match(keys_of(run(0, tokens))).size() == static_cast<std::size_t>(tokens / tpb));
  }
}

TEST_CASE("BK-11 no partial match by keys: not even with the ids that stand under a digest") {
  // The prompt is keyed by a content in its second block; its id there is the placeholder 0.
  token_list prompt = run(1, 13);
  prompt.ids[5] = 0;
  token_list sibling = prompt;
  prompt.digests = {{5, root_key({7, 11})}};
  computed manager{prompt};
  const chain index{keys_of(prompt)};
  CHECK(manager.matched(prompt) == 3);
  CHECK(manager.matched(sibling) == 1);
  CHECK(index.match(keys_of(sibling)).size() == 1);
  // Three of a block's four tokens in common match none of it.
  token_list near = prompt;
  near.ids[3] = 999;
  CHECK(manager.matched(near) == 0);
}

TEST_CASE("BK-12 the key of a partial block counts as whole, so none is made") {
  const token_list prompt = run(0, 14);
  // The index knows keys, not how many tokens they cover.
  auto keys = keys_of(prompt);
  keys.push_back(block_keys(keys.back(), run(12, 2), 2).value().front());
  CHECK(chain{keys}.match(keys) == std::vector<std::int64_t>{100, 101, 102, 103});
  // So the manager makes none for the tail, and lets none be committed or asked for.
  computed manager{prompt};
  CHECK(keys_of(prompt) == keys_of(run(0, 12)));
  CHECK(manager.manager->describe(first_request)->committed_tokens == 12);
  test::check_refused(manager.manager->block_keys(first_request, {0, 14}), errc::invalid, "not whole blocks");
  test::check_refused(manager.manager->block_keys(first_request, {0, 16}), errc::invalid,
                      "past the whole blocks");
  test::check_refused(manager.manager->commit(first_request, 14), errc::invalid, "must be whole blocks");
  test::check_refused(manager.manager->commit(first_request, 16), errc::invalid, "past the prompt");
  CHECK(manager.matched(prompt) == 3);
  CHECK(manager.matched(run(0, 20)) == 3);
}

}  // namespace
}  // namespace kvlease
