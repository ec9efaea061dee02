// One submission to several tiers (issue: fetch from the first that has a unit; publish to all).
//
// A fetch asks one tier after the other, each for the units that are still missing. A later tier may write a
// unit's slot only after the end of access of every earlier attempt on it was proven; without that proof the
// unit stays unserved. A publish goes to all tiers at once, and is delivered for the units that every
// required tier holds. Access has ended when that of every part has.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/providers/unit_transfer.hpp"

namespace kvlease {

struct tier {
  std::shared_ptr<provider> store;
  bool required = true;  ///< a publish is delivered only for what this tier holds
};

/// Tiers in their order, as all transfers of a provider see them.
struct tier_stack {
  std::vector<tier> tiers;
  bool past_failures =
      false;  ///< the units of a tier that has failed are asked of the next, like missed ones
};

class tier_transfer final : public unit_transfer {
 public:
  tier_transfer(std::shared_ptr<transfer_book> book, std::shared_ptr<const tier_stack> stack, direction way,
                const cache_extent& extent);

  /// Hands the extent to the first tier, or all. `along` is a route of tier `along_tier`. Throws
  /// submission_rejected when nothing has escaped to any of them.
  void start(route* along, std::size_t along_tier);
  /// Looks at the parts and goes on as far as their answers allow. Returns at once where another thread does
  /// so, which then looks once more. May call a provider that blocks: on a worker.
  void advance();
  /// Asked of the parts that run; no further tier is asked then.
  cancel_disposition request_cancel() override;
  /// Some part's access can't be proven now; what escaped without a handle never can.
  bool unproven() const noexcept { return unproven_.load(std::memory_order_relaxed); }
  /// Access has ended: nothing is left to look at.
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }

 private:
  struct part {
    std::size_t tier = 0;
    std::shared_ptr<attempt> given;  ///< null: it escaped without a handle, or did not begin
    bool unproven = false;
    std::optional<outcome> value;
    std::optional<proof_source> ended;
    bool asked_to_quiesce = false;  ///< a provider that can't be polled
    std::shared_ptr<std::atomic<bool>> quiesced;
  };

  void step();
  void look_at(part& p);
  void ask_next_tier();
  void begin(std::size_t tier, std::vector<unit> units, route* along);
  void decide_fetch();
  void decide_publish();
  std::vector<unit> missing() const;
  void close_when_ended();

  const std::shared_ptr<const tier_stack> stack_;
  std::atomic<bool> unproven_{false}, over_{false};
  std::atomic<int> wanted_{0};  ///< looks that were asked for; above 0: somebody looks

  mutable std::mutex mutex_;  ///< guards what follows, also against request_cancel()
  std::vector<part> parts_;
  std::size_t next_tier_ = 0;
  std::set<bytes> served_;
  std::string reason_;  ///< of the first failure
  bool decided_ = false;
};

}  // namespace kvlease
