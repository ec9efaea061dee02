#include "src/page_pool.hpp"

#include <cassert>
#include <string>

namespace kvlease {

page_pool::page_pool(std::int64_t pages) {
  assert(pages >= 0);
  cells_.resize(static_cast<std::size_t>(pages));
  free_.reserve(cells_.size());
  for (std::int64_t page = pages - 1; page >= 0; --page) free_.push_back(page);
  counts_[static_cast<std::size_t>(page_state::free)] = pages;
}

page_state page_pool::state_of(const cell& c) noexcept {
  if (c.users > 0) return page_state::held;
  if (c.pins > 0) return page_state::pinned;
  if (c.block != cached_block::none) return page_state::cached;
  return page_state::free;
}

const page_pool::cell& page_pool::cell_at(std::int64_t page) const {
  assert(page >= 0 && page < total());
  return cells_[static_cast<std::size_t>(page)];
}

template <class Change>
void page_pool::update(std::int64_t page, Change change) {
  assert(page >= 0 && page < total());
  cell& c = cells_[static_cast<std::size_t>(page)];
  const page_state before = state_of(c);
  change(c);
  const page_state after = state_of(c);
  assert(c.users >= 0 && c.pins >= 0);
  if (before == after) return;
  --counts_[static_cast<std::size_t>(before)];
  ++counts_[static_cast<std::size_t>(after)];
  // take() has already removed the page that it turns from free into held.
  if (after == page_state::free) free_.push_back(page);
}

std::int64_t page_pool::take() {
  assert(!free_.empty());
  const std::int64_t page = free_.back();
  free_.pop_back();
  assert(state(page) == page_state::free);
  update(page, [](cell& c) { ++c.users; });
  return page;
}

void page_pool::add_user(std::int64_t page) {
  assert(state(page) != page_state::free);  // a free page is given out by take() alone
  update(page, [](cell& c) { ++c.users; });
}

void page_pool::drop_user(std::int64_t page) {
  update(page, [](cell& c) { --c.users; });
}

void page_pool::add_pin(std::int64_t page) {
  assert(state(page) == page_state::held);  // only what a request still holds is pinned (semantics 6.4)
  update(page, [](cell& c) { ++c.pins; });
}

void page_pool::drop_pin(std::int64_t page) {
  update(page, [](cell& c) { --c.pins; });
}

void page_pool::cache(std::int64_t page, cached_block as) {
  assert(as != cached_block::none && block(page) == cached_block::none);
  assert(state(page) == page_state::held);
  update(page, [as](cell& c) { c.block = as; });
}

void page_pool::uncache(std::int64_t page) {
  assert(state(page) == page_state::cached);  // never what is held or pinned
  update(page, [](cell& c) { c.block = cached_block::none; });
}

page_counts page_pool::counts() const noexcept {
  return page_counts{.total = total(),
                     .free = count(page_state::free),
                     .held = count(page_state::held),
                     .cached = count(page_state::cached),
                     .pinned = count(page_state::pinned)};
}

result<void> page_pool::check_invariants() const {
  std::int64_t seen[4] = {};
  for (const cell& c : cells_) {
    if (c.users < 0 || c.pins < 0) return fail(errc::state, "page pool: negative users or pins");
    ++seen[static_cast<std::size_t>(state_of(c))];
  }
  for (std::size_t s = 0; s < 4; ++s) {
    if (seen[s] != counts_[s])
      return fail(errc::state, "page pool: " + std::to_string(seen[s]) + " pages in state " +
                                   std::to_string(s) + ", counted " + std::to_string(counts_[s]));
  }
  std::vector<bool> listed(cells_.size());
  for (const std::int64_t page : free_) {
    if (state(page) != page_state::free)
      return fail(errc::state, "page pool: page " + std::to_string(page) + " is in use and on the free list");
    if (listed[static_cast<std::size_t>(page)])
      return fail(errc::state, "page pool: page " + std::to_string(page) + " is twice on the free list");
    listed[static_cast<std::size_t>(page)] = true;
  }
  if (static_cast<std::int64_t>(free_.size()) != free())
    return fail(errc::state, "page pool: the free list has " + std::to_string(free_.size()) +
                                 " pages, counted " + std::to_string(free()));
  return {};
}

}  // namespace kvlease
