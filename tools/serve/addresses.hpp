// Where a server listens, and what a client may ask for by its target. Pure, but for clear_socket_path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "messages/error.hpp"

namespace kvlease::serve {

struct tcp_address {
  std::string address;
  std::uint16_t port = 0;
};

/// "127.0.0.1:PORT", "[::1]:PORT", "localhost:PORT". Errors: invalid for all else, above all for an address
/// that other machines can reach.
result<tcp_address> parse_loopback(std::string_view text);

/// Whether a Host field names the loopback: a page of another name that resolves to it is not ours.
bool is_loopback_host(std::string_view host);

/// Makes way for a socket at `path`: removes one that nobody listens on. Errors: invalid for a path that is
/// too long, or that is something else than a socket; state when somebody listens; io.
result<void> clear_socket_path(const std::string& path);

struct request_target {
  std::string path;   ///< percent-decoded
  std::string query;  ///< as it came
};

/// Errors: invalid for a target that does not start with '/', or with a bad escape in it.
result<request_target> split_target(std::string_view target);

/// The value of `name` in a query; empty where it is not given.
std::string query_value(std::string_view query, std::string_view name);

/// $KVLEASE_SOCKET; else kvlease.sock in $XDG_RUNTIME_DIR; else /tmp/kvlease-UID.sock.
std::string default_socket_path();

}  // namespace kvlease::serve
