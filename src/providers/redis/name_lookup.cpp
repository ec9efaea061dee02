#include "src/providers/redis/name_lookup.hpp"

#include <netdb.h>
#include <sys/un.h>

#include <cstring>
#include <thread>

namespace kvlease::redis {

name_lookup::name_lookup(const endpoint& of, std::function<void()> ready) {
  if (of.is_unix()) {
    sockaddr_un path{};
    path.sun_family = AF_UNIX;
    of.host.copy(path.sun_path, sizeof path.sun_path - 1);
    auto& a = shared_->addresses.emplace_back();
    std::memcpy(&a.storage, &path, sizeof path);
    a.size = sizeof path;
    shared_->done = true;
    return;
  }
  if (resolve(*shared_, of, AI_NUMERICHOST)) {
    shared_->done = true;
    return;
  }
  std::thread{[into = shared_, of, ready = std::move(ready)] {
    resolve(*into, of, 0);
    into->done.store(true, std::memory_order_release);
    ready();
  }}.detach();
}

bool name_lookup::resolve(shared& into, const endpoint& of, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int problem = ::getaddrinfo(of.host.c_str(), std::to_string(of.port).c_str(), &hints, &found);
  if (problem != 0) {
    into.why = ::gai_strerror(problem);
    return false;
  }
  for (const auto* a = found; a != nullptr; a = a->ai_next) {
    auto& to = into.addresses.emplace_back();
    std::memcpy(&to.storage, a->ai_addr, a->ai_addrlen);
    to.size = a->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return true;
}

}  // namespace kvlease::redis
