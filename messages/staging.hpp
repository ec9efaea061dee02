// What a lender lends: parts of staging memory, runs of rows in them, and what may be resumed afterwards
// (scenarios 5.1). A row is one block of one layer group; it fills one slot of its part.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

/// 54 bytes: namespace 16 | block key 32 | canonical group 2 | shard count 2 | shard index 2.
inline constexpr std::size_t block_name_size = 54;

/// A contiguous span of staging memory, one a pool group; a slot holds one row.
struct part {
  std::string name;
  std::uintptr_t address = 0;   ///< first byte
  std::int64_t nbytes = 0;      ///< bytes; may exceed slots * slot_bytes
  std::int64_t slot_bytes = 0;  ///< bytes a slot
  std::int64_t slots = 0;       ///< count
  friend bool operator==(const part&, const part&) = default;
};

/// What C++ would convert to a number in silence.
template <class T>
concept flag_or_fraction = std::same_as<T, bool> || std::floating_point<T>;

/// One layer group's rows. `names`, `addresses` and `part_index` are all given or all absent.
class group_run {
 public:
  struct placement {
    std::vector<std::string> names;         ///< n opaque names, unchanged from the lender
    std::vector<std::uintptr_t> addresses;  ///< n slot addresses
    std::int64_t part_index = 0;            ///< into the lender's parts
    friend bool operator==(const placement&, const placement&) = default;
  };
  /// `ordinals`: n block ordinals. Errors: invalid for a negative layer group or unequal lengths.
  static result<group_run> make(std::int64_t layer_group, std::vector<std::int64_t> ordinals,
                                std::optional<placement> where);
  /// A flag or a fraction is no layer group (PS-16).
  template <flag_or_fraction T>
  static result<group_run> make(T, std::vector<std::int64_t>, std::optional<placement>) = delete;

  std::int64_t layer_group() const noexcept { return layer_group_; }
  const std::vector<std::int64_t>& ordinals() const noexcept { return ordinals_; }
  const std::optional<placement>& where() const noexcept { return where_; }
  std::size_t size() const noexcept { return ordinals_.size(); }
  /// The rows whose mask entry is true, in order. Errors: invalid when mask.size() != size().
  result<group_run> select(const std::vector<bool>& mask) const;
  friend bool operator==(const group_run&, const group_run&) = default;

 private:
  group_run(std::int64_t lg, std::vector<std::int64_t> ordinals, std::optional<placement> where)
      : layer_group_{lg}, ordinals_{std::move(ordinals)}, where_{std::move(where)} {}
  std::int64_t layer_group_;
  std::vector<std::int64_t> ordinals_;
  std::optional<placement> where_;
};

/// One writable mask a run, one entry a row.
using row_masks = std::vector<std::vector<bool>>;

/// The rows of one lease, at most one run a layer group.
class region_view {
 public:
  /// Errors: invalid for two runs of one layer group.
  static result<region_view> make(std::vector<group_run> runs);
  const std::vector<group_run>& runs() const noexcept { return runs_; }
  std::size_t num_rows() const noexcept;
  row_masks masks(bool value = false) const;
  friend bool operator==(const region_view&, const region_view&) = default;

 private:
  explicit region_view(std::vector<group_run> runs) : runs_{std::move(runs)} {}
  std::vector<group_run> runs_;
};

/// The request may resume at p, restart_floor <= p <= usable_until (tokens). Empty: compute from 0.
struct readiness {
  std::int64_t usable_until = 0;
  std::int64_t restart_floor = 0;
  bool empty() const noexcept { return usable_until < restart_floor; }
  friend bool operator==(const readiness&, const readiness&) = default;
};

/// How much staging a lender allocates (scenarios 5.3).
struct staging_options {
  std::int64_t fetch_tokens = 0;                         ///< the longest range that one lease must fit
  std::int64_t max_fetches = 1;                          ///< leases of that length at once
  std::optional<std::int64_t> max_bytes = std::nullopt;  ///< cap on the sum of the parts
  /// Errors: invalid naming the field for values below 1.
  result<void> validate() const;
};

/// Half-open range of token positions.
struct token_range {
  std::int64_t start = 0;
  std::int64_t end = 0;
  friend bool operator==(const token_range&, const token_range&) = default;
};

/// State of each slot of a pool; the four always add up to `total` (semantics 7.10).
struct slot_counts {
  std::int64_t total = 0;
  std::int64_t free = 0;
  std::int64_t lent = 0;            ///< lent, outcome open
  std::int64_t awaiting_proof = 0;  ///< outcome known or holder gone; evidence is missing
  std::int64_t quarantined = 0;     ///< a copy can never be proven complete
  bool conserved() const noexcept { return free + lent + awaiting_proof + quarantined == total; }
  slot_counts& operator+=(const slot_counts& o) noexcept {
    total += o.total, free += o.free, lent += o.lent;
    awaiting_proof += o.awaiting_proof, quarantined += o.quarantined;
    return *this;
  }
  friend bool operator==(const slot_counts&, const slot_counts&) = default;
};

}  // namespace kvlease
