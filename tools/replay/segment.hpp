// One lease of a request and its operation, as callbacks tell of them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "src/include/kvlease/runtime.hpp"

namespace kvlease::replay {

/// What is known of one lease or operation; filled by callbacks, awaited by the request's thread.
struct watch {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<const region_view> view;  ///< the lease is ready
  std::optional<error> lease_failed;
  std::optional<outcome> value;
  bool released = false;
  bool final = false;    ///< retained for good
  bool retried = false;  ///< its disputed proof

  template <class F>
  void set(F f) {
    const std::lock_guard lock{mutex};
    f(*this);
    changed.notify_all();
  }
  bool lease_decided() const { return view != nullptr || lease_failed; }
};

/// Tells `state` what becomes of a lease.
inline lease_events lease_told_to(const std::shared_ptr<watch>& state) {
  return {.ready =
              [state](lease_id, std::shared_ptr<const region_view> view) {
                state->set([&](watch& w) { w.view = std::move(view); });
              },
          .failed = [state](lease_id, const error& e) { state->set([&](watch& w) { w.lease_failed = e; }); }};
}

struct segment {
  token_range range;
  lease_id lease;
  std::shared_ptr<watch> state = std::make_shared<watch>();
  operation_id operation;
};

}  // namespace kvlease::replay
