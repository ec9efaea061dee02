// F13: the redis provider and a server that says what no server says.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <tuple>

#include "tests/providers/redis_bench.hpp"
#include "tests/providers/redis_unit.hpp"

namespace kvlease::test {
namespace {

TEST_CASE(
    "F13 redis: a reply that is none fails what was asked, touches nothing, and the next connection serves") {
  const auto good = reply_of(unit_value("extent", "0", 64, 9));
  std::string bad;
  std::atomic<int> asked{0};
  fake_redis server{
      [&](const auto&) { return asked++ == 0 ? fake_redis::answer{bad} : fake_redis::answer{good}; }};
  for (const std::string& each :
       {std::string{"$9223372036854775807\r\n"}, std::string{"$536870913\r\nxxxx"}, std::string{"$-2\r\n"},
        std::string{"*1\r\n$1\r\na\r\n"}, std::string{"*1000000\r\n*1000000\r\n"},
        std::string{"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"}, std::string{"+OK\r\n"}, std::string{":1\r\n"},
        std::string{"\0\0\0\0", 4}, std::string(2000, '+'), "-" + std::string(2000, 'x'),
        std::string{"$-1\r\n$-1\r\n"} /* one too many */}) {
    CAPTURE(each);
    bad = each;
    asked = 0;
    redis_bench b{server.uri(), 64, 2};
    const auto o = b.finish(b.fetch(0, 1));
    if (each == "$-1\r\n$-1\r\n") {
      CHECK(served_of(o).empty());  // the first was the reply
    } else {
      CHECK(reason_of(o).find("redis: connection to 127.0.0.1") == 0);
    }
    CHECK(b.painted());
    CHECK(served_of(b.finish(b.fetch_when_connected(0, 1))) == std::set<bytes>{"0"});
    CHECK(b.holds(0, 9));
    CHECK(b.holds(1, 0xa5));
    CHECK(b.touches->exposure_bytes() == 0);
  }
}

TEST_CASE("F13 redis: a reply to GET that ends at any byte has failed, and nothing is served") {
  const auto whole = reply_of(unit_value("extent", "0", 64, 9));
  std::atomic<std::size_t> cut{0};
  fake_redis server{[&](const auto&) { return fake_redis::answer{whole.substr(0, cut), true}; }};
  for (std::size_t n = 0; n < whole.size(); ++n) {
    cut = n;
    redis_bench b{server.uri(), 64, 2};
    const auto a = b.fetch(0, 1);
    CHECK(reason_of(b.finish(a)).find("the server closed the connection") != std::string::npos);
    b.paint();
    CHECK(b.painted());
    CHECK(b.touches->exposure_bytes() == 0);
  }
}

TEST_CASE("F13 redis: what a server answers to a publish is no better trusted") {
  std::string set, look;
  fake_redis server{
      [&](const auto& command) { return fake_redis::answer{command[0] == "SET" ? set : look}; }};
  const auto frame = unit_value("extent", "0", 64, 0xa5).substr(0, frame_head + 7);
  const std::tuple<const char*, std::string, const char*> each[] = {
      {"$2\r\nOK\r\n", "", "reply to SET"},
      {":1\r\n", "", "reply to SET"},
      {"$100000000\r\n", "", "malformed"},
      {"$-1\r\n", "$-1\r\n", "reply to GETRANGE"},
      {"$-1\r\n", "$4097\r\n", "malformed"},
      {"$-1\r\n", "$0\r\n\r\n", "comes and goes"},   // absent and present in turn, for ever
      {"$-1\r\n", "$3\r\nabc\r\n", "reply to SET"},  // SET without NX must not answer nil
      {"$-1\r\n", reply_of(frame), "(not failed)"},
      {"-OOM command not allowed\r\n", "", "capacity"},
      {"-LOADING busy\r\n", "", "LOADING"},
      {"-MOVED 1 127.0.0.1:1\r\n", "", "MOVED"}};
  for (const auto& [to_set, to_look, expected] : each) {
    CAPTURE(to_set);
    CAPTURE(to_look);
    set = to_set;
    look = to_look;
    redis_bench b{server.uri(), 64, 2};
    const auto reason = reason_of(b.finish(b.publish(0, 1)));
    CHECK_MESSAGE(reason.find(expected) != std::string::npos, reason);
    CHECK(b.painted());
  }
}

TEST_CASE("F13 redis: a cluster that redirects for ever, or answers its map wrongly, fails what was asked") {
  std::string slots, to_get;
  fake_redis server{[&](const auto& command) {
    return fake_redis::answer{command[0] == "CLUSTER" ? slots : command[0] == "ASKING" ? "+OK\r\n" : to_get};
  }};
  const auto map = fmt::format("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", server.port());
  for (const auto& [s, g, expected] :
       {std::tuple{map, fmt::format("-MOVED 1 127.0.0.1:{}\r\n", server.port()), "redirects in a row"},
        std::tuple{map, fmt::format("-ASK 1 127.0.0.1:{}\r\n", server.port()), "redirects in a row"},
        std::tuple{map, std::string{"-MOVED 1 127.0.0.1:0\r\n"}, "MOVED 1"},
        std::tuple{std::string{"*1\r\n:1\r\n"}, std::string{}, "CLUSTER SLOTS"},
        std::tuple{std::string{"*1\r\n*3\r\n:0\r\n:99999\r\n*0\r\n"}, std::string{}, "CLUSTER SLOTS"},
        std::tuple{std::string{"*9999999\r\n"}, std::string{}, "malformed"}}) {
    slots = s;
    to_get = g;
    CAPTURE(expected);
    redis_bench b{server.uri("?cluster=on"), 64, 2};
    const auto reason = reason_of(b.finish(b.fetch(0, 1)));
    CHECK_MESSAGE(reason.find(expected) != std::string::npos, reason);
    CHECK(b.painted());
  }
}

}  // namespace
}  // namespace kvlease::test
