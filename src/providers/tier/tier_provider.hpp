// Several stores in their order, as one provider: what is near is asked first, what is far keeps more.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvlease/provider_uri.hpp"
#include "src/providers/tier/transfer.hpp"

namespace kvlease {

/// Fetch: each tier in turn is asked for what is still missing; only a miss falls through to the next, unless
/// `past_failures`. Served is what any tier served; failed when nothing was and a tier has failed. A unit
/// whose earlier attempt can't be proven ended stays unserved (tier_transfer.hpp). Publish: to all tiers at
/// once; delivered are the units that every required tier holds, failed when a required tier has failed.
/// Pools are registered with every tier that registers them, or with none. Routes are those of the first
/// tier.
///
/// Threads: any call on any thread. A fetch is handed to its first tier, a publish to all, inside the call;
/// what follows runs in jobs on the context's executor, when a tier says that something has advanced.
class tier_provider final : public transfer_provider {
 public:
  /// Throws std::invalid_argument for no tier, one that is null or neither fetches nor publishes, no required
  /// tier, or no executor.
  tier_provider(tier_stack stack, provider_context context);
  ~tier_provider() override;

  std::string describe() const override;
  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) override;
  std::shared_ptr<attempt> publish(const cache_extent& extent) override;
  /// What any tier would hit; empty as soon as one can't tell.
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override;
  result<std::unique_ptr<route>> open_route(const std::string& hint) override;
  std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) override;
  bool quiesce(attempt_list attempts) override;
  access_answer poll_access(attempt& a) override;

 private:
  class live_transfers;
  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent, route* along);

  std::shared_ptr<const tier_stack> stack_;
  std::shared_ptr<live_transfers> live_;
};

/// tier:[?past=misses|failures;]URI,[optional+]URI,...  A comma begins a tier where a known scheme follows.
/// `optional+`: a publish need not reach it.
result<provider_factory> open_tier(std::string_view after_colon);

}  // namespace kvlease
