// The redis provider against real servers: what is a hit, a miss, a failure, and how it connects. What it
// shares with every provider: rules_2_test.cpp; troubled servers: redis_faults_test.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "src/providers/redis/cluster.hpp"
#include "src/providers/redis/unit_value.hpp"
#include "tests/providers/redis_bench.hpp"
#include "tests/providers/redis_servers.hpp"
#include "tests/providers/redis_unit.hpp"

namespace kvlease::test {
namespace {

std::string plain(const std::string& options = {}) {
  return fmt::format("redis://{}?prefix={}{}", shared_redis().address(), fresh_prefix(), options);
}

/// Asks until it is not rejected: why it has failed, or why it is rejected for good.
std::string complaint(const std::string& uri) {
  redis_bench b{uri, 64, 2};
  try {
    return reason_of(b.finish(b.fetch(0, 1)));
  } catch (const submission_rejected& e) {
    return e.what();
  }
}

// ---- Values ----------------------------------------------------------------------------------------------

TEST_CASE("redis: the value is a frame with the unit's bytes behind it, under prefix, extent and name") {
  const auto prefix = fresh_prefix();
  redis_bench b{fmt::format("redis://{}?prefix={}", shared_redis().address(), prefix), 1000, 2};
  b.fill(0, 7);
  REQUIRE(served_of(b.finish(b.publish(5, 1))) == std::set<bytes>{"5"});
  const auto stored = shared_redis().ask({"GET", redis::unit_key(prefix, "extent", "5")});
  CHECK(stored.text == unit_value("extent", "5", 1000, 7));
}

TEST_CASE("redis: the first content of a name stays; another size has failed") {
  const auto uri = plain();
  redis_bench b{uri, 1000, 2}, other{uri, 500, 2};
  b.fill(0, 1);
  REQUIRE(served_of(b.finish(b.publish(0, 1))).size() == 1);
  b.fill(0, 2);
  CHECK(served_of(b.finish(b.publish(0, 1))).size() == 1);
  CHECK(served_of(b.finish(b.fetch(0, 1, 1))).size() == 1);
  CHECK(b.holds(1, 1));
  CHECK(reason_of(other.finish(other.publish(0, 1))).find("has 1000 bytes in the store, its slot 500") !=
        std::string::npos);
  CHECK(reason_of(other.finish(other.fetch(0, 1))).find("has 1000 bytes in the store, its slot 500") !=
        std::string::npos);
  CHECK(other.painted());
}

TEST_CASE(
    "redis: what has a unit's key and is no unit is a miss that touches nothing, and a publish replaces it") {
  const auto prefix = fresh_prefix();
  auto& server = shared_redis();
  redis_bench b{fmt::format("redis://{}?prefix={}", server.address(), prefix), 1000, 4};
  const auto key = [&](const char* name) { return redis::unit_key(prefix, "extent", name); };
  server.ask({"SET", key("0"), "somebody else's"});
  server.ask({"RPUSH", key("1"), "a list"});
  server.ask({"SET", key("2"), unit_value("extent", "another", 1000, 1)});
  server.ask({"SET", key("3"), unit_value("extent", "3", 1000, 1).substr(0, 700)});  // torn
  CHECK(served_of(b.finish(b.fetch(0, 4))).empty());
  CHECK(b.painted());
  CHECK(b.subject->counters() == unit_counters{0, 4, 0});
  for (int n = 0; n < 4; ++n) b.fill(n, static_cast<unsigned char>(n));
  // A torn value's frame is good: as far as it says, the unit is there.
  CHECK(served_of(b.finish(b.publish(0, 3))).size() == 3);
  b.paint();
  CHECK(served_of(b.finish(b.fetch(0, 3))).size() == 3);
  for (int n = 0; n < 3; ++n) CHECK(b.holds(n, static_cast<unsigned char>(n)));
}

TEST_CASE("redis: a unit that is damaged in the store has failed, is removed, and is a miss from then on") {
  const auto prefix = fresh_prefix();
  auto& server = shared_redis();
  redis_bench b{fmt::format("redis://{}?prefix={}", server.address(), prefix), 1000, 2};
  const auto key = redis::unit_key(prefix, "extent", "0");
  auto value = unit_value("extent", "0", 1000, 1);
  value[900] ^= 1;
  server.ask({"SET", key, value});
  CHECK(reason_of(b.finish(b.fetch(0, 1))).find("is damaged in the store") != std::string::npos);
  CHECK(served_of(b.finish(b.fetch(0, 1))).empty());
  CHECK(server.ask({"EXISTS", key}).number == 0);
}

TEST_CASE("redis: names are binary, also what looks like the protocol or a hash tag") {
  for (const auto& uri : {plain(), with_servers("redis://$cluster?cluster=on&prefix=$bench")}) {
    redis_bench b{uri, 64, 4};
    const std::vector<bytes> names{std::string("\0\r\n$-1\r\n", 8), "{}", "a{b}c", std::string(54, '\xff')};
    std::vector<unit> units;
    for (std::size_t n = 0; n < names.size(); ++n) {
      units.push_back(*unit::make({names[n], 0, static_cast<std::int64_t>(n)}));
      b.fill(static_cast<std::int64_t>(n), static_cast<unsigned char>(n + 1));
    }
    const auto e = extent_of(units, "ex\r\ntent{");
    REQUIRE(served_of(b.finish(b.subject->as_publishes()->publish(e))).size() == names.size());
    b.paint();
    CHECK(served_of(b.finish(b.subject->as_fetches()->fetch(e))) ==
          std::set<bytes>(names.begin(), names.end()));
    for (std::int64_t n = 0; n < 4; ++n) CHECK(b.holds(n, static_cast<unsigned char>(n + 1)));
    CHECK(b.subject->as_fetches()->probe("ex\r\ntent{", {names[0], "none"}) == std::set<bytes>{names[0]});
  }
}

TEST_CASE("redis: names and units that no value can hold have failed before a byte moves") {
  redis_bench b{plain(), 64, 2};
  const auto long_name = *unit::make({std::string(frame_names, 'x'), 0, 0});
  const auto o = b.finish(b.subject->as_publishes()->publish(extent_of({long_name})));
  CHECK(reason_of(o).find("must have at most 4048") != std::string::npos);
  CHECK(b.touches->touched_bytes() == 0);
}

TEST_CASE("redis: units of many sizes, over several connections, come back as they were") {
  for (const std::size_t size : {1u, 4096u, 65536u, 3u << 20}) {
    redis_bench b{plain("&connections=3&pipeline=3"), size, 12};
    for (int n = 0; n < 12; ++n) b.fill(n, static_cast<unsigned char>(n + 1));
    REQUIRE(served_of(b.finish(b.publish(0, 12))).size() == 12);
    b.paint();
    CHECK(served_of(b.finish(b.fetch(0, 12))).size() == 12);
    for (int n = 0; n < 12; ++n) CHECK(b.holds(n, static_cast<unsigned char>(n + 1)));
    CHECK(b.touches->exposure_bytes() == 0);
  }
}

// ---- Capacity --------------------------------------------------------------------------------------------

TEST_CASE("redis: -OOM is failed and says capacity; what is stored is still served") {
  redis_server full{{"--maxmemory", "12mb", "--maxmemory-policy", "noeviction"}};
  redis_bench b{fmt::format("redis://{}", full.address()), 1 << 20, 2};
  b.fill(0, 1);
  std::string reason = "(not failed)";
  int stored = 0;
  for (; stored < 20 && reason == "(not failed)"; ++stored)
    reason = reason_of(b.finish(b.publish(stored, 1)));
  CHECK(reason.find("redis: the server's capacity is reached: OOM") == 0);
  CHECK(stored > 2);
  CHECK(served_of(b.finish(b.fetch(0, 1, 1))).size() == 1);
  CHECK(b.subject->counters().failures == 1);
}

TEST_CASE("redis: an evicted unit is a miss") {
  redis_server small{{"--maxmemory", "12mb", "--maxmemory-policy", "allkeys-lru"}};
  redis_bench b{fmt::format("redis://{}", small.address()), 1 << 20, 2};
  for (int n = 0; n < 20; ++n) {
    b.fill(0, static_cast<unsigned char>(n));
    REQUIRE(served_of(b.finish(b.publish(n, 1))).size() == 1);
  }
  const auto before = b.subject->counters();
  for (int n = 0; n < 20; ++n) {
    b.fill(1, 0xa5);
    const auto served = served_of(b.finish(b.fetch(n, 1, 1)));
    CHECK(b.holds(1, served.empty() ? 0xa5 : static_cast<unsigned char>(n)));
  }
  const auto after = b.subject->counters();
  CHECK(after.misses > before.misses);
  CHECK(after.hits > before.hits);
  CHECK(after.failures == 0);
}

TEST_CASE("2.2 redis: past the queue's bound a submission is rejected whole, with nothing written") {
  redis_server server;
  redis_bench b{fmt::format("redis://{}?queue=4&pipeline=1", server.address()), 64, 8};
  CHECK_THROWS_WITH_AS(b.publish(0, 5), doctest::Contains("at most 4 may"), submission_rejected);
  CHECK(b.touches->touched_bytes() == 0);
  CHECK(served_of(b.finish(b.publish(0, 4))).size() == 4);  // the room was given back
  CHECK(server.ask({"DBSIZE"}).number == 4);
  CHECK(b.subject->as_fetches()->probe("extent", {"0", "1", "2", "3", "4", "5"})->size() == 4);  // in turns
}

// ---- Connections -----------------------------------------------------------------------------------------

TEST_CASE("redis: AUTH with a password, with a user, from a file; a wrong one says so and is never shown") {
  redis_server server{{"--requirepass", "hush", "--user", "me", "on", ">secret", "~*", "&*", "+@all"}};
  const auto host = server.address();
  temporary_directory directory;
  std::ofstream{directory / "password"} << "hush\n";
  CHECK(complaint("redis://:hush@" + host) == "(not failed)");
  CHECK(complaint("redis://me:secret@" + host) == "(not failed)");
  CHECK(complaint("redis://" + host + "?password-file=" + (directory / "password").string()) ==
        "(not failed)");
  CHECK(complaint("redis+unix://:hush@" + server.socket()) == "(not failed)");
  const auto wrong = complaint("redis://:wrongword@" + host);
  CHECK(wrong.find("WRONGPASS") != std::string::npos);
  CHECK(wrong.find("wrongword") == std::string::npos);
  CHECK(complaint("redis://" + host).find("NOAUTH") != std::string::npos);
  CHECK(complaint("redis://:hush@" + host + "/99").find("DB index is out of range") != std::string::npos);
}

TEST_CASE("redis: databases are apart") {
  redis_bench zero{fmt::format("redis://{}/0?prefix=db:", shared_redis().address()), 64, 2};
  redis_bench three{fmt::format("redis://{}/3?prefix=db:", shared_redis().address()), 64, 2};
  REQUIRE(served_of(three.finish(three.publish(0, 1))).size() == 1);
  CHECK(served_of(zero.finish(zero.fetch(0, 1))).empty());
  CHECK(served_of(three.finish(three.fetch(0, 1))).size() == 1);
}

TEST_CASE("redis: a certificate is verified, its host too, unless that is switched off") {
  const auto host = fmt::format("rediss://localhost:{}", shared_tls_redis().port());
  const auto& c = shared_certificates();
  CHECK(complaint(host + "?ca=" + c.ca()) == "(not failed)");
  CHECK(complaint(host + "?ca=" + c.ca() + "&cert=" + c.cert() + "&key=" + c.key()) == "(not failed)");
  CHECK(complaint(host + "?verify=off") == "(not failed)");
  CHECK(complaint(host + "?ca=" + c.other_ca()).find("certificate verify failed") != std::string::npos);
  CHECK(complaint(host).find("certificate verify failed") != std::string::npos);  // the system knows no such
  CHECK(complaint(host + "?ca=" + c.ca() + "&server-name=elsewhere").find("hostname mismatch") !=
        std::string::npos);
  CHECK(complaint(host + "?ca=" + c.ca() + "&server-name=10.0.0.1").find("IP address mismatch") !=
        std::string::npos);
  const auto missing = provider_from_uri(host + "?ca=/no/such/file");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::io);
  CHECK(missing.error().text.find("ca=/no/such/file") != std::string::npos);
}

TEST_CASE("redis: no server, or one that speaks something else: clear errors") {
  CHECK(complaint(fmt::format("redis://127.0.0.1:{}", free_port())).find("Connection refused") !=
        std::string::npos);
  CHECK(complaint("redis+unix:/no/such.sock").find("No such file") != std::string::npos);
  CHECK(complaint("redis://no-such-host.invalid:1").find("no-such-host.invalid:1: ") != std::string::npos);
  // TLS to a plain server, and the other way round
  CHECK(complaint(fmt::format("rediss://{}?verify=off&connect-timeout-ms=500", shared_redis().address())) !=
        "(not failed)");
  CHECK(complaint(fmt::format("redis://{}?connect-timeout-ms=500", shared_tls_redis().address())) !=
        "(not failed)");
  CHECK(complaint(fmt::format("redis://{}?cluster=on", shared_redis().address()))
            .find("cluster support disabled") != std::string::npos);
}

TEST_CASE("redis: a lost connection comes back by itself, and later operations succeed") {
  redis_server server;
  redis_bench b{fmt::format("redis://{}?connections=2", server.address()), 64, 4};
  REQUIRE(served_of(b.finish(b.publish(0, 4))).size() == 4);
  server.ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  CHECK(served_of(b.finish(b.fetch_when_connected(0, 4))).size() == 4);
  server.process().kill();
  std::string why;
  CHECK(eventually([&] {  // each is failed or rejected, none waits
    try {
      b.finish(b.fetch(0, 1));
    } catch (const submission_rejected& e) {
      why = e.what();
    }
    return why.find("Connection refused") != std::string::npos;
  }));
  server.restart();
  CHECK(served_of(b.finish(b.fetch_when_connected(0, 4))).empty());
  CHECK(b.subject->counters().hits == 8);
}

// ---- Cluster ---------------------------------------------------------------------------------------------

TEST_CASE("redis: key slots are those of the server") {
  auto& server = shared_redis_cluster()[0];
  for (const auto& key : {std::string{"a"}, std::string{"{b}c"}, std::string{"x{}y{z}"},
                          std::string("\xff\0{\r\n}", 6), std::string{"}{"}, std::string{"{{}}"},
                          redis::unit_key("kvlease:", "extent", std::string(54, '\xfe'))})
    CHECK(server.ask({"CLUSTER", "KEYSLOT", key}).number == redis::key_slot(key));
}

TEST_CASE("redis: a slot that moves is followed: ASK while it does, MOVED afterwards, nothing is lost") {
  redis_cluster cluster;
  const std::string prefix = "move:";
  // A dozen units of one slot, by a hash tag in the extent's name.
  const bytes extent = "{tag}";
  const auto slot = redis::key_slot("tag");
  const auto number = std::to_string(slot);
  const auto key = [&](int n) { return redis::unit_key(prefix, extent, std::to_string(n)); };
  REQUIRE(redis::key_slot(key(3)) == slot);
  const std::size_t from = slot < 5461 ? 0 : slot < 10923 ? 1 : 2, to = (from + 1) % redis_cluster::size;
  redis_bench b{fmt::format("redis://{}?cluster=on&prefix={}", cluster[to].address(), prefix), 64, 12};
  const auto units = [&](int first, int count, int at_slot) {
    std::vector<unit> all;
    for (int n = 0; n < count; ++n) all.push_back(at(std::to_string(first + n).c_str(), 0, at_slot + n));
    return extent_of(std::move(all), extent.c_str());
  };
  const auto publish = [&](int first, int count) {
    for (int n = 0; n < count; ++n) b.fill(n, static_cast<unsigned char>(first + n + 1));
    return served_of(b.finish(b.subject->as_publishes()->publish(units(first, count, 0)))).size();
  };
  const auto all_served = [&](int count) {
    b.paint();
    const auto served = served_of(b.finish(b.subject->as_fetches()->fetch(units(0, count, 0))));
    bool good = served.size() == static_cast<std::size_t>(count);
    for (int n = 0; n < count; ++n) good = good && b.holds(n, static_cast<unsigned char>(n + 1));
    return good;
  };
  REQUIRE(publish(0, 4) == 4);
  CHECK(cluster[from].ask({"EXISTS", key(0)}).number == 1);
  REQUIRE(cluster[to].ask({"CLUSTER", "SETSLOT", number, "IMPORTING", cluster.id(from)}).text == "OK");
  REQUIRE(cluster[from].ask({"CLUSTER", "SETSLOT", number, "MIGRATING", cluster.id(to)}).text == "OK");
  CHECK(publish(4, 4) == 4);  // new names: the old owner answers ASK
  CHECK(all_served(8));       // four are there still, four are asked for elsewhere
  CHECK(cluster[to].ask({"CLUSTER", "COUNTKEYSINSLOT", number}).number == 4);
  for (int n = 0; n < 4; ++n)
    REQUIRE(cluster[from]
                .ask({"MIGRATE", "127.0.0.1", std::to_string(cluster[to].port()), key(n), "0", "5000"})
                .text == "OK");
  CHECK(all_served(8));
  REQUIRE(cluster[to].ask({"CLUSTER", "SETSLOT", number, "NODE", cluster.id(to)}).text == "OK");
  REQUIRE(cluster[from].ask({"CLUSTER", "SETSLOT", number, "NODE", cluster.id(to)}).text == "OK");
  CHECK(all_served(8));  // MOVED
  CHECK(publish(8, 4) == 4);
  CHECK(all_served(12));
  CHECK(b.subject->counters().failures == 0);
  CHECK(b.subject->as_fetches()->probe(extent, {"0", "11", "12"}) == std::set<bytes>{"0", "11"});
}

TEST_CASE("redis: one server of a cluster is down: its units fail or are rejected, the others are served") {
  redis_cluster cluster;
  for (std::size_t i = 0; i < redis_cluster::size; ++i)
    cluster[i].ask({"CONFIG", "SET", "cluster-require-full-coverage", "no"});
  redis_bench b{fmt::format("redis://{},{}?cluster=on&prefix=p", cluster[0].address(), cluster[1].address()),
                64, 60};
  REQUIRE(served_of(b.finish(b.publish(0, 60))).size() == 60);
  cluster[2].process().kill();
  int served = 0, refused = 0;
  for (int n = 0; n < 60; ++n) {
    const bool gone = redis::key_slot(redis::unit_key("p", "extent", std::to_string(n))) >= 10923;
    try {
      const auto o = b.finish(b.fetch(n, 1));
      CHECK(gone == std::holds_alternative<failed>(*o));
      (gone ? refused : served) += 1;
    } catch (const submission_rejected&) {
      CHECK(gone);
      ++refused;
    }
  }
  CHECK(served > 20);
  CHECK(refused > 5);
}

}  // namespace
}  // namespace kvlease::test
