// The layout document and its id, row by row of scenarios 7.L; shards are in shards_test.cpp.
//
// LY-11 and the rows about managers, LY-31 to LY-41, are in layout_managers_test.cpp. Row without a case:
//   LY-42      needs TensorRT-LLM's native page table to compare with
// In part:
//   LY-12      of its four cases the two kinds of NumPy argument are Python's; an array of ints is our type
//   LY-25, 29  counts that lists of a manager disagree on: ours are members of one value, so they cannot
#include "src/layout.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/names.hpp"
#include "tests/src/refused.hpp"

namespace kvlease {
namespace {

using test::check_refused;

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

/// Two layers with keys and scales in two pools, and one layer alone in a pool group. No order is canonical.
cache_layout sample() {
  return {.tokens_per_block = 16,
          .pool_groups = {{{256, 32}}, {{96}}},
          .layer_groups = {{.pool_group = 1, .layers = {5}}, {.pool_group = 0, .layers = {2, 0}}},
          .buffers = {
              {.layer = 2, .role = "scale", .pool_group = 0, .pool = 1, .offset = 16, .size = 16},
              {.layer = 2, .role = "key", .pool_group = 0, .pool = 0, .offset = 128, .size = 128},
              {.layer = 5, .role = "key", .pool_group = 1, .pool = 0, .offset = 0, .size = 96},
              {.layer = 0, .role = "scale", .pool_group = 0, .pool = 1, .offset = 0, .size = 16},
              {.layer = 0, .role = "key", .pool_group = 0, .pool = 0, .offset = 0, .size = 128},
          }};
}

using change = std::function<void(cache_layout&)>;

cache_layout changed(const change& by) {
  cache_layout layout = sample();
  by(layout);
  return layout;
}

cache_layout first_buffer(const std::function<void(cache_buffer&)>& by) {
  return changed([&](cache_layout& l) { by(l.buffers[0]); });
}

std::string document(const cache_layout& layout) {
  const auto made = layout_document(layout);
  INFO((made ? "" : made.error().text));
  REQUIRE(made.has_value());
  return *made;
}

std::string id(const cache_layout& layout) { return to_hex(layout_id(layout).value()); }

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST_CASE("LY-01 left out: pool-group numbering, group order, buffer order") {
  CHECK(id(changed([](cache_layout& l) {
          std::swap(l.pool_groups[0], l.pool_groups[1]);
          for (auto& group : l.layer_groups) group.pool_group = 1 - group.pool_group;
          for (auto& buffer : l.buffers) buffer.pool_group = 1 - buffer.pool_group;
        })) == id(sample()));
  CHECK(id(changed([](cache_layout& l) { std::ranges::reverse(l.layer_groups); })) == id(sample()));
  CHECK(id(changed([](cache_layout& l) { std::ranges::reverse(l.buffers); })) == id(sample()));
  CHECK(id(changed([](cache_layout& l) { std::ranges::reverse(l.layer_groups[1].layers); })) == id(sample()));
}

TEST_CASE("LY-01 left out: sinks, window, full to window, shard, by type") {
  // A layout has no member to say them with. Adding one breaks these lines: it then needs a case here.
  const cache_layout layout = sample();
  [[maybe_unused]] const auto& [tokens_per_block, pool_groups, layer_groups, buffers] = layout;
  [[maybe_unused]] const auto& [slot_bytes] = pool_groups[0];
  [[maybe_unused]] const auto& [pool_group, layers, kind] = layer_groups[0];
  [[maybe_unused]] const auto& [layer, role, buffer_group, pool, offset, size, mapper, geometry, transfer,
                                expansion] = buffers[0];
  CHECK(layout == sample());
}

TEST_CASE("LY-02 moves the id: whatever decides how bytes read") {
  const std::vector<std::pair<std::string, change>> cases{
      {"tokens per block", [](cache_layout& l) { l.tokens_per_block = 32; }},
      {"layer membership", [](cache_layout& l) { l.layer_groups[1].layers.push_back(7); }},
      {"slot width", [](cache_layout& l) { l.pool_groups[1].slot_bytes[0] = 104; }},
      {"mapper", [](cache_layout& l) { l.buffers[0].mapper = buffer_mapper::replicated; }},
      {"head geometry", [](cache_layout& l) { l.buffers[0].geometry.bytes_per_head = 8; }},
      {"sections",
       [](cache_layout& l) {
         l.buffers[0].geometry.section_bytes = {{10, 6}};
       }},
      {"transfer", [](cache_layout& l) { l.buffers[0].transfer = false; }},
      {"expansion", [](cache_layout& l) { l.buffers[0].expansion = 2; }},
      {"role", [](cache_layout& l) { l.buffers[0].role = "scales"; }},
      {"kind", [](cache_layout& l) { l.layer_groups[0].kind = group_kind::state; }},
      {"position", [](cache_layout& l) { std::swap(l.buffers[0].offset, l.buffers[3].offset); }},
  };
  std::vector<std::string> ids{id(sample())};
  for (const auto& [name, by] : cases) {
    CAPTURE(name);
    const std::string moved = id(changed(by));
    CHECK(std::ranges::find(ids, moved) == ids.end());
    ids.push_back(moved);
  }
}

TEST_CASE("LY-03 canonical order: the lowest layer, ties by local index, groups without layers last") {
  using places = std::vector<std::uint16_t>;
  CHECK(canonical_order({{3, 5}, {1, 4}}) == places{1, 0});
  CHECK(canonical_order({{}, {2}, {2}, {0, 9}}) == places{3, 1, 2, 0});
  CHECK(canonical_order({{9}, {2, 11}, {5}}) == places{2, 0, 1});
  // The document lists the groups so, and numbers them as names do.
  const cache_layout three = {
      .tokens_per_block = 1,
      .pool_groups = {{{1}}},
      .layer_groups = {{.layers = {9}}, {.layers = {11, 2}}, {.layers = {5}}, {.layers = {}}}};
  CHECK(document(three) ==
        "{\"buffers\":[],\"groups\":[{\"layers\":[2,11],\"slot_bytes\":[1]},{\"layers\":[5],\"slot_bytes\":["
        "1]},"
        "{\"layers\":[9],\"slot_bytes\":[1]},{\"layers\":[],\"slot_bytes\":[1]}],\"tokens_per_block\":1,"
        "\"v\":2}");
  const auto names =
      identity::make({}, layout_id(three).value(), {{9}, {11, 2}, {5}, {}}, std::vector<shard>(4)).value();
  CHECK(names.canonical(1) == 0);
  CHECK(names.canonical(3) == 3);
}

TEST_CASE("LY-04 the document, byte for byte") {
  CHECK(layout_version == 2);
  CHECK(document(sample()) ==
        "{\"buffers\":["
        "{\"layer\":0,\"offset\":0,\"role\":\"key\",\"size\":128},"
        "{\"layer\":0,\"offset\":256,\"role\":\"scale\",\"size\":16},"
        "{\"layer\":2,\"offset\":128,\"role\":\"key\",\"size\":128},"
        "{\"layer\":2,\"offset\":272,\"role\":\"scale\",\"size\":16},"
        "{\"layer\":5,\"offset\":0,\"role\":\"key\",\"size\":96}],"
        "\"groups\":[{\"layers\":[0,2],\"slot_bytes\":[256,32]},{\"layers\":[5],\"slot_bytes\":[96]}],"
        "\"tokens_per_block\":16,\"v\":2}");
  const std::string text = document(sample());
  CHECK(id(sample()) == to_hex(sha256(std::as_bytes(std::span{text}))));
  CHECK(id(sample()) == "f0e2a77fec8ab1b8af8ae4eaef4f326785b186043511649c59720c246a990d8d");
}

TEST_CASE("LY-05 defaults are omitted, and others written") {
  const auto scale_with = [](std::string_view more, std::string_view end) {
    return "{" + std::string{more} + "\"layer\":2," + std::string{end};
  };
  const std::string plain = document(sample());
  for (const std::string_view key : {"mapper", "geometry", "transfer", "expansion", "kind"})
    CHECK_FALSE(contains(plain, key));
  CHECK(contains(plain, scale_with("", "\"offset\":272,\"role\":\"scale\",\"size\":16}")));
  const auto all = document(changed([](cache_layout& l) {
    l.layer_groups[0].kind = group_kind::state;
    cache_buffer& b = l.buffers[0];
    b.mapper = buffer_mapper::sectioned;
    b.geometry = {.section_bytes = {{12, 4}}, .bytes_per_head = 4, .num_heads = 4};
    b.transfer = false;
    b.expansion = 4;
  }));
  CHECK(contains(all, scale_with("\"expansion\":4,\"geometry\":{\"bytes_per_head\":4,\"num_heads\":4,"
                                 "\"section_bytes\":[12,4]},",
                                 "\"mapper\":\"SECTIONED\",\"offset\":272,\"role\":\"scale\",\"size\":16,"
                                 "\"transfer\":false}")));
  CHECK(contains(all, "{\"kind\":\"state\",\"layers\":[5],\"slot_bytes\":[96]}"));
  // Members of a geometry that are absent are left out one by one.
  const auto one = [](buffer_geometry g) {
    return document(first_buffer([&](cache_buffer& b) { b.geometry = std::move(g); }));
  };
  CHECK(contains(one({.bytes_per_head = 8}), "\"geometry\":{\"bytes_per_head\":8}"));
  CHECK(contains(one({.num_heads = 3}), "\"geometry\":{\"num_heads\":3}"));
  CHECK(contains(one({.section_bytes = {{16}}}), "\"geometry\":{\"section_bytes\":[16]}"));
}

TEST_CASE("LY-06 enums go by name, HND is INDEXED, absent is dropped from objects and null in arrays") {
  const auto mapped = [](buffer_mapper m) {
    return document(first_buffer([m](cache_buffer& b) { b.mapper = m; }));
  };
  CHECK(mapped(buffer_mapper::hnd) == document(sample()));
  CHECK(mapped(buffer_mapper::indexed) == document(sample()));
  CHECK(contains(mapped(buffer_mapper::nhd), "\"mapper\":\"NHD\""));
  CHECK(contains(mapped(buffer_mapper::replicated), "\"mapper\":\"REPLICATED\""));
  CHECK(contains(mapped(buffer_mapper::sectioned), "\"mapper\":\"SECTIONED\""));
  CHECK(to_string(group_kind::attention) == "attention");

  using array = document_value::array;
  using object = document_value::object;
  const array items{{}, {std::int64_t{1}}, {true}, {object{}}};
  CHECK(to_document(
            {object{{"n", {}}, {"list", {items}}, {"c", {std::string{to_string(buffer_mapper::hnd)}}}}}) ==
        "{\"c\":\"INDEXED\",\"list\":[null,1,true,{}]}");
  CHECK(to_document({std::string{"a\"b\\c"}}) == "\"a\\\"b\\\\c\"");
  CHECK(to_document({array{{std::numeric_limits<std::int64_t>::min()}, {false}}}) ==
        "[-9223372036854775808,false]");
}

TEST_CASE("LY-07 floats are their bits") {
  CHECK(to_document({1.0}) == "\"f64:3ff0000000000000\"");
  CHECK(to_document({0.0}) == "\"f64:0000000000000000\"");
  CHECK(to_document({-0.0}) == "\"f64:8000000000000000\"");
  CHECK(to_document({document_value::object{{"x", {-0.5}}}}) == "{\"x\":\"f64:bfe0000000000000\"}");
}

void refused(const change& by, std::string_view why) {
  const auto made = layout_document(changed(by));
  check_refused(made, errc::invalid, why);
  CHECK(layout_id(changed(by)).error() == made.error());
}

TEST_CASE("LY-08 document refusals: unknown pool group, stray buffer, duplicate") {
  refused([](cache_layout& l) { l.layer_groups[0].pool_group = 9; },
          "layer group 0: unknown pool group 9, must be below 2");
  // Outside by pool group, by pool, by bytes at either end, by layer.
  const auto stray = [](const std::function<void(cache_buffer&)>& by) {
    refused([&](cache_layout& l) { by(l.buffers[0]); }, "not in the layout");
  };
  stray([](cache_buffer& b) { b.pool_group = 2; });
  stray([](cache_buffer& b) { b.pool = 2; });
  stray([](cache_buffer& b) { b.offset = 17; });
  stray([](cache_buffer& b) { b.offset = 33; });
  stray([](cache_buffer& b) { b.offset = -1; });
  stray([](cache_buffer& b) { b.offset = int64_max; });
  stray([](cache_buffer& b) { b.size = 17; });
  stray([](cache_buffer& b) { b.size = int64_max; });
  stray([](cache_buffer& b) { b.layer = 7; });
  stray([](cache_buffer& b) { b.layer = 5; });  // which draws from the other pool group
  refused([](cache_layout& l) { l.buffers.push_back(l.buffers[1]); }, "buffer (2, key) is there twice");
  refused([](cache_layout& l) { l.buffers[0].role = "key"; }, "buffer (2, key) is there twice");
}

TEST_CASE("LY-09 a geometry that does not fit its buffer is refused") {
  const auto geometry = [](buffer_geometry g, std::string_view why) {
    refused([&](cache_layout& l) { l.buffers[0].geometry = std::move(g); }, why);
  };
  geometry({.section_bytes = {{8, 4}}}, "sum to its 16 bytes");
  geometry({.section_bytes = {{8, 4, 8}}}, "sum to its 16 bytes");
  geometry({.section_bytes = {{int64_max, int64_max, 18}}}, "sum to its 16 bytes");
  geometry({.section_bytes = std::vector<std::int64_t>{}}, "sum to its 16 bytes");
  geometry({.bytes_per_head = 5}, "16 bytes, must be whole heads of 5 bytes");
  geometry({.bytes_per_head = 4, .num_heads = 2}, "16 bytes, must be 2 heads of 4 bytes");
  geometry({.bytes_per_head = 4, .num_heads = int64_max}, "heads of 4 bytes");
}

TEST_CASE("LY-10 an expansion must divide the block") {
  refused([](cache_layout& l) { l.buffers[0].expansion = 0; }, "expansion is 0, must be 1 or more");
  refused([](cache_layout& l) { l.buffers[0].expansion = -2; }, "expansion is -2, must be 1 or more");
  refused([](cache_layout& l) { l.buffers[0].expansion = 3; }, "does not divide the 16 tokens");
  refused([](cache_layout& l) { l.buffers[0].expansion = 32; }, "does not divide the 16 tokens");
}

TEST_CASE("LY-12 sections are integers, in their order") {
  const auto sections = [](std::vector<std::int64_t> of) {
    return document(first_buffer([&](cache_buffer& b) { b.geometry.section_bytes = std::move(of); }));
  };
  CHECK(contains(sections({4, 12}), "\"section_bytes\":[4,12]"));
  CHECK(contains(sections({12, 4}), "\"section_bytes\":[12,4]"));
}

TEST_CASE("LY-13 sizes must be positive") {
  refused(
      [](cache_layout& l) {
        l.buffers[0].geometry.section_bytes = {{16, 0}};
      },
      "a section is 0, must be 1 or more");
  refused(
      [](cache_layout& l) {
        l.buffers[0].geometry.section_bytes = {{-1, 17}};
      },
      "a section is -1, must be 1 or more");
  refused([](cache_layout& l) { l.buffers[0].geometry.bytes_per_head = 0; },
          "bytes_per_head is 0, must be 1 or more");
  refused([](cache_layout& l) { l.buffers[0].geometry.num_heads = -1; },
          "num_heads is -1, must be 1 or more");
  refused([](cache_layout& l) { l.buffers[0].size = 0; }, "buffer (2, scale): size is 0, must be 1 or more");
  refused([](cache_layout& l) { l.tokens_per_block = 0; }, "tokens_per_block is 0, must be 1 or more");
  refused([](cache_layout& l) { l.pool_groups[0].slot_bytes[1] = 0; },
          "pool group 0: slot_bytes of pool 1 is 0, must be 1 or more");
  refused([](cache_layout& l) { l.pool_groups[1].slot_bytes = {}; }, "pool group 1 has no pools");
  refused([](cache_layout& l) { l.pool_groups[1].slot_bytes = {int64_max, 1}; }, "2^63 bytes or more");
}

TEST_CASE("scenarios 6.6 the document is ASCII: roles that are not, or are empty, are refused") {
  for (const char* role : {"", "sc\xc3\xa4le", "a\nb", "\x7f"})
    refused([role](cache_layout& l) { l.buffers[0].role = role; }, "role must be printable ASCII");
  CHECK(contains(document(first_buffer([](cache_buffer& b) { b.role = "a \"b\" ~"; })),
                 "\"role\":\"a \\\"b\\\" ~\""));
  refused([](cache_layout& l) { l.layer_groups.resize(65536); }, "65536 layer groups, must be at most 65535");
}

/// Keys and values of layers 0 and 1, a pool each, the heads of this rank one behind the other.
cache_layout heads(buffer_mapper mapper = buffer_mapper::indexed) {
  cache_layout l{.tokens_per_block = 4, .pool_groups = {{{512, 512}}}, .layer_groups = {{.layers = {0, 1}}}};
  for (const std::uint32_t layer : {0U, 1U})
    for (const std::size_t pool : {0U, 1U})
      l.buffers.push_back({.layer = layer,
                           .role = pool == 0 ? "key" : "value",
                           .pool = pool,
                           .offset = 256 * std::int64_t{layer},
                           .size = 256,
                           .mapper = mapper,
                           .geometry = {.bytes_per_head = 64, .num_heads = 4}});
  return l;
}

/// As heads(), and a key of an index, the same on all ranks, in two sub-pages a block.
cache_layout heads_and_index(std::int64_t expansion = 2) {
  cache_layout l = heads();
  l.pool_groups[0].slot_bytes.push_back(128);
  for (const std::uint32_t layer : {0U, 1U})
    l.buffers.push_back({.layer = layer,
                         .role = "index_key",
                         .pool = 2,
                         .offset = 64 * std::int64_t{layer},
                         .size = 64,
                         .mapper = buffer_mapper::replicated,
                         .expansion = expansion});
  return l;
}

cache_layout recurrent() {
  cache_layout l{.tokens_per_block = 4,
                 .pool_groups = {{{192, 256}}},
                 .layer_groups = {{.layers = {0, 1}, .kind = group_kind::state}}};
  for (const std::uint32_t layer : {0U, 1U}) {
    l.buffers.push_back({.layer = layer,
                         .role = "conv_state",
                         .pool = 0,
                         .offset = 96 * std::int64_t{layer},
                         .size = 96,
                         .mapper = buffer_mapper::sectioned,
                         .geometry = {.section_bytes = {{32, 32, 32}}}});
    l.buffers.push_back({.layer = layer,
                         .role = "ssm_state",
                         .pool = 1,
                         .offset = 128 * std::int64_t{layer},
                         .size = 128,
                         .geometry = {.bytes_per_head = 32, .num_heads = 4}});
  }
  return l;
}

TEST_CASE("LY-14 token-major keys and values have their own id; head-major is the default") {
  CHECK(id(heads(buffer_mapper::nhd)) != id(heads()));
  CHECK(id(heads(buffer_mapper::hnd)) == id(heads()));
}

TEST_CASE("LY-21 recurrent: a state group, sections and head sizes are described") {
  const std::string text = document(recurrent());
  CHECK(contains(text, "\"groups\":[{\"kind\":\"state\",\"layers\":[0,1],\"slot_bytes\":[192,256]}]"));
  CHECK(contains(text,
                 "{\"geometry\":{\"section_bytes\":[32,32,32]},\"layer\":1,\"mapper\":\"SECTIONED\","
                 "\"offset\":96,\"role\":\"conv_state\",\"size\":96}"));
  CHECK(contains(text,
                 "{\"geometry\":{\"bytes_per_head\":32,\"num_heads\":4},\"layer\":1,\"offset\":320,"
                 "\"role\":\"ssm_state\",\"size\":128}"));
}

TEST_CASE("LY-22 head geometry is described buffer by buffer") {
  const std::string text = document(heads());
  for (const std::string_view place :
       {"\"layer\":0,\"offset\":0,\"role\":\"key\"", "\"layer\":0,\"offset\":512,\"role\":\"value\"",
        "\"layer\":1,\"offset\":256,\"role\":\"key\"", "\"layer\":1,\"offset\":768,\"role\":\"value\""})
    CHECK(contains(text, "{\"geometry\":{\"bytes_per_head\":64,\"num_heads\":4}," + std::string{place}));
}

TEST_CASE("LY-23 global layer ids: a pipeline stage's layers are the model's") {
  CHECK(global_layer_id({.model_layer = 10}) == 10U);
  CHECK(global_layer_id({.model_layer = 11}) == 11U);
  check_refused(global_layer_id({}), errc::invalid, "must have one of them");
  check_refused(global_layer_id({.attention_type = 0}, 3), errc::invalid, "model layer");
}

TEST_CASE("LY-24 global layer ids: virtual layers count model layer times types plus type") {
  const auto at = [](std::uint32_t layer, std::uint32_t type, std::uint32_t types = 3) {
    return global_layer_id({.model_layer = layer, .attention_type = type}, types);
  };
  CHECK(at(4, 0) == 12U);
  CHECK(at(4, 1) == 13U);
  CHECK(at(5, 0) == 15U);
  check_refused(at(4, 3), errc::invalid, "attention type 3, must be below 3");
  check_refused(at(4, 0, 0), errc::invalid, "must be below 0");
  CHECK(at(0x7fffffff, 1, 2) == 0xffffffffU);
  check_refused(at(0x80000000, 0, 2), errc::invalid, "global id 4294967296, must be below 2^32");
}

TEST_CASE("LY-25 global layer ids: a declared id wins") {
  CHECK(global_layer_id({.declared = 3, .model_layer = 1}) == 3U);
  CHECK(global_layer_id({.declared = 0, .model_layer = 7, .attention_type = 9}, 2) == 0U);
  CHECK(global_layer_id({.declared = 6}) == 6U);
}

TEST_CASE("LY-26 expansion: a buffer with a block size of its own") {
  const std::string text = document(heads_and_index());
  CHECK(contains(text,
                 "{\"expansion\":2,\"layer\":1,\"mapper\":\"REPLICATED\",\"offset\":1088,"
                 "\"role\":\"index_key\",\"size\":64}"));
  CHECK(id(heads_and_index(1)) != id(heads_and_index(2)));
  CHECK_FALSE(contains(document(heads_and_index(1)), "expansion"));
}

TEST_CASE("LY-27 per-group facts: groups that share a pool group, and a state group beside them") {
  const cache_layout l{.tokens_per_block = 4,
                       .pool_groups = {{{96}}, {{64, 64}}},
                       .layer_groups = {{.pool_group = 1, .layers = {0}},
                                        {.pool_group = 1, .layers = {1}},
                                        {.pool_group = 0, .layers = {2}, .kind = group_kind::state}},
                       .buffers = {{.layer = 0, .role = "key", .pool_group = 1, .size = 64},
                                   {.layer = 1, .role = "key", .pool_group = 1, .size = 64},
                                   {.layer = 2, .role = "conv_state", .size = 96}}};
  CHECK(contains(document(l),
                 "\"groups\":[{\"layers\":[0],\"slot_bytes\":[64,64]},{\"layers\":[1],"
                 "\"slot_bytes\":[64,64]},{\"kind\":\"state\",\"layers\":[2],\"slot_bytes\":[96]}]"));
}

TEST_CASE("LY-28 a state group is told by its kind, not by what its roles are called") {
  cache_layout l = recurrent();
  l.layer_groups[0].kind = group_kind::attention;
  CHECK_FALSE(contains(document(l), "\"kind\""));
  CHECK(id(l) != id(recurrent()));
}

TEST_CASE("LY-29 parts that disagree are refused") {
  const auto why = [](const change& by, std::string_view keyword) {
    cache_layout l = heads_and_index();
    by(l);
    check_refused(layout_document(l), errc::invalid, keyword);
  };
  why([](cache_layout& l) { l.layer_groups.clear(); }, "in no layer group that draws from pool group 0");
  why([](cache_layout& l) { l.layer_groups[0].layers = {0}; },
      "buffer (1, key): its layer is not in the layout");
  why([](cache_layout& l) { l.layer_groups[0].pool_group = 5; }, "unknown pool group 5");
  why([](cache_layout& l) { l.pool_groups[0].slot_bytes.clear(); }, "has no pools");
  why([](cache_layout& l) { l.buffers.back().expansion = 3; }, "does not divide the 4 tokens");
}

TEST_CASE("LY-30 the ids that TensorRT-LLM's own tests pin") {
  CHECK(id(heads_and_index()) == "069d747522257b726c6b28d917cb2c260350e26c55550bb687bea7350a76f51c");
  CHECK(id(recurrent()) == "3eba9af0efca5fe1e8701398e86b43ada86f07ba249f483be435925ffeaab6fa");
}

}  // namespace
}  // namespace kvlease
