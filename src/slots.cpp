#include "src/slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "src/guard.hpp"

namespace kvlease {

slot_pool::slot_pool(const group_counts& slots) {
  groups_.reserve(slots.size());
  for (const auto n : slots) {
    assert(n >= 0);
    group_state g{.slots = n, .free = {}, .quarantined = {}, .free_count = n, .longest = n};
    if (n > 0) g.free.emplace(0, n);
    groups_.push_back(std::move(g));
  }
}

// ---- runs

bool slot_pool::overlaps(const run_map& runs, slot_run r) {
  const auto next = runs.lower_bound(r.start);
  if (next != runs.end() && next->first < r.end()) return true;
  return next != runs.begin() && std::prev(next)->first + std::prev(next)->second > r.start;
}

/// Joins `r` with the neighbours that it touches. Precondition: it overlaps none.
void slot_pool::insert(run_map& runs, slot_run r) {
  assert(r.count > 0 && !overlaps(runs, r));
  auto next = runs.lower_bound(r.start);
  if (next != runs.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == r.start) {
      r = {before->first, before->second + r.count};
      runs.erase(before);
    }
  }
  if (next != runs.end() && next->first == r.end()) {
    r.count += next->second;
    next = runs.erase(next);
  }
  runs.emplace_hint(next, r.start, r.count);
}

slot_pool::run_map::const_iterator slot_pool::first_fit(const group_state& g, std::int64_t count) {
  return std::ranges::find_if(g.free, [count](const auto& run) { return run.second >= count; });
}

slot_run slot_pool::carve(group_state& g, run_map::const_iterator from, std::int64_t count) {
  const slot_run whole{from->first, from->second};
  assert(count > 0 && whole.count >= count);
  const auto next = g.free.erase(from);
  if (whole.count > count) g.free.emplace_hint(next, whole.start + count, whole.count - count);
  g.free_count -= count;
  assert(g.free_count >= 0);
  return {whole.start, count};
}

std::int64_t slot_pool::longest_left(const group_state& g) {
  std::int64_t longest = 0;
  std::int64_t from = 0;
  for (const auto& [start, count] : g.quarantined) {
    longest = std::max(longest, start - from);
    from = start + count;
  }
  return std::max(longest, g.slots - from);
}

// ---- the line

result<void> slot_pool::check(const group_counts& counts) const {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto n = counts[i];
    if (n < 0)
      return fail(errc::invalid, fmt::format("pool group {}: {} slots asked, must be 0 or more", i, n));
    if (n == 0) continue;
    if (i >= groups_.size())
      return fail(errc::invalid,
                  fmt::format("pool group {} is unknown: {} slots asked of it, there are {} pool groups", i,
                              n, groups_.size()));
    if (n > groups_[i].longest)
      return fail(
          errc::invalid,
          fmt::format("pool group {}: {} slots asked, more staging slots than the {} in a row that it can "
                      "ever give ({} of its {} are quarantined)",
                      i, n, groups_[i].longest, groups_[i].quarantined_count, groups_[i].slots));
  }
  return {};
}

result<ticket> slot_pool::ask(const group_counts& counts) {
  if (auto ok = check(counts); !ok) return tl::unexpected{std::move(ok).error()};
  const ticket t{++last_};
  line_.emplace_hint(line_.end(), t, counts);
  return t;
}

result<std::optional<slot_pool::group_runs>> slot_pool::take(ticket t) {
  const auto it = line_.find(t);
  if (it == line_.end())
    return fail(errc::unknown, fmt::format("ticket {} is not in the line: it was granted, cancelled or never "
                                           "given out",
                                           t.value));
  if (it != line_.begin() && !mutated(mutation::fifo_broken)) return std::nullopt;
  const auto& counts = it->second;
  const auto asked = std::min(counts.size(), groups_.size());  // past it all counts are zero, by check()
  std::vector<run_map::const_iterator> from(asked);
  for (std::size_t i = 0; i < asked; ++i) {
    if (counts[i] == 0) continue;
    from[i] = first_fit(groups_[i], counts[i]);
    if (from[i] == groups_[i].free.end()) return std::nullopt;
  }
  group_runs runs(groups_.size());
  for (std::size_t i = 0; i < asked; ++i)
    if (counts[i] > 0) runs[i] = carve(groups_[i], from[i], counts[i]);
  line_.erase(it);
  assert(check_out(runs, "taken"));  // pairs with give(): what goes out can come back
  return runs;
}

