// From a lease's rows to a backend's units, and from served names back to rows (semantics 3.3-3.5).
// Pure; both directions cost about linear time in the rows. The names stay the lender's, byte for byte.
#pragma once

#include <set>
#include <span>
#include <string_view>

#include "messages/contract.hpp"
#include "messages/error.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// Extent name of all staging: never a request id or the identity of an allocation (semantics 3.4).
inline constexpr std::string_view staging_namespace = "trtllm:shared-kv:staging:1";

/// One unit a row, run by run: its name, its layer group, and its slot as the local coordinate.
/// `parts` are all of the lender's, addresses and sizes in bytes. Errors: invalid, in the order of
/// scenarios 2.3, for parts of bad geometry or overlapping, rows without names, unknown parts, negative
/// ordinals, addresses that are no slot of their part, two rows on one slot, and equal names.
result<cache_extent> build_extent(const region_view& view, std::span<const part> parts, bytes name,
                                  end_of_sequence is_last);

/// One mask a run: true for the rows whose name was served; holes stay holes. Errors: invalid for a run
/// without names, for a name twice in the view, and for a served name that the view has not (scenarios 2.4).
result<row_masks> served_masks(const region_view& view, const std::set<bytes>& served);

}  // namespace kvlease
