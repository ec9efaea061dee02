#include "src/providers/segment/transfer.hpp"

#include <utility>

namespace kvlease {

segment_transfer::segment_transfer(std::shared_ptr<transfer_book> book, direction way,
                                   const cache_extent& extent,
                                   std::shared_ptr<const std::atomic<bool>> closing)
    : unit_transfer{std::move(book), way, extent},
      closing_{std::move(closing)},
      units_(extent.units().size(), state::waiting),
      not_ended_{units_.size()},
      undecided_{units_.size()} {}

cancel_disposition segment_transfer::request_cancel() {
  const auto answer = unit_transfer::request_cancel();
  stop(cancelled{cancelled_by::local});
  return answer;
}

void segment_transfer::fails(const std::string& why) { stop(failed{why}); }

/// The outcome at once; what waits is dropped, what runs is waited for.
void segment_transfer::stop(outcome o) {
  finish(std::move(o));
  bool over = false;
  {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    for (auto& u : units_)
      if (u == state::waiting) {
        u = state::ended;
        --not_ended_;
      }
    over = not_ended_ == 0;
  }
  if (over) end_access();
}

bool segment_transfer::stopped() {
  if (closing_->load(std::memory_order_relaxed)) request_cancel();
  const std::lock_guard lock{mutex_};
  return stopped_;
}

bool segment_transfer::begins(std::size_t unit) {
  const std::lock_guard lock{mutex_};
  if (stopped_) return false;
  units_[unit] = state::touched;
  return true;
}

void segment_transfer::access_ended(std::size_t unit) {
  bool over = false;
  {
    const std::lock_guard lock{mutex_};
    if (units_[unit] == state::ended) return;
    units_[unit] = state::ended;
    over = --not_ended_ == 0;
  }
  if (over) end_access();
}

void segment_transfer::decided(std::size_t unit, bool served) {
  std::set<bytes> all;
  {
    const std::lock_guard lock{mutex_};
    if (served) served_.insert(unit_at(unit).name());
    if (--undecided_ > 0 || stopped_) return;
    all = std::move(served_);
  }
  finish(delivered{std::move(all)});
}

}  // namespace kvlease
