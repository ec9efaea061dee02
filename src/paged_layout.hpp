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

/// Errors: invalid, naming the field, its value and the rule.
result<void> check_layout(const paged_manager_options& options,
                          std::span<const std::shared_ptr<memory_block>> pools);

/// How many layer groups live in the pool group, so how many of its pages a block takes.
std::int64_t layer_groups_in(const paged_manager_options& options, std::size_t pool_group);

/// 32 bytes that two managers share if a block of the one means the same in the other: they agree on block
/// size, on which layers share a page, and on its size. Precondition: check_layout() passed.
std::vector<std::byte> derive_layout_id(const paged_manager_options& options);

}  // namespace kvlease
