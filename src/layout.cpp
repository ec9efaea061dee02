#include "src/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <set>
#include <span>
#include <tuple>

#include "src/names.hpp"

namespace kvlease {
namespace {

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t max_layer_groups = std::numeric_limits<std::uint16_t>::max();

bool printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

// ---- Encoding ----

void append_string(std::string& out, std::string_view text) {
  assert(printable(text));
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

/// Between `open` and `close`, with commas: what `write` does for each of `items`.
void append_list(std::string& out, char open, char close, const auto& items, const auto& write) {
  out += open;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    write(item);
  }
  out += close;
}

void append_value(std::string& out, const document_value& value);

void append_object(std::string& out, const document_value::object& members) {
  std::vector<const document_value::object::value_type*> present;
  for (const auto& member : members)
    if (!std::holds_alternative<std::monostate>(member.second.value)) present.push_back(&member);
  std::ranges::sort(present, {}, [](const auto* member) -> std::string_view { return member->first; });
  append_list(out, '{', '}', present, [&out](const auto* member) {
    append_string(out, member->first);
    out += ':';
    append_value(out, member->second);
  });
}

struct value_writer {
  std::string& out;
  void operator()(std::monostate) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { out += std::to_string(value); }
  void operator()(double value) const {
    append_string(out, fmt::format("f64:{:016x}", std::bit_cast<std::uint64_t>(value)));
  }
  void operator()(const std::string& value) const { append_string(out, value); }
  void operator()(const document_value::array& items) const {
    append_list(out, '[', ']', items, [this](const document_value& item) { append_value(out, item); });
  }
  void operator()(const document_value::object& members) const { append_object(out, members); }
};

void append_value(std::string& out, const document_value& value) {
  std::visit(value_writer{out}, value.value);
}

document_value number(std::int64_t value) { return {value}; }

document_value number(const std::optional<std::int64_t>& value) {
  return value ? number(*value) : document_value{};
}

document_value numbers(const auto& values) {
  document_value::array items;
  for (const auto value : values) items.push_back(number(static_cast<std::int64_t>(value)));
  return {std::move(items)};
}

// ---- Rules ----

std::string name_of(const cache_buffer& b) { return fmt::format("buffer ({}, {})", b.layer, b.role); }

tl::unexpected<error> not_positive(std::string_view what, std::int64_t value) {
  return fail(errc::invalid, fmt::format("{} is {}, must be 1 or more", what, value));
}

result<void> check_pool_groups(const cache_layout& layout) {
  for (std::size_t g = 0; g < layout.pool_groups.size(); ++g) {
    const auto& widths = layout.pool_groups[g].slot_bytes;
    if (widths.empty())
      return fail(errc::invalid, fmt::format("pool group {} has no pools, must have 1 or more", g));
    std::int64_t page = 0;
    for (std::size_t p = 0; p < widths.size(); ++p) {
      if (widths[p] < 1)
        return not_positive(fmt::format("pool group {}: slot_bytes of pool {}", g, p), widths[p]);
      if (widths[p] > int64_max - page)
        return fail(errc::invalid,
                    fmt::format("pool group {}: its slots make a page of 2^63 bytes or more", g));
      page += widths[p];
    }
  }
  return {};
}

result<void> check_layer_groups(const cache_layout& layout) {
  if (layout.layer_groups.size() > max_layer_groups)
    return fail(errc::invalid, fmt::format("{} layer groups, must be at most {}", layout.layer_groups.size(),
                                           max_layer_groups));
  for (std::size_t lg = 0; lg < layout.layer_groups.size(); ++lg) {
    const std::size_t g = layout.layer_groups[lg].pool_group;
    if (g >= layout.pool_groups.size())
      return fail(errc::invalid, fmt::format("layer group {}: unknown pool group {}, must be below {}", lg, g,
                                             layout.pool_groups.size()));
  }
  return {};
}

result<void> check_geometry(const cache_buffer& b) {
  const auto& [sections, head, heads] = b.geometry;
  if (sections) {
    std::int64_t rest = b.size;
    for (const std::int64_t section : *sections) {
      if (section < 1) return not_positive(name_of(b) + ": a section", section);
      rest = section > rest ? -1 : rest - section;  // stays at -1
    }
    if (rest != 0)
      return fail(errc::invalid,
                  fmt::format("{}: its sections must sum to its {} bytes", name_of(b), b.size));
  }
  if (head && *head < 1) return not_positive(name_of(b) + ": bytes_per_head", *head);
  if (heads && *heads < 1) return not_positive(name_of(b) + ": num_heads", *heads);
  if (head && b.size % *head != 0)
    return fail(errc::invalid,
                fmt::format("{}: {} bytes, must be whole heads of {} bytes", name_of(b), b.size, *head));
  if (head && heads && b.size / *head != *heads)
    return fail(errc::invalid,
                fmt::format("{}: {} bytes, must be {} heads of {} bytes", name_of(b), b.size, *heads, *head));
  return {};
}

/// Which layers draw from which pool group.
using layer_places = std::set<std::pair<std::size_t, std::uint32_t>>;

result<void> check_place(const cache_layout& layout, const layer_places& places, const cache_buffer& b) {
  if (b.pool_group >= layout.pool_groups.size())
    return fail(errc::invalid,
                fmt::format("{}: its pool group {} is not in the layout", name_of(b), b.pool_group));
  if (!places.contains({b.pool_group, b.layer}))
    return fail(
        errc::invalid,
        fmt::format("{}: its layer is not in the layout, in no layer group that draws from pool group "
                    "{}",
                    name_of(b), b.pool_group));
  const auto& widths = layout.pool_groups[b.pool_group].slot_bytes;
  if (b.pool >= widths.size())
    return fail(errc::invalid, fmt::format("{}: its pool {} of pool group {} is not in the layout",
                                           name_of(b), b.pool, b.pool_group));
  if (b.size < 1) return not_positive(name_of(b) + ": size", b.size);
  if (b.offset < 0 || b.offset > widths[b.pool] || b.size > widths[b.pool] - b.offset)
    return fail(errc::invalid,
                fmt::format("{}: its {} bytes at {} are not in the layout: a slot of its pool has {} bytes",
                            name_of(b), b.size, b.offset, widths[b.pool]));
  return {};
}

result<void> check_buffer(const cache_layout& layout, const cache_buffer& b) {
  if (b.role.empty() || !printable(b.role))
    return fail(errc::invalid,
                fmt::format("buffer of layer {}: its role must be printable ASCII, 1 character "
                            "or more",
                            b.layer));
  if (b.expansion < 1) return not_positive(name_of(b) + ": expansion", b.expansion);
  if (layout.tokens_per_block % b.expansion != 0)
    return fail(errc::invalid, fmt::format("{}: expansion {} does not divide the {} tokens of a block",
                                           name_of(b), b.expansion, layout.tokens_per_block));
  return check_geometry(b);
}

result<void> check_buffers(const cache_layout& layout) {
  layer_places places;
  for (const auto& group : layout.layer_groups)
    for (const std::uint32_t layer : group.layers) places.emplace(group.pool_group, layer);
  std::set<std::pair<std::uint32_t, std::string_view>> seen;
  for (const cache_buffer& b : layout.buffers) {
    if (auto ok = check_place(layout, places, b); !ok) return ok;
    if (auto ok = check_buffer(layout, b); !ok) return ok;
    if (!seen.emplace(b.layer, b.role).second)
      return fail(errc::invalid, name_of(b) + " is there twice, must be once");
  }
  return {};
}

result<void> check(const cache_layout& layout) {
  if (layout.tokens_per_block < 1) return not_positive("tokens_per_block", layout.tokens_per_block);
  if (auto ok = check_pool_groups(layout); !ok) return ok;
  if (auto ok = check_layer_groups(layout); !ok) return ok;
  return check_buffers(layout);
}

// ---- The document. Precondition of all: check() passed ----

document_value groups_value(const cache_layout& layout) {
  std::vector<std::vector<std::uint32_t>> layers;
  for (const auto& group : layout.layer_groups) {
    layers.push_back(group.layers);
    std::ranges::sort(layers.back());
  }
  const auto places = canonical_order(layers);
  document_value::array items(layers.size());
  for (std::size_t lg = 0; lg < layers.size(); ++lg) {
    const cache_layer_group& group = layout.layer_groups[lg];
    document_value::object members{{"layers", numbers(layers[lg])},
                                   {"slot_bytes", numbers(layout.pool_groups[group.pool_group].slot_bytes)}};
    if (group.kind != group_kind::attention)
      members.emplace_back("kind", document_value{std::string{to_string(group.kind)}});
    items[places[lg]] = {std::move(members)};
  }
  return {std::move(items)};
}

document_value geometry_value(const buffer_geometry& geometry) {
  if (geometry == buffer_geometry{}) return {};
  return {document_value::object{
      {"section_bytes", geometry.section_bytes ? numbers(*geometry.section_bytes) : document_value{}},
      {"bytes_per_head", number(geometry.bytes_per_head)},
      {"num_heads", number(geometry.num_heads)}}};
}

document_value buffer_value(const cache_layout& layout, const cache_buffer& b) {
  std::int64_t offset = b.offset;  // in the page: behind the slots of the pools before
  for (std::size_t p = 0; p < b.pool; ++p) offset += layout.pool_groups[b.pool_group].slot_bytes[p];
  document_value::object members{{"layer", number(std::int64_t{b.layer})},
                                 {"role", {b.role}},
                                 {"offset", number(offset)},
                                 {"size", number(b.size)},
                                 {"geometry", geometry_value(b.geometry)}};
  if (b.mapper != buffer_mapper::indexed)
    members.emplace_back("mapper", document_value{std::string{to_string(b.mapper)}});
  if (!b.transfer) members.emplace_back("transfer", document_value{false});
  if (b.expansion != 1) members.emplace_back("expansion", number(b.expansion));
  return {std::move(members)};
}

document_value buffers_value(const cache_layout& layout) {
  std::vector<const cache_buffer*> sorted;
  for (const cache_buffer& b : layout.buffers) sorted.push_back(&b);
  std::ranges::sort(sorted, {}, [](const cache_buffer* b) { return std::tie(b->layer, b->role); });
  document_value::array items;
  for (const cache_buffer* b : sorted) items.push_back(buffer_value(layout, *b));
  return {std::move(items)};
}

}  // namespace

std::string_view to_string(buffer_mapper mapper) noexcept {
  switch (mapper) {
    case buffer_mapper::indexed:
      return "INDEXED";
    case buffer_mapper::nhd:
      return "NHD";
    case buffer_mapper::replicated:
      return "REPLICATED";
    case buffer_mapper::sectioned:
      return "SECTIONED";
  }
  return "?";
}

std::string_view to_string(group_kind kind) noexcept {
  return kind == group_kind::attention ? "attention" : "state";
}

std::string to_document(const document_value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

result<std::string> layout_document(const cache_layout& layout) {
  if (auto ok = check(layout); !ok) return tl::unexpected{std::move(ok).error()};
  return to_document({document_value::object{{"v", number(layout_version)},
                                             {"tokens_per_block", number(layout.tokens_per_block)},
                                             {"groups", groups_value(layout)},
                                             {"buffers", buffers_value(layout)}}});
}

result<std::vector<std::byte>> layout_id(const cache_layout& layout) {
  const auto document = layout_document(layout);
  if (!document) return tl::unexpected{document.error()};
  const digest id = sha256(std::as_bytes(std::span{*document}));
  return std::vector<std::byte>{id.begin(), id.end()};
}

result<std::uint32_t> global_layer_id(const layer_origin& layer, std::uint32_t attention_types) {
  if (layer.declared) return *layer.declared;
  if (!layer.model_layer)
    return fail(errc::invalid, "layer without a declared id or a model layer, must have one of them");
  if (!layer.attention_type) return *layer.model_layer;
  if (*layer.attention_type >= attention_types)
    return fail(errc::invalid,
                fmt::format("virtual layer of model layer {}: attention type {}, must be below "
                            "{}",
                            *layer.model_layer, *layer.attention_type, attention_types));
  const std::uint64_t id = std::uint64_t{*layer.model_layer} * attention_types + *layer.attention_type;
  if (id > std::numeric_limits<std::uint32_t>::max())
    return fail(errc::invalid,
                fmt::format("virtual layer of model layer {}: global id {}, must be below 2^32",
                            *layer.model_layer, id));
  return static_cast<std::uint32_t>(id);
}

}  // namespace kvlease
