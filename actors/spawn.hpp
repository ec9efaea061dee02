// One runtime's actors in any actor system: the façade's own, a CAF host's, or a deterministic test's.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "actors/ladder.hpp"
#include "actors/poll_schedule.hpp"
#include "messages/wiring.hpp"
#include "src/exposure.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/manager_port.hpp"
#include "src/include/kvlease/provider.hpp"
#include "src/ledger.hpp"
#include "src/observation.hpp"
#include "src/profile.hpp"

namespace kvlease {

struct runtime_setup {
  incarnation runtime;
  shared_runtime_profile profile;
  std::shared_ptr<device_port> device;
  std::shared_ptr<manager_port> manager;
  bool manager_blocks = false;
  std::vector<std::int64_t> staging_slots;  ///< one count a pool group
  std::vector<host_span> staging_memory;    ///< one a pool group, or none: the device allocates
  std::size_t page_access_bytes = 0;        ///< of staging for the engine's own access; 0: none
  bytes scope;                              ///< of the names
  std::function<std::shared_ptr<provider>(const provider_context&)> open_provider;
  std::shared_ptr<executor> submit_workers;
  std::shared_ptr<executor> proof_workers;
  std::shared_ptr<executor> provider_workers;  ///< a provider's own background work
  transfer_timeout registration_timeout;
  std::function<void(const fatal_record&)> contain;
  poll_limits polling;
  ladder_options ladder;
  std::chrono::nanoseconds cuda_spin = std::chrono::milliseconds{2};
  bool keep_awake = false;  ///< cuda_config::keep_awake
  paint_mode paint = paint_mode::full;
  std::size_t max_operations = 1024;
  std::size_t max_waiting_leases = 1024;
  std::size_t max_queued_submissions = 1024;
  std::shared_ptr<journal> log = nullptr;  ///< of every transition; null: none
  bool metered = true;                     ///< actors keep meters and gauges
};

/// What a runtime consists of. The handles are dropped before the actor system goes (caf.md, rule 1).
struct runtime_parts {
  std::shared_ptr<const wiring> actors;
  std::shared_ptr<ledger> roots;
  std::shared_ptr<touch_table> touches;
  std::shared_ptr<std::atomic<std::uint64_t>> paint_exposure;
  std::shared_ptr<provider> service;
  std::vector<part> parts;
  std::shared_ptr<observation> watch;

  std::uint64_t exposure_bytes() const { return touches->exposure_bytes() + paint_exposure->load(); }
};

/// Allocates staging, opens the provider, spawns and wires the actors. The adapter is started by a
/// start_adapter request. Errors: invalid (profile, before anything is held; setup), no_memory (staging),
/// provider (opening).
result<runtime_parts> spawn_runtime(caf::actor_system& system, runtime_setup setup);

}  // namespace kvlease
