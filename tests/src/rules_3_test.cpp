// Semantics 3, rule by rule: profile and mapping. Each of their clauses has rows of its own in
// profile_test.cpp and extent_test.cpp (SM-01 to SM-42).
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/extent.hpp"
#include "src/profile.hpp"
#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

TEST_CASE("3.1 the first supported profile is accepted; a fact outside it is refused by name and value") {
  const auto good = supported_profile("build-7");
  CHECK(validate(good).has_value());
  const auto refused = [&](const std::string& field, const std::string& value, auto change) {
    auto p = good;
    change(p);
    const auto got = validate(p);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::invalid);
    CHECK(got.error().text.find(field) != std::string::npos);
    CHECK(got.error().text.find(value) != std::string::npos);
  };
  refused("cache_dtype", "float16", [](auto& p) { p.cache_dtype = "float16"; });
  refused("attention_kind", "mla", [](auto& p) { p.attention_kind = "mla"; });
  refused("layout", "NHD", [](auto& p) { p.layout = "NHD"; });
  refused("parallelism", "2", [](auto& p) { p.parallelism[0] = 2; });
  refused("staging", "bounce", [](auto& p) { p.staging = "bounce"; });
  refused("committed_whole_blocks", "false", [](auto& p) { p.committed_whole_blocks = false; });
  refused("extra_features", "warp drive", [](auto& p) { p.extra_features = {"warp drive"}; });
}

TEST_CASE("3.2 the contract's revision is pinned, the backend's names a build and is not blank") {
  CHECK(contract_revision == "147ed68276e7fb89d5de60002d4e793a78707a8c+cancel-request-v1");
  auto p = supported_profile("build-7");
  CHECK(p.contract_revision == contract_revision);
  CHECK(p.backend_revision == "build-7");
  p.contract_revision = "147ed68276e7fb89d5de60002d4e793a78707a8c";
  check_refused(validate(p), errc::invalid, "contract_revision");
  for (const auto* blank : {"", " ", "\t\n"})
    check_refused(validate(supported_profile(blank)), errc::invalid, "backend_revision");
}

/// A view of two rows in a part of four slots of 64 bytes.
struct two_rows {
  std::vector<part> parts{{.name = "p", .address = 4096, .nbytes = 256, .slot_bytes = 64, .slots = 4}};
  std::vector<bytes> names{bytes(block_name_size, 'a'), bytes(block_name_size, 'b')};
  std::vector<std::uintptr_t> addresses{4096 + 128, 4096};
  std::vector<std::int64_t> ordinals{70, 71};

  region_view view() const {
    return *region_view::make({*group_run::make(3, ordinals, group_run::placement{names, addresses, 0})});
  }
  result<cache_extent> build() const {
    return build_extent(view(), parts, bytes{staging_namespace}, end_of_sequence::yes);
  }
};

TEST_CASE("3.3 an extent keeps the lender's names, and its coordinates are slots, not blocks") {
  two_rows v;
  const auto made = v.build();
  REQUIRE(made.has_value());
  REQUIRE(made->units().size() == 2);
  CHECK(made->units()[0].name() == v.names[0]);
  CHECK(made->units()[0].local_group() == 3);
  CHECK(made->units()[0].local() == 2);
  CHECK(made->units()[1].local() == 0);
  SUBCASE("outside of the part") { v.addresses[0] = 64; }
  SUBCASE("past the part") { v.addresses[0] = 4096 + 256; }
  SUBCASE("misaligned") { v.addresses[0] = 4096 + 1; }
  SUBCASE("two rows on one slot") { v.addresses[0] = v.addresses[1]; }
  SUBCASE("a negative ordinal") { v.ordinals[0] = -1; }
  SUBCASE("a part that is too small for its slots") { v.parts[0].nbytes = 255; }
  SUBCASE("a part without slots") { v.parts[0].slots = 0; }
  SUBCASE("overlapping parts") { v.parts.push_back(v.parts[0]); }
  SUBCASE("an unknown part") { v.parts.clear(); }
  CHECK_FALSE(v.build().has_value());
}

TEST_CASE("3.4 the namespace is one for all requests") {
  CHECK(staging_namespace == "trtllm:shared-kv:staging:1");
  two_rows one, other;
  other.ordinals = {0, 1};
  CHECK(one.build()->name() == other.build()->name());
  CHECK(one.build()->name() == bytes{staging_namespace});
}

TEST_CASE("3.5 served names become whole-row masks; an unknown, duplicate or missing name is an error") {
  two_rows v;
  CHECK(served_masks(v.view(), {}) == row_masks{{false, false}});
  CHECK(served_masks(v.view(), {v.names[1]}) == row_masks{{false, true}});
  check_refused(served_masks(v.view(), {bytes(block_name_size, 'c')}), errc::invalid, "subset");
  v.names[1] = v.names[0];
  check_refused(served_masks(v.view(), {v.names[0]}), errc::invalid, "duplicate names");
  const auto unnamed = *region_view::make({*group_run::make(3, {1}, std::nullopt)});
  check_refused(served_masks(unnamed, {}), errc::invalid, "staging names");
}

}  // namespace
}  // namespace kvlease::test
