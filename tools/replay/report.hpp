// What a replay found, for people and as JSON.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "messages/contract.hpp"
#include "messages/operation.hpp"
#include "messages/staging.hpp"
#include "src/providers/fault_plan.hpp"

namespace kvlease::replay {

inline constexpr int report_schema_version = 1;

/// Operations by how they ended for the request.
struct outcome_counts {
  std::uint64_t delivered = 0;  ///< all that was asked for
  std::uint64_t partial = 0;
  std::uint64_t miss = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t timeout = 0;
  std::uint64_t rejected = 0;
};

/// Adds what the operation asked for `units` brought.
void count(outcome_counts& counts, const outcome& value, std::size_t units);

struct quantiles {
  double p50_us = 0;
  double p99_us = 0;
  std::size_t samples = 0;
};

struct report {
  std::string trace_source;
  std::string backend;
  std::string device;
  std::size_t requests = 0;
  std::size_t block_refs = 0;
  std::size_t oracle_hit_blocks = 0;
  std::uint64_t fetched_blocks = 0;    ///< served, copied and checked
  std::uint64_t published_blocks = 0;  ///< accepted by the provider
  std::uint64_t local_hit_blocks = 0;  ///< reused from the instance's own pages
  std::uint64_t aborted = 0;           ///< requests
  outcome_counts outcomes;
  std::uint64_t not_run = 0;     ///< requests, after fatal
  std::uint64_t not_leased = 0;  ///< leases that came back failed
  std::array<std::uint64_t, fault_kind_count> faults_struck{};
  std::array<bool, fault_kind_count> faults_asked{};
  std::uint64_t wrong_blocks = 0;
  std::uint64_t exposure_bytes = 0;
  std::uint64_t retained_operations = 0;  ///< disputed at some time
  slot_counts slots;
  bool slots_conserved = true;
  std::uint64_t operations_open = 0;
  bool fatal = false;
  std::string fatal_reason;
  bool stopped = true;                ///< every runtime shut down in order (not asked for after fatal)
  std::vector<std::string> problems;  ///< what should not have happened, in words
  double seconds = 0;
  std::uint64_t operations = 0;
  std::uint64_t bytes_fetched = 0;
  std::uint64_t bytes_published = 0;
  quantiles submit_to_outcome, outcome_to_proof, proof_to_released;
  std::uint64_t seed = 0;
  std::string outcome_digest;  ///< SHA-256 over all outcomes in trace order: equal runs have equal ones

  /// 0 all held; 3 all held but fatal; 1 an invariant broke.
  int exit_status() const;
  /// Requested kinds of fault that struck no time (semantics 8.3).
  std::vector<std::string> missed_faults() const;
};

nlohmann::ordered_json to_json(const report& r);
void print(const report& r, std::ostream& out);

/// Gathers latencies from any thread.
class latency_log {
 public:
  void add(const operation_times& t);
  void fill(report& r);

 private:
  std::mutex mutex_;
  std::vector<double> submit_, proof_, release_;
};

}  // namespace kvlease::replay
