#include "tools/bench/free_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace kvlease::bench {

int free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return 0;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  const bool bound = ::bind(s, reinterpret_cast<const sockaddr*>(&any), size) == 0 &&
                     ::getsockname(s, reinterpret_cast<sockaddr*>(&any), &size) == 0;
  ::close(s);
  return bound ? ntohs(any.sin_port) : 0;
}

}  // namespace kvlease::bench
