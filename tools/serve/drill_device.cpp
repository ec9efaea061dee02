#include "tools/serve/drill_device.hpp"

#include <utility>

namespace kvlease::serve {

void drill_device::hold_next(std::chrono::nanoseconds span) {
  const std::lock_guard lock{mutex_};
  hold_ = span;
}

void drill_device::lose_next() {
  const std::lock_guard lock{mutex_};
  lose_ = true;
}

result<device_event> drill_device::record(copy_kind kind) {
  const auto e = inner_->record(kind);
  const std::lock_guard lock{mutex_};
  if (!e || kind != copy_kind::host_to_device || (!hold_ && !lose_)) return e;
  fates_[e->value] = {std::exchange(lose_, false),
                      std::chrono::steady_clock::now() +
                          std::exchange(hold_, std::nullopt).value_or(std::chrono::nanoseconds{0})};
  return e;
}

result<event_state> drill_device::query(device_event e) {
  {
    const std::lock_guard lock{mutex_};
    if (const auto it = fates_.find(e.value); it != fates_.end()) {
      if (std::chrono::steady_clock::now() < it->second.until) return event_state::pending;
      if (it->second.lost) return fail(errc::device, "a drill has lost this event");
    }
  }
  return inner_->query(e);
}

void drill_device::recycle(device_event e) {
  {
    const std::lock_guard lock{mutex_};
    fates_.erase(e.value);
  }
  inner_->recycle(e);
}

}  // namespace kvlease::serve
