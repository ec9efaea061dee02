// From a host's name to addresses, without a thread that waits for a name server: a lookup that hangs is left
// behind with what it holds.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/providers/redis/options.hpp"

namespace kvlease::redis {

struct socket_address {
  sockaddr_storage storage;
  socklen_t size;
};

class name_lookup {
 public:
  /// Paths and numeric addresses are ready at once. Else `ready` is called later, on another thread.
  name_lookup(const endpoint& of, std::function<void()> ready);
  bool done() const noexcept { return shared_->done.load(std::memory_order_acquire); }
  /// Precondition: done(). Empty when there is none: see why().
  const std::vector<socket_address>& addresses() const noexcept { return shared_->addresses; }
  const std::string& why() const noexcept { return shared_->why; }

 private:
  struct shared {
    std::vector<socket_address> addresses;
    std::string why;
    std::atomic<bool> done{false};
  };
  static bool resolve(shared& into, const endpoint& of, int flags);
  std::shared_ptr<shared> shared_ = std::make_shared<shared>();
};

}  // namespace kvlease::redis
