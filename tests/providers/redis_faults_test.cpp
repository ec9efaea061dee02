// The redis provider and servers that block or die: F6, F9, F10, F19. Those that say what no server says:
// redis_malformed_test.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/providers/redis_bench.hpp"
#include "tests/providers/redis_servers.hpp"
#include "tests/providers/redis_unit.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

std::string uri_of(const redis_server& s, const std::string& options = {}) {
  return fmt::format("redis://{}?prefix={}{}", s.address(), fresh_prefix(), options);
}

std::size_t entries(const char* directory) {
  const std::filesystem::directory_iterator all{directory};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Generous, and far below what a server would have to be waited for.
constexpr auto at_once = 5s;

TEST_CASE("F6 redis: a server that blocks for ever blocks no call of the port") {
  redis_server server;
  redis_bench b{uri_of(server, "&timeout-ms=400&connect-timeout-ms=400&queue=16"), 4096, 16};
  REQUIRE(served_of(b.finish(b.publish(0, 2))).size() == 2);
  server.process().stop();
  const auto a = b.fetch(0, 2);  // submit
  const auto p = b.publish(2, 4);
  CHECK_FALSE(a->poll());
  CHECK_FALSE(b.ended(a));
  CHECK_THROWS_AS(b.publish(6, 11), submission_rejected);  // past the queue's bound, and not blocked
  CHECK(request_cancel(*p) == cancel_disposition::requested);
  CHECK(b.subject->as_publishes()->quiesce({&p, 1}));  // returns at once
  CHECK(std::holds_alternative<cancelled>(*p->poll()));
  CHECK_FALSE(b.subject->describe().empty());
  CHECK(b.subject->counters().hits == 2);
  CHECK(b.subject->as_fetches()->quiesce({&a, 1}));  // at the latest when no byte has moved for timeout-ms
  b.subject->as_fetches()->settle({&a, 1});
  CHECK(reason_of(a->poll()).find("no byte moved for 400 ms") != std::string::npos);
  CHECK_THROWS_AS(b.subject->as_fetches()->probe("extent", {"0"}), std::runtime_error);
  {
    std::vector<std::byte> more(4096);
    const auto handle = b.subject->as_registers_pools()->register_pool(
        reinterpret_cast<std::uintptr_t>(more.data()), more.size());
    handle->close();
  }
  server.process().resume();
  CHECK(served_of(b.finish(b.fetch_when_connected(0, 2))).size() == 2);
  server.process().stop();
  const auto last = b.fetch(0, 2);
  b.subject.reset();  // and neither does its end
  CHECK(last->poll());
}

TEST_CASE(
    "F9 redis: destroyed with eight attempts under way on a server that never answers, each has ended") {
  redis_server server;
  redis_bench b{uri_of(server, "&connections=2&pipeline=2"), 256 << 10, 8};  // half of them wait
  REQUIRE(served_of(b.finish(b.publish(0, 8))).size() == 8);
  b.paint();
  server.process().stop();
  std::vector<std::shared_ptr<attempt>> all;
  for (int n = 0; n < 4; ++n) all.push_back(b.fetch(n, 1, n));
  for (int n = 4; n < 8; ++n) all.push_back(b.publish(20 + n, 1, n));
  for (const auto& a : all) CHECK_FALSE(b.ended(a));
  const auto began = clock::now();
  b.subject.reset();
  CHECK(clock::now() - began < at_once);
  for (const auto& a : all) CHECK(reason_of(a->poll()).find("closed") != std::string::npos);
  b.paint();
  for (std::int64_t n = 0; n < 8; ++n) b.touches->revoke(0, n);
  server.process().resume();
  CHECK(server.ask({"PING"}).text == "PONG");
  CHECK(b.painted());
  CHECK(b.touches->exposure_bytes() == 0);
}

TEST_CASE("F10 redis: created and destroyed 100 times, descriptors and threads are what they were") {
  redis_server& server = shared_redis();
  const auto once = [&] {
    redis_bench b{uri_of(server, "&connections=3"), 256, 8};
    CHECK(served_of(b.finish(b.publish(0, 8))).size() == 8);
    b.paint();
    const auto under_way = b.fetch(0, 8);
    b.subject.reset();
    CHECK(under_way->poll());
  };
  once();  // what the libraries keep for good is there now
  const auto descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int n = 0; n < 100; ++n) once();
  CHECK(entries("/proc/self/fd") == descriptors);
  CHECK(entries("/proc/self/task") == threads);
}

