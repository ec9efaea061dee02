// Identity (scenarios 6): what a block of cache content is called, everywhere and for ever.
// A name follows from the namespace (scope and layout id), the key of the block's tokens, the layer group's
// canonical place and the share of its content. Two processes that hold the same content compute the same
// name, so every byte order here is fixed: big-endian in names, little-endian in what keys hash.
// Values and pure functions: any thread. A sha256_stream belongs to one thread at a time.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.hpp"
#include "messages/staging.hpp"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX; its headers stay out of ours

namespace kvlease {

// ---- Hashes and hex --------------------------------------------------------------------------------------

/// A SHA-256 value.
using digest = std::array<std::byte, 32>;

/// Hashes many messages, one after the other, with one context: what a chain of keys needs to be fast.
/// Throws std::runtime_error where OpenSSL offers no SHA-256 (a broken installation).
class sha256_stream {
 public:
  sha256_stream();
  void update(std::span<const std::byte> bytes);
  /// The hash of all since the last finish(). The stream then starts anew.
  digest finish();

 private:
  struct context_deleter {
    void operator()(evp_md_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_md_ctx_st, context_deleter> context_;
};

digest sha256(std::span<const std::byte> bytes);

/// Lower-case, two digits a byte.
std::string to_hex(std::span<const std::byte> bytes);
/// Digits of either case. Errors: invalid for an odd count or for anything that is no digit.
result<std::vector<std::byte>> from_hex(std::string_view text);

// ---- Names (6.1 to 6.5) ----------------------------------------------------------------------------------

inline constexpr std::uint16_t name_version = 2;
inline constexpr std::size_t block_key_offset = 16;  ///< of the block key in a name

/// namespace 16 | block key 32 | canonical group 2 | shard count 2 | shard index 2, integers big-endian.
struct block_name {
  std::array<std::byte, block_name_size> bytes{};
  friend auto operator<=>(const block_name&, const block_name&) = default;
};

/// Eight bytes of the block key. It is a hash already, and the rest of a name hardly varies.
struct block_name_hash {
  std::size_t operator()(const block_name& name) const noexcept;
};

/// The share of a layer group's content that this process holds; (1, 0) is all of it.
struct shard {
  std::int64_t count = 1;
  std::int64_t index = 0;  ///< 0 <= index < count
  friend bool operator==(const shard&, const shard&) = default;
};

/// The place of each local layer group when groups go by (lowest global layer id, local index), those without
/// layers last (6.3). Precondition: at most 65535 groups.
std::vector<std::uint16_t> canonical_order(const std::vector<std::vector<std::uint32_t>>& layers);

/// Names for one instance: its scope, its layout and its layer groups.
class identity {
 public:
  using namespace_bytes = std::array<std::byte, 16>;

  /// `layers`: the global layer ids of each local layer group. `shards`: one a group.
  /// Errors: invalid for a layout_id that is empty or, like the scope, above 65535 bytes; for more than 65535
  /// groups; for another number of shards; for a shard outside 0 <= index < count <= 65535.
  static result<identity> make(std::span<const std::byte> scope, std::span<const std::byte> layout_id,
                               const std::vector<std::vector<std::uint32_t>>& layers,
                               const std::vector<shard>& shards);

  const namespace_bytes& namespace_id() const noexcept { return namespace_; }
  std::size_t groups() const noexcept { return canonical_.size(); }

  /// The group's place when groups go by (lowest global layer id, local index), those without layers last.
  /// Errors: invalid "unknown layer group". So for the two below.
  result<std::uint16_t> canonical(std::int64_t local_group) const;
  result<block_name> name(std::int64_t local_group, const digest& block_key) const;
  /// Of a part that serves these groups, e.g. "94ede4f3bb6ba356:lg0+1". Scope and shards have no say in it.
  /// Errors: also invalid for no groups at all.
  result<std::string> part_name(std::span<const std::int64_t> local_groups) const;

  friend bool operator==(const identity&, const identity&) = default;

