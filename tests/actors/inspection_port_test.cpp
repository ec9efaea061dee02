// The inspection port of the façade, on real threads: whatever is stuck.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <sstream>
#include <string>
#include <thread>

#include "src/include/kvlease/runtime.hpp"
#include "src/journal_file.hpp"
#include "src/paged_manager.hpp"
#include "tests/actors/stuck.hpp"
#include "tests/world.hpp"
#include "tools/inspect/replay_command.hpp"

namespace kvlease::test {
namespace {

using wall = std::chrono::steady_clock;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const actor_line& line_of(const inspection_snapshot& s, actor_kind k) {
  const auto it = std::ranges::find(s.actors, k, &actor_line::kind);
  REQUIRE(it != s.actors.end());
  return *it;
}

struct real_options {
  bool journal = true;
  std::string file;
  std::shared_ptr<gate> stuck_manager_at;
};

std::unique_ptr<runtime> real_runtime(const real_options& r, std::shared_ptr<scripted_provider> provider) {
  auto device = std::make_shared<host_device>(host_stream::threaded);
  paged_manager_options m;
  m.tokens_per_block = 4;
  m.pool_groups = {{64, 64}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  runtime_options o;
  o.profile = supported_profile("scripted-1");
  o.device = device;
  o.manager = *paged_manager::make(m, {*device->allocate_device(64 * 64)});
  if (r.stuck_manager_at) o.manager = std::make_shared<stuck_manager>(o.manager, r.stuck_manager_at, true);
  o.open_provider = [provider](const provider_context&) { return provider; };
  o.staging_slots = {16};
  o.journal = r.journal;
  o.journal_file = r.file;
  auto made = runtime::start(o);
  REQUIRE(made.has_value());
  return *std::move(made);
}

request_id admit(runtime& rt) {
  request_spec spec;
  for (std::uint32_t i = 1; i <= 13; ++i) spec.prompt.push_back(i);
  return rt.admit(spec).get()->request;
}

/// Answers once the memory is back; or, where nothing ends, once it is submitted.
operation_id fetch(runtime& rt, request_id request, bool to_its_end) {
  const auto ready = std::make_shared<std::promise<void>>(), over = std::make_shared<std::promise<void>>();
  lease_events l;
  l.ready = [ready](lease_id, const auto&) { ready->set_value(); };
  const auto lease = *rt.lend(direction::fetch, request, {0, 8}, l).get();
  REQUIRE(ready->get_future().wait_for(5s) == std::future_status::ready);
  operation_events e;
  e.released = [over](const auto&) { over->set_value(); };
  const auto op = rt.submit(direction::fetch, lease, request, *transfer_timeout::make(5s), e).get();
  REQUIRE(op.has_value());
  if (to_its_end) REQUIRE(over->get_future().wait_for(5s) == std::future_status::ready);
  return *op;
}

TEST_CASE("inspection: a real runtime, its journal on file and checked") {
  const auto path =
      (std::filesystem::temp_directory_path() / ("kvlease-real-" + std::to_string(::getpid()))).string();
  auto provider = std::make_shared<scripted_provider>();
  provider->on_attempt = [](scripted_attempt& a) {
    a.deliver_all();
    a.access = access_state::ended;
  };
  auto rt = real_runtime({.file = path}, provider);
  const auto port = rt->inspection();
  for (int i = 0; i < 50; ++i) {
    const auto request = admit(*rt);
    fetch(*rt, request, true);
    CHECK(rt->free(request).get().has_value());
  }
  std::uint64_t lost = 0;
  const auto events = port->events(0, 100'000, lost);
  CHECK(lost == 0);
  CHECK(events.size() > 50 * 15);
  CHECK(std::ranges::count(events, "operation_released", &journal_event::what) == 50);
  CHECK(port->events(events.back().sequence - 10, 3, lost).size() == 3);
  CHECK(port->state() == health::healthy);
  CHECK(port->metrics().operations_total.at("fetch/delivered") == 50);
  const auto s = port->look();
  CHECK(s.operations.empty());
  REQUIRE(s.providers.size() == 1);
  CHECK(s.providers[0].workers == 3);
  CHECK(rt->stop(2s).stopped);
  rt.reset();
  // It may be kept longer than the runtime, and holds nothing of it.
  const auto after = port->look();
  CHECK_FALSE(line_of(after, actor_kind::adapter).answered);
  CHECK_FALSE(port->why({subject_kind::slot, "0"}).found);

  std::ostringstream out, err;
  CHECK(inspect::run_replay({{path}}, out, err) == 0);
  CHECK(
      contains(out.str(),
               "every rule that a journal shows holds in these records; 0 operations and 0 leases are open"));
  out.str("");
  CHECK(inspect::run_replay({{path}, true}, out, err) == 0);
  CHECK(contains(out.str(), "\"broken\":null"));
  CHECK(inspect::run_replay({{"/no/such/file"}}, out, err) == 2);
  CHECK(contains(err.str(), "/no/such/file"));
  std::remove(path.c_str());
}

TEST_CASE("7.1 inspection: replay names the rule and the record, and ends with 1") {
  const auto path =
      (std::filesystem::temp_directory_path() / ("kvlease-broken-" + std::to_string(::getpid()))).string();
  const incarnation of{7};
  const auto request = (std::uint64_t{7} << id_sequence_bits) + 3;
  auto j = std::make_shared<journal>(of, 64, wall::now());
  {
    const auto file = journal_file_writer::open(j, path);
    REQUIRE(file.has_value());
    j->write(wall::now(), {.kind = journal_kind::actor_up, .from = actor_kind::manager});
    for (int i = 0; i < 2; ++i)
      j->write(wall::now(), {.kind = journal_kind::request_admitted, .request = request});
  }
  std::ostringstream out, err;
  CHECK(inspect::run_replay({{path}}, out, err) == 1);
  CHECK(contains(out.str(), "rule 7.1 is broken: request_admitted: request 7.3 is not new"));
  CHECK(contains(out.str(), "record 3 at"));
  out.str("");
  CHECK(inspect::run_replay({{path}, true}, out, err) == 1);
  CHECK(contains(out.str(), "\"rule\":\"7.1\",\"sequence\":3"));
  // Of several, one a runtime, the worst counts.
  out.str("");
  CHECK(inspect::run_replay({{path, path}}, out, err) == 1);
  CHECK(contains(out.str(), path + ": journal of runtime 7: 3 records\nrule 7.1"));
  CHECK(inspect::run_replay({{path, "/no/such/file", path}}, out, err) == 2);
  std::remove(path.c_str());
}

TEST_CASE("inspection: without a journal the port answers all the same") {
  auto rt = real_runtime({.journal = false}, std::make_shared<scripted_provider>());
  const auto op = fetch(*rt, admit(*rt), false);
  std::uint64_t lost = 0;
  CHECK(rt->inspection()->events(0, 10, lost).empty());
  CHECK(rt->inspection()->why({subject_kind::operation, to_string(op)}).found);
}

TEST_CASE("7.2 inspection: a stuck actor is shown as stuck, and every call answers within 150 ms") {
  auto g = std::make_shared<gate>();
  auto rt = real_runtime({.stuck_manager_at = g}, std::make_shared<scripted_provider>());
  const auto request = admit(*rt);
  const auto op = fetch(*rt, request, false);
  const auto port = rt->inspection();
  static_cast<void>(port->look());
  const auto stuck = rt->commit(request, 0);
  REQUIRE(g->holds());
  std::this_thread::sleep_for(150ms);
  constexpr auto bound = 150ms + 100ms;  // a loaded machine's slack
  for (int i = 0; i < 3; ++i) {
    auto began = wall::now();
    const auto s = port->look();
    CHECK(wall::now() - began < bound);
    CHECK(line_of(s, actor_kind::manager).state == "stuck");
    CHECK_FALSE(line_of(s, actor_kind::manager).answered);
    CHECK(line_of(s, actor_kind::manager).age > 100ms);
    REQUIRE(line_of(s, actor_kind::manager).oldest_unanswered.has_value());
    CHECK(*line_of(s, actor_kind::manager).oldest_unanswered > 100ms);
    CHECK(line_of(s, actor_kind::adapter).answered);
    CHECK(s.operations.size() == 1);
    began = wall::now();
    const auto e = port->why({subject_kind::request, to_string(request)});
    CHECK(wall::now() - began < bound);
    CHECK(e.found);
    CHECK(contains(e.unknown.at(0), "the manager did not answer"));
    CHECK(port->why({subject_kind::operation, to_string(op)}).unknown.empty());
    began = wall::now();
    static_cast<void>(port->metrics());
    static_cast<void>(port->state());
    CHECK(wall::now() - began < 10ms);
  }
  CHECK(line_of(port->look(), actor_kind::manager).mailbox < 4);  // it is not asked again and again
  g->open();
  REQUIRE(stuck.valid());
  for (int i = 0; i < 100 && !line_of(port->look(), actor_kind::manager).answered; ++i)
    std::this_thread::sleep_for(10ms);
  CHECK(line_of(port->look(), actor_kind::manager).answered);
}

}  // namespace
}  // namespace kvlease::test
