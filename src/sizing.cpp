#include "src/sizing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <string_view>
#include <utility>

namespace kvlease {

namespace {

/// Holds the product of two 63-bit sizes. Only a typedef can be marked as an extension of the language.
__extension__ typedef unsigned __int128 wide;  // NOLINT(modernize-use-using)

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

/// Nothing when the result is past 2^63 - 1. Preconditions: both 0 or more.
std::optional<std::int64_t> sum(std::int64_t a, std::int64_t b) {
  if (a > most - b) return std::nullopt;
  return a + b;
}

std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) {
  if (b != 0 && a > most / b) return std::nullopt;
  return a * b;
}

/// Precondition: a >= 1, b >= 1.
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a - 1) / b + 1; }

result<void> check_layout(const sizing_layout& layout) {
  if (layout.tokens_per_block < 1)
    return fail(errc::invalid,
                fmt::format("tokens_per_block is {}, must be 1 or more", layout.tokens_per_block));
  for (std::size_t p = 0; p < layout.page_bytes.size(); ++p)
    if (layout.page_bytes[p] < 1)
      return fail(errc::invalid,
                  fmt::format("pool group {} has no pages: page_bytes is {}, must be 1 or more", p,
                              layout.page_bytes[p]));
  for (std::size_t g = 0; g < layout.layer_groups.size(); ++g) {
    const auto& lg = layout.layer_groups[g];
    const auto bad = [g](std::string_view field, std::int64_t value, std::string_view rule) {
      return fail(errc::invalid, fmt::format("layer group {}: {} is {}, {}", g, field, value, rule));
    };
    if (lg.pool_group < 0 || static_cast<std::size_t>(lg.pool_group) >= layout.page_bytes.size())
      return bad("pool_group", lg.pool_group, fmt::format("there are {}", layout.page_bytes.size()));
    if (lg.window && *lg.window < 1) return bad("window", *lg.window, "must be 1 or more");
    if (lg.sink_blocks < 0) return bad("sink_blocks", lg.sink_blocks, "must be 0 or more");
  }
  return {};
}

/// Rows that one fetch of `blocks` needs in one layer group, at most.
std::int64_t rows_of(const sized_layer_group& lg, std::int64_t blocks, std::int64_t tokens_per_block) {
  if (!lg.window) return blocks;
  const auto kept = sum(lg.sink_blocks, ceil_div(*lg.window, tokens_per_block));
  return kept ? std::min(blocks, *kept) : blocks;
}

auto too_large(std::string_view what) { return fail(errc::invalid, fmt::format("{} exceed 2^63 - 1", what)); }

/// Fills rows and fetch_bytes.
result<staging_size> size_fetch(const sizing_layout& layout, std::int64_t fetch_tokens) {
  const auto blocks = ceil_div(fetch_tokens, layout.tokens_per_block);
  staging_size size;
  size.rows.resize(layout.page_bytes.size());
  for (const auto& lg : layout.layer_groups) {
    auto& rows = size.rows[static_cast<std::size_t>(lg.pool_group)];
    const auto more = sum(rows, rows_of(lg, blocks, layout.tokens_per_block));
    if (!more)
      return too_large(
          fmt::format("rows of one fetch of {} tokens in pool group {}", fetch_tokens, lg.pool_group));
    rows = *more;
  }
  for (std::size_t p = 0; p < size.rows.size(); ++p) {
    const auto bytes = product(size.rows[p], layout.page_bytes[p]);
    const auto total = bytes ? sum(size.fetch_bytes, *bytes) : std::nullopt;
    if (!total)
      return too_large(fmt::format("bytes of one fetch of {} tokens: {} rows of {} bytes in pool group {}",
                                   fetch_tokens, size.rows[p], layout.page_bytes[p], p));
    size.fetch_bytes = *total;
  }
  return size;
}

/// Bytes to share out. Precondition: one fetch has at least a byte.
result<std::int64_t> budget_of(const staging_options& options, std::int64_t fetch_bytes) {
  const auto wanted = product(options.max_fetches, fetch_bytes);
  if (!options.max_bytes) {
    if (wanted) return *wanted;
    return too_large(fmt::format("bytes of {} fetches of {} bytes", options.max_fetches, fetch_bytes));
  }
  if (*options.max_bytes < fetch_bytes)
    return fail(errc::invalid, fmt::format("max_bytes is {}, must hold one fetch of {} tokens: {} bytes",
                                           *options.max_bytes, options.fetch_tokens, fetch_bytes));
  return std::min(wanted.value_or(most), *options.max_bytes);
}

}  // namespace

result<staging_size> size_staging(const sizing_layout& layout, const staging_options& options) {
  if (auto ok = options.validate(); !ok) return tl::unexpected{std::move(ok).error()};
  if (auto ok = check_layout(layout); !ok) return tl::unexpected{std::move(ok).error()};
  auto size = size_fetch(layout, options.fetch_tokens);
  if (!size) return size;
  if (size->fetch_bytes < 1)
    return fail(errc::invalid,
                fmt::format("one fetch of {} tokens needs no pages: the layout has {} layer groups",
                            options.fetch_tokens, layout.layer_groups.size()));
  const auto budget = budget_of(options, size->fetch_bytes);
  if (!budget) return tl::unexpected{budget.error()};
  for (std::size_t p = 0; p < size->rows.size(); ++p) {
    const auto page = layout.page_bytes[p];
    const std::int64_t bytes = size->rows[p] * page;  // at most fetch_bytes
    const wide share =
        static_cast<wide>(*budget) * static_cast<wide>(bytes) / static_cast<wide>(size->fetch_bytes);
    size->slots.push_back(static_cast<std::int64_t>(share) / page);
    assert(size->slots[p] >= size->rows[p]);  // one fetch always fits
    size->nbytes += size->slots[p] * page;
  }
  assert(size->nbytes <= *budget);
  return size;
}

}  // namespace kvlease
