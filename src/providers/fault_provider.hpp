// A decorator that makes any provider misbehave, within the contract's worst case, from a seed.
// The runtime above it and the provider below it are the production code, unmodified.
//
// | fault | fetch | publish |
// | --- | --- | --- |
// | miss | no unit is served | no unit is accepted |
// | partial | a seeded proper subset is asked for; of one unit, none | the same |
// | fail | noise in half of the destinations, then failed; access has ended | failed at once |
// | reject | submission_rejected; nothing escaped | the same |
// | escape | submitted, then an exception: no attempt | the same |
// | hang | no outcome, access never ends | the same |
// | late, early success | outcome while the destinations hold noise; right bytes later | source read again
// later | | late, early failure | failed at once, submitted later | the same | | late, silent | pending,
// submitted later | the same | | unproven | the first proof that would be good is not | the same | | stubborn
// | submitted late; a cancel is acknowledged and ignored | the same |
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvlease/provider.hpp"
#include "src/providers/fault_plan.hpp"

namespace kvlease {

/// Offers exactly the capabilities of the provider behind it. Submissions that are not struck, and their
/// attempts, pass through untouched. Every byte that it moves itself is touched with the right claimed at
/// submission; bytes of a submission that it delays are so touched when the provider behind gets it, beside
/// that provider's own touch, whose right is as late as its submission.
///
/// A delayed submission can't keep a route (it may be closed by then): with one, a late fetch always is an
/// early success and a stubborn one is submitted at once.
///
/// Threads: as the provider behind it. Delays run on the context's executor.
class fault_provider final : public provider,
                             public fetches,
                             public publishes,
                             public registers_pools,
                             public pollable,
                             public notifies,
                             public proof_rungs {
 public:
  /// Throws std::invalid_argument without inner provider, resolver or executor.
  fault_provider(std::shared_ptr<provider> inner, fault_plan plan, provider_context context);
  ~fault_provider() override;  ///< abandons
  fault_provider(const fault_provider&) = delete;
  fault_provider& operator=(const fault_provider&) = delete;

  /// Submissions struck so far, by fault_kind.
  std::array<std::uint64_t, fault_kind_count> struck() const;
  /// Gives up on what hangs or is delayed: waiters return (quiesce false, settle throws), delayed bytes that
  /// have not begun to move never will, and their access stays running or unproven for ever.
  void abandon();

  std::string describe() const override;
  /// Those of the provider behind, and the units that this decorator withheld or failed.
  unit_counters counters() const override;
  fetches* as_fetches() override;
  publishes* as_publishes() override;
  registers_pools* as_registers_pools() override;
  pollable* as_pollable() override;
  notifies* as_notifies() override;
  proof_rungs* as_proof_rungs() override;

  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) override;
  std::shared_ptr<attempt> publish(const cache_extent& extent) override;
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override;
  result<std::unique_ptr<route>> open_route(const std::string& hint) override;
  bool quiesce(attempt_list attempts) override;
  void settle(attempt_list attempts) override;
  std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) override;
  access_answer poll_access(attempt& a) override;
  void on_progress(std::function<void()> wake) override;
  std::vector<proof_source> rungs() const override;
  /// For the attempt behind; nothing where a fault holds that back.
  std::vector<std::shared_ptr<attempt>> climb(attempt& a, proof_source rung) override;

 private:
  struct core;
  class struck_attempt;
  struct sorted {
    std::vector<std::shared_ptr<attempt>> untouched;
    std::vector<std::shared_ptr<struck_attempt>> struck;
  };
  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent, route* along);
  std::shared_ptr<struck_attempt> mine(attempt& a) const;
  sorted sort(attempt_list attempts) const;

  std::shared_ptr<core> core_;
};

}  // namespace kvlease
