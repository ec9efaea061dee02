// src/reuse_index.hpp: what is found, what is locked, and the order of eviction.
#include "src/reuse_index.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "src/names.hpp"

namespace kvlease {
namespace {

digest key(std::uint8_t n) {
  const std::array<std::byte, 1> text{std::byte{n}};
  return sha256(text);
}

/// An index of one layer group, whose block n has key(n) and page n.
struct forest {
  reuse_index index{1};

  cached_block add(std::uint8_t n, cached_block parent, std::int64_t pins = 0) {
    const std::array<std::int64_t, 1> page{n};
    const auto b = index.insert(key(n), parent, page, pins);
    whole();
    return b;
  }
  void whole() const {
    const auto ok = index.check_invariants();
    INFO((ok ? "" : ok.error().text));
    REQUIRE(ok.has_value());
  }
  std::vector<std::int64_t> evict_all() {
    std::vector<std::int64_t> pages;
    while (index.evictable() > 0) {
      const auto b = index.oldest();
      pages.push_back(index.pages(b)[0]);
      index.erase(b);
      whole();
    }
    return pages;
  }
};

TEST_CASE("reuse index: finds by key until the block is erased, then gives its place to another") {
  forest f;
  const auto a = f.add(1, cached_block::none);
  CHECK(f.index.find(key(1)) == a);
  CHECK(f.index.find(key(2)) == cached_block::none);
  f.index.drop_user(a);
  f.index.erase(a);
  CHECK(f.index.find(key(1)) == cached_block::none);
  CHECK(f.index.size() == 0);
  CHECK(f.add(2, cached_block::none) == a);
  CHECK(f.index.find(key(2)) == a);
}

TEST_CASE("reuse index: the longest unused goes first, children before parents") {
  forest f;
  const auto a = f.add(1, cached_block::none);
  const auto a2 = f.add(2, a);
  const auto b = f.add(3, cached_block::none);
  const auto b2 = f.add(4, b);
  for (const auto block : {b2, b, a2, a}) f.index.drop_user(block);
  CHECK(f.index.evictable() == 4);
  CHECK(f.evict_all() == std::vector<std::int64_t>{4, 3, 2, 1});
}

TEST_CASE("reuse index: use makes a block and its ancestors young again") {
  forest f;
  const auto a = f.add(1, cached_block::none);
  const auto a2 = f.add(2, a);
  const auto b = f.add(3, cached_block::none);
  for (const auto block : {a2, a, b}) f.index.drop_user(block);
  f.index.add_user(a);
  CHECK(f.index.evictable() == 2);
  f.index.drop_user(a);
  CHECK(f.evict_all() == std::vector<std::int64_t>{2, 3, 1});
}

TEST_CASE("reuse index: a used, or pinned, block keeps its unused ancestors and nothing else") {
  forest f;
  const auto root = f.add(1, cached_block::none);
  const auto left = f.add(2, root);
  const auto right = f.add(3, root);
  const auto leaf = f.add(4, right);
  for (const auto block : {left, right, root}) f.index.drop_user(block);
  CHECK(f.index.evictable() == 1);
  CHECK(f.evict_all() == std::vector<std::int64_t>{2});
  f.index.add_pin(leaf);
  f.index.drop_user(leaf);
  CHECK(f.index.evictable() == 0);
  CHECK(f.index.pinned(leaf));
  f.index.drop_pin(leaf);
  CHECK(f.evict_all() == std::vector<std::int64_t>{4, 3, 1});
}

TEST_CASE("reuse index: a new child locks ancestors that nobody uses") {
  forest f;
  const auto a = f.add(1, cached_block::none);
  const auto b = f.add(2, a);
  f.index.drop_user(b);
  f.index.drop_user(a);
  CHECK(f.index.evictable() == 2);
  const auto c = f.add(3, b);
  CHECK(f.index.evictable() == 0);
  f.index.drop_user(c);
  CHECK(f.evict_all() == std::vector<std::int64_t>{3, 2, 1});
}

TEST_CASE("reuse index: a block that is born pinned outlives its user") {
  forest f;
  const auto a = f.add(1, cached_block::none, 2);
  f.index.drop_user(a);
  f.index.drop_pin(a);
  CHECK(f.index.evictable() == 0);
  f.index.drop_pin(a);
  CHECK(f.index.evictable() == 1);
}

}  // namespace
}  // namespace kvlease
