// One connection's bytes: a non-blocking socket, plain or under TLS. No call waits, none raises SIGPIPE.
// Not thread-safe: it belongs to the thread of its link.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "src/providers/redis/options.hpp"

namespace kvlease::redis {

/// A file descriptor that is closed with it.
class owned_fd {
 public:
  explicit owned_fd(int fd = -1) noexcept : fd_{fd} {}
  ~owned_fd();
  owned_fd(owned_fd&& other) noexcept;
  owned_fd& operator=(owned_fd&& other) noexcept;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// What one call came to.
struct moved {
  enum class kind : std::uint8_t {
    some,        ///< `bytes` were moved; of handshake(): it is done
    wants_read,  ///< nothing moved: call it again when the socket can be read
    wants_write,
    over,  ///< the connection is at its end; `why` says how
  };
  kind what = kind::over;
  std::size_t bytes = 0;
  std::string why = {};
};

class stream {
 public:
  virtual ~stream() = default;
  virtual int fd() const noexcept = 0;
  /// To be called until it says some, after the socket has connected.
  virtual moved handshake() = 0;
  /// Fills `into` from the front; empty pieces are allowed, but not all.
  virtual moved read(std::span<const iovec> into) = 0;
  virtual moved write(std::span<const iovec> from) = 0;
  /// Bytes may be read although the socket has none.
  virtual bool buffers() const noexcept { return false; }
};

/// A socket of the address's family, connecting: wait until it can be written, then ask connect_error().
/// Negative with errno when there is none.
owned_fd start_connecting(const sockaddr_storage& to, socklen_t size);
/// 0, or the errno of the connection that came to nothing.
int connect_error(int fd);

std::unique_ptr<stream> plain_stream(owned_fd socket);

/// Certificates and rules of TLS 1.2 and newer, shared by all connections of a provider.
class tls_context {
 public:
  /// Errors: io, when a file can't be used, with OpenSSL's reason.
  static result<std::shared_ptr<const tls_context>> open(const tls_options& o);
  virtual ~tls_context() = default;
  /// `host`: whom the certificate must name, unless the options say otherwise. Null when out of memory.
  virtual std::unique_ptr<stream> wrap(owned_fd socket, const std::string& host) const = 0;
};

}  // namespace kvlease::redis
