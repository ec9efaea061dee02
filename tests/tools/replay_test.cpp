// The replay end to end, on real threads, small; and the command line's refusals.
#include "tools/replay/replay.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tools/command_line.hpp"

using namespace kvlease;
using namespace kvlease::replay;

namespace {

replay_options small(std::size_t requests = 60) {
  replay_options o;
  o.requests = requests;
  o.block_bytes = 256;
  o.concurrency = 4;
  o.staging_slots = 64;
  o.quiet = true;
  return o;
}

report replayed(const replay_options& o) {
  const auto plan = plan_replay(o);
  INFO((plan ? std::string{} : plan.error().text));
  REQUIRE(plan.has_value());
  const auto r = run_replay(*plan, nullptr);
  INFO((r ? std::string{} : r.error().text));
  REQUIRE(r.has_value());
  for (const auto& p : r->problems) MESSAGE(p);
  return *r;
}

struct ended {
  int status;
  std::string out, err;
};

ended run_command(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kvlease");
  std::ostringstream out, err;
  const int status = run_command_line(static_cast<int>(arguments.size()), arguments.data(), out, err, false);
  return {status, out.str(), err.str()};
}

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("kvlease-" + std::to_string(::getpid()) + "-" + name))
      .string();
}

}  // namespace

TEST_CASE("replay: one request at a time fetches what the oracle says") {
  for (const auto* workload : {"conversation", "agents"}) {
    auto o = small();
    o.workload = workload;
    o.concurrency = 1;
    o.local_reuse = "off";
    const auto r = replayed(o);
    CHECK(r.exit_status() == 0);
    CHECK(r.fetched_blocks == r.oracle_hit_blocks);
    CHECK(r.fetched_blocks > 0);
    CHECK(r.local_hit_blocks == 0);
    CHECK(r.slots.free == r.slots.total);
  }
}

TEST_CASE("replay: leases in a row when a request does not fit the staging") {
  auto o = small();
  o.concurrency = 1;
  o.local_reuse = "off";
  o.staging_slots = 3;
  const auto r = replayed(o);
  CHECK(r.exit_status() == 0);
  CHECK(r.fetched_blocks == r.oracle_hit_blocks);
}

TEST_CASE("replay: aborts and faults, and the same seed gives the same outcomes") {
  auto o = small(150);
  o.concurrency = 1;
  o.abort = 0.2;
  o.faults = "miss=0.05,partial=0.1,fail=0.05,reject=0.05,late=0.1,stubborn=0.05";
  o.late = "2ms";
  const auto first = replayed(o), again = replayed(o);
  CHECK(first.exit_status() == 0);
  CHECK(first.aborted > 0);
  CHECK(first.outcomes.cancelled > 0);
  CHECK(first.outcomes.rejected > 0);
  CHECK(first.outcome_digest == again.outcome_digest);
  o.seed = 2;
  CHECK(replayed(o).outcome_digest != first.outcome_digest);
}

TEST_CASE("replay: everything at once under concurrency holds every invariant") {
  auto o = small(300);
  o.concurrency = 16;
  o.abort = 0.15;
  o.faults = "miss=0.02,partial=0.05,fail=0.05,reject=0.02,late=0.1,unproven=0.02,stubborn=0.03";
  o.timeout = "400ms";
  o.late = "50ms";
  for (o.seed = 1; o.seed <= 3; ++o.seed) {
    const auto r = replayed(o);
    CHECK(r.exit_status() == 0);
    CHECK(r.wrong_blocks == 0);
    CHECK(r.exposure_bytes == 0);
    CHECK(r.retained_operations > 0);
    CHECK(r.operations_open == 0);
    CHECK(r.slots.free == r.slots.total);
  }
}

TEST_CASE("replay: a hang fails on time and ends in fatal, its slots awaiting proof") {
  auto o = small(400);
  o.faults = "hang=0.05";
  o.timeout = "100ms";
  const auto r = replayed(o);
  CHECK(r.exit_status() == 3);
  CHECK(r.fatal);
  CHECK(r.outcomes.timeout > 0);
  CHECK(r.not_run > 0);
  CHECK(r.slots.awaiting_proof > 0);
  CHECK(r.slots_conserved);
  CHECK(r.exposure_bytes == 0);
}

TEST_CASE("replay: an escape has no proof, so it ends in fatal") {
  auto o = small(400);
  o.faults = "escape=0.05";
  o.timeout = "100ms";
  const auto r = replayed(o);
  CHECK(r.exit_status() == 3);
  CHECK(r.exposure_bytes == 0);
}

TEST_CASE("replay: access that ends within the grace is no fatal") {
  auto o = small(100);
  o.faults = "late=0.3";
  o.timeout = "500ms";
  o.late = "300ms";  // a silent one takes up to twice that
  const auto r = replayed(o);
  CHECK(r.exit_status() == 0);
  CHECK(r.outcomes.timeout > 0);
  CHECK_FALSE(r.fatal);
}

TEST_CASE("replay: 8.3 a fault that was asked for and struck no time is no pass") {
  auto o = small(3);
  o.faults = "unproven=0.0001";
  const auto r = replayed(o);
  CHECK(r.missed_faults() == std::vector<std::string>{"unproven"});
  CHECK(r.exit_status() == 1);
}

