// The least that a client of Redis can do, to compare with: blocking calls, pipelined, straight out of and
// into the slots, nothing checked, no proof of anything.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "messages/error.hpp"

namespace kvlease::bench {

class redis_raw_client {
 public:
  /// "/path", or a port of 127.0.0.1. Errors: io.
  static result<redis_raw_client> open(const std::string& where);
  ~redis_raw_client();
  redis_raw_client(redis_raw_client&& other) noexcept;
  redis_raw_client& operator=(redis_raw_client&&) = delete;

  /// Keys are `key` and a number from `first`; one for each `size` bytes of `memory`. At most `depth`
  /// commands without reply. Errors: io, when the connection breaks or a reply is not what it should be.
  result<void> set(const std::string& key, std::size_t first, std::span<std::byte> memory, std::size_t size,
                   std::size_t depth);
  result<void> get(const std::string& key, std::size_t first, std::span<std::byte> memory, std::size_t size,
                   std::size_t depth);
  result<void> flush();

 private:
  explicit redis_raw_client(int fd) : fd_{fd} {}
  int fd_;
};

}  // namespace kvlease::bench
