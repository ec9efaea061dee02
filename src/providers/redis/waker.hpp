// An eventfd: wakes a thread that waits in poll.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "src/providers/redis/stream.hpp"

namespace kvlease::redis {

class waker {
 public:
  /// Throws std::system_error when there is no descriptor left.
  waker() : fd_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
    if (fd_.get() < 0) throw std::system_error{errno, std::generic_category(), "eventfd"};
  }
  int fd() const noexcept { return fd_.get(); }
  /// Any thread, any number of times.
  void wake() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
  }
  void quiet() const noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  owned_fd fd_;
};

}  // namespace kvlease::redis
