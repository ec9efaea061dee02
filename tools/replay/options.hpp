// What a replay is asked to do; the command line's values, checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "messages/retirement.hpp"
#include "src/include/kvlease/provider_uri.hpp"
#include "src/providers/fault_plan.hpp"
#include "tools/device_choice.hpp"
#include "tools/replay/trace.hpp"

namespace kvlease {
class runtime;
}

namespace kvlease::replay {

/// What a process of several does: all of a request's life, or half of it, so that one process publishes what
/// another one fetches.
enum class replay_role : std::uint8_t {
  both,
  publish,  ///< computes and publishes, fetches nothing
  fetch,    ///< fetches, computes and publishes nothing
};

struct replay_options {
  std::string trace_path;  ///< empty: `workload` is generated
  std::string workload = "conversation";
  std::string format = "auto";
  std::optional<std::size_t> requests;  ///< absent: all of a trace, 2,000 generated
  std::size_t instances = 2;
  std::string backend = "memory:";
  std::string device = "host";
  std::size_t block_bytes = 4096;
  std::optional<std::uint32_t> tokens_per_block;  ///< absent: the trace's, 512 generated
  std::optional<std::size_t> pool_blocks;         ///< absent: what the concurrency needs
  std::size_t staging_slots = 512;
  std::size_t store_bytes = std::size_t{2} << 30;
  std::size_t concurrency = 32;
  std::string timeout = "5s";
  std::uint64_t seed = 1;
  double abort = 0;
  std::string faults;
  std::string late = "10ms";  ///< bound of the delays of `late` and `stubborn`
  std::string local_reuse = "on";
  std::string role = "both";
  std::string journal_path;  ///< FILE: the journal of instance N is written to FILE.N
  std::string json_path;
  bool quiet = false;
};

/// Checked: every value is in range and the requests fit the pool.
struct replay_plan {
  trace work;
  std::size_t instances = 0;
  std::size_t block_bytes = 0;
  std::uint32_t tokens_per_block = 0;
  std::size_t pool_blocks = 0;
  std::size_t staging_slots = 0;
  provider_factory provider;  ///< shared by the instances
  std::string backend;        ///< its URI
  device_choice device;       ///< of each instance
  /// What stands before each instance's device; empty: nothing.
  std::function<std::shared_ptr<device_port>(std::shared_ptr<device_port>)> decorate_device;
  std::size_t concurrency = 0;
  transfer_timeout timeout;
  std::uint64_t seed = 0;
  double abort = 0;
  fault_plan faults;
  bool local_reuse = true;
  replay_role role = replay_role::both;
  /// Called once all requests are through, before anything is shut down, with what the first instance's
  /// provider says of itself; empty: nothing.
  std::function<void(const std::string&)> before_stop;
  bool quiet = false;
  bool journal = true;
  std::chrono::duration<double> shutdown_grace{5};                      ///< runtime_options::shutdown_grace
  std::chrono::nanoseconds unproven_budget = std::chrono::seconds{60};  ///< runtime_options::unproven_budget
  bool meters = true;                                                   ///< runtime_options::meters
  std::string journal_path;
  std::function<void(runtime&)> on_instance;  ///< called with each runtime that was started; empty: nothing
};

/// "5s", "200ms", "1.5s", "50us". Errors: invalid.
result<std::chrono::duration<double>> parse_duration(const std::string& text);

/// Loads or generates the trace. Errors name the option, its value and the rule, or the file and line.
result<replay_plan> plan_replay(const replay_options& options);

}  // namespace kvlease::replay
