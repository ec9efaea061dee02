#include "src/profile.hpp"

#include <doctest/doctest.h>

#include <tuple>
#include <type_traits>

#include "tests/src/refused.hpp"

namespace kvlease::test {
namespace {

constexpr const char* build = "nixl-1.2.0+g0badf00d";

/// Written out, not taken from supported_profile(): the twelve values are the contract.
shared_runtime_profile golden() {
  return {.contract_revision = "147ed68276e7fb89d5de60002d4e793a78707a8c+cancel-request-v1",
          .backend_kind = "native_nixl",
          .manager_kind = "KVCacheManagerV2",
          .cache_dtype = "bfloat16",
          .attention_backend = "TRTLLM",
          .attention_kind = "mha",
          .layout = "HND",
          .staging = "manager_host",
          .backend_revision = build,
          .parallelism = {1, 1, 1, 1},
          .committed_whole_blocks = true,
          .extra_features = {}};
}

/// Refused, naming the field and what the text must show of its value.
void check_field(const shared_runtime_profile& p, std::string_view field, std::string_view value) {
  const auto r = validate(p);
  check_refused(r, errc::invalid, field);
  check_refused(r, errc::invalid, value);
}

TEST_CASE("SM-23 supported profile") {
  CHECK(validate(golden()));
  CHECK(supported_profile(build) == golden());
  CHECK(golden().backend_revision != golden().contract_revision);
}

TEST_CASE("SM-24 profile: contract revision") {
  auto p = golden();
  SUBCASE("another") { p.contract_revision = "0123456789abcdef0123456789abcdef01234567+cancel-request-v1"; }
  SUBCASE("without the extension's suffix") {
    p.contract_revision = "147ed68276e7fb89d5de60002d4e793a78707a8c";
  }
  check_field(p, "contract_revision", p.contract_revision);
}

TEST_CASE("SM-25 profile: backend revision") {
  auto p = golden();
  SUBCASE("one space") { p.backend_revision = " "; }
  SUBCASE("empty") { p.backend_revision = ""; }
  SUBCASE("nothing but blanks") { p.backend_revision = "\t\r\n \v\f"; }
  check_field(p, "backend_revision", "'" + p.backend_revision + "'");
}

TEST_CASE("SM-25 profile: backend revision with one visible character") {
  auto p = golden();
  p.backend_revision = " x ";
  CHECK(validate(p));
}

TEST_CASE("SM-26 profile: backend") {
  auto p = golden();
  p.backend_kind = "mooncake";
  check_field(p, "backend_kind", "'mooncake'");
}

TEST_CASE("SM-27 profile: manager") {
  auto p = golden();
  p.manager_kind = "KVCacheManager";
  check_field(p, "manager_kind", "'KVCacheManager'");
}

TEST_CASE("SM-28 profile: dtype") {
  auto p = golden();
  p.cache_dtype = "float16";
  check_field(p, "cache_dtype", "'float16'");
}

TEST_CASE("SM-29 profile: writer") {
  auto p = golden();
  p.attention_backend = "FLASHINFER";
  check_field(p, "attention_backend", "'FLASHINFER'");
}

TEST_CASE("SM-30 profile: cache kind") {
  auto p = golden();
  p.attention_kind = "mla";
  check_field(p, "attention_kind", "'mla'");
}

TEST_CASE("SM-31 profile: layout") {
  auto p = golden();
  p.layout = "NHD";
  check_field(p, "layout", "'NHD'");
}

TEST_CASE("SM-32 profile: TP") {
  auto p = golden();
  p.parallelism[0] = 2;
  check_field(p, "parallelism is (2, 1, 1, 1)", "TP is 2");
}

TEST_CASE("SM-33 profile: DP") {
  auto p = golden();
  p.parallelism[1] = 2;
  check_field(p, "parallelism is (1, 2, 1, 1)", "DP is 2");
}

TEST_CASE("SM-34 profile: PP") {
  auto p = golden();
  p.parallelism[2] = 2;
  check_field(p, "parallelism is (1, 1, 2, 1)", "PP is 2");
}

TEST_CASE("SM-35 profile: CP") {
  auto p = golden();
  p.parallelism[3] = 2;
  check_field(p, "parallelism is (1, 1, 1, 2)", "CP is 2");
}

TEST_CASE("SM-36 profile: staging") {
  auto p = golden();
  p.staging = "python_bounce";
  check_field(p, "staging", "'python_bounce'");
}

TEST_CASE("SM-37 profile: partial blocks") {
  auto p = golden();
  p.committed_whole_blocks = false;
  check_field(p, "committed_whole_blocks", "false");
}

TEST_CASE("SM-38 profile: features: compression") {
  auto p = golden();
  p.extra_features = {"compression"};
  check_field(p, "extra_features", "{compression}");
}

TEST_CASE("SM-39 profile: features: retry") {
  auto p = golden();
  p.extra_features = {"retry"};
  check_field(p, "extra_features", "{retry}");
}

TEST_CASE("SM-40 profile: features: unknown-feature") {
  auto p = golden();
  p.extra_features = {"unknown-feature"};
  check_field(p, "extra_features", "{unknown-feature}");
}

TEST_CASE("scenarios 2.2 the first violation in the order of the fields is the one that is named") {
  shared_runtime_profile p{};  // every field that can be wrong is
  p.extra_features = {"x"};
  const auto good = golden();
  const auto step = [&](std::string_view field, auto member) {
    check_refused(validate(p), errc::invalid, "profile field " + std::string{field});
    p.*member = good.*member;
  };
  using profile = shared_runtime_profile;
  step("contract_revision", &profile::contract_revision);
  step("backend_kind", &profile::backend_kind);
  step("manager_kind", &profile::manager_kind);
  step("cache_dtype", &profile::cache_dtype);
  step("attention_backend", &profile::attention_backend);
  step("attention_kind", &profile::attention_kind);
  step("layout", &profile::layout);
  step("staging", &profile::staging);
  step("backend_revision", &profile::backend_revision);
  step("parallelism", &profile::parallelism);
  step("committed_whole_blocks", &profile::committed_whole_blocks);
  step("extra_features", &profile::extra_features);
  CHECK(validate(p));
}

TEST_CASE("scenarios 2.2 four ranks, whole numbers; features in a set") {
  static_assert(std::tuple_size_v<decltype(shared_runtime_profile::parallelism)> == 4);
  static_assert(std::is_same_v<decltype(shared_runtime_profile::parallelism)::value_type, std::int64_t>);
  static_assert(std::is_same_v<decltype(shared_runtime_profile::committed_whole_blocks), bool>);
  static_assert(std::is_same_v<decltype(shared_runtime_profile::extra_features), std::set<std::string>>);
}

}  // namespace
}  // namespace kvlease::test
