// A small HTTP/1.1 server on a unix socket, and on loopback TCP where asked for. One thread of its own does
// all input and output; handlers run on a few workers, so that a slow one delays no other client.
//
// Bounded in everything that a client can choose: connections (past the bound, the one that has been silent
// for longest makes room), the size of a request, the time that it takes, streams, queued requests. What is
// malformed, too large or unknown is answered with a 4xx; so is what breaks off (400) or does not come in
// time (408), unless the client is gone. A connection on which nothing has come is just closed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "messages/error.hpp"

namespace kvlease::serve {

struct http_request {
  std::string method;  ///< "GET" or "POST"; HEAD is shown as GET, and answered without a body
  std::string path;    ///< percent-decoded, from its "/" up to the "?"
  std::string query;   ///< behind the "?", as it came
  std::string body;
};

struct http_response {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  /// Not empty: the answer goes on, chunk by chunk. Called on a worker, again and again, some 100 ms apart
  /// while it gives an empty text; nothing ends the answer.
  std::function<std::optional<std::string>()> more;
  std::string allowed = {};  ///< of a 405: the methods that the path knows, as "GET, HEAD"
};

/// May be called on any thread, once; later calls do nothing. Where none comes in time, the client
/// gets a 504.
using http_reply = std::function<void(http_response)>;
using http_handler = std::function<void(const http_request&, const http_reply&)>;

struct http_options {
  std::string socket_path;         ///< made with mode 0600; an abandoned socket there is replaced
  std::optional<std::string> tcp;  ///< "127.0.0.1:PORT", "[::1]:PORT" or "localhost:PORT"; port 0: any
  std::size_t max_connections = 256;
  std::size_t max_streams = 32;
  std::size_t max_queued = 256;
  std::size_t max_header_bytes = 8192;
  std::size_t max_body_bytes = 4096;  ///< of a request that is not for `posts`
  std::string posts;                  ///< the one path that takes large bodies; empty: none
  std::size_t max_post_bytes = std::size_t{4} << 20;
  std::size_t workers = 4;
  std::chrono::milliseconds request_within{5000};   ///< from its first byte, or since the last answer
  std::chrono::milliseconds answer_within{600000};  ///< by the handler; then 504
  std::chrono::milliseconds write_within{10000};    ///< of one answer, or of one chunk
};

struct http_figures {
  std::uint64_t accepted = 0;
  std::uint64_t evicted = 0;  ///< silent connections that made room
  std::uint64_t refused = 0;  ///< answered with a 4xx before any handler was asked
  std::size_t open = 0;
};

struct http_core;

class http_server {
 public:
  /// Errors: invalid for a path that is too long or an address that is not loopback; state when somebody
  /// listens there already; io.
  static result<std::unique_ptr<http_server>> start(http_options options, http_handler handler);
  /// Closes every connection, waits for the workers, removes the socket.
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// 0 without TCP.
  std::uint16_t tcp_port() const noexcept;
  http_figures figures() const;

 private:
  explicit http_server(std::shared_ptr<http_core> core);
  std::shared_ptr<http_core> core_;
};

}  // namespace kvlease::serve
