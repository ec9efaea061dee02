#include "tools/serve/addresses.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace kvlease::serve {

namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

result<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto high = i + 2 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low || (*high == 0 && *low == 0))
      return fail(errc::invalid, "the target has a bad percent escape");
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

}  // namespace

result<tcp_address> parse_loopback(std::string_view text) {
  const auto bad = [text] {
    return fail(errc::invalid, fmt::format("'{}' is no address to listen on: must be 127.0.0.1:PORT, "
                                           "[::1]:PORT or localhost:PORT; other machines can't be served",
                                           text));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad();
  const auto host = text.substr(0, colon), port = text.substr(colon + 1);
  tcp_address where;
  if (host == "127.0.0.1" || host == "localhost")
    where.address = "127.0.0.1";
  else if (host == "[::1]")
    where.address = "::1";
  else
    return bad();
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), where.port);
  if (problem != std::errc{} || end != port.data() + port.size()) return bad();
  return where;
}

bool is_loopback_host(std::string_view host) {
  const auto colon = host.rfind(':');
  const bool bracketed = host.starts_with('[');
  if (colon != std::string_view::npos && (!bracketed || host.rfind(']') < colon))
    host = host.substr(0, colon);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

result<void> clear_socket_path(const std::string& path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof where.sun_path)
    return fail(errc::invalid,
                fmt::format("socket path '{}': must have 1 to {} bytes", path, sizeof where.sun_path - 1));
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) {
    if (errno == ENOENT) return {};
    return fail(errc::io, fmt::format("socket path '{}': {}", path, std::strerror(errno)));
  }
  if (!S_ISSOCK(there.st_mode))
    return fail(errc::invalid, fmt::format("socket path '{}' is there already, and no socket", path));
  std::memcpy(where.sun_path, path.c_str(), path.size());
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return fail(errc::io, std::strerror(errno));
  const bool refused =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  if (!refused) return fail(errc::state, fmt::format("somebody listens on '{}' already", path));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail(errc::io, fmt::format("socket path '{}': {}", path, std::strerror(errno)));
  return {};
}

result<request_target> split_target(std::string_view target) {
  if (!target.starts_with('/')) return fail(errc::invalid, "the target must start with a slash");
  target = target.substr(0, target.find('#'));
  const auto mark = target.find('?');
  auto path = decoded(target.substr(0, mark));
  if (!path) return tl::unexpected{path.error()};
  return request_target{*std::move(path),
                        mark == std::string_view::npos ? "" : std::string{target.substr(mark + 1)}};
}

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const auto pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const auto equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name)
      return decoded(pair.substr(equals + 1)).value_or("");
  }
  return "";
}

std::string default_socket_path() {
  if (const char* given = std::getenv("KVLEASE_SOCKET"); given != nullptr && *given != 0) return given;
  if (const char* dir = std::getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != 0)
    return std::string{dir} + "/kvlease.sock";
  return fmt::format("/tmp/kvlease-{}.sock", ::getuid());
}

}  // namespace kvlease::serve
