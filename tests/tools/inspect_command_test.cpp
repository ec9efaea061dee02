// `kvlease inspect` over a served fake: what is printed, and the exit statuses.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/fake_inspection.hpp"
#include "tools/command_line.hpp"
#include "tools/serve/http_server.hpp"
#include "tools/serve/inspection_routes.hpp"

namespace {

using namespace kvlease;
using namespace kvlease::serve;
using nlohmann::json;

struct said {
  int status = 0;
  std::string out, err;
};

said run(std::vector<std::string> args) {
  std::vector<const char*> argv{"kvlease"};
  for (const auto& a : args) argv.push_back(a.c_str());
  std::ostringstream out, err;
  const int status = run_command_line(static_cast<int>(argv.size()), argv.data(), out, err, false);
  return {status, out.str(), err.str()};
}

struct world {
  world() {
    path = directory.file("s");
    routes = std::make_unique<inspection_routes>(std::vector<std::shared_ptr<inspection_port>>{port});
    server = *http_server::start(
        {.socket_path = path},
        [this](const http_request& r, const http_reply& reply) { reply(routes->answer(r)); });
  }
  said inspect(std::vector<std::string> args) const {
    args.insert(args.begin(), {"inspect", "--socket", path});
    return run(std::move(args));
  }
  test::scratch_directory directory;
  std::string path;
  std::shared_ptr<test::fake_inspection> port = std::make_shared<test::fake_inspection>();
  std::unique_ptr<inspection_routes> routes;
  std::unique_ptr<http_server> server;
};

TEST_CASE("inspect command: the exit status is the target's health") {
  world w;
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"health"}, {"ls"}, {"top"}, {"snapshot"}, {"metrics"}, {"trace"}, {"ls", "pools", "--json"}}) {
    w.port->set(health::healthy);
    CHECK_MESSAGE(w.inspect(args).status == 0, args[0]);
    w.port->set(health::held);
    CHECK_MESSAGE(w.inspect(args).status == 1, args[0]);
    w.port->set(health::unproven);
    CHECK_MESSAGE(w.inspect(args).status == 2, args[0]);
  }
}

TEST_CASE("inspect command: a target that is not there is status 3, each command") {
  for (const auto* c : {"health", "ls", "top", "snapshot", "metrics", "trace", "watch"}) {
    const auto r = run({"inspect", "--socket", "/nowhere/s", c});
    CHECK_MESSAGE(r.status == 3, c);
    CHECK(r.err.find("/nowhere/s") != std::string::npos);
    CHECK(r.out.empty());
  }
  CHECK(run({"inspect", "--socket", "/nowhere/s", "why", "lease", "1.5"}).status == 3);
  CHECK(run({"inspect", "--file", "/nowhere/f", "ls"}).status == 3);
}

TEST_CASE("inspect command: bad usage is status 64, so that no monitor takes it for trouble") {
  world w;
  CHECK(run({"inspect"}).status == 64);
  CHECK(run({"inspect", "frobnicate"}).status == 64);
  CHECK(w.inspect({"ls", "cats"}).status == 64);
  CHECK(w.inspect({"ls", "cats"}).err.find("operations") != std::string::npos);
  CHECK(w.inspect({"why", "lease"}).status == 64);
  CHECK(w.inspect({"why", "dog", "1.5"}).status == 64);
  CHECK(run({"inspect", "--socket", "a", "--file", "b", "ls"}).status == 64);
  CHECK(run({"inspect", "--help"}).status == 0);
}

