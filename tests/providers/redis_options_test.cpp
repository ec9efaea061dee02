// What redis: URIs say, and what they may not.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/providers/redis/options.hpp"

namespace kvlease::test {
namespace {

using redis::endpoint;

TEST_CASE("redis: URIs, with every option") {
  const auto plain = redis::parse_options("redis", "//cache");
  REQUIRE(plain);
  CHECK(plain->seeds == std::vector<endpoint>{{"cache", 6379}});
  CHECK(plain->prefix == "kvlease:");
  CHECK_FALSE(plain->cluster);
  const auto full = redis::parse_options(
      "rediss",
      "//me:p%40ss%3aw/rd@[::1]:7000/3?connections=4&pipeline=8&queue=99&connect-timeout-ms=5&timeout-ms=6"
      "&prefix=a%3a%7B&ca=/ca&cert=/cert&key=/key&verify=off&server-name=box");
  REQUIRE(full);
  CHECK(full->seeds == std::vector<endpoint>{{"::1", 7000}});
  CHECK(
      (full->user == "me" && full->password == "p@ss:w/rd" && full->database == 3 && full->connections == 4));
  CHECK((full->pipeline == 8 && full->queue == 99 && full->connect_timeout.count() == 5 &&
         full->timeout.count() == 6));
  CHECK((full->prefix == "a:{" && full->tls && full->security.ca == "/ca" && full->security.cert == "/cert"));
  CHECK((full->security.key == "/key" && !full->security.verify && full->security.server_name == "box"));
  CHECK(redis::describe(*full).find("p@ss") == std::string::npos);
  const auto cluster = redis::parse_options("redis", "//:pw@a:1,b:2,[::1]?cluster=on");
  REQUIRE(cluster);
  CHECK(cluster->seeds == std::vector<endpoint>{{"a", 1}, {"b", 2}, {"::1", 6379}});
  CHECK((cluster->user.empty() && cluster->password == "pw"));
  const auto path = redis::parse_options("redis+unix", "/run/a%20b.sock?db=2");
  REQUIRE(path);
  CHECK(
      (path->seeds.front().is_unix() && path->seeds.front().host == "/run/a b.sock" && path->database == 2));
  CHECK(redis::parse_options("redis+unix", "//me:pw@/s")->user == "me");
}

TEST_CASE("redis: a URI that breaks a rule names it, and never shows a password") {
  for (const auto& [scheme, bad] : std::initializer_list<std::pair<const char*, std::string>>{
           {"redis", ""},
           {"redis", "host"},
           {"redis", "//"},
           {"redis", "//:hush@"},
           {"redis", "//h:0"},
           {"redis", "//h:65536"},
           {"redis", "//h:x"},
           {"redis", "//[::1"},
           {"redis", "//h/x"},
           {"redis", "//a,b"},
           {"redis", "//hush@h"},
           {"redis", "//:hu%sh@h"},
           {"redis", "//:hush%2@h"},
           {"redis", "//h/1?cluster=on"},
           {"redis", "//h?cluster=perhaps"},
           {"redis", "//h?connections=0"},
           {"redis", "//h?connections=65"},
           {"redis", "//h?pipeline=0"},
           {"redis", "//h?queue=0"},
           {"redis", "//h?timeout-ms=0"},
           {"redis", "//h?colour=red"},
           {"redis", "//h?ca=/x"},
           {"redis", "//h?prefix=" + std::string(257, 'x')},
           {"redis", "//h?password-file=/no/such/file"},
           {"rediss", "//h?cert=/x"},
           {"redis+unix", "relative"},
           {"redis+unix", "/s?cluster=on"},
           {"redis+unix", "/" + std::string(107, 'x')}}) {
    CAPTURE(bad);
    const auto got = redis::parse_options(scheme, bad);
    REQUIRE_FALSE(got);
    CHECK((got.error().code == errc::invalid || got.error().code == errc::io));
    CHECK(got.error().text.find("redis") == 0);
    CHECK(got.error().text.find("hush") == std::string::npos);
  }
}

}  // namespace
}  // namespace kvlease::test
