#include "src/providers/redis/stream.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kvlease::redis {

owned_fd::~owned_fd() {
  if (fd_ >= 0) ::close(fd_);
}
owned_fd::owned_fd(owned_fd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
owned_fd& owned_fd::operator=(owned_fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

owned_fd start_connecting(const sockaddr_storage& to, socklen_t size) {
  owned_fd s{::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (s.get() < 0) return s;
  if (to.ss_family != AF_UNIX) {
    const int on = 1;
    ::setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(s.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), size) == 0 || errno == EINPROGRESS) return s;
  const int problem = errno;
  s = owned_fd{};
  errno = problem;
  return s;
}

int connect_error(int fd) {
  int problem = 0;
  socklen_t size = sizeof problem;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 ? problem : errno;
}

namespace {

class plain final : public stream {
 public:
  explicit plain(owned_fd s) : socket_{std::move(s)} {}
  int fd() const noexcept override { return socket_.get(); }
  moved handshake() override { return {moved::kind::some}; }

  moved read(std::span<const iovec> into) override {
    for (;;) {
      const auto n = ::readv(socket_.get(), into.data(), static_cast<int>(into.size()));
      if (n > 0) return {moved::kind::some, static_cast<std::size_t>(n)};
      if (n == 0) return {moved::kind::over, 0, "the server closed the connection"};
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {moved::kind::wants_read};
      if (errno != EINTR) return {moved::kind::over, 0, std::strerror(errno)};
    }
  }

  moved write(std::span<const iovec> from) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());  // sendmsg only reads it
    message.msg_iovlen = from.size();
    for (;;) {
      const auto n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
      if (n >= 0) return {moved::kind::some, static_cast<std::size_t>(n)};
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {moved::kind::wants_write};
      if (errno != EINTR) return {moved::kind::over, 0, std::strerror(errno)};
    }
  }

 private:
  owned_fd socket_;
};

}  // namespace

std::unique_ptr<stream> plain_stream(owned_fd socket) { return std::make_unique<plain>(std::move(socket)); }

}  // namespace kvlease::redis
