// A declared cache layout and its id (scenarios 6.6): 32 bytes that two managers share if the bytes of a
// block of the one read the same in the other. The id is the SHA-256 of a document, a JSON text with one
// spelling. The layout says only what decides how bytes read. What does not has no member here, so it cannot
// move the id: addresses, slot counts, windows, sinks, shards, element types. Local numbering and order are
// sorted away. Values and pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

// ---- The layout ------------------------------------------------------------------------------------------

inline constexpr std::int64_t layout_version = 2;

enum class group_kind : std::uint8_t { attention, state };

/// How a buffer's bytes split when ranks hold shares of it. Documents have these names in capitals.
enum class buffer_mapper : std::uint8_t {
  indexed,        ///< head by head
  nhd,            ///< token by token, in it head by head
  replicated,     ///< the same bytes on all ranks
  sectioned,      ///< section by section, each split for itself
  hnd = indexed,  ///< the same under another name
};

/// "INDEXED", "NHD", "REPLICATED", "SECTIONED".
std::string_view to_string(buffer_mapper mapper) noexcept;
/// "attention", "state".
std::string_view to_string(group_kind kind) noexcept;

/// What is inside a buffer, as far as it is known. Sizes are of this rank.
struct buffer_geometry {
  std::optional<std::vector<std::int64_t>> section_bytes;  ///< add up to the buffer's size
  std::optional<std::int64_t> bytes_per_head;              ///< the buffer is whole heads
  std::optional<std::int64_t> num_heads;                   ///< with bytes_per_head: exactly that many
  friend bool operator==(const buffer_geometry&, const buffer_geometry&) = default;
};

/// What one layer keeps in each slot of one pool.
struct cache_buffer {
  std::uint32_t layer = 0;     ///< global id; of a layer group that draws from pool_group
  std::string role;            ///< e.g. "key"; printable ASCII
  std::size_t pool_group = 0;  ///< index into pool_groups
  std::size_t pool = 0;        ///< index into that group's slot_bytes
  std::int64_t offset = 0;     ///< bytes, in the slot
  std::int64_t size = 0;       ///< bytes
  buffer_mapper mapper = buffer_mapper::indexed;
  buffer_geometry geometry;
  bool transfer = true;        ///< false: local to this rank, no peer reads it
  std::int64_t expansion = 1;  ///< sub-pages a block; divides tokens_per_block
  friend bool operator==(const cache_buffer&, const cache_buffer&) = default;
};

/// Pools whose slots together are a page: the slots of one number, one behind the other.
struct cache_pool_group {
  std::vector<std::int64_t> slot_bytes;  ///< one a pool
  friend bool operator==(const cache_pool_group&, const cache_pool_group&) = default;
};

struct cache_layer_group {
  std::size_t pool_group = 0;         ///< index into pool_groups
  std::vector<std::uint32_t> layers;  ///< global ids, in any order
  group_kind kind = group_kind::attention;
  friend bool operator==(const cache_layer_group&, const cache_layer_group&) = default;
};

struct cache_layout {
  std::int64_t tokens_per_block = 0;
  std::vector<cache_pool_group> pool_groups;
  std::vector<cache_layer_group> layer_groups;
  std::vector<cache_buffer> buffers;
  friend bool operator==(const cache_layout&, const cache_layout&) = default;
};

/// ASCII JSON: sorted keys, no white space, what has its default value left out.
/// Errors: invalid, naming the thing, its value and the rule: an unknown pool group, a pool group without
/// pools, a buffer outside the layout, a (layer, role) twice, a role that is no printable ASCII, a size,
/// count or expansion below 1, an expansion that does not divide the block, a geometry that does not fit its
/// buffer.
result<std::string> layout_document(const cache_layout& layout);

/// SHA-256 of layout_document(). Errors: as there.
result<std::vector<std::byte>> layout_id(const cache_layout& layout);

// ---- Global layer ids ------------------------------------------------------------------------------------

/// What is known of an internal layer, which a rank or a pipeline stage numbers as it likes.
struct layer_origin {
  std::optional<std::uint32_t> declared;        ///< a global id that the manager chose
  std::optional<std::uint32_t> model_layer;     ///< in the whole model
  std::optional<std::uint32_t> attention_type;  ///< of a virtual layer: one of several in a model layer
};

/// The declared id, else model_layer * attention_types + attention_type for a virtual layer, else the model
/// layer. `attention_types`: how many the model has, whichever this stage holds.
/// Errors: invalid where neither is known, for a type not below attention_types, for an id of 2^32 or more.
result<std::uint32_t> global_layer_id(const layer_origin& layer, std::uint32_t attention_types = 0);

// ---- The document's encoding -----------------------------------------------------------------------------

/// A value of a document. Enums go in by name. monostate is "absent".
struct document_value {
  using array = std::vector<document_value>;
  using object = std::vector<std::pair<std::string, document_value>>;  ///< in any order, each key once
  std::variant<std::monostate, bool, std::int64_t, double, std::string, array, object> value;
};

/// The one spelling of a value. Floats become the string "f64:" and the 16 hex digits of their bits; absent
/// members are dropped from objects and null in arrays. Precondition: strings are printable ASCII.
std::string to_document(const document_value& value);

}  // namespace kvlease