TEST_CASE("F19 redis: stopped in the middle of a reply, cancelled, continued: the slots stay painted") {
  const auto whole = reply_of(unit_value("extent", "0", 4096, 9));
  std::atomic<int> asked{0};
  fake_redis server{[&](const auto&) {
    return asked++ == 0 ? fake_redis::answer{whole.substr(0, 1000), false, whole.substr(1000)}
                        : fake_redis::answer{whole};
  }};
  redis_bench b{server.uri(), 4096, 2};
  const auto a = b.fetch(0, 1);
  REQUIRE(eventually([&] { return b.touches->touched_bytes() > 0; }));
  CHECK_FALSE(b.ended(a));
  request_cancel(*a);  // as the deadline does
  const auto began = clock::now();
  CHECK(std::holds_alternative<cancelled>(*b.finish(a)));
  CHECK(clock::now() - began < at_once);
  b.paint();
  server.say_the_rest();
  // The rest of the first reply comes on the same connection, in front of this one.
  CHECK(served_of(b.finish(b.fetch(0, 1, 1))) == std::set<bytes>{"0"});
  CHECK(b.holds(1, 9));
  CHECK(b.holds(0, 0xa5));
  CHECK(b.touches->exposure_bytes() == 0);
}

TEST_CASE("F19 redis: a publish that is cancelled half written lets go at once, and goes out as it was") {
  constexpr std::size_t size = 32 << 20;  // more than the sockets hold
  std::mutex mutex;
  std::string stored;
  fake_redis server{[&](const auto& command) {
    if (command[0] == "GET") return fake_redis::answer{{}, false, "$-1\r\n"};  // and reads nothing until then
    const std::lock_guard lock{mutex};
    stored = command.at(2);
    return fake_redis::answer{"+OK\r\n"};
  }};
  redis_bench b{server.uri(), size, 2};
  const auto blocked = b.fetch(9, 1, 1);
  b.fill(0, 7);
  const auto a = b.publish(0, 1);
  REQUIRE(eventually([&] { return b.touches->touched_bytes() >= size; }));
  CHECK_FALSE(b.ended(a));
  request_cancel(*a);
  CHECK(std::holds_alternative<cancelled>(*b.finish(a)));
  CHECK_FALSE(blocked->poll());  // the connection has lived on
  b.fill(0, 0xa5);               // the slot is somebody else's now
  server.say_the_rest();
  CHECK(served_of(b.finish(blocked)).empty());
  const auto got = [&] {
    const std::lock_guard lock{mutex};
    return !stored.empty();
  };
  REQUIRE(eventually(got));
  CHECK((stored == unit_value("extent", "0", size, 7)));
}

TEST_CASE(
    "F19 redis: writing to a socket that the other side has closed raises no signal, under TLS neither") {
  std::signal(SIGPIPE, SIG_DFL);
  for (const bool tls : {false, true}) {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
    redis::owned_fd ours{both[0]};
    ::close(both[1]);
    const auto stream =
        tls ? redis::tls_context::open({.verify = false}).value()->wrap(std::move(ours), "localhost")
            : redis::plain_stream(std::move(ours));
    REQUIRE(stream);
    std::string text = "PING\r\n";
    const iovec piece{text.data(), text.size()};
    const auto m = tls ? stream->handshake() : stream->write({&piece, 1});
    CHECK(m.what == redis::moved::kind::over);
    CHECK(m.why.find("Broken pipe") != std::string::npos);
  }
}

