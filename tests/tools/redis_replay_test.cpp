// The redis provider in the tool: two processes that share a store, and the bench.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/child_process.hpp"
#include "tests/providers/redis_servers.hpp"
#include "tests/temporary_directory.hpp"
#include "tools/bench/redis_bench.hpp"
#include "tools/command_line.hpp"

namespace kvlease::test {
namespace {

constexpr const char* one_process = "redis replay: one process of two";

TEST_CASE("redis replay: one process of two" * doctest::skip()) {
  const std::string uri = std::getenv("KVLEASE_URI"), json = std::getenv("KVLEASE_JSON");
  const char* argv[] = {"kvlease", "replay",      "--backend", uri.c_str(),     "--requests",
                        "2000",    "--instances", "1",         "--local-reuse", "off",
                        "--json",  json.c_str(),  "--quiet"};
  std::ostringstream out, err;
  CHECK(run_command_line(std::size(argv), argv, out, err, false) == 0);
  CHECK(err.str() == "");
}

TEST_CASE("redis: one process publishes 2,000 requests of a trace, another fetches them: no wrong block") {
  redis_server server;
  temporary_directory directory;
  const auto run = [&](const char* name) {
    const auto json = (directory / name).string();
    auto p = child_process::again(
        one_process,
        {{"KVLEASE_URI", "redis+unix:" + server.socket() + "?connections=2"}, {"KVLEASE_JSON", json}});
    const auto status = p.wait(std::chrono::seconds{200});
    INFO(p.output());
    REQUIRE(status == 0);
    std::ifstream in{json};
    return nlohmann::json::parse(in);
  };
  const auto first = run("first"), second = run("second");
  for (const auto& r : {first, second}) {
    CHECK(r.at("wrong_blocks") == 0);
    CHECK(r.at("exposure_bytes") == 0);
  }
  CHECK(first.at("published_blocks") > 1000);
  CHECK(second.at("fetched_blocks") > first.at("fetched_blocks"));
  CHECK(second.at("published_blocks") < 10);
}

TEST_CASE("redis: the bench measures both clients on one server, and refuses what makes no sense") {
  const auto r = bench::run_redis_bench({.kib = {4}, .connections = 2, .mib = 1, .rounds = 1});
  REQUIRE_MESSAGE(r.has_value(), r.error().text);
  REQUIRE(r->cells.size() == 4);
  for (const auto& c : r->cells) CHECK((c.ours.median > 0 && c.raw.median > 0 && c.ratio > 0));
  CHECK(bench::to_json(*r).at("cells").size() == 4);
  for (const bench::redis_options& bad :
       {bench::redis_options{.rounds = 0}, bench::redis_options{.depth = 0},
        bench::redis_options{.connections = 0}, bench::redis_options{.kib = {2048}, .mib = 1}}) {
    const auto got = bench::run_redis_bench(bad);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == errc::invalid);
  }
}

}  // namespace
}  // namespace kvlease::test
