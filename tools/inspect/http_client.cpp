#include "tools/inspect/http_client.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

namespace kvlease::inspect {

namespace {

using steady = std::chrono::steady_clock;

class connection {
 public:
  explicit connection(std::string path) : path_{std::move(path)} {}
  ~connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  result<void> open_and_ask(std::string_view target) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    if (path_.empty() || path_.size() >= sizeof where.sun_path)
      return fail(errc::invalid, fmt::format("'{}' is no path of a socket", path_));
    std::memcpy(where.sun_path, path_.data(), path_.size());
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
      return broken(std::strerror(errno));
    const auto text = fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", target);
    std::string_view rest{text};
    while (!rest.empty()) {
      const auto n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return broken(std::strerror(errno));
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  }

  enum class progress { some, nothing, ended };
  /// Appends what has come to `into`; waits for it at most `patience`.
  result<progress> read(std::string& into, std::chrono::milliseconds patience) {
    pollfd p{fd_, POLLIN, 0};
    const int ready = ::poll(&p, 1, static_cast<int>(patience.count()));
    if (ready < 0 && errno != EINTR) return broken(std::strerror(errno));
    if (ready <= 0) return progress::nothing;
    char buffer[65536];
    const auto n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0) return broken(std::strerror(errno));
    if (n == 0) return progress::ended;
    into.append(buffer, static_cast<std::size_t>(n));
    return progress::some;
  }

  tl::unexpected<error> broken(std::string_view why) const {
    return fail(errc::io, fmt::format("'{}': {}", path_, why));
  }

 private:
  std::string path_;
  int fd_ = -1;
};

/// The answer's body out of what comes in, piece by piece.
class body_reader {
 public:
  /// Takes from the front of `in` what it can.
  result<void> take(std::string& in, std::string& body) {
    if (status == 0) {
      const auto end = in.find("\r\n\r\n");
      if (end == std::string::npos) return {};
      if (const auto ok = head(std::string_view{in}.substr(0, end + 2)); !ok) return ok;
      in.erase(0, end + 4);
    }
    if (!chunked_) {
      body += in;
      in.clear();
      if (length_ && body.size() >= *length_) whole = true;
      return {};
    }
    return chunks(in, body);
  }

  unsigned status = 0;
  bool whole = false;
  /// Whether the end of the connection is the end of the answer.
  bool ends_with_connection() const { return !chunked_ && !length_; }

 private:
  result<void> head(std::string_view text) {
    const auto bad = [] { return fail(errc::io, "the answer is no HTTP"); };
    if (!text.starts_with("HTTP/1.") || text.size() < 12) return bad();
    const auto [end, problem] = std::from_chars(text.data() + 9, text.data() + 12, status);
    if (problem != std::errc{} || status < 100) return bad();
    std::string lower{text};
    for (auto& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    chunked_ = lower.find("\r\ntransfer-encoding: chunked\r\n") != std::string::npos;
    constexpr std::string_view length = "\r\ncontent-length: ";
    if (const auto at = lower.find(length); at != std::string::npos) {
      std::size_t n = 0;
      std::from_chars(lower.data() + at + length.size(), lower.data() + lower.size(), n);
      length_ = n;
      whole = n == 0;
    }
    return {};
  }

  result<void> chunks(std::string& in, std::string& body) {
    while (!whole) {
      const auto end = in.find("\r\n");
      if (end == std::string::npos) return {};
      std::size_t n = 0;
      const auto [rest, problem] = std::from_chars(in.data(), in.data() + end, n, 16);
      if (problem != std::errc{} || n > (std::size_t{1} << 32)) return fail(errc::io, "a chunk has no size");
      if (in.size() < end + 2 + n + 2) return {};
      body.append(in, end + 2, n);
      in.erase(0, end + 2 + n + 2);
      whole = n == 0;
    }
    return {};
  }

  bool chunked_ = false;
  std::optional<std::size_t> length_;
};

}  // namespace

result<http_answer> http_get(const std::string& socket_path, std::string_view target,
                             std::chrono::milliseconds within) {
  connection c{socket_path};
  if (const auto ok = c.open_and_ask(target); !ok) return tl::unexpected{ok.error()};
  const auto until = steady::now() + within;
  body_reader reader;
  std::string in, body;
  while (!reader.whole) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - steady::now());
    if (left.count() <= 0)
      return fail(errc::timeout, fmt::format("'{}': no answer within {} ms", socket_path, within.count()));
    const auto got = c.read(in, left);
    if (!got) return tl::unexpected{got.error()};
    if (const auto ok = reader.take(in, body); !ok) return tl::unexpected{ok.error()};
    if (*got == connection::progress::ended) {
      if (reader.status != 0 && (reader.whole || reader.ends_with_connection())) break;
      return c.broken("the answer breaks off");
    }
  }
  return http_answer{reader.status, std::move(body)};
}

result<unsigned> http_lines(const std::string& socket_path, std::string_view target,
                            const std::function<bool(std::string_view)>& line) {
  connection c{socket_path};
  if (const auto ok = c.open_and_ask(target); !ok) return tl::unexpected{ok.error()};
  body_reader reader;
  std::string in, body;
  for (;;) {
    const auto got = c.read(in, std::chrono::milliseconds{200});
    if (!got) return tl::unexpected{got.error()};
    if (const auto ok = reader.take(in, body); !ok) return tl::unexpected{ok.error()};
    std::size_t from = 0;
    for (auto end = body.find('\n'); end != std::string::npos; end = body.find('\n', from)) {
      if (!line(std::string_view{body}.substr(from, end - from))) return reader.status;
      from = end + 1;
    }
    body.erase(0, from);
    if (reader.whole) return reader.status;
    if (*got == connection::progress::ended) {
      if (reader.status != 0 && reader.ends_with_connection()) return reader.status;
      return c.broken("the other side has gone");
    }
    if (!line({})) return reader.status;
  }
}

}  // namespace kvlease::inspect