TEST_CASE("inspect command: every --json output has a schema_version") {
  world w;
  w.port->happens("exposed", actor_kind::deadline_arbiter, {1, 0, 0, 0});
  for (const auto& args : std::vector<std::vector<std::string>>{{"health"},
                                                                {"ls"},
                                                                {"ls", "actors"},
                                                                {"top"},
                                                                {"snapshot"},
                                                                {"metrics"},
                                                                {"trace"},
                                                                {"why", "lease/1.5"},
                                                                {"watch", "--from-start", "--count", "1"}}) {
    auto with = args;
    with.emplace_back("--json");
    const auto r = w.inspect(with);
    const auto j = json::parse(r.out, nullptr, false);
    REQUIRE_MESSAGE(!j.is_discarded(), args[0]);
    CHECK_MESSAGE(j.at("schema_version") == 1, args[0]);
    CHECK(r.out.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("inspect command: why") {
  world w;
  const auto held = w.inspect({"why", "lease", "1.5"});
  CHECK(held.status == 1);
  CHECK(held.out.find("backend_end_unproven: lease 1.5") != std::string::npos);
  CHECK(w.inspect({"why", "lease/1.5"}).out == held.out);
  CHECK(w.inspect({"why", "slot", "kvlease-part-0/2"}).status == 1);
  CHECK(w.inspect({"why", "slot/kvlease-part-0/2"}).status == 1);
  const auto gone = w.inspect({"why", "lease", "1.99"});
  CHECK(gone.status == 4);
  CHECK(gone.out.find("not known") != std::string::npos);
  CHECK(w.inspect({"why", "lease", "../../snapshot?x=%00"}).status == 4);
}

TEST_CASE("inspect command: health covers all runtimes, why finds the one that knows") {
  test::scratch_directory d;
  auto first = std::make_shared<test::fake_inspection>(), second = std::make_shared<test::fake_inspection>();
  first->set(health::healthy);
  second->set(health::unproven);
  first->ignorant = true;
  const inspection_routes routes{{first, second}};
  const auto server =
      *http_server::start({.socket_path = d.file("s")},
                          [&](const http_request& r, const http_reply& reply) { reply(routes.answer(r)); });
  const auto inspect = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"inspect", "--socket", d.file("s")});
    return run(std::move(args));
  };
  const auto all = inspect({"health"});
  CHECK(all.status == 2);
  CHECK(all.out.find("of 2 runtimes, the worst: unproven") == 0);
  CHECK(inspect({"--runtime", "0", "health"}).status == 0);
  CHECK(inspect({"--runtime", "1", "health"}).status == 2);
  CHECK(inspect({"--runtime", "2", "health"}).status == 64);
  CHECK(json::parse(inspect({"health", "--json"}).out)["runtimes"].size() == 2);
  CHECK(inspect({"why", "lease", "1.5"}).status == 1);
  CHECK(inspect({"--runtime", "0", "why", "lease", "1.5"}).status == 4);
  CHECK(inspect({"ls", "leases"}).err == "runtime 0 of 2; --runtime N shows another\n");
  CHECK(inspect({"--runtime", "0", "ls", "leases"}).err.empty());
}

TEST_CASE("inspect command: a saved snapshot answers what the process did") {
  world w;
  const auto saved = w.inspect({"snapshot"});
  CHECK(saved.status == 1);
  const auto file = w.directory.file("snapshot.json");
  std::ofstream{file} << saved.out;
  w.server.reset();
  CHECK(run({"inspect", "--file", file, "why", "lease", "1.5"}).out.find("access end of attempt 1.12") !=
        std::string::npos);
  CHECK(run({"inspect", "--file", file, "ls", "operations"}).out.find("1.7") != std::string::npos);
  CHECK(run({"inspect", "--file", file, "health"}).status == 1);
  CHECK(run({"inspect", "--file", file, "top"}).status == 1);
  CHECK(run({"inspect", "--file", file, "metrics"}).out.find("kvlease_health{runtime=\"0\"} 1") !=
        std::string::npos);
  CHECK(json::parse(run({"inspect", "--file", file, "trace"}).out).contains("traceEvents"));
  CHECK(run({"inspect", "--file", file, "watch"}).status == 64);
  CHECK(run({"inspect", "--file", file, "watch"}).err.find("nothing happens in it") != std::string::npos);
  auto bare = json::parse(saved.out);
  bare.erase("metrics");
  bare.erase("events");
  std::ofstream{file} << bare;
  for (const auto* c : {"metrics", "trace"}) {
    CHECK(run({"inspect", "--file", file, c}).status == 64);
    CHECK(run({"inspect", "--file", file, c}).err.find("was saved without") != std::string::npos);
  }
  std::ofstream{file} << "{\"schema_version\":2,\"operations\":[]}";
  const auto newer = run({"inspect", "--file", file, "ls"});
  CHECK(newer.status == 3);
  CHECK(newer.err.find("schema_version 2") != std::string::npos);
  std::ofstream{file} << "no json";
  CHECK(run({"inspect", "--file", file, "ls"}).status == 3);
}

TEST_CASE("inspect command: watch tells events, and that some were lost") {
  world w;
  w.port->happens("exposed", actor_kind::deadline_arbiter, {test::id_of<operation_id>(7).value, 0, 0, 0});
  w.port->happens("settled", actor_kind::deadline_arbiter, {test::id_of<operation_id>(7).value, 0, 0, 0});
  const auto r = w.inspect({"watch", "--from-start", "--count", "2"});
  CHECK(r.out.find("exposed") != std::string::npos);
  CHECK(r.out.find("operation 1.7") != std::string::npos);
}

TEST_CASE("inspect command: the metrics and the trace are what the process serves") {
  world w;
  CHECK(w.inspect({"metrics"}).out.find("kvlease_exposure_bytes_total{runtime=\"0\"} 0") !=
        std::string::npos);
  CHECK(json::parse(w.inspect({"trace"}).out).contains("traceEvents"));
  CHECK(w.inspect({"--runtime", "3", "metrics"}).status == 64);
}

}  // namespace
