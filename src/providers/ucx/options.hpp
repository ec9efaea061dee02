// What a ucx:// URI asks for, checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

/// "127.0.0.1:7000", "node-3:7000", "[::1]:7000".
struct host_port {
  std::string host;  ///< without brackets
  std::uint16_t port = 0;
  friend bool operator==(const host_port&, const host_port&) = default;
};

/// Errors: invalid, with `what` in front: no port, not a number from `least_port` to 65535, no host.
result<host_port> parse_host_port(std::string_view text, std::string_view what, std::uint16_t least_port = 1);
std::string to_string(const host_port& a);

struct ucx_options {
  host_port listen;                 ///< port 0: any free one
  std::vector<host_port> peers;     ///< asked in this order
  bool ask_self = false;            ///< the own listener, before them, through the transport
  std::uint64_t pool_bytes = 0;     ///< of the export pool
  std::string tls;                  ///< UCX_TLS
  std::string net_device;           ///< UCX_NET_DEVICES
  std::uint64_t segment_bytes = 0;  ///< UCX_TCP_TX_SEG_SIZE and UCX_TCP_RX_SEG_SIZE
  std::uint64_t spin_us = 0;        ///< progress without sleep after the last event
  std::uint64_t window = 0;         ///< units under way to one connection
  std::uint64_t connections = 0;    ///< at once, of peers that fetch from here
  std::uint64_t probe_timeout_ms = 0;
  bool force_close = false;  ///< offers proof_source::endpoint_closed
};

/// For people: the URI's form.
inline constexpr std::string_view ucx_uri_form =
    "ucx://HOST:PORT[?peers=HOST:PORT,...&peers_file=FILE&bytes=N&tls=NAME,...&net_device=NAME&segment=N&"
    "spin=MICROSECONDS&window=N&connections=N&probe_timeout=MILLISECONDS&force_close=on|off]";

/// `after_colon`: "//HOST:PORT?...". Reads the peers' file. Errors: invalid, naming the option, its value and
/// the rule; io for a file that can't be read.
result<ucx_options> parse_ucx_options(std::string_view after_colon);

}  // namespace kvlease
