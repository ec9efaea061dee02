// The profile: explicit facts about a deployment that must hold before anything is held, registered or
// exposed (semantics 3.1, scenarios 2.2). It states compatibility only; it certifies no backend.
// Plain values; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "messages/error.hpp"

namespace kvlease {

/// The contract that this library implements (semantics 3.2).
inline constexpr std::string_view contract_revision =
    "147ed68276e7fb89d5de60002d4e793a78707a8c+cancel-request-v1";

/// All twelve facts are given by whoever deploys; a text, a flag or a count left out is refused.
struct shared_runtime_profile {
  std::string contract_revision;
  std::string backend_kind;
  std::string manager_kind;
  std::string cache_dtype;
  std::string attention_backend;
  std::string attention_kind;
  std::string layout;
  std::string staging;
  std::string backend_revision;             ///< the build under test; not the contract's revision
  std::array<std::int64_t, 4> parallelism;  ///< ranks: TP, DP, PP, CP
  bool committed_whole_blocks;
  std::set<std::string> extra_features;
  friend bool operator==(const shared_runtime_profile&, const shared_runtime_profile&) = default;
};

/// Errors: invalid, naming the first field outside the supported shape, its value and what is accepted.
result<void> validate(const shared_runtime_profile& p);

/// The first supported profile, for the given build of the backend.
shared_runtime_profile supported_profile(std::string backend_revision);

}  // namespace kvlease
