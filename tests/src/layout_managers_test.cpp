// Scenarios 7.L, the rows about managers: LY-31 to LY-37 on the paged manager, the one that comes with the
// library; LY-38 to LY-41 as layouts that an engine declares, since TensorRT-LLM's own managers of those
// kinds are not here to derive them from. LY-11 stands where shards are given. The other rows:
// layout_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "src/layout.hpp"
#include "src/names.hpp"
#include "tests/src/paged_manager_fixture.hpp"
#include "tests/src/refused.hpp"

namespace kvlease {
namespace {

using namespace paged_fixture;
using test::check_refused;

std::string id_of(const paged_manager_options& o) { return to_hex(make_manager(o)->layout().layout_id); }

/// The id that a document must have.
std::string id_of_document(const std::string& document) {
  return to_hex(sha256(std::as_bytes(std::span{document})));
}

template <class T>
concept has_a_window = requires(T t) {
  t.window;
};
template <class T>
concept has_an_element_type = requires(T t) {
  t.dtype;
};

TEST_CASE("LY-11 shard: one outside its count, or a count below 1, is refused by names and managers alike") {
  for (const auto& [count, index] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {0, 0}, {2, -1}, {-1, 0}}) {
    CAPTURE(count);
    CAPTURE(index);
    const std::byte layout[] = {std::byte{1}};
    check_refused(identity::make({}, layout, {{0}}, {{count, index}}), errc::invalid, "shard");
    auto o = one_pool(4);
    o.layer_groups[0].share = {count, index};
    check_refused(paged_manager::make(o, memory_for(o)), errc::invalid, "shard");
  }
}

TEST_CASE("LY-31 real managers: one group") {
  CHECK(id_of(one_pool(8)) ==
        id_of_document(
            R"({"buffers":[],"groups":[{"layers":[0,1],"slot_bytes":[64]}],"tokens_per_block":4,"v":2})"));
}

TEST_CASE("LY-32 real managers: several groups, in canonical order") {
  CHECK(id_of(two_pools()) ==
        id_of_document(R"({"buffers":[],"groups":[{"layers":[0,1],"slot_bytes":[64]},)"
                       R"({"layers":[2],"slot_bytes":[128]},{"layers":[3,4],"slot_bytes":[128]}],)"
                       R"("tokens_per_block":4,"v":2})"));
}

TEST_CASE("LY-33 real managers: slot counts are left out") {
  CHECK(id_of(one_pool(8)) == id_of(one_pool(9)));
}

TEST_CASE("LY-34 real managers: the window is left out, by type") {
  static_assert(!has_a_window<layer_group_layout> && !has_a_window<cache_layer_group>);
  CHECK(id_of(one_pool(8)).size() == 64);
}

TEST_CASE("LY-35 real managers: the element type is left out, by type") {
  static_assert(!has_an_element_type<pool_group_layout> && !has_an_element_type<layer_group_layout> &&
                !has_an_element_type<cache_buffer>);
  CHECK(id_of(one_pool(8)).size() == 64);
}

TEST_CASE("LY-36 real managers: tokens per block move the id") {
  auto o = one_pool(8);
  o.tokens_per_block = 8;
  CHECK(id_of(o) != id_of(one_pool(8)));
}

TEST_CASE("LY-37 real managers: one numbered otherwise has the same id, the same names and part names") {
  auto o = two_pools();
  std::ranges::reverse(o.layer_groups);
  const auto names = [](const paged_manager_options& from) {
    const auto layout = make_manager(from)->layout();
    std::vector<std::vector<std::uint32_t>> layers;
    std::vector<shard> shares;
    for (const auto& g : layout.layer_groups) layers.push_back(g.layers), shares.push_back(g.share);
    return identity::make({}, layout.layout_id, layers, shares).value();
  };
  const auto mine = names(two_pools()), mirrored = names(o);
  CHECK(id_of(o) == id_of(two_pools()));
  for (const std::int64_t g : {0, 1, 2}) {
    CHECK(mine.name(g, digest{}).value().bytes == mirrored.name(2 - g, digest{}).value().bytes);
    const std::int64_t here[] = {g}, there[] = {2 - g};
    CHECK(mine.part_name(here).value() == mirrored.part_name(there).value());
  }
}

// ---- declared

std::string declared(const cache_layout& l) { return to_hex(layout_id(l).value()); }

/// Of two layers, a pool for each role: what a manager of that kind keeps, each buffer of `sizes` bytes.
cache_layout of_roles(const std::vector<std::pair<std::string, std::int64_t>>& roles,
                      buffer_mapper mapper = buffer_mapper::indexed) {
  cache_layout l{.tokens_per_block = 32, .pool_groups = {{}}, .layer_groups = {{.layers = {0, 1}}}};
  for (std::size_t pool = 0; pool < roles.size(); ++pool) {
    const auto& [role, size] = roles[pool];
    l.pool_groups[0].slot_bytes.push_back(2 * size);
    for (const std::uint32_t layer : {0U, 1U})
      l.buffers.push_back({.layer = layer,
                           .role = role,
                           .pool = pool,
                           .offset = size * std::int64_t{layer},
                           .size = size,
                           .mapper = mapper});
  }
  return l;
}

TEST_CASE("LY-38 FP4 MLA: the latent's block scales move the id, and every rank has the same") {
  const auto mla = of_roles({{"key", 9216}, {"key_block_scale", 1152}}, buffer_mapper::replicated);
  CHECK(declared(mla) != declared(of_roles({{"key", 9216}}, buffer_mapper::replicated)));
  CHECK(declared(mla) != declared(of_roles({{"key", 9216}, {"key_block_scale", 1152}})));
  auto other_rank = mla;  // numbers and orders its buffers as it likes
  std::ranges::reverse(other_rank.buffers);
  CHECK(declared(mla) == declared(other_rank));
}

TEST_CASE("LY-39 NVFP4 buffers: block scales lie behind the data of their page, each with its own size") {
  const auto text =
      layout_document(
          of_roles({{"key", 1024}, {"value", 1024}, {"key_block_scale", 128}, {"value_block_scale", 128}}))
          .value();
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  CHECK(has(R"("slot_bytes":[2048,2048,256,256])"));
  CHECK(has(R"({"layer":1,"offset":1024,"role":"key","size":1024})"));
  CHECK(has(R"({"layer":0,"offset":4096,"role":"key_block_scale","size":128})"));
  CHECK(has(R"({"layer":1,"offset":4480,"role":"value_block_scale","size":128})"));
}

TEST_CASE("LY-40 NVFP4 and FP8 of the same page size have different ids") {
  const auto nvfp4 =
      of_roles({{"key", 1024}, {"value", 1024}, {"key_block_scale", 1024}, {"value_block_scale", 1024}});
  const auto fp8 = of_roles({{"key", 2048}, {"value", 2048}});
  CHECK(declared(nvfp4) != declared(fp8));
}

TEST_CASE("LY-41 DeepSeek-V4: virtual layers, compressed and whole, in groups of their own") {
  // Each model layer has a windowed, a compressed and an index cache: three attention types.
  const auto layer = [](std::uint32_t model_layer, std::uint32_t type) {
    return global_layer_id({.model_layer = model_layer, .attention_type = type}, 3).value();
  };
  const auto make = [&](std::int64_t compression) {
    cache_layout l{.tokens_per_block = 128,
                   .pool_groups = {{{2 * 4096}}, {{2 * 1024}}, {{2 * 256}}},
                   .layer_groups = {{.pool_group = 0, .layers = {layer(0, 0), layer(1, 0)}},
                                    {.pool_group = 1, .layers = {layer(0, 1), layer(1, 1)}},
                                    {.pool_group = 2, .layers = {layer(0, 2), layer(1, 2)}}}};
    for (std::uint32_t type = 0; type < 3; ++type)
      for (const std::uint32_t model_layer : {0U, 1U}) {
        const auto size = l.pool_groups[type].slot_bytes[0] / 2;
        l.buffers.push_back({.layer = layer(model_layer, type),
                             .role = type == 2 ? "index_key" : "key",
                             .pool_group = type,
                             .offset = size * std::int64_t{model_layer},
                             .size = size,
                             .mapper = buffer_mapper::replicated,
                             .expansion = type == 0 ? 1 : compression});
      }
    return l;
  };
  auto renumbered = make(4);
  std::ranges::reverse(renumbered.layer_groups);
  std::ranges::reverse(renumbered.buffers);
  CHECK(declared(make(4)) == declared(renumbered));
  CHECK(declared(make(4)) != declared(make(8)));
}

}  // namespace
}  // namespace kvlease
