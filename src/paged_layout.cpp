#include "src/paged_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "src/layout.hpp"

namespace kvlease {
namespace {

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

tl::unexpected<error> not_positive(const std::string& what, std::int64_t value) {
  return fail(errc::invalid, what + " is " + std::to_string(value) + ", must be 1 or more");
}

/// Page bytes in each memory pool of the group.
std::vector<std::int64_t> widths_of(const pool_group_layout& g) {
  return g.pool_bytes.empty() ? std::vector{g.page_bytes} : g.pool_bytes;
}

result<void> check_pool_group(const pool_group_layout& g, std::size_t index,
                              std::span<const std::shared_ptr<memory_block>> memory) {
  const std::string name = "pool group " + std::to_string(index);
  if (g.page_bytes < 1) return not_positive(name + ": page_bytes", g.page_bytes);
  if (g.pages < 1) return not_positive(name + ": pages", g.pages);
  if (g.pages > int64_max / g.page_bytes)
    return fail(errc::invalid, name + ": " + std::to_string(g.pages) + " pages of " +
                                   std::to_string(g.page_bytes) + " bytes, must be fewer than 2^63 bytes");
  const auto widths = widths_of(g);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const std::string pool = g.pool_bytes.empty() ? name : name + ", pool " + std::to_string(i);
    if (widths[i] < 1) return not_positive(pool + ": pool_bytes", widths[i]);
    if (widths[i] > g.page_bytes - sum)
      return fail(errc::invalid,
                  name + ": pool_bytes sum to more than page_bytes, " + std::to_string(g.page_bytes));
    sum += widths[i];
    if (memory[i] == nullptr) return fail(errc::invalid, pool + ": no memory given");
    if (memory[i]->size() < static_cast<std::size_t>(g.pages * widths[i]))
      return fail(errc::invalid, pool + ": memory of " + std::to_string(memory[i]->size()) +
                                     " bytes, must be " + std::to_string(g.pages * widths[i]) + " or more");
  }
  if (sum != g.page_bytes)
    return fail(errc::invalid, name + ": pool_bytes sum to " + std::to_string(sum) +
                                   ", must be page_bytes, " + std::to_string(g.page_bytes));
  return {};
}

result<void> check_layer_groups(const std::vector<layer_group_layout>& groups, std::size_t pool_groups) {
  if (groups.empty()) return fail(errc::invalid, "layer_groups is empty, must be 1 or more");
  std::map<std::uint32_t, std::size_t> group_of_layer;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const layer_group_layout& g = groups[i];
    const std::string name = "layer group " + std::to_string(i);
    if (g.pool_group < 0 || g.pool_group >= static_cast<std::int64_t>(pool_groups))
      return fail(errc::invalid, name + ": pool_group is " + std::to_string(g.pool_group) +
                                     ", must be below " + std::to_string(pool_groups));
    for (const std::uint32_t layer : g.layers) {
      const auto [other, fresh] = group_of_layer.emplace(layer, i);
      if (!fresh)
        return fail(errc::invalid, name + ": layer " + std::to_string(layer) + " is in layer group " +
                                       std::to_string(other->second) + " already, must be in one");
    }
    if (g.share.count < 1 || g.share.index < 0 || g.share.index >= g.share.count)
      return fail(errc::invalid, name + ": shard " + std::to_string(g.share.index) + " of " +
                                     std::to_string(g.share.count) + ", must be 0 <= index < count");
  }
  return {};
}

}  // namespace

result<void> check_layout(const paged_manager_options& o,
                          std::span<const std::shared_ptr<memory_block>> pools) {
  if (o.tokens_per_block < 1) return not_positive("tokens_per_block", o.tokens_per_block);
  if (o.pool_groups.empty()) return fail(errc::invalid, "pool_groups is empty, must be 1 or more");
  std::size_t wanted = 0;
  for (const pool_group_layout& g : o.pool_groups) wanted += pools_in(g);
  if (pools.size() != wanted)
    return fail(errc::invalid, std::to_string(pools.size()) + " pools for " +
                                   std::to_string(o.pool_groups.size()) + " pool groups, must be " +
                                   (wanted == o.pool_groups.size() ? "one each" : std::to_string(wanted)));
  if (auto ok = check_layer_groups(o.layer_groups, o.pool_groups.size()); !ok) return ok;
  for (std::size_t i = 0, first = 0; i < o.pool_groups.size(); ++i) {
    const pool_group_layout& g = o.pool_groups[i];
    if (auto ok = check_pool_group(g, i, pools.subspan(first, pools_in(g))); !ok) return ok;
    first += pools_in(g);
    const std::int64_t used_by = layer_groups_in(o, i);
    const std::string name = "pool group " + std::to_string(i) + ": ";
    if (used_by == 0) return fail(errc::invalid, name + "no layer group uses it, must be 1 or more");
    if (g.pages < used_by)
      return fail(errc::invalid, name + std::to_string(g.pages) + " pages, must be " +
                                     std::to_string(used_by) + " or more: one for each of its layer groups");
    if (g.pages > int64_max / o.tokens_per_block)
      return fail(errc::invalid, name + std::to_string(g.pages) + " pages of " +
                                     std::to_string(o.tokens_per_block) +
                                     " tokens, must be fewer than 2^63 tokens");
  }
  return {};
}

std::size_t pools_in(const pool_group_layout& g) { return g.pool_bytes.empty() ? 1 : g.pool_bytes.size(); }

std::int64_t layer_groups_in(const paged_manager_options& o, std::size_t pool_group) {
  return std::count_if(o.layer_groups.begin(), o.layer_groups.end(),
                       [pool_group](const layer_group_layout& g) {
                         return static_cast<std::size_t>(g.pool_group) == pool_group;
                       });
}

result<std::vector<std::byte>> derive_layout_id(const paged_manager_options& o) {
  // What lies inside a page is its engine's affair: no buffer is declared.
  cache_layout layout{.tokens_per_block = o.tokens_per_block};
  for (const pool_group_layout& g : o.pool_groups) layout.pool_groups.push_back({.slot_bytes = widths_of(g)});
  for (const layer_group_layout& g : o.layer_groups)
    layout.layer_groups.push_back({.pool_group = static_cast<std::size_t>(g.pool_group), .layers = g.layers});
  return kvlease::layout_id(layout);
}

}  // namespace kvlease
