// Semantics 4.7-4.10: settlement, containment, progress, shutdown. T is 5 s; virtual time.
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>

#include "actors/guard.hpp"
#include "src/include/kvlease/runtime.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

const broken_by guards[] = {
    {mutation::settle_after_fatal, "4.7 *"},  {mutation::dispute_without_clock, "4.7 *"},
    {mutation::fatal_repeats, "4.8 fatal *"}, {mutation::deadlines_wait_for_calls, "4.9 *"},
    {mutation::shutdown_admits, "4.10 *"},    {mutation::shutdown_without_drain, "4.10 *"},
    {mutation::stop_with_owners, "4.10 *"},
};

using lines = std::vector<std::string>;

/// What the arbiter says of each retirement owner, by request; the registrations' is "0.0".
std::map<std::string, std::map<std::string, std::string>> owners(world& w) {
  const auto s = w.look();
  REQUIRE(s.has_value());
  std::map<std::string, std::map<std::string, std::string>> all;
  for (const auto& entry : s->actors)
    if (entry.kind == actor_kind::deadline_arbiter)
      for (const auto& row : entry.report.rows) {
        std::map<std::string, std::string> facts{row.facts.begin(), row.facts.end()};
        all.emplace(facts["request"], facts);
      }
  return all;
}

struct two_fetches {
  explicit two_fetches(world_options o = {}) : w{std::move(o)} {
    first_request = w.admit(13);
    second_request = w.admit(13, 100);
    start = w.now();
    first = w.fetch(first_request);
    second = w.fetch(second_request);
  }
  void tell_arbiter(auto message) { w.in().send(w.in().parts.actors->deadline_arbiter, std::move(message)); }
  scripted_attempt& attempt(std::size_t i) { return *w.provider->attempts.at(i); }

  world w;
  request_id first_request, second_request;
  operation_id first, second;
  time_point start;
};

/// Until `holds` or five seconds have passed.
template <class F>
bool soon(F holds) {
  const auto end = std::chrono::steady_clock::now() + 5s;
  while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return holds();
}

}  // namespace

TEST_CASE("4.7 settle authorises the release of one claim") {
  two_fetches f;
  for (const std::size_t i : {0, 1}) f.attempt(i).deliver_all();
  f.attempt(0).end_access();
  f.w.advance(300ms);
  CHECK(f.w.of(f.first).releases == 1);
  CHECK(f.w.of(f.second).releases == 0);
  CHECK(f.w.roots->operations() == 1);
  CHECK(f.w.slots() == slot_counts{8, 6, 0, 2, 0});
  f.tell_arbiter(settle_claim{f.first});  // a late one authorises nothing
  CHECK(f.w.roots->operations() == 1);
}

TEST_CASE("4.7 settle authorises nothing once fatal has won") {
  two_fetches f;
  f.w.skip_journal_check();  // it sends what no actor would
  CHECK(f.w.cancel(f.first).has_value());
  f.w.advance(5s);
  REQUIRE(f.w.fatal().has_value());
  for (const auto op : {f.first, f.second}) f.tell_arbiter(settle_claim{op});
  for (const auto request : {f.first_request, f.second_request})
    CHECK(owners(f.w).at(to_string(request))["claims"] == "1");
  CHECK(f.w.roots->operations() == 2);
  CHECK(f.w.slots().free == 4);
}

TEST_CASE("4.7 a disputed claim is under the clock") {
  std::string reason = "disputed";
  std::chrono::nanoseconds started = 2s;
  bool settled = false;
  SUBCASE("grace starts where none runs") {}
  SUBCASE("and stays where one runs") {
    started = 1s;
    reason = "delivery failed or cancelled";
  }
  SUBCASE("a settled one is a claim again") { settled = true; }
  two_fetches f;
  f.w.skip_journal_check();  // it sends what no actor would
  f.w.advance(1s);
  if (started == 1s) CHECK(f.w.cancel(f.first).has_value());
  f.w.advance(1s);
  if (settled) {
    f.tell_arbiter(settle_claim{f.first});
    CHECK(owners(f.w).at(to_string(f.first_request))["claims"] == "0");
  }
  f.tell_arbiter(retain_claim{f.first, "disputed"});
  auto facts = owners(f.w).at(to_string(f.first_request));
  CHECK(facts["claims"] == "1");
  CHECK(facts["reason"] == reason);
  f.attempt(1).deliver_all();
  f.attempt(1).end_access();
  f.w.advance(f.start + started + 5s - 1ns - f.w.now());
  CHECK_FALSE(f.w.fatal().has_value());
  f.w.advance(1ns);
  REQUIRE(f.w.fatal().has_value());
  CHECK(f.w.fatal()->started == f.start + started);
  CHECK(f.w.fatal()->reason == reason);
}

