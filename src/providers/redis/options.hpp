// What a redis: URI says, as values (docs/providers.md, "redis"). Nothing here opens anything.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.hpp"

namespace kvlease::redis {

/// A server: a host and a port, or the path of a unix socket with port 0.
struct endpoint {
  std::string host;
  std::uint16_t port = 0;
  bool is_unix() const noexcept { return port == 0; }
  friend auto operator<=>(const endpoint&, const endpoint&) = default;
};
/// "10.0.0.1:6379", "[::1]:6379" or "/run/redis.sock".
std::string to_string(const endpoint& e);

struct tls_options {
  std::string ca;           ///< file of certificates to trust; empty: the system's
  std::string cert, key;    ///< our own, both or neither
  std::string server_name;  ///< whom the certificate must name; empty: the host that we connect to
  bool verify = true;
};

struct options {
  std::vector<endpoint> seeds;  ///< exactly one without cluster
  bool cluster = false;
  bool tls = false;
  tls_options security;
  std::string user, password;
  unsigned database = 0;
  std::string prefix = "kvlease:";                  ///< in front of every key
  std::size_t connections = 1;                      ///< to each server, at most
  std::size_t pipeline = 16;                        ///< commands without reply on one connection
  std::size_t queue = 4096;                         ///< units waiting or under way on one connection
  std::chrono::milliseconds connect_timeout{2000};  ///< until a connection is ready, greeting included
  std::chrono::milliseconds timeout{10000};         ///< without a byte moving while a reply is due
};

inline constexpr std::size_t prefix_limit = 256;

/// `scheme` is redis, rediss or redis+unix. Reads the file that password-file= names. Errors: invalid, or io
/// for that file. No text shows a password.
result<options> parse_options(std::string_view scheme, std::string_view after_colon);

/// For people: servers and what is not the default. Never a password.
std::string describe(const options& o);

}  // namespace kvlease::redis
