#include "src/profile.hpp"

#include <fmt/format.h>

#include <utility>

#include "src/guard.hpp"

namespace kvlease {

namespace {

/// A field that has one accepted text. Order and values are those of scenarios 2.2.
struct fixed_text {
  std::string_view name;
  std::string shared_runtime_profile::*field;
  std::string_view accepted;
};

constexpr fixed_text fixed_texts[] = {
    {"contract_revision", &shared_runtime_profile::contract_revision, contract_revision},
    {"backend_kind", &shared_runtime_profile::backend_kind, "native_nixl"},
    {"manager_kind", &shared_runtime_profile::manager_kind, "KVCacheManagerV2"},
    {"cache_dtype", &shared_runtime_profile::cache_dtype, "bfloat16"},
    {"attention_backend", &shared_runtime_profile::attention_backend, "TRTLLM"},
    {"attention_kind", &shared_runtime_profile::attention_kind, "mha"},
    {"layout", &shared_runtime_profile::layout, "HND"},
    {"staging", &shared_runtime_profile::staging, "manager_host"},
};

constexpr std::string_view parallel_names[] = {"TP", "DP", "PP", "CP"};

}  // namespace

result<void> validate(const shared_runtime_profile& p) {
  if (mutated(mutation::profile_unchecked)) return {};
  for (const auto& f : fixed_texts)
    if (p.*f.field != f.accepted)
      return fail(errc::invalid,
                  fmt::format("profile field {} is '{}', must be '{}'", f.name, p.*f.field, f.accepted));
  if (p.backend_revision.find_first_not_of(" \t\n\v\f\r") == std::string::npos)
    return fail(errc::invalid,
                fmt::format("profile field backend_revision is '{}', must not be blank", p.backend_revision));
  for (std::size_t i = 0; i < p.parallelism.size(); ++i)
    if (p.parallelism[i] != 1)
      return fail(errc::invalid,
                  fmt::format("profile field parallelism is ({}): {} is {}, must be 1",
                              fmt::join(p.parallelism, ", "), parallel_names[i], p.parallelism[i]));
  if (!p.committed_whole_blocks)
    return fail(errc::invalid, "profile field committed_whole_blocks is false, must be true");
  if (!p.extra_features.empty())
    return fail(errc::invalid, fmt::format("profile field extra_features is {{{}}}, must be empty",
                                           fmt::join(p.extra_features, ", ")));
  return {};
}

shared_runtime_profile supported_profile(std::string backend_revision) {
  shared_runtime_profile p{};
  for (const auto& f : fixed_texts) p.*f.field = f.accepted;
  p.backend_revision = std::move(backend_revision);
  p.parallelism = {1, 1, 1, 1};
  p.committed_whole_blocks = true;
  return p;
}

}  // namespace kvlease
