#include "tools/bench/redis_raw_client.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace kvlease::bench {

namespace {

tl::unexpected<error> broken(const char* what) {
  return fail(errc::io, fmt::format("raw client: {}: {}", what, std::strerror(errno)));
}

bool send_pieces(int fd, std::span<iovec> pieces) {
  while (!pieces.empty()) {
    msghdr m{};
    m.msg_iov = pieces.data();
    m.msg_iovlen = pieces.size();
    auto n = ::sendmsg(fd, &m, MSG_NOSIGNAL);
    if (n < 0) return false;
    while (!pieces.empty() && static_cast<std::size_t>(n) >= pieces.front().iov_len) {
      n -= static_cast<ssize_t>(pieces.front().iov_len);
      pieces = pieces.subspan(1);
    }
    if (n > 0) {
      pieces.front().iov_base = static_cast<char*>(pieces.front().iov_base) + n;
      pieces.front().iov_len -= static_cast<std::size_t>(n);
    }
  }
  return true;
}

bool send_text(int fd, std::string_view text) {
  iovec piece{const_cast<char*>(text.data()), text.size()};
  return send_pieces(fd, {&piece, 1});
}

}  // namespace

result<redis_raw_client> redis_raw_client::open(const std::string& where) {
  sockaddr_storage to{};
  socklen_t size = 0;
  if (where.starts_with('/')) {
    auto* path = reinterpret_cast<sockaddr_un*>(&to);
    path->sun_family = AF_UNIX;
    where.copy(path->sun_path, sizeof path->sun_path - 1);
    size = sizeof *path;
  } else {
    auto* host = reinterpret_cast<sockaddr_in*>(&to);
    host->sin_family = AF_INET;
    host->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    host->sin_port = htons(static_cast<std::uint16_t>(std::stoi(where)));
    size = sizeof *host;
  }
  redis_raw_client c{::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (c.fd_ < 0 || ::connect(c.fd_, reinterpret_cast<const sockaddr*>(&to), size) != 0)
    return broken("connect");
  const int on = 1;
  if (!size || to.ss_family == AF_INET) ::setsockopt(c.fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return c;
}

redis_raw_client::~redis_raw_client() {
  if (fd_ >= 0) ::close(fd_);
}
redis_raw_client::redis_raw_client(redis_raw_client&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}

result<void> redis_raw_client::set(const std::string& key, std::size_t first, std::span<std::byte> memory,
                                   std::size_t size, std::size_t depth) {
  constexpr std::string_view ok = "+OK\r\n";
  const std::size_t count = memory.size() / size;
  std::size_t reply_bytes = 0;
  std::array<char, 4096> replies;
  for (std::size_t sent = 0, acknowledged = 0; acknowledged < count;) {
    while (sent < count && sent - acknowledged < depth) {
      const auto name = fmt::format("{}{}", key, first + sent);
      auto head = fmt::format("*3\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n", name.size(), name, size);
      std::array<iovec, 3> pieces{iovec{head.data(), head.size()}, iovec{memory.data() + sent * size, size},
                                  iovec{const_cast<char*>(ok.data()) + 3, 2}};
      if (!send_pieces(fd_, pieces)) return broken("send");
      ++sent;
    }
    const auto n = ::recv(fd_, replies.data(), replies.size(), 0);
    if (n <= 0) return broken("receive");
    reply_bytes += static_cast<std::size_t>(n);
    acknowledged = reply_bytes / ok.size();
    if (replies[0] == '-') return fail(errc::io, "raw client: SET was refused");
  }
  return {};
}

result<void> redis_raw_client::get(const std::string& key, std::size_t first, std::span<std::byte> memory,
                                   std::size_t size, std::size_t depth) {
  const std::size_t count = memory.size() / size;
  const auto expected = fmt::format("${}\r\n", size);
  std::array<std::byte, 16384> buffer;
  std::size_t in_buffer = 0;
  for (std::size_t asked = 0, got = 0; got < count; ++got) {
    if (asked - got <= depth / 2) {
      std::string requests;
      for (; asked < count && asked - got < depth; ++asked) {
        const auto name = fmt::format("{}{}", key, first + asked);
        requests += fmt::format("*2\r\n$3\r\nGET\r\n${}\r\n{}\r\n", name.size(), name);
      }
      if (!send_text(fd_, requests)) return broken("send");
    }
    while (in_buffer < expected.size()) {
      const auto n = ::recv(fd_, buffer.data() + in_buffer, buffer.size() - in_buffer, 0);
      if (n <= 0) return broken("receive");
      in_buffer += static_cast<std::size_t>(n);
    }
    if (std::memcmp(buffer.data(), expected.data(), expected.size()) != 0)
      return fail(errc::io, "raw client: not the value that was stored");
    // What came with the head is copied; the rest goes straight into the slot, and what follows into the
    // buffer.
    auto slot = memory.subspan(got * size, size);
    const auto copied = std::min(in_buffer - expected.size(), size);
    std::memcpy(slot.data(), buffer.data() + expected.size(), copied);
    std::size_t used = expected.size() + copied;
    std::memmove(buffer.data(), buffer.data() + used, in_buffer - used);
    in_buffer -= used;
    slot = slot.subspan(copied);
    while (!slot.empty() || in_buffer < 2) {
      std::array<iovec, 2> into{iovec{slot.data(), slot.size()},
                                iovec{buffer.data() + in_buffer, buffer.size() - in_buffer}};
      const auto n = ::readv(fd_, into.data(), into.size());
      if (n <= 0) return broken("receive");
      const auto straight = std::min(static_cast<std::size_t>(n), slot.size());
      slot = slot.subspan(straight);
      in_buffer += static_cast<std::size_t>(n) - straight;
    }
    std::memmove(buffer.data(), buffer.data() + 2, in_buffer - 2);
    in_buffer -= 2;
  }
  return {};
}

result<void> redis_raw_client::flush() {
  std::array<char, 16> reply;
  if (!send_text(fd_, "*2\r\n$8\r\nFLUSHALL\r\n$4\r\nSYNC\r\n")) return broken("send");
  if (::recv(fd_, reply.data(), reply.size(), 0) <= 0 || reply[0] != '+') return broken("FLUSHALL");
  return {};
}

}  // namespace kvlease::bench