TEST_CASE(
    "F19 redis: peer stopped, deadline passes, peer continued: proof at once, no byte lands afterwards") {
  redis_server server;
  redis_bench b{uri_of(server), 1 << 20, 16};
  for (int n = 0; n < 16; ++n) b.fill(n, static_cast<unsigned char>(n + 1));
  REQUIRE(served_of(b.finish(b.publish(0, 16))).size() == 16);
  server.process().stop();
  const auto fetching = b.fetch(0, 8);
  const auto publishing = b.publish(108, 8, 8);
  for (const auto& a : {fetching, publishing}) {
    request_cancel(*a);
    const auto began = clock::now();
    CHECK(std::holds_alternative<cancelled>(*b.finish(a)));
    CHECK(clock::now() - began < at_once);
  }
  b.paint();  // the slots are somebody else's now
  for (std::int64_t n = 0; n < 16; ++n) b.touches->revoke(0, n);
  server.process().resume();
  CHECK(server.ask({"PING"}).text == "PONG");
  REQUIRE(
      eventually([&] { return b.subject->as_fetches()->probe("extent", {"0"}) == std::set<bytes>{"0"}; }));
  CHECK(b.painted());
  CHECK(b.touches->exposure_bytes() == 0);
  // What was half written of a publish went out to its end, with the bytes that it had: right, or absent.
  for (std::int64_t n = 0; n < 16; ++n) b.touches->grant(0, n, lease_id{2}, true);
  const auto served = served_of(b.finish(b.fetch(108, 8, 8)));
  for (int n = 8; n < 16; ++n)
    CHECK(b.holds(n, served.contains(std::to_string(100 + n)) ? static_cast<unsigned char>(n + 1) : 0xa5));
}

/// Kills the server in the middle of fetches and publishes, again and again. `uri`: with a prefix of its own
/// each time.
void kill_again_and_again(int kills, redis_server& server, const std::function<std::string()>& uri) {
  constexpr int units = 12;
  std::mt19937 random{static_cast<unsigned>(kills)};
  int wrong = 0, failures = 0, served = 0;
  for (int k = 0; k < kills; ++k) {
    redis_bench b{uri(), 256 << 10, units};
    const auto value = [](int n) { return static_cast<unsigned char>(n + 1); };
    for (int n = 0; n < units; ++n) b.fill(n, value(n));
    REQUIRE(served_of(b.finish(b.publish(0, units))).size() == units);
    for (int n = 0; n < 8; ++n) b.fill(n, 0xa5);
    const std::vector<std::shared_ptr<attempt>> all{b.fetch(0, 4, 0), b.fetch(4, 4, 4), b.publish(100, 4, 8)};
    // As soon as so many of the twelve have begun to move, or, one time in four, at any moment.
    const auto begun = random() % 4 == 0 ? 0 : b.touches->touched_bytes() + random() % units * (256 << 10);
    const auto until = clock::now() + (begun == 0 ? std::chrono::microseconds{random() % 3000} : 200ms);
    while (clock::now() < until && (begun == 0 || b.touches->touched_bytes() < begun)) continue;
    server.process().kill();
    REQUIRE(b.subject->as_fetches()->quiesce(all));
    for (const auto& a : all) {
      const auto o = *a->poll();
      failures += std::holds_alternative<failed>(o) ? 1 : 0;
      if (!std::holds_alternative<delivered>(o)) continue;
      for (const auto& name : std::get<delivered>(o).served()) {
        const int n = std::stoi(name);
        ++served;
        if (n < 8) wrong += b.holds(n, value(n)) ? 0 : 1;
      }
    }
    b.paint();  // all access has ended
    server.restart();
    wrong += served_of(b.finish(b.fetch_when_connected(0, units))).empty() ? 0 : 1;  // it is empty now
    wrong += b.painted() ? 0 : 1;
    wrong += b.touches->exposure_bytes() == 0 ? 0 : 1;
  }
  MESSAGE(kills << " kills: " << failures << " attempts failed, " << served << " units served, " << wrong
                << " wrong");
  CHECK(wrong == 0);
  CHECK(failures > 0);
}

int kills_wanted(int otherwise) {
  const char* given = std::getenv("KVLEASE_KILLS");
  return given == nullptr ? otherwise : std::atoi(given);
}

TEST_CASE(
    "F19 redis: the server is killed in mid-transfer, 40 times (KVLEASE_KILLS): no wrong byte, no exposure") {
  redis_server server;
  kill_again_and_again(kills_wanted(40), server, [&] { return uri_of(server); });
}

TEST_CASE("F19 redis: killed under TLS: no wrong byte, no exposure") {
  redis_server server{{}, redis_server::kind::tls};
  kill_again_and_again(kills_wanted(40) / 8, server, [&] {
    return fmt::format("rediss://localhost:{}?ca={}&prefix={}", server.port(), shared_certificates().ca(),
                       fresh_prefix());
  });
}

}  // namespace
}  // namespace kvlease::test
