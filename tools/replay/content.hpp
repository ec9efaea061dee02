// What stands in a block: the tokens of a trace block, and the cache bytes that belong to a block's name.
// Both are pure functions, so that any process can tell a wrong byte without having seen the right one.
// Any thread. Values are those of a little-endian machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvlease::replay {

/// Where a block's token stream starts. Different ids have different seeds.
std::uint64_t block_seed(std::uint64_t block_id);

/// The first out.size() token ids of a block, each below 2^31. A shorter span gets a prefix of a longer one.
void block_tokens(std::uint64_t block_id, std::span<std::uint32_t> out);

/// The cache bytes of the block with this name: all of the name counts. All aligned 8-byte words of one block
/// differ, so no two of its 32-byte pieces are equal and a piece in the wrong place is seen.
void fill_block(std::span<const std::byte> name, std::span<std::byte> out);

/// Whether `bytes` is what fill_block writes for `name`.
bool check_block(std::span<const std::byte> name, std::span<const std::byte> bytes);

}  // namespace kvlease::replay
