// Staging slots of all pool groups, and the line for them (semantics 6.2, 6.5, scenarios 5.4).
// A ticket asks for one contiguous run in each pool group; it gets all of them or none, strictly first come,
// first served. Pure bookkeeping on runs: nothing costs time a slot. Not thread-safe; the lender's own.
//
// A slot is free, quarantined (for good), or out: with whoever took it. Every change is checked whole before
// any of it is made, so a refused call has changed nothing.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

/// Slots [start, start + count) of one pool group.
struct slot_run {
  std::int64_t start = 0;
  std::int64_t count = 0;
  std::int64_t end() const noexcept { return start + count; }
  friend bool operator==(const slot_run&, const slot_run&) = default;
};

/// A place in the line. Rises; zero is none.
struct ticket {
  std::uint64_t value = 0;
  friend auto operator<=>(const ticket&, const ticket&) = default;
};

class slot_pool {
 public:
  /// Counts and runs by pool group. What is left out at the end is zero.
  using group_counts = std::vector<std::int64_t>;
  using group_runs = std::vector<slot_run>;

  /// Slots a pool group, each 0 or more; all are free.
  explicit slot_pool(const group_counts& slots);

  /// Whether `counts` can ever be granted. Errors: invalid for a negative count, an unknown pool group with
  /// a positive one, and more than a group can give in one run (which quarantine may have shortened).
  result<void> check(const group_counts& counts) const;
  /// Joins the line. Errors: as check(); nothing is queued then.
  result<ticket> ask(const group_counts& counts);
  /// One run for each pool group (the lowest that fits; empty for zero) if `t` is the head of the line and
  /// every group has one; else nothing, and nothing is taken. Errors: unknown for a ticket not in the line.
  result<std::optional<group_runs>> take(ticket t);
  /// Leaves the line; the next one is the head. Ignores tickets that are not in it.
  void cancel(ticket t) noexcept { line_.erase(t); }

  /// Gives runs back. Errors: invalid for an unknown pool group, slots outside it, slots that are free
  /// already ("freed twice") and quarantined ones.
  result<void> give(const group_runs& runs);
  /// Takes runs that are out from use for good (semantics 6.5). Errors: as give().
  result<void> quarantine(const group_runs& runs);

  std::size_t waiting() const noexcept { return line_.size(); }
  std::optional<ticket> head() const;

  std::size_t groups() const noexcept { return groups_.size(); }
  std::int64_t total_slots() const noexcept;
  std::int64_t free_slots() const noexcept;
  std::int64_t quarantined_slots() const noexcept;
  /// Precondition for all three: group < groups().
  std::int64_t total_slots(std::size_t group) const { return groups_.at(group).slots; }
  std::int64_t free_slots(std::size_t group) const { return groups_.at(group).free_count; }
  std::int64_t quarantined_slots(std::size_t group) const { return groups_.at(group).quarantined_count; }
  /// Free runs in order; no two of them touch.
  group_runs free_runs(std::size_t group) const;

  /// O(runs), for tests. Errors: state, naming what does not add up.
  result<void> check_invariants() const;

 private:
  using run_map = std::map<std::int64_t, std::int64_t>;  ///< start -> count; disjoint, none touching
  struct group_state {
    std::int64_t slots = 0;
    run_map free;
    run_map quarantined;
    std::int64_t free_count = 0;
    std::int64_t quarantined_count = 0;
    std::int64_t longest = 0;  ///< longest run that quarantine leaves
  };

  static bool overlaps(const run_map& runs, slot_run r);
  static void insert(run_map& runs, slot_run r);
  static run_map::const_iterator first_fit(const group_state& g, std::int64_t count);
  static slot_run carve(group_state& g, run_map::const_iterator from, std::int64_t count);
  static std::int64_t longest_left(const group_state& g);
  static result<void> check_invariants(std::size_t index, const group_state& g);
  /// All runs are out: in their group, neither free nor quarantined.
  result<void> check_out(const group_runs& runs, std::string_view verb) const;

  std::vector<group_state> groups_;
  std::map<ticket, group_counts> line_;
  std::uint64_t last_ = 0;
};

}  // namespace kvlease
