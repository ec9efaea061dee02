// What the tests of the paged manager share: geometries, memory that is only an address, prompts.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/paged_manager.hpp"

namespace kvlease::paged_fixture {

/// The manager never touches a byte, so an address will do.
class fake_memory final : public memory_block {
 public:
  fake_memory(std::uintptr_t at, std::size_t nbytes) : at_{at}, nbytes_{nbytes} {}
  std::uintptr_t address() const noexcept override { return at_; }
  std::size_t size() const noexcept override { return nbytes_; }

 private:
  std::uintptr_t at_;
  std::size_t nbytes_;
};

inline std::uintptr_t fake_base(std::size_t pool) { return 0x10000000 * (pool + 1); }

inline paged_manager_options one_pool(std::int64_t pages) {
  paged_manager_options o;
  o.tokens_per_block = 4;
  o.pool_groups = {{.page_bytes = 64, .pages = pages}};
  o.layer_groups = {{.pool_group = 0, .layers = {0, 1}}};
  return o;
}

/// Three layer groups: 0 alone in the first pool group, 1 and 2 together in the second. Eight blocks.
inline paged_manager_options two_pools() {
  paged_manager_options o;
  o.tokens_per_block = 4;
  o.pool_groups = {{.page_bytes = 64, .pages = 8}, {.page_bytes = 128, .pages = 16}};
  o.layer_groups = {{.pool_group = 0, .layers = {0, 1}},
                    {.pool_group = 1, .layers = {2}},
                    {.pool_group = 1, .layers = {3, 4}}};
  return o;
}

inline std::vector<std::shared_ptr<memory_block>> memory_for(const paged_manager_options& o) {
  std::vector<std::shared_ptr<memory_block>> pools;
  for (std::size_t i = 0; i < o.pool_groups.size(); ++i) {
    const auto& g = o.pool_groups[i];
    pools.push_back(
        std::make_shared<fake_memory>(fake_base(i), static_cast<std::size_t>(g.page_bytes * g.pages)));
  }
  return pools;
}

inline std::unique_ptr<paged_manager> make_manager(const paged_manager_options& o) {
  auto made = paged_manager::make(o, memory_for(o));
  INFO((made ? "" : made.error().text));
  REQUIRE(made.has_value());
  return std::move(*made);
}

/// Tokens first, first + 1, ...
inline token_list run(std::uint32_t first, std::int64_t count) {
  token_list out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(first + static_cast<std::uint32_t>(i));
  return out;
}

inline request_spec spec(token_list prompt) { return {std::move(prompt), {}}; }

inline std::vector<reuse_scope> scopes() { return {{{}, {}}, {0, {}}, {{}, 0}, {0, 0}, {7, 11}}; }

inline void whole(const paged_manager& m) {
  const auto ok = m.check_invariants();
  INFO((ok ? "" : ok.error().text));
  REQUIRE(ok.has_value());
  const page_counts c = m.counts();
  REQUIRE(c.free + c.held + c.cached + c.pinned == c.total);
}

/// Admits, then grows and commits all whole blocks of the prompt.
inline void compute(paged_manager& m, request_id id, request_spec s) {
  const auto tpb = m.layout().tokens_per_block;
  const std::int64_t end = static_cast<std::int64_t>(s.prompt.size()) / tpb * tpb;
  REQUIRE(m.admit(id, std::move(s)));
  REQUIRE(m.grow(id, static_cast<std::int64_t>(m.describe(id)->prompt_tokens)));
  REQUIRE(m.commit(id, end));
}

}  // namespace kvlease::paged_fixture