TEST_CASE("4.7 a disputed claim that is proven in time is released") {
  two_fetches f;
  f.attempt(0).access = access_state::unproven;
  f.attempt(0).deliver_all();
  f.attempt(1).deliver_all();
  f.attempt(1).end_access();
  f.w.advance(1s);
  CHECK(f.w.of(f.first).events ==
        lines{"outcome delivered(2)", "retained: backend access end unproven: the provider can't tell"});
  f.attempt(0).end_access();
  f.w.advance(1s);
  CHECK(f.w.of(f.first).releases == 0);
  CHECK(f.w.retry_proof(f.first).has_value());
  f.w.advance(200ms);
  CHECK(f.w.of(f.first).releases == 1);
  f.w.advance(60s);
  CHECK_FALSE(f.w.fatal().has_value());
}

static const broken_by uncontained{actor_mutation::fatal_uncontained, "4.8 fatal calls*"};
TEST_CASE("4.8 fatal calls the containment once for the whole runtime") {
  two_fetches f;
  CHECK(f.w.containments() == 0);
  f.w.advance(1s);
  CHECK(f.w.cancel(f.first).has_value());
  std::chrono::nanoseconds apart = 0ns;
  SUBCASE("both expire together") {}
  SUBCASE("one after the other") { apart = 2s; }
  f.w.advance(apart);
  CHECK(f.w.cancel(f.second).has_value());
  f.w.advance(5s - apart);
  CHECK(f.w.containments() == 1);
  const auto record = f.w.fatal();
  f.w.advance(60s);
  CHECK(f.w.close_admission().has_value());
  CHECK_FALSE(f.w.stop().stopped);
  CHECK(f.w.containments() == 1);
  CHECK(f.w.fatal() == record);
  CHECK(f.w.roots->operations() == 2);  // whatever the callback does, roots stay
}

TEST_CASE("4.8 a callback of a real runtime may block or throw, and delays nothing") {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto open = gate->get_future().share();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  bool blocks = false;
  SUBCASE("it blocks") { blocks = true; }
  SUBCASE("it throws") {}
  auto provider = std::make_shared<scripted_provider>();
  auto device = std::make_shared<host_device>(host_stream::threaded);
  paged_manager_options m;
  m.tokens_per_block = 4;
  m.pool_groups = {{64, 16}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  runtime_options o;
  o.profile = supported_profile("scripted-1");
  o.device = device;
  o.manager = *paged_manager::make(m, {*device->allocate_device(64 * 16)});
  o.open_provider = [provider](const provider_context&) { return provider; };
  o.staging_slots = {8};
  o.on_fatal = [=](const fatal_record&) {
    ++*calls;
    if (!blocks) throw std::runtime_error{"broke"};
    static_cast<void>(open.wait_for(30s));
  };
  auto rt = *runtime::start(o);
  request_spec spec;
  for (std::uint32_t i = 1; i <= 13; ++i) spec.prompt.push_back(i);
  const auto request = rt->admit(spec).get()->request;
  const auto ready = std::make_shared<std::promise<void>>();
  lease_events lease_events;
  lease_events.ready = [ready](lease_id, const auto&) { ready->set_value(); };
  const auto lease = *rt->lend(direction::fetch, request, {0, 8}, lease_events).get();
  REQUIRE(ready->get_future().wait_for(5s) == std::future_status::ready);
  REQUIRE(rt->submit(direction::fetch, lease, request, *transfer_timeout::make(20ms), {}).get().has_value());
  REQUIRE(soon([&] { return calls->load() == 1; }));
  REQUIRE(rt->fatal().has_value());
  CHECK(rt->fatal()->request == request);
  // Everything answers meanwhile, and the memory stays.
  const auto began = std::chrono::steady_clock::now();
  CHECK(rt->slots().get()->awaiting_proof == 2);
  REQUIRE(rt->look().get().has_value());
  const auto report = rt->stop(50ms);
  CHECK_FALSE(report.stopped);
  CHECK_FALSE(report.retained.empty());
  rt.reset();
  CHECK(std::chrono::steady_clock::now() - began < 5s);
  CHECK(calls->load() == 1);
  gate->set_value();
}

TEST_CASE("4.9 deadlines progress whatever else is blocked") {
  world w{{.hold_stream = true}};
  const auto request = w.admit(13);
  const auto start = w.now();
  std::string outcome = "outcome failed(transfer timeout)";
  SUBCASE("every proof worker") { w.hold_workers(false, true); }
  SUBCASE("the stream: the copies never end") {
    outcome = "outcome delivered(2)";
    w.provider->on_attempt = [](scripted_attempt& a) {
      a.deliver_all();
      a.end_access();
    };
  }
  SUBCASE("a backend that never answers") {}
  const auto op = w.fetch(request);
  w.advance(5s);
  CHECK(w.of(op).events == lines{outcome});
  w.advance(5s);
  REQUIRE(w.fatal().has_value());
  CHECK(w.fatal()->started == start + 5s);
  CHECK(w.fatal()->deadline == start + 10s);
  CHECK(w.fatal()->noticed == start + 10s);
  CHECK(w.containments() == 1);
}

TEST_CASE("4.9 deadlines progress while no worker enters the provider") {
  world w;
  w.hold_workers(true, true);
  const auto op = w.fetch(w.admit(13));
  w.advance(5s - 1ns);
  CHECK(w.of(op).events.empty());
  w.advance(1ns);
  REQUIRE_FALSE(w.of(op).events.empty());
  CHECK(w.of(op).events[0] == "outcome failed(transfer timeout)");
  CHECK(w.provider->submissions == 0);
}

TEST_CASE("4.9 deadlines progress whoever else is dead") {
  for (const auto kind : {actor_kind::manager, actor_kind::lender, actor_kind::adapter, actor_kind::backend,
                          actor_kind::proof_collector, actor_kind::cuda, actor_kind::supervisor}) {
    CAPTURE(to_string(kind));
    world w;
    const auto op = w.fetch(w.admit(13));
    const auto start = w.now();
    w.kill(actor_kind::supervisor);  // nobody is told of the death
    w.kill(kind);
    w.advance(5s);
    CHECK(w.of(op).events == lines{"outcome failed(transfer timeout)"});
    w.advance(5s);
    REQUIRE(w.fatal().has_value());
    CHECK(w.fatal()->noticed == start + 10s);
    CHECK(w.containments() == 1);
  }
}

TEST_CASE("4.9 a stuck owner delays no other's deadline") {
  world w;
  const auto stuck = w.fetch(w.admit(5), 1);
  const auto request = w.admit(5, 100);
  const auto lease = *w.lend(direction::fetch, request, {0, 4});
  const auto quick = *w.submit(direction::fetch, lease, request, std::nullopt, 2s);
  CHECK(w.cancel(stuck).has_value());  // its grace runs, its provider never answers
  w.advance(2s - 1ns);
  CHECK(w.of(quick).events.empty());
  w.advance(1ns);
  CHECK(w.of(quick).events == lines{"outcome failed(transfer timeout)"});
  w.advance(2s);
  REQUIRE(w.fatal().has_value());
  CHECK(w.fatal()->request == request);
  CHECK(w.figure(actor_kind::deadline_arbiter, "latest_ns") == 0);
}

TEST_CASE("4.10 shutdown closes admission for good") {
  two_fetches f;
  const auto third = f.w.admit(13, 200);
  const auto lease = *f.w.lend(direction::fetch, third, {0, 8});
  CHECK(f.w.close_admission().has_value());
  const auto refused = f.w.create_owner(third, 5s);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::state);
  CHECK(refused.error().text.find("admission is closed") != std::string::npos);
  const auto late = f.w.submit(direction::fetch, lease, third);
  if (late) CHECK(f.w.of(*late).events == lines{"outcome cancelled(local)", "released"});
  CHECK(f.w.provider->submissions == 2);
  for (const std::size_t i : {0, 1}) f.attempt(i).end_access();
  for (const auto op : {f.first, f.second}) CHECK(f.w.cancel(op).has_value());
  f.w.advance(1s);
  CHECK_FALSE(f.w.create_owner(third, 5s).has_value());  // nor when all has been retired
}

