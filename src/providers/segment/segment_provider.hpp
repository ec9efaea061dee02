// The provider over a segment store: units on a local disk that outlive the process.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "src/providers/segment/store.hpp"
#include "src/providers/unit_transfer.hpp"

namespace kvlease {

/// Every capability, every attempt cancellable. Sources and destinations must be registered (2.10).
///
/// Access ends (proof: terminal_status) when each unit's own read or write has completed (segment_engine.hpp)
/// or was dropped before the kernel knew of it. The outcome does not wait for that: a cancel and the first
/// failure give it at once. A publish's memory is free once it is written; its outcome comes when the unit is
/// visible, in durable mode when it is on stable storage.
///
/// A unit that was torn or lost on disk is a miss, and its slot stays as it was. One that this process has
/// written or read well, and whose bytes have changed on disk since, fails the fetch, and is a miss next
/// time.
///
/// Throws submission_rejected for a route, and when the store's queue has no room for all of an extent.
///
/// Threads: any call on any thread. Destroying it drops what has not begun and waits for nothing: what runs
/// holds the store until its own completion.
class segment_provider final : public transfer_provider {
 public:
  /// Throws std::invalid_argument without store or resolver.
  segment_provider(std::shared_ptr<segment_store> store, provider_context context);
  ~segment_provider() override;

  std::string describe() const override { return store_->describe(); }
  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) override;
  std::shared_ptr<attempt> publish(const cache_extent& extent) override;
  /// Exact at the time of the call, but for recovered units that turn out torn when they are read.
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override;
  std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) override;

 private:
  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent);

  const std::shared_ptr<segment_store> store_;
  const std::shared_ptr<std::atomic<bool>> closing_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace kvlease
