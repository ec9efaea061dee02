#include "src/providers/redis/options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <utility>

#include "src/providers/uri_options.hpp"

namespace kvlease::redis {

namespace {

constexpr std::uint16_t usual_port = 6379;

template <class T>
std::optional<T> whole_number(std::string_view text) {
  T n{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

/// "%2F" is '/'. Errors: a '%' without two hex digits behind it.
result<std::string> percent_decoded(std::string_view what, std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned char byte = 0;
    const char* first = text.data() + i + 1;
    const char* last = i + 2 < text.size() ? first + 2 : first;
    const auto [end, problem] = std::from_chars(first, last, byte, 16);
    if (problem != std::errc{} || end != first + 2)
      return fail(errc::invalid, fmt::format("redis: in the {}, two hex digits must follow '%'", what));
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

/// HOST, HOST:PORT or [IPV6]:PORT.
result<endpoint> parse_host(std::string_view text) {
  auto host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos)
      return fail(errc::invalid, fmt::format("redis: host '{}' has no ']'", text));
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
  } else if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (host.empty()) return fail(errc::invalid, fmt::format("redis: '{}' names no host", text));
  if (port.empty()) return endpoint{std::string{host}, usual_port};
  const auto n = whole_number<std::uint16_t>(port.substr(1));
  if (!port.starts_with(':') || !n || *n == 0)
    return fail(errc::invalid, fmt::format("redis: host '{}' must end in nothing or ':' and a port from 1 to "
                                           "65535; an IPv6 address stands in brackets",
                                           text));
  return endpoint{std::string{host}, *n};
}

/// Takes "user:password@", "password@"-less forms too, from the front of `rest`.
result<void> take_credentials(std::string_view& rest, options& o) {
  const auto at = rest.rfind('@');
  if (at == std::string_view::npos) return {};
  const auto both = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  const auto colon = both.find(':');
  if (colon == std::string_view::npos)
    return fail(errc::invalid,
                "redis: before '@' must stand user:password, or :password for the default user");
  auto user = percent_decoded("user", both.substr(0, colon));
  if (!user) return tl::unexpected{user.error()};
  auto password = percent_decoded("password", both.substr(colon + 1));
  if (!password) return tl::unexpected{password.error()};
  o.user = std::move(*user);
  o.password = std::move(*password);
  return {};
}

/// [user:password@]host[:port][,host[:port]...][/db]
result<void> take_hosts(std::string_view place, options& o) {
  if (!place.starts_with("//"))
    return fail(errc::invalid, "redis: '//' and a host must follow the scheme: redis://host[:port][/db]");
  place.remove_prefix(2);
  // A password may hold '/', a host can't.
  if (const auto ok = take_credentials(place, o); !ok) return ok;
  if (const auto slash = place.find('/'); slash != std::string_view::npos) {
    const auto db = place.substr(slash + 1);
    place = place.substr(0, slash);
    if (const auto n = whole_number<unsigned>(db); n) {
      o.database = *n;
    } else if (!db.empty()) {
      return fail(errc::invalid, fmt::format("redis: database '{}' must be a whole number", db));
    }
  }
  for (;;) {
    const auto comma = place.find(',');
    const auto host = parse_host(place.substr(0, comma));
    if (!host) return tl::unexpected{host.error()};
    o.seeds.push_back(*host);
    if (comma == std::string_view::npos) return {};
    place.remove_prefix(comma + 1);
  }
}

/// [//[user:password@]]/path
result<void> take_path(std::string_view place, options& o) {
  if (place.starts_with("//")) {
    place.remove_prefix(2);
    if (const auto ok = take_credentials(place, o); !ok) return ok;
  }
  auto path = percent_decoded("path", place);
  if (!path) return tl::unexpected{path.error()};
  if (!path->starts_with('/') || path->size() > 107)
    return fail(errc::invalid,
                fmt::format("redis+unix: path '{}' must be absolute and have at most 107 bytes", *path));
  o.seeds.push_back({std::move(*path), 0});
  return {};
}

result<std::string> first_line(const std::string& file) {
  std::ifstream in{file};
  std::string line;
  if (!std::getline(in, line))
    return fail(errc::io, fmt::format("redis: password-file '{}' can't be read, or is empty", file));
  return line;
}

/// Assigns what `got` holds, or answers its error.
template <class T, class R>
bool take(T& to, const result<R>& got, std::optional<error>& problem) {
  if (got) {
    to = T(*got);
  } else if (!problem) {
    problem = got.error();
  }
  return got.has_value();
}

result<void> take_options(const uri_options& given, std::string_view scheme, options& o) {
  std::optional<error> problem;
  take(o.cluster, given.flag("cluster", false), problem);
  take(o.connections, given.number("connections", o.connections, 1, 64), problem);
  take(o.pipeline, given.number("pipeline", o.pipeline, 1, 1024), problem);
  take(o.queue, given.number("queue", o.queue, 1, 1 << 20), problem);
  take(o.connect_timeout, given.number("connect-timeout-ms", 2000, 1, 600'000), problem);
  take(o.timeout, given.number("timeout-ms", 10'000, 1, 3'600'000), problem);
  take(o.database, given.number("db", o.database, 0, 1 << 20), problem);
  take(o.prefix, percent_decoded("prefix", given.text("prefix", o.prefix)), problem);
  take(o.security.verify, given.flag("verify", true), problem);
  o.security.ca = given.text("ca");
  o.security.cert = given.text("cert");
  o.security.key = given.text("key");
  o.security.server_name = given.text("server-name");
  if (given.has("password-file")) take(o.password, first_line(given.text("password-file")), problem);
  if (problem) return tl::unexpected{*problem};
  const auto invalid = [&](std::string text) {
    return fail(errc::invalid, fmt::format("{}: {}", scheme, text));
  };
  if (o.prefix.size() > prefix_limit)
    return invalid(fmt::format("prefix has {} bytes, must have at most {}", o.prefix.size(), prefix_limit));
  if (o.security.cert.empty() != o.security.key.empty()) return invalid("cert and key go together");
  if (o.seeds.size() > 1 && !o.cluster) return invalid("more than one host needs cluster=on");
  if (o.cluster && o.database != 0)
    return invalid(fmt::format("database {}: a cluster has database 0 alone", o.database));
  if (o.cluster && o.seeds.front().is_unix()) return invalid("a cluster is not reached over a unix socket");
  if (!o.user.empty() && o.password.empty()) return invalid("a user needs a password");
  return {};
}

}  // namespace

std::string to_string(const endpoint& e) {
  if (e.is_unix()) return e.host;
  const bool brackets = e.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", e.host, brackets ? "]" : "", e.port);
}

result<options> parse_options(std::string_view scheme, std::string_view after_colon) {
  const bool tls = scheme == "rediss";
  const bool path = scheme == "redis+unix";
  auto given =
      uri_options::parse(scheme, after_colon,
                         {"cluster", "connections", "pipeline", "queue", "connect-timeout-ms", "timeout-ms",
                          "db", "prefix", "password-file", "ca", "cert", "key", "server-name", "verify"});
  if (!given) return tl::unexpected{given.error()};
  for (const auto* key : {"ca", "cert", "key", "server-name", "verify"})
    if (!tls && given->has(key))
      return fail(errc::invalid, fmt::format("{}: option '{}' is of rediss: alone", scheme, key));
  options o;
  o.tls = tls;
  if (const auto ok = path ? take_path(given->place(), o) : take_hosts(given->place(), o); !ok)
    return tl::unexpected{ok.error()};
  if (const auto ok = take_options(*given, scheme, o); !ok) return tl::unexpected{ok.error()};
  return o;
}

std::string describe(const options& o) {
  std::string servers;
  for (const auto& s : o.seeds) servers += (servers.empty() ? "" : ", ") + to_string(s);
  return fmt::format("redis ({}{}{}, db {}, prefix '{}', {} connection(s), pipeline {}, queue {})",
                     o.cluster ? "cluster of " : "", servers, o.tls ? ", TLS" : "", o.database, o.prefix,
                     o.connections, o.pipeline, o.queue);
}

}  // namespace kvlease::redis
