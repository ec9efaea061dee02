// Which content is resident: blocks of pages found by their key, and in what order they may be evicted.
// Pure bookkeeping over page numbers. The paged manager's own; not thread-safe.
//
// A block is one page a layer group, under a key that covers everything before it, so each block but a
// scope's first has one parent. Blocks form a forest.
//   Rule of presence: a block is resident only while its parent is.
//   Rule of eviction: a block is locked while a request uses it, one of its pages is pinned, or one of its
//   children is locked. Blocks are evicted among the unlocked ones in the order in which they became
//   unlocked. A block becomes unlocked only after all of its children have, so the oldest is always a leaf,
//   and the two rules agree at no cost.
// All operations are O(layer groups), but for locking under ancestors that no one uses: that walks up to the
// first locked one, once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "messages/error.hpp"
#include "src/names.hpp"
#include "src/page_pool.hpp"

namespace kvlease {

class reuse_index {
 public:
  explicit reuse_index(std::size_t layer_groups) : layer_groups_{layer_groups} {}

  /// `none` when not resident.
  cached_block find(const digest& key) const;
  /// Makes `pages` (one a layer group) resident; the block has one user and `pins` pins.
  /// Preconditions: the key is not resident; `parent` is, or is none for the first block of a scope.
  cached_block insert(const digest& key, cached_block parent, std::span<const std::int64_t> pages,
                      std::int64_t pins);

  void add_user(cached_block b);
  void drop_user(cached_block b);
  void add_pin(cached_block b);
  void drop_pin(cached_block b);
  bool pinned(cached_block b) const { return at(b).pins > 0; }
  /// One page a layer group. Valid until the next insert or erase.
  std::span<const std::int64_t> pages(cached_block b) const;

  /// Unlocked blocks: all of them can be evicted, one after the other.
  std::int64_t evictable() const noexcept { return unlocked_; }
  /// The block to evict next. Precondition: evictable() > 0.
  cached_block oldest() const;
  /// Precondition: b is unlocked and has no children.
  void erase(cached_block b);

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(by_key_.size()); }
  /// O(blocks), for tests. Errors: state, naming what does not add up.
  result<void> check_invariants() const;

 private:
  struct node {
    digest key{};
    cached_block parent = cached_block::none;
    std::int64_t children = 0;
    std::int64_t locked_children = 0;
    std::int64_t users = 0;
    std::int64_t pins = 0;
    cached_block older = cached_block::none;  ///< in the list of unlocked blocks
    cached_block newer = cached_block::none;
    bool listed = false;
    bool resident = false;
  };
  struct key_hash {
    std::size_t operator()(const digest& key) const noexcept;
  };
  static bool locked(const node& n) noexcept { return n.users > 0 || n.pins > 0 || n.locked_children > 0; }
  node& at(cached_block b);
  const node& at(cached_block b) const;
  /// After a change of `b`: enters or leaves the list, and tells the ancestors while that changes them.
  void relist(cached_block b);
  void link_newest(cached_block b);
  void unlink(cached_block b);
  result<void> check_list() const;

  std::size_t layer_groups_;
  std::unordered_map<digest, cached_block, key_hash> by_key_;
  std::vector<node> nodes_;
  std::vector<std::int64_t> pages_;  ///< layer_groups_ entries a node
  std::vector<cached_block> unused_;
  cached_block oldest_ = cached_block::none;
  cached_block newest_ = cached_block::none;
  std::int64_t unlocked_ = 0;
};

}  // namespace kvlease
