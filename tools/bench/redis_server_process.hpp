// A redis-server of a bench's own: on a free loopback port and a unix socket, in a temporary directory,
// without persistence. It ends with the object.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "messages/error.hpp"

namespace kvlease::bench {

class redis_server_process {
 public:
  /// Errors: io, when there is no redis-server, or it does not answer within ten seconds.
  static result<std::unique_ptr<redis_server_process>> start();
  ~redis_server_process();
  redis_server_process(const redis_server_process&) = delete;
  redis_server_process& operator=(const redis_server_process&) = delete;

  int port() const noexcept { return port_; }
  std::string socket() const { return directory_ / "s.sock"; }

 private:
  redis_server_process() = default;
  std::filesystem::path directory_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace kvlease::bench
