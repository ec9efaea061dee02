// How many staging slots a lender needs (scenarios 5.3): exact integers, no allocation. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/error.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// What sizing knows of one layer group.
struct sized_layer_group {
  std::int64_t pool_group = 0;                        ///< index into sizing_layout::page_bytes
  std::optional<std::int64_t> window = std::nullopt;  ///< tokens; absent: full attention
  std::int64_t sink_blocks = 0;  ///< blocks kept in front of a window; without one it means nothing
};

struct sizing_layout {
  std::int64_t tokens_per_block = 0;
  std::vector<sized_layer_group> layer_groups;
  std::vector<std::int64_t> page_bytes;  ///< bytes of a page, one entry a pool group
};

/// By pool group, in the layout's order. A pool group that no layer group uses has no rows and no slots.
struct staging_size {
  std::vector<std::int64_t> rows;   ///< of one fetch
  std::int64_t fetch_bytes = 0;     ///< of one fetch, over all pool groups
  std::vector<std::int64_t> slots;  ///< to allocate
  std::int64_t nbytes = 0;          ///< of all slots; never above max_bytes
  friend bool operator==(const staging_size&, const staging_size&) = default;
};

/// Every whole-block range of at most fetch_tokens tokens fits; floor(max_bytes / fetch_bytes) such fetches,
/// and at most max_fetches, hold slots at once. Errors: invalid for bad options, a bad layout, "no pages",
/// max_bytes below "one fetch", and sizes past 2^63 - 1.
result<staging_size> size_staging(const sizing_layout& layout, const staging_options& options);

}  // namespace kvlease
