#include "messages/staging.hpp"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>
#include <utility>

namespace kvlease {

namespace {

template <class T>
std::vector<T> selected(const std::vector<T>& all, const std::vector<bool>& mask) {
  std::vector<T> kept;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (mask[i]) kept.push_back(all[i]);
  return kept;
}

}  // namespace

result<group_run> group_run::make(std::int64_t layer_group, std::vector<std::int64_t> ordinals,
                                  std::optional<placement> where) {
  if (layer_group < 0)
    return fail(errc::invalid, fmt::format("layer group is {}, must be 0 or more", layer_group));
  if (where) {
    const auto rows = ordinals.size();
    if (where->part_index < 0)
      return fail(errc::invalid, fmt::format("run of layer group {}: part index is {}, must be 0 or more",
                                             layer_group, where->part_index));
    if (where->names.size() != rows)
      return fail(errc::invalid,
                  fmt::format("run of layer group {}: {} names for {} ordinals, must be one each",
                              layer_group, where->names.size(), rows));
    if (where->addresses.size() != rows)
      return fail(errc::invalid,
                  fmt::format("run of layer group {}: {} addresses for {} ordinals, must be one each",
                              layer_group, where->addresses.size(), rows));
  }
  return group_run{layer_group, std::move(ordinals), std::move(where)};
}

result<group_run> group_run::select(const std::vector<bool>& mask) const {
  if (mask.size() != size())
    return fail(errc::invalid,
                fmt::format("mask has {} entries for the {} rows of layer group {}, must be one each",
                            mask.size(), size(), layer_group_));
  std::optional<placement> where;
  if (where_)
    where = placement{.names = selected(where_->names, mask),
                      .addresses = selected(where_->addresses, mask),
                      .part_index = where_->part_index};
  return group_run{layer_group_, selected(ordinals_, mask), std::move(where)};
}

result<region_view> region_view::make(std::vector<group_run> runs) {
  std::unordered_set<std::int64_t> seen;
  for (const auto& run : runs)
    if (!seen.insert(run.layer_group()).second)
      return fail(errc::invalid,
                  fmt::format("view has two runs of layer group {}, must be one at most", run.layer_group()));
  return region_view{std::move(runs)};
}

std::size_t region_view::num_rows() const noexcept {
  std::size_t rows = 0;
  for (const auto& run : runs_) rows += run.size();
  return rows;
}

row_masks region_view::masks(bool value) const {
  row_masks masks;
  masks.reserve(runs_.size());
  for (const auto& run : runs_) masks.emplace_back(run.size(), value);
  return masks;
}

result<void> staging_options::validate() const {
  const auto too_small = [](std::string_view field, std::int64_t value) {
    return fail(errc::invalid, fmt::format("staging option {} is {}, must be 1 or more", field, value));
  };
  if (fetch_tokens < 1) return too_small("fetch_tokens", fetch_tokens);
  if (max_fetches < 1) return too_small("max_fetches", max_fetches);
  if (max_bytes && *max_bytes < 1) return too_small("max_bytes", *max_bytes);
  return {};
}

}  // namespace kvlease
