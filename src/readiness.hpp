// From where a request may resume after its fetches (scenarios 5.6, 5.8), for full attention: the contiguous
// prefix that is really there. Holes are never filled in. One object a request; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/ids.hpp"
#include "messages/staging.hpp"
#include "src/include/kvlease/manager_port.hpp"

namespace kvlease {

/// A block of one layer group.
struct block_row {
  std::int64_t layer_group = 0;
  std::int64_t ordinal = 0;
  friend bool operator==(const block_row&, const block_row&) = default;
};

class fetch_records {
 public:
  enum class fetch_state : std::uint8_t { open, delivered, settled, abandoned };

  fetch_records(std::int64_t tokens_per_block, std::size_t layer_groups)
      : tokens_per_block_{tokens_per_block}, arrived_(layer_groups) {}

  /// A fetch may begin only when this is false (scenarios 5.5, step 16).
  bool unsettled() const noexcept;

  /// The cache has grown for a fetch of `range`; replaces an earlier record.
  void open(lease_id lease, token_range range, const request_info& after_grow);
  /// The marks of the latest fetch are in, and `rows` are about to be copied: until settled they count no
  /// longer, being overwritten. Ignored, like the calls below, when `lease` is not the latest.
  void deliver(lease_id lease, const std::vector<block_row>& rows);
  /// The copy is complete: its rows count. A miss settles with none.
  void settle(lease_id lease);
  /// The fetch brings nothing: released unseen, or its copy is not proven. When the copy may have touched
  /// the block that the history ends inside, the cache is tainted.
  void abandon(lease_id lease, const request_info& info);
  /// Rows at or past `blocks` are void for good: their pages have gone.
  void shrink(std::int64_t blocks);

  /// Empty until the latest fetch has settled (6.6).
  std::optional<readiness> ask(const request_info& info) const;

 private:
  struct latest_fetch {
    lease_id lease;
    token_range range;
    fetch_state state = fetch_state::open;
    std::vector<block_row> rows;
  };
  struct advanced_history {
    std::int64_t kept = 0;
    std::int64_t history = 0;
  };
  std::int64_t known(const request_info& info) const noexcept;
  std::int64_t usable_until(std::int64_t known) const;
  bool is_latest(lease_id lease) const noexcept { return latest_ && latest_->lease == lease; }
  void count(const block_row& row, bool there);

  std::int64_t tokens_per_block_;
  std::vector<std::vector<bool>> arrived_;  ///< per layer group, by ordinal
  std::optional<latest_fetch> latest_;
  std::optional<std::int64_t> origin_;  ///< lowest start of a delivered fetch, tokens
  std::optional<advanced_history> advanced_;
  bool tainted_ = false;
};

}  // namespace kvlease
