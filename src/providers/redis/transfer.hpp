// One submission to Redis: an attempt, and a command for each of its units.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/providers/redis/routes.hpp"
#include "src/providers/unit_transfer.hpp"

namespace kvlease::redis {

/// How one unit ended.
struct unit_verdict {
  enum class kind : std::uint8_t { served, missed, failed, withdrawn };
  kind what = kind::missed;
  std::string why = {};  ///< of failed
};

class transfer final : public unit_transfer {
 public:
  transfer(std::shared_ptr<routes> by, std::shared_ptr<transfer_book> in, direction way,
           const cache_extent& what);

  /// Why a unit can't be a value of Redis, or empty. After prepare().
  std::optional<std::string> oversize() const;
  /// One a unit. After prepare(), once.
  std::vector<std::shared_ptr<command>> commands();

  /// Asks the links to let go of what they carry of it, which they do at once.
  cancel_disposition request_cancel() override;

  /// Some answer is still awaited. Any thread.
  bool wanted() const noexcept { return !cancel_asked() && !stopped_.load(std::memory_order_acquire); }
  /// The command of unit `i` has let go of its memory. Once a unit, on the thread of its link.
  void finish_unit(std::size_t i, unit_verdict v);

 private:
  const std::shared_ptr<routes> routes_;
  std::atomic<bool> stopped_{false};  ///< one unit has failed: the others' answers change nothing
  std::mutex mutex_;                  ///< guards what follows
  std::size_t open_ = 0;
  std::set<bytes> served_;
  std::optional<std::string> failure_;
  bool withdrawn_ = false;
};

}  // namespace kvlease::redis
