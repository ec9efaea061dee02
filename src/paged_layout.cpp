#include "src/paged_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "src/names.hpp"

namespace kvlease {
namespace {

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

tl::unexpected<error> not_positive(const std::string& what, std::int64_t value) {
  return fail(errc::invalid, what + " is " + std::to_string(value) + ", must be 1 or more");
}

result<void> check_pool_group(const pool_group_layout& g, std::size_t index, const memory_block* memory) {
  const std::string name = "pool group " + std::to_string(index);
  if (g.page_bytes < 1) return not_positive(name + ": page_bytes", g.page_bytes);
  if (g.pages < 1) return not_positive(name + ": pages", g.pages);
  if (g.pages > int64_max / g.page_bytes)
    return fail(errc::invalid, name + ": " + std::to_string(g.pages) + " pages of " +
                                   std::to_string(g.page_bytes) + " bytes, must be fewer than 2^63 bytes");
  if (memory == nullptr) return fail(errc::invalid, name + ": no memory given");
  if (memory->size() < static_cast<std::size_t>(g.pages * g.page_bytes))
    return fail(errc::invalid, name + ": memory of " + std::to_string(memory->size()) + " bytes, must be " +
                                   std::to_string(g.pages * g.page_bytes) + " or more");
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
  if (pools.size() != o.pool_groups.size())
    return fail(errc::invalid, std::to_string(pools.size()) + " pools for " +
                                   std::to_string(o.pool_groups.size()) + " pool groups, must be one each");
  if (auto ok = check_layer_groups(o.layer_groups, pools.size()); !ok) return ok;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    const pool_group_layout& g = o.pool_groups[i];
    if (auto ok = check_pool_group(g, i, pools[i].get()); !ok) return ok;
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

std::int64_t layer_groups_in(const paged_manager_options& o, std::size_t pool_group) {
  return std::count_if(o.layer_groups.begin(), o.layer_groups.end(),
                       [pool_group](const layer_group_layout& g) {
                         return static_cast<std::size_t>(g.pool_group) == pool_group;
                       });
}

std::vector<std::byte> derive_layout_id(const paged_manager_options& o) {
  // Groups go by their lowest layer, so that local numbering is left out.
  std::map<std::pair<std::uint64_t, std::size_t>, std::string> by_first_layer;
  for (std::size_t i = 0; i < o.layer_groups.size(); ++i) {
    const layer_group_layout& g = o.layer_groups[i];
    std::vector<std::uint32_t> layers = g.layers;
    std::sort(layers.begin(), layers.end());
    std::string line = "group page_bytes=" +
                       std::to_string(o.pool_groups[static_cast<std::size_t>(g.pool_group)].page_bytes) +
                       " layers=";
    for (const std::uint32_t layer : layers) line += std::to_string(layer) + ",";
    const std::uint64_t first = layers.empty() ? std::uint64_t{1} << 62U : layers.front();
    by_first_layer.emplace(std::pair{first, i}, line + "\n");
  }
  std::string document =
      "kvlease paged layout 1\ntokens_per_block=" + std::to_string(o.tokens_per_block) + "\n";
  for (const auto& [place, line] : by_first_layer) document += line;
  const digest id = sha256(std::as_bytes(std::span{document}));
  const auto view = std::as_bytes(std::span{id});
  return {view.begin(), view.end()};
}

}  // namespace kvlease
