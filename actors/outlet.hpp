// How worker threads reach an actor: a handle that its actor takes back when it ends. A worker that is
// stuck for ever, or late, then finds nothing to send to, also after the actor system has gone (7.8).
#pragma once

#include <mutex>

#include "messages/caf.hpp"

namespace kvlease {

template <class Handle>
class outlet {
 public:
  explicit outlet(Handle to) : to_{std::move(to)} {}
  template <class Message>
  void send(Message&& what) {
    const std::lock_guard lock{mutex_};
    if (to_) caf::anon_send(to_, std::forward<Message>(what));
  }
  void close() {
    const std::lock_guard lock{mutex_};
    to_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Handle to_;
};

/// Closes the outlet with the actor's state.
template <class Handle>
class outlet_owner {
 public:
  outlet_owner() = default;
  outlet_owner(const outlet_owner&) = delete;
  outlet_owner& operator=(const outlet_owner&) = delete;
  ~outlet_owner() {
    if (shared_) shared_->close();
  }
  void open(Handle self) { shared_ = std::make_shared<outlet<Handle>>(std::move(self)); }
  const std::shared_ptr<outlet<Handle>>& shared() const noexcept { return shared_; }

 private:
  std::shared_ptr<outlet<Handle>> shared_;
};

}  // namespace kvlease