TEST_CASE("replay: the report's exit status") {
  report r;
  CHECK(r.exit_status() == 0);
  r.fatal = true;
  CHECK(r.exit_status() == 3);
  r.wrong_blocks = 1;
  CHECK(r.exit_status() == 1);
  r = {};
  r.exposure_bytes = 1;
  CHECK(r.exit_status() == 1);
  r = {};
  r.slots_conserved = false;
  CHECK(r.exit_status() == 1);
  r = {};
  r.operations_open = 1;
  CHECK(r.exit_status() == 1);
  r = {};
  r.problems.emplace_back("x");
  CHECK(r.exit_status() == 1);
}

TEST_CASE("replay: the JSON report has every field of the contract") {
  const auto path = temporary("report.json");
  const auto e = run_command({"replay", "--requests", "20", "--block-bytes", "256", "--json", path.c_str()});
  CHECK(e.status == 0);
  std::ifstream in{path};
  const auto j = nlohmann::json::parse(in);
  for (const auto* field : {"schema_version",
                            "requests",
                            "block_refs",
                            "oracle_hit_blocks",
                            "fetched_blocks",
                            "published_blocks",
                            "outcomes",
                            "not_run",
                            "faults_struck",
                            "wrong_blocks",
                            "exposure_bytes",
                            "slots",
                            "slots_conserved",
                            "operations_open",
                            "fatal",
                            "seconds",
                            "operations_per_second",
                            "bytes_fetched",
                            "bytes_published",
                            "latency",
                            "seed"})
    CHECK_MESSAGE(j.contains(field), field);
  for (const auto* field : {"delivered", "partial", "miss", "failed", "cancelled", "timeout", "rejected"})
    CHECK_MESSAGE(j["outcomes"].contains(field), field);
  for (const auto* field : {"total", "free", "lent", "awaiting_proof", "quarantined"})
    CHECK_MESSAGE(j["slots"].contains(field), field);
  for (const auto* field : {"submit_to_outcome", "outcome_to_proof", "proof_to_released"})
    CHECK_MESSAGE(j["latency"][field].contains("p99_us"), field);
  CHECK(j["requests"] == 20);
  CHECK(e.out.find("0 wrong blocks, 0 exposure bytes") != std::string::npos);
  std::filesystem::remove(path);
}

TEST_CASE("command line: bad input is one line that says what and where, status 2") {
  const auto bad_line = temporary("bad.jsonl");
  std::ofstream{bad_line} << R"({"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]})"
                          << "\n{\"timestamp\": 0, \"input_length\": \"ten\"}\n";
  struct wrong {
    std::vector<const char*> arguments;
    const char* says;
  };
  const std::vector<wrong> all{
      {{"replay", "--trace", "/no/such/file.jsonl"}, "/no/such/file.jsonl"},
      {{"replay", "--trace", bad_line.c_str()}, ":2:"},
      {{"replay", "--format", "csv", "--trace", bad_line.c_str()}, "csv"},
      {{"replay", "--nonsense"}, "--nonsense"},
      {{"nonsense"}, "nonsense"},
      {{}, "subcommand"},
      {{"replay", "--requests", "many"}, "many"},
      {{"replay", "--requests", "0"}, "0"},
      {{"replay", "--generate", "poetry"}, "poetry"},
      {{"replay", "--faults", "gremlin=0.5"}, "gremlin"},
      {{"replay", "--faults", "fail=2"}, "2"},
      {{"replay", "--timeout", "soon"}, "soon"},
      {{"replay", "--timeout", "0s"}, "finite positive"},
      {{"replay", "--instances", "0"}, "--instances is 0"},
      {{"replay", "--concurrency", "0"}, "--concurrency is 0"},
      {{"replay", "--block-bytes", "7"}, "--block-bytes is 7"},
      {{"replay", "--block-bytes", "100"}, "multiple of 8"},
      {{"replay", "--staging-slots", "0"}, "--staging-slots is 0"},
      {{"replay", "--pool-blocks", "1", "--requests", "50"}, "--pool-blocks is 1"},
      {{"replay", "--abort", "1.5"}, "--abort is 1.5"},
      {{"replay", "--backend", "carrier-pigeon:"}, "carrier-pigeon:"},
      {{"replay", "--local-reuse", "maybe"}, "maybe"},
      {{"replay", "--role", "spectator"}, "spectator"},
      {{"replay", "--tokens-per-block", "7", "--trace", bad_line.c_str()}, ":2:"},
      {{"replay", "--json", "/no/such/folder/r.json"}, "/no/such/folder/r.json"},
      {{"names", "--vectors", "/no/such/file.json"}, "/no/such/file.json"},
  };
  for (const auto& w : all) {
    const auto e = run_command(w.arguments);
    CAPTURE(w.says);
    CAPTURE(e.err);
    CHECK(e.status == 2);
    CHECK(e.out.empty());
    CHECK(e.err.find(w.says) != std::string::npos);
    CHECK(std::count(e.err.begin(), e.err.end(), '\n') == 1);
  }
  std::filesystem::remove(bad_line);
}
