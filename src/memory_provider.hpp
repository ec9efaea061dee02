// The provider over a memory_store: the reference implementation of the contract (semantics 2), and what
// tests, simulations and single-process hosts use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "kvlease/provider.hpp"
#include "src/memory_store.hpp"

namespace kvlease {

struct memory_options {
  bool background = true;  ///< move bytes in jobs on the context's executor; false: inside the call
};

/// Every capability, every attempt cancellable. Sources and destinations must be registered (2.10).
/// Bytes move unit by unit; a cancel takes effect between two units, and what was moved by then stays.
/// Outcome and end of access come together: the job that stops moving bytes gives both.
///
/// Counters (2.15), by how the unit ended, of fetches and publishes alike: served is a hit, not served a
/// miss, each unit of a failed attempt a failure; units of a cancelled attempt count nowhere.
///
/// Threads: any call on any thread. Destroying it asks what runs to stop between two units and does not wait;
/// jobs own all that they use but the leased memory, which must stay until quiesce or poll_access proves it.
/// `wake` runs outside every lock; one that is under way when it is replaced may still finish.
class memory_provider final : public provider,
                              public fetches,
                              public publishes,
                              public registers_pools,
                              public pollable,
                              public notifies {
 public:
  /// Throws std::invalid_argument without store or resolver, or in the background without executor.
  memory_provider(std::shared_ptr<memory_store> store, provider_context context, memory_options options = {});
  ~memory_provider() override;
  memory_provider(const memory_provider&) = delete;
  memory_provider& operator=(const memory_provider&) = delete;

  std::string describe() const override;
  unit_counters counters() const override;
  fetches* as_fetches() override { return this; }
  publishes* as_publishes() override { return this; }
  registers_pools* as_registers_pools() override { return this; }
  pollable* as_pollable() override { return this; }
  notifies* as_notifies() override { return this; }

  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) override;
  std::shared_ptr<attempt> publish(const cache_extent& extent) override;
  /// Exact at the time of the call.
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override;
  /// Always unsupported: there is one source.
  result<std::unique_ptr<route>> open_route(const std::string& hint) override;
  /// An attempt of another provider is never proven.
  bool quiesce(attempt_list attempts) override;
  /// Throws std::invalid_argument for an attempt of another provider.
  void settle(attempt_list attempts) override;
  std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) override;
  access_answer poll_access(attempt& a) override;
  void on_progress(std::function<void()> wake) override;

 private:
  struct core;
  class transfer;
  class pool_registration;
  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent);
  std::shared_ptr<transfer> mine(attempt& a) const;

  std::shared_ptr<core> core_;
};

}  // namespace kvlease
