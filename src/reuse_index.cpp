#include "src/reuse_index.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

namespace kvlease {
namespace {

std::size_t index(cached_block b) { return static_cast<std::size_t>(b); }

std::string text(std::size_t b) { return "reuse index: block " + std::to_string(b); }

}  // namespace

// A key is a SHA-256: any eight bytes of it are a good hash.
std::size_t reuse_index::key_hash::operator()(const digest& key) const noexcept {
  std::size_t h = 0;
  static_assert(sizeof(digest) >= sizeof h);
  std::memcpy(&h, key.data(), sizeof h);
  return h;
}

reuse_index::node& reuse_index::at(cached_block b) {
  assert(b != cached_block::none && index(b) < nodes_.size() && nodes_[index(b)].resident);
  return nodes_[index(b)];
}

const reuse_index::node& reuse_index::at(cached_block b) const {
  assert(b != cached_block::none && index(b) < nodes_.size() && nodes_[index(b)].resident);
  return nodes_[index(b)];
}

cached_block reuse_index::find(const digest& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? cached_block::none : found->second;
}

cached_block reuse_index::insert(const digest& key, cached_block parent, std::span<const std::int64_t> pages,
                                 std::int64_t pins) {
  assert(pages.size() == layer_groups_ && find(key) == cached_block::none);
  cached_block b{static_cast<std::int64_t>(nodes_.size())};
  if (unused_.empty()) {
    nodes_.emplace_back();
    pages_.resize(pages_.size() + layer_groups_);
  } else {
    b = unused_.back();
    unused_.pop_back();
  }
  node& n = nodes_[index(b)];
  n = node{};
  n.key = key;
  n.parent = parent;
  n.users = 1;
  n.pins = pins;
  n.resident = true;
  std::copy(pages.begin(), pages.end(),
            pages_.begin() + static_cast<std::ptrdiff_t>(index(b) * layer_groups_));
  by_key_.emplace(key, b);
  if (parent != cached_block::none) {
    node& p = at(parent);
    ++p.children;
    ++p.locked_children;
    relist(parent);
  }
  return b;
}

void reuse_index::add_user(cached_block b) {
  ++at(b).users;
  relist(b);
}

void reuse_index::drop_user(cached_block b) {
  assert(at(b).users > 0);
  --at(b).users;
  relist(b);
}

void reuse_index::add_pin(cached_block b) {
  ++at(b).pins;
  relist(b);
}

void reuse_index::drop_pin(cached_block b) {
  assert(at(b).pins > 0);
  --at(b).pins;
  relist(b);
}

std::span<const std::int64_t> reuse_index::pages(cached_block b) const {
  assert(at(b).resident);
  return std::span{pages_}.subspan(index(b) * layer_groups_, layer_groups_);
}

cached_block reuse_index::oldest() const {
  assert(unlocked_ > 0 && at(oldest_).children == 0);
  return oldest_;
}

void reuse_index::erase(cached_block b) {
  node& n = at(b);
  assert(!locked(n) && n.listed && n.children == 0);
  unlink(b);
  if (n.parent != cached_block::none) --at(n.parent).children;  // unlocked: its lock count stays
  by_key_.erase(n.key);
  n.resident = false;
  unused_.push_back(b);
}

void reuse_index::relist(cached_block b) {
  while (b != cached_block::none) {
    node& n = at(b);
    const bool was_locked = !n.listed;
    if (locked(n) == was_locked) return;
    if (was_locked)
      link_newest(b);
    else
      unlink(b);
    if (n.parent != cached_block::none) at(n.parent).locked_children += was_locked ? -1 : 1;
    b = n.parent;
  }
}

void reuse_index::link_newest(cached_block b) {
  node& n = at(b);
  n.older = newest_;
  n.newer = cached_block::none;
  n.listed = true;
  (newest_ == cached_block::none ? oldest_ : at(newest_).newer) = b;
  newest_ = b;
  ++unlocked_;
}

void reuse_index::unlink(cached_block b) {
  node& n = at(b);
  (n.older == cached_block::none ? oldest_ : at(n.older).newer) = n.newer;
  (n.newer == cached_block::none ? newest_ : at(n.newer).older) = n.older;
  n.listed = false;
  --unlocked_;
}

result<void> reuse_index::check_invariants() const {
  std::vector<std::int64_t> children(nodes_.size());
  std::vector<std::int64_t> locked_children(nodes_.size());
  std::int64_t resident = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const node& n = nodes_[i];
    if (!n.resident) continue;
    ++resident;
    if (find(n.key) != cached_block{static_cast<std::int64_t>(i)})
      return fail(errc::state, text(i) + " is not found by its key");
    if (n.listed == locked(n))
      return fail(errc::state, text(i) + " is locked and may be evicted, or neither");
    if (n.parent == cached_block::none) continue;
    if (!nodes_[index(n.parent)].resident) return fail(errc::state, text(i) + " has lost its parent");
    ++children[index(n.parent)];
    if (locked(n)) ++locked_children[index(n.parent)];
  }
  if (resident != size())
    return fail(errc::state, "reuse index: keys without a block, or blocks without a key");
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const node& n = nodes_[i];
    if (!n.resident) continue;
    if (n.children != children[i] || n.locked_children != locked_children[i])
      return fail(errc::state, text(i) + " miscounts its children");
  }
  return check_list();
}

/// The list of unlocked blocks is whole, and no block stands in it before a child of its own.
result<void> reuse_index::check_list() const {
  std::vector<bool> passed(nodes_.size());
  std::int64_t listed = 0;
  for (cached_block b = oldest_; b != cached_block::none; b = nodes_[index(b)].newer) {
    const node& n = nodes_[index(b)];
    if (!n.resident || !n.listed)
      return fail(errc::state, text(index(b)) + " is gone and may still be evicted");
    if (n.parent != cached_block::none && passed[index(n.parent)])
      return fail(errc::state, text(index(b)) + " would be evicted after its parent");
    passed[index(b)] = true;
    if (++listed > unlocked_) break;
  }
  if (listed != unlocked_) return fail(errc::state, "reuse index: miscounts what may be evicted");
  return {};
}

}  // namespace kvlease
