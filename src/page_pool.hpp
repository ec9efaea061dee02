// The pages of one pool group: who has each of them, counted, and the free ones in O(1).
// Pure bookkeeping: it touches no memory and knows no keys. The paged manager's own; not thread-safe.
//
// A page has users (requests), pins (copies that may still touch it) and perhaps a cached block (content that
// the reuse index can find). It counts once, under the first of these that fits:
//   held    a request uses it, pinned or not
//   pinned  nobody uses it, but a copy may still touch it; cached or not
//   cached  nobody uses or pins it; the index can find it
//   free    nothing of the above; only such a page is ever handed out
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/error.hpp"
#include "src/include/kvlease/manager_port.hpp"

namespace kvlease {

/// A block of the reuse index. Reused once its block is evicted; valid while the block is resident.
enum class cached_block : std::int64_t { none = -1 };

enum class page_state : std::uint8_t { free, held, cached, pinned };

class page_pool {
 public:
  /// All `pages` are free; they are handed out from 0 up, then the last freed first.
  explicit page_pool(std::int64_t pages);

  /// Hands out a free page to one user. Precondition: free() > 0.
  std::int64_t take();
  void add_user(std::int64_t page);
  void drop_user(std::int64_t page);
  void add_pin(std::int64_t page);
  void drop_pin(std::int64_t page);
  /// Precondition: the page has no cached block yet.
  void cache(std::int64_t page, cached_block as);
  void uncache(std::int64_t page);

  std::int64_t total() const noexcept { return static_cast<std::int64_t>(cells_.size()); }
  std::int64_t free() const noexcept { return count(page_state::free); }
  page_counts counts() const noexcept;
  page_state state(std::int64_t page) const { return state_of(cell_at(page)); }
  std::int64_t pins(std::int64_t page) const { return cell_at(page).pins; }
  std::int64_t users(std::int64_t page) const { return cell_at(page).users; }
  cached_block block(std::int64_t page) const { return cell_at(page).block; }

  /// O(pages), for tests. Errors: state, naming what does not add up.
  result<void> check_invariants() const;

 private:
  struct cell {
    std::int64_t users = 0;
    std::int64_t pins = 0;
    cached_block block = cached_block::none;
  };
  static page_state state_of(const cell& c) noexcept;
  const cell& cell_at(std::int64_t page) const;
  std::int64_t count(page_state s) const noexcept { return counts_[static_cast<std::size_t>(s)]; }
  /// Every change goes through here, so that counts and free list follow the cell.
  template <class Change>
  void update(std::int64_t page, Change change);

  std::vector<cell> cells_;
  std::vector<std::int64_t> free_;  ///< the next to hand out last
  std::int64_t counts_[4] = {};     ///< by page_state
};

}  // namespace kvlease
