// A redis provider over slots of a size that matters, and a server that says what the test tells it to.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kvlease/provider_uri.hpp"
#include "src/exposure.hpp"
#include "src/providers/redis/waker.hpp"
#include "tests/child_process.hpp"
#include "tests/providers/provider_fixture.hpp"

namespace kvlease::test {

/// One part of `slots` slots, registered, writable by one lease.
class redis_bench {
 public:
  explicit redis_bench(const std::string& uri, std::size_t slot_bytes = 4096, std::int64_t slots = 8)
      : slot_bytes_{slot_bytes},
        memory_(slot_bytes * static_cast<std::size_t>(slots), kvlease::test::untouched) {
    const std::vector<part> parts{{.name = "p",
                                   .address = reinterpret_cast<std::uintptr_t>(memory_.data()),
                                   .nbytes = static_cast<std::int64_t>(memory_.size()),
                                   .slot_bytes = static_cast<std::int64_t>(slot_bytes),
                                   .slots = slots}};
    touches = std::make_shared<touch_table>(parts);
    for (std::int64_t s = 0; s < slots; ++s) touches->grant(0, s, lease_id{1}, true);
    const auto open = provider_from_uri(uri);
    REQUIRE_MESSAGE(open.has_value(), open.error().text);
    subject =
        (*open)({std::make_shared<local_resolver>(parts, std::vector<std::size_t>{0}), nullptr, touches});
    handle_ = subject->as_registers_pools()->register_pool(parts[0].address, memory_.size());
  }

  std::span<std::byte> slot(std::int64_t i) {
    return std::span{memory_}.subspan(static_cast<std::size_t>(i) * slot_bytes_, slot_bytes_);
  }
  void fill(std::int64_t i, unsigned char value) { std::ranges::fill(slot(i), std::byte{value}); }
  bool holds(std::int64_t i, unsigned char value) {
    return std::ranges::all_of(slot(i), [value](std::byte b) { return b == std::byte{value}; });
  }
  void paint() { std::ranges::fill(memory_, kvlease::test::untouched); }
  bool painted() const {
    return std::ranges::all_of(memory_, [](std::byte b) { return b == kvlease::test::untouched; });
  }

  /// Names are the decimal numbers from `first`, their slots those from `slot`.
  static cache_extent units(int first, int count, std::int64_t slot = 0) {
    std::vector<unit> all;
    for (int n = 0; n < count; ++n) all.push_back(at(std::to_string(first + n).c_str(), 0, slot + n));
    return extent_of(std::move(all));
  }
  std::shared_ptr<attempt> fetch(int first, int count, std::int64_t slot = 0) {
    return subject->as_fetches()->fetch(units(first, count, slot));
  }
  std::shared_ptr<attempt> publish(int first, int count, std::int64_t slot = 0) {
    return subject->as_publishes()->publish(units(first, count, slot));
  }
  /// As fetch, but where the provider rejects while it is not connected, it is asked again.
  std::shared_ptr<attempt> fetch_when_connected(int first, int count) {
    std::shared_ptr<attempt> a;
    REQUIRE(eventually([&] {
      try {
        a = fetch(first, count);
      } catch (const submission_rejected&) {
      }
      return a != nullptr;
    }));
    return a;
  }
  bool ended(const std::shared_ptr<attempt>& a) {
    return subject->as_pollable()->poll_access(*a).state == access_state::ended;
  }
  std::optional<outcome> finish(const std::shared_ptr<attempt>& a) {
    subject->as_fetches()->settle({&a, 1});
    REQUIRE(subject->as_fetches()->quiesce({&a, 1}));
    CHECK(ended(a));
    return a->poll();
  }

  std::shared_ptr<touch_table> touches;
  std::shared_ptr<provider> subject;

 private:
  const std::size_t slot_bytes_;
  std::vector<std::byte> memory_;
  std::unique_ptr<registration> handle_;
};

/// Accepts any number of connections on a loopback port, and answers each command as it is told to.
class fake_redis {
 public:
  struct answer {
    std::string bytes;
    bool close = false;      ///< after them
    std::string later = {};  ///< what is sent once say_the_rest() was called
  };
  /// `commands`: the arguments of one command. Called on the server's threads. PING is answered by itself.
  explicit fake_redis(std::function<answer(const std::vector<std::string>& command)> commands);
  ~fake_redis();
  std::string uri(const std::string& options = {}) const;
  int port() const noexcept { return port_; }
  void say_the_rest();

 private:
  void accept_all();
  void serve(int fd);

  const std::function<answer(const std::vector<std::string>&)> commands_;
  redis::owned_fd listener_;
  int port_ = 0;
  redis::waker stop_;
  std::atomic<bool> stopping_{false}, rest_{false};
  redis::waker rest_waker_;
  std::mutex mutex_;
  std::vector<std::thread> servers_;
  std::thread acceptor_;
};

}  // namespace kvlease::test
