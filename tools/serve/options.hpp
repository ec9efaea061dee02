// What `kvlease serve` is asked to do; the command line's values, and those values checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/replay/options.hpp"

namespace kvlease::serve {

struct serve_options {
  std::string socket;  ///< empty: the default path
  std::string tcp;     ///< empty: none
  std::string backend = "memory:";
  std::string device = "host";
  std::size_t instances = 1;
  std::uint32_t tokens_per_block = 64;
  std::size_t block_bytes = 16384;
  std::size_t pool_blocks = 4096;
  std::size_t staging_slots = 512;
  std::size_t store_bytes = std::size_t{2} << 30;
  std::size_t concurrency = 32;
  std::size_t queued = 256;
  std::string timeout = "5s";
  std::string drain = "10s";
  std::string budget = "60s";
  std::string faults;
  std::string late = "10ms";
  std::uint64_t seed = 1;
  std::string local_reuse = "on";
  bool retry_proofs = true;
  bool drills = false;
  bool stay = false;
  bool quiet = false;
};

struct serve_plan {
  replay::replay_plan instances;  ///< what each instance is made of; it has no trace
  std::string socket;
  std::optional<std::string> tcp;
  std::size_t queued = 0;
  std::chrono::nanoseconds drain{};
  bool retry_proofs = true;
  bool drills = false;
};

/// Errors name the option, its value and the rule.
result<serve_plan> plan_serve(const serve_options& options);

}  // namespace kvlease::serve
