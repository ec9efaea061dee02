// Requests to the service: what is accepted, the counts that come back, and how a drain ends.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/tools/fake_inspection.hpp"
#include "tools/inspect/http_client.hpp"
#include "tools/serve/host_service.hpp"

namespace {

using namespace kvlease;
using namespace kvlease::serve;
using nlohmann::json;

serve_options small() {
  serve_options o;
  o.tokens_per_block = 4;
  o.block_bytes = 256;
  o.pool_blocks = 64;
  o.staging_slots = 8;
  o.store_bytes = 1 << 20;
  o.concurrency = 4;
  o.timeout = "2s";
  return o;
}

serve_plan plan_of(const serve_options& o) {
  auto p = plan_serve(o);
  REQUIRE_MESSAGE(p.has_value(), (p ? "" : p.error().text));
  return *std::move(p);
}

TEST_CASE("serve options: what is out of range is named") {
  const auto refused = [](auto change) {
    auto o = small();
    change(o);
    const auto p = plan_serve(o);
    REQUIRE(!p.has_value());
    return p.error().text;
  };
  CHECK(refused([](auto& o) { o.instances = 0; }).find("--instances is 0") != std::string::npos);
  CHECK(refused([](auto& o) { o.block_bytes = 100; }).find("--block-bytes") != std::string::npos);
  CHECK(refused([](auto& o) { o.tcp = "0.0.0.0:80"; }).find("--tcp: '0.0.0.0:80'") != std::string::npos);
  CHECK(refused([](auto& o) { o.timeout = "soon"; }).find("--timeout") != std::string::npos);
  CHECK(refused([](auto& o) { o.faults = "gremlin=1"; }).find("--faults") != std::string::npos);
  CHECK(refused([](auto& o) { o.backend = "nowhere:"; }).find("--backend") != std::string::npos);
  CHECK(refused([](auto& o) { o.device = "toaster"; }).find("--device") != std::string::npos);
  CHECK(refused([](auto& o) { o.local_reuse = "maybe"; }).find("--local-reuse") != std::string::npos);
}

TEST_CASE("serve request: the body's members are checked, each with a reason") {
  auto o = small();
  o.instances = 2;
  auto plan = plan_of(o);
  const auto ask = parse_request(R"({"tokens":[1,2,3],"salt":7,"instance":1,"timeout_seconds":1.5})", plan);
  REQUIRE(ask.has_value());
  CHECK(ask->tokens == std::vector<std::uint32_t>{1, 2, 3});
  CHECK(ask->salt == 7);
  CHECK(ask->instance == 1);
  CHECK(ask->timeout->value() == std::chrono::milliseconds{1500});
  for (const auto* bad :
       {"", "[]", "5", "{", "{}", R"({"tokens":[]})", R"({"tokens":5})", R"({"tokens":[-1]})",
        R"({"tokens":[1.5]})", R"({"tokens":["1"]})", R"({"tokens":[2147483648]})",
        R"({"tokens":[1],"salt":-1})", R"({"tokens":[1],"instance":2})",
        R"({"tokens":[1],"timeout_seconds":0})", R"({"tokens":[1],"timeout_seconds":1e300})",
        R"({"tokens":[1],"timeout_seconds":"1"})", R"({"tokens":[1],"unknown":1})",
        R"({"tokens":[1],"drill":{}})"})
    CHECK_MESSAGE(!parse_request(bad, plan).has_value(), bad);
  json many{{"tokens", std::vector<int>(64 * 4 + 1, 1)}};
  CHECK(parse_request(many.dump(), plan).error().text.find("the pool holds 256") != std::string::npos);
  plan.drills = true;
  CHECK(parse_request(R"({"tokens":[1],"drill":{"read_guard_seconds":1}})", plan)->drill.read_guard.count() >
        0);
  CHECK(!parse_request(R"({"tokens":[1],"drill":{"x":1}})", plan).has_value());
  CHECK(!parse_request(R"({"tokens":[1],"drill":{"keep_lease_seconds":-1}})", plan).has_value());
}

std::vector<std::uint32_t> tokens(std::size_t n, std::uint32_t from = 0) {
  std::vector<std::uint32_t> t(n);
  std::iota(t.begin(), t.end(), from);
  return t;
}

struct floor_and_instances {
  explicit floor_and_instances(const serve_options& o)
      : plan{plan_of(o)}, floor{plan, plan.instances.pool_blocks} {
    for (std::size_t n = 0; n < plan.instances.instances; ++n) {
      auto made = replay::make_instance(plan.instances, n, [](const fatal_record&) {});
      REQUIRE(made.has_value());
      instances.push_back(*std::move(made));
    }
  }
  ~floor_and_instances() {
    floor.timer.close();
    instances.clear();
  }
  request_answer run(std::size_t on, std::vector<std::uint32_t> t) {
    request_ask ask;
    ask.tokens = std::move(t);
    auto a = run_request(floor, *instances[on], on, ask);
    REQUIRE_MESSAGE(a.has_value(), (a ? "" : a.error().text));
    return *std::move(a);
  }
  serve_plan plan;
  request_floor floor;
  std::vector<std::unique_ptr<replay::instance>> instances;
};

TEST_CASE("serve request: published here, fetched there, hit again") {
  auto o = small();
  o.instances = 2;
  floor_and_instances f{o};
  const auto first = f.run(0, tokens(65));  // 16 whole blocks and one token: more than there are slots
  CHECK(first.prompt_blocks == 16);
  CHECK(first.hit_blocks == 0);
  CHECK(first.fetched_blocks == 0);
  CHECK(first.published_blocks == 16);
  const auto second = f.run(1, tokens(65));
  CHECK(second.fetched_blocks == 16);
  CHECK(second.published_blocks == 0);
  CHECK(second.wrong_blocks == 0);
  CHECK(f.run(1, tokens(65)).hit_blocks == 16);
  CHECK(f.run(0, tokens(3)).prompt_blocks == 0);
}

TEST_CASE("serve request: under every fault that ends, nothing wrong is served") {
  auto o = small();
  o.instances = 2;
  o.faults = "miss=0.05,partial=0.1,fail=0.1,reject=0.05,late=0.1,stubborn=0.1,unproven=0.05";
  o.timeout = "400ms";
  o.local_reuse = "off";
  floor_and_instances f{o};
  for (std::uint32_t i = 0; i < 60; ++i) {
    request_ask ask;
    ask.tokens = tokens(41, i % 6 * 1000);
    const auto a = run_request(f.floor, *f.instances[i % 2], i % 2, ask);
    if (a) CHECK(a->wrong_blocks == 0);
  }
  CHECK(f.floor.wrong == 0);
  for (auto& i : f.instances) CHECK(i->lender->check_exposure().get().value_or(1) == 0);
}

struct service {
  explicit service(serve_options o) {
    o.socket = directory.file("s");
    path = o.socket;
    auto started = host_service::start(plan_of(o), [this](std::size_t, const fatal_record&) { ++fatals; });
    REQUIRE_MESSAGE(started.has_value(), (started ? "" : started.error().text));
    host = *std::move(started);
  }
  unsigned get(std::string_view target) const {
    const auto a = inspect::http_get(path, target, std::chrono::seconds{5});
    return a ? a->status : 0;
  }
  test::scratch_directory directory;
  std::string path;
  std::atomic<int> fatals{0};
  std::unique_ptr<host_service> host;
};

TEST_CASE("serve: an idle service drains at once, and shows itself until then") {
  service s{small()};
  CHECK(s.get("/health") == 200);
  CHECK(s.get("/request") == 405);
  CHECK(s.get("/metrics") == 200);
  const auto r = s.host->drain();
  CHECK(r.good());
  for (const auto& one : r.runtimes) {
    CHECK(one.retained.empty());
    CHECK(one.exposure_bytes == 0);
  }
}

TEST_CASE("serve: two services can't have one socket") {
  service s{small()};
  auto o = small();
  o.socket = s.path;
  const auto second = host_service::start(plan_of(o), [](std::size_t, const fatal_record&) {});
  REQUIRE(!second.has_value());
  CHECK(second.error().text.find(s.path) != std::string::npos);
  CHECK(s.get("/health") == 200);
}

}  // namespace