std::optional<ticket> slot_pool::head() const {
  if (line_.empty()) return std::nullopt;
  return line_.begin()->first;
}

// ---- coming back

result<void> slot_pool::check_out(const group_runs& runs, std::string_view verb) const {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& r = runs[i];
    if (r.count == 0) continue;
    const auto bad = [&](std::string_view what) {
      return fail(errc::invalid,
                  fmt::format("pool group {}: {} slots at {} {}, {}", i, r.count, r.start, verb, what));
    };
    if (i >= groups_.size()) return bad(fmt::format("but there are {} pool groups", groups_.size()));
    const auto& g = groups_[i];
    if (r.count < 0 || r.start < 0 || r.count > g.slots || r.start > g.slots - r.count)
      return bad(fmt::format("which is outside its {} slots", g.slots));
    if (overlaps(g.free, r)) return bad("of which some are free: freed twice");
    if (overlaps(g.quarantined, r)) return bad("of which some are quarantined for good");
  }
  return {};
}

result<void> slot_pool::give(const group_runs& runs) {
  if (auto ok = check_out(runs, "given back"); !ok) return ok;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].count == 0) continue;
    auto& g = groups_[i];
    insert(g.free, runs[i]);
    g.free_count += runs[i].count;
    assert(g.free_count + g.quarantined_count <= g.slots);
  }
  return {};
}

result<void> slot_pool::quarantine(const group_runs& runs) {
  if (auto ok = check_out(runs, "quarantined"); !ok) return ok;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].count == 0) continue;
    auto& g = groups_[i];
    insert(g.quarantined, runs[i]);
    g.quarantined_count += runs[i].count;
    g.longest = longest_left(g);
    assert(g.free_count + g.quarantined_count <= g.slots);
  }
  return {};
}

// ---- counts

std::int64_t slot_pool::total_slots() const noexcept {
  std::int64_t n = 0;
  for (const auto& g : groups_) n += g.slots;
  return n;
}

std::int64_t slot_pool::free_slots() const noexcept {
  std::int64_t n = 0;
  for (const auto& g : groups_) n += g.free_count;
  return n;
}

std::int64_t slot_pool::quarantined_slots() const noexcept {
  std::int64_t n = 0;
  for (const auto& g : groups_) n += g.quarantined_count;
  return n;
}

slot_pool::group_runs slot_pool::free_runs(std::size_t group) const {
  group_runs runs;
  for (const auto& [start, count] : groups_.at(group).free) runs.push_back({start, count});
  return runs;
}

result<void> slot_pool::check_invariants(std::size_t index, const group_state& g) {
  const auto bad = [&](std::string_view what) {
    return fail(errc::state, fmt::format("slot pool, pool group {}: {}", index, what));
  };
  for (const auto* runs : {&g.free, &g.quarantined}) {
    std::int64_t last_end = -1;  // so that a run may start at 0
    std::int64_t sum = 0;
    for (const auto& [start, count] : *runs) {
      if (count < 1 || start < 0 || start + count > g.slots)
        return bad(fmt::format("run of {} slots at {} is not inside its {}", count, start, g.slots));
      if (start <= last_end)
        return bad(fmt::format("run at {} touches the one that ends at {}", start, last_end));
      if (runs == &g.free && overlaps(g.quarantined, {start, count}))
        return bad(fmt::format("run of {} slots at {} is free and quarantined", count, start));
      last_end = start + count;
      sum += count;
    }
    const auto counted = runs == &g.free ? g.free_count : g.quarantined_count;
    if (sum != counted) return bad(fmt::format("runs have {} slots, counted {}", sum, counted));
  }
  return {};
}

result<void> slot_pool::check_invariants() const {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (auto ok = check_invariants(i, groups_[i]); !ok) return ok;
  return {};
}

}  // namespace kvlease
