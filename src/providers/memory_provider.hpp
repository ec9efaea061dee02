// The provider over a memory_store: the reference implementation of the contract (semantics 2), and what
// tests, simulations and single-process hosts use.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "src/providers/memory_store.hpp"
#include "src/providers/unit_transfer.hpp"

namespace kvlease {

struct memory_options {
  bool background = true;  ///< move bytes in jobs on the context's executor; false: inside the call
};

/// Every capability, every attempt cancellable. Sources and destinations must be registered (2.10).
/// Bytes move unit by unit; a cancel takes effect between two units, and what was moved by then stays.
/// Outcome and end of access come together: the job that stops moving bytes gives both.
///
/// Threads: any call on any thread. Destroying it asks what runs to stop between two units and does not wait;
/// jobs own all that they use but the leased memory, which must stay until quiesce or poll_access proves it.
class memory_provider final : public transfer_provider {
 public:
  /// Throws std::invalid_argument without store or resolver, or in the background without executor.
  memory_provider(std::shared_ptr<memory_store> store, provider_context context, memory_options options = {});
  ~memory_provider() override;

  std::string describe() const override;
  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) override;
  std::shared_ptr<attempt> publish(const cache_extent& extent) override;
  /// Exact at the time of the call.
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override;

 private:
  struct shared;
  class transfer;
  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent);

  std::shared_ptr<shared> shared_;
};

}  // namespace kvlease
