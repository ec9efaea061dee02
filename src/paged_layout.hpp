// What a paged manager is made with, which geometries it takes, and the id that it derives for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/manager_port.hpp"

namespace kvlease {

struct paged_manager_options {
  std::int64_t tokens_per_block = 0;
  std::vector<pool_group_layout> pool_groups;
  std::vector<layer_group_layout> layer_groups;
  /// Empty: derived from tokens_per_block, layers and page sizes. Not from page counts, shares or numbering,
  /// which ranks and restarts may choose differently for the same content.
  std::vector<std::byte> layout_id;
  bool reuse = true;
  /// Given: ids of requests of another runtime are rejected.
  std::optional<incarnation> runtime;
};

/// `pools`: the memory of each pool, pool group by pool group. Errors: invalid, naming the field, its value
/// and the rule.
result<void> check_layout(const paged_manager_options& options,
                          std::span<const std::shared_ptr<memory_block>> pools);

/// How many memory pools a page of the group is spread over.
std::size_t pools_in(const pool_group_layout& group);

/// How many layer groups live in the pool group, so how many of its pages a block takes.
std::int64_t layer_groups_in(const paged_manager_options& options, std::size_t pool_group);

/// The id of the layout that the options declare (src/layout.hpp, scenarios 6.6): block size, which layers
/// share a page, and its slots. An engine whose pages differ inside gives a layout_id of its own.
/// Precondition: check_layout() passed. Errors: invalid for more layer groups than names can number.
result<std::vector<std::byte>> derive_layout_id(const paged_manager_options& options);

}  // namespace kvlease