TEST_CASE("4.10 shutdown starts drain on every owner") {
  two_fetches f;
  f.w.advance(1s);
  CHECK(f.w.cancel(f.second).has_value());
  f.w.advance(1s);
  CHECK(f.w.close_admission().has_value());
  auto all = owners(f.w);
  REQUIRE(all.size() == 3);
  CHECK(all["0.0"]["reason"] == "shutdown");
  CHECK(all[to_string(f.first_request)]["reason"] == "shutdown");
  CHECK(all[to_string(f.first_request)]["fatal_in"] == "5000.000 ms");
  CHECK(all[to_string(f.second_request)]["fatal_in"] == "4000.000 ms");
  f.attempt(1).end_access();
  f.w.advance(5s - 1ns);
  CHECK_FALSE(f.w.fatal().has_value());
  f.w.advance(1ns);
  REQUIRE(f.w.fatal().has_value());
  CHECK(f.w.fatal()->reason == "shutdown");
  CHECK(f.w.fatal()->started == f.start + 2s);
}

TEST_CASE("4.10 stopping is refused with a list while owners are retained") {
  two_fetches f;
  auto refused = f.w.stop_arbiter();
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::state);
  CHECK(refused.error().text.find("3 retained owners") != std::string::npos);
  for (const auto request : {f.first_request, f.second_request})
    CHECK(refused.error().text.find("request " + to_string(request) + ",") != std::string::npos);
  const auto report = f.w.stop();
  CHECK_FALSE(report.stopped);
  CHECK(report.retained.size() >= 2);
  SUBCASE("and works once they are gone") {
    for (const std::size_t i : {0, 1}) f.attempt(i).end_access();
    CHECK(f.w.stop().stopped);
    CHECK(f.w.stop_arbiter().has_value());
    CHECK(f.w.roots->rest().empty());
  }
  SUBCASE("and for good after fatal") {
    f.w.advance(5s);
    REQUIRE(f.w.fatal().has_value());
    for (const std::size_t i : {0, 1}) f.attempt(i).end_access();
    f.w.advance(1s);
    CHECK_FALSE(f.w.stop().stopped);
    refused = f.w.stop_arbiter();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().text.find("fatal") != std::string::npos);
  }
}