 private:
  identity() = default;
  namespace_bytes namespace_{};
  std::string part_prefix_;
  std::vector<std::uint16_t> canonical_;  ///< by local group
  std::vector<block_name> unkeyed_;       ///< by local group: its names, but for the key
};

// ---- Reuse scope (6.7) -----------------------------------------------------------------------------------

/// What keeps equal tokens apart. Absent and 0 differ.
struct reuse_scope {
  std::optional<std::uint64_t> lora_id;
  std::optional<std::uint64_t> salt;
  /// One mask byte, then each present value as u64 little-endian: 1, 9 or 17 bytes.
  std::vector<std::byte> serialized() const;
  friend bool operator==(const reuse_scope&, const reuse_scope&) = default;
};

/// What the key of a prompt's first block is chained to.
digest root_key(const reuse_scope& scope);

/// The salt that a request's cache-salt string stands for. The empty string is a salt too.
std::uint64_t salt_from_string(std::string_view text);

// ---- Tokens and block keys (6.8) -------------------------------------------------------------------------

inline constexpr std::uint32_t token_id_limit = std::uint32_t{1} << 31;  ///< ids are below it

/// A position that is keyed by content instead of by an id.
struct token_digest {
  std::size_t position = 0;
  digest value{};
  friend bool operator==(const token_digest&, const token_digest&) = default;
};

/// A prompt. Ids are contiguous because that is how they are hashed; digests are few.
struct token_list {
  std::vector<std::uint32_t> ids;     ///< below 2^31; not read where a digest stands
  std::vector<token_digest> digests;  ///< by rising position

  std::size_t size() const noexcept { return ids.size(); }
  bool empty() const noexcept { return ids.empty(); }
  void push_back(std::uint32_t id) { ids.push_back(id); }
  /// Errors: invalid for an id of 2^31 or more, and for digests out of order or past the prompt.
  result<void> check() const;
  friend bool operator==(const token_list&, const token_list&) = default;
};

/// Appends keys, until `keys` holds those of the first `blocks` whole blocks. The keys that are there are
/// taken as those of the first blocks, and their tokens are not read again.
/// Errors, with `keys` unchanged: invalid for tokens_per_block below 1, for `blocks` below keys.size() or
/// past the whole blocks, and for what token_list::check refuses in the blocks that are hashed.
result<void> extend_block_keys(std::vector<digest>& keys, const digest& root, const token_list& tokens,
                               std::int64_t tokens_per_block, std::size_t blocks);

/// The keys of all whole blocks, beginning with `known`. A partial tail has none and is not read.
/// Errors: as extend_block_keys.
result<std::vector<digest>> block_keys(const digest& root, const token_list& tokens,
                                       std::int64_t tokens_per_block, std::span<const digest> known = {});

// ---- Multimodal prompts (6.8) ----------------------------------------------------------------------------

/// Prompt positions [position, position + length).
struct token_run {
  std::int64_t position = 0;
  std::int64_t length = 0;
  friend bool operator==(const token_run&, const token_run&) = default;
};

/// One image, clip or the like: where its tokens stand, and what it is.
struct multimodal_item {
  std::optional<digest> hash;     ///< of its content; absent when the engine did not hash it
  std::vector<token_run> runs;    ///< all its positions, in order
  std::optional<token_run> span;  ///< stands in for `runs` where those are not given
};

/// The digest that eight hash words stand for: each big-endian, in order.
digest digest_from_words(std::span<const std::int32_t, 8> words);

/// Whether keys tell these items' contents apart. Where not, the prompt must not be named.
bool identified(std::span<const multimodal_item> items) noexcept;

/// The prompt with each item's first position replaced by its digest, and its k-th by the id vocab_size + k,
/// whatever stood there. Items may come in any order and lie between each other's runs.
/// When no item has a hash the ids come back unchanged; see identified().
/// Errors: invalid for an item with neither runs nor span, a run that is empty, negative, past the prompt,
/// out of order or over another run of any item; for hashes on some items only; for a vocab_size that is
/// negative or leaves vocab_size + k no room below 2^31.
result<token_list> apply_multimodal(std::vector<std::uint32_t> ids, std::span<const multimodal_item> items,
                                    std::int64_t vocab_size);

}  // namespace kvlease
