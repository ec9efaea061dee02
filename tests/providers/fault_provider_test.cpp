#include "src/providers/fault_provider.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "src/providers/memory_provider.hpp"
#include "tests/providers/provider_fixture.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

fault_plan always(fault_kind k, std::uint64_t seed = 1) {
  fault_plan plan{.seed = seed};
  plan.probability[static_cast<std::size_t>(k)] = 1;
  return plan;
}

/// A plan whose submission 0 is late in this shape.
fault_plan late_in(late_shape shape) {
  fault_plan plan = always(fault_kind::late, 0);
  while (late_shape_of(plan, 0) != shape) ++plan.seed;
  return plan;
}

/// A memory provider that holds "a" (1s) and "b" (2s) and a decorator in front of it, whose first submission
/// is the test's.
struct fault_bench : staging_fixture {
  explicit fault_bench(const fault_plan& plan, bool background = true)
      : inner{std::make_shared<memory_provider>(std::make_shared<memory_store>(1u << 20), context,
                                                memory_options{.background = background})},
        handles{register_all(*inner)},
        p{std::make_unique<fault_provider>(inner, plan, context)} {
    fill(0, 0, 1);
    fill(0, 1, 2);
    inner->publish(extent_of({at("a", 0, 0), at("b", 0, 1)}));
    exec->run_all();
    clear();
    touched = touches->touched_bytes();
    p->on_progress([this] { ++wakes; });
  }
  ~fault_bench() { exec->drop_all(); }
  fault_bench(const fault_bench&) = delete;
  fault_bench& operator=(const fault_bench&) = delete;

  access_state access(const std::shared_ptr<attempt>& a) { return p->poll_access(*a).state; }
  std::uint64_t struck(fault_kind k) const { return p->struck()[static_cast<std::size_t>(k)]; }
  bool right_bytes() const { return holds(0, 4, 1) && holds(0, 5, 2); }
  bool in_store(const char* name) { return inner->probe("extent", {name})->contains(name); }

  std::shared_ptr<memory_provider> inner;
  std::vector<std::unique_ptr<registration>> handles;
  std::unique_ptr<fault_provider> p;
  std::uint64_t touched = 0;
  int wakes = 0;
  const cache_extent both = extent_of({at("a", 0, 4), at("b", 0, 5)});
  const cache_extent fresh = extent_of({at("n", 0, 2), at("m", 0, 3)});
};

TEST_CASE("faults: 7.9 the same seed gives the same run") {
  const auto run = [] {
    fault_bench b{*parse_faults("miss=0.2,partial=0.2,fail=0.2,reject=0.2", 11), false};
    std::string log;
    for (int i = 0; i < 50; ++i) {
      try {
        const auto o = b.p->fetch(b.both)->poll();
        log += std::to_string(o->index()) + ":" + std::to_string(served_of(o).size()) + " ";
      } catch (const submission_rejected&) {
        log += "rejected ";
      }
    }
    std::uint64_t bytes_seen = 0;
    for (const std::byte x : b.memory_0) bytes_seen = bytes_seen * 31 + static_cast<unsigned char>(x);
    return log + std::to_string(bytes_seen);
  };
  CHECK(run() == run());
}

TEST_CASE("faults: a plan of zeros passes submissions, attempts and cancels through") {
  fault_bench b{fault_plan{}};
  const auto a = b.p->fetch(b.both);
  CHECK(b.access(a) == access_state::running);
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  b.exec->run_all();
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK(b.p->struck() == std::array<std::uint64_t, 9>{});
}

TEST_CASE("faults: miss") {
  fault_bench b{always(fault_kind::miss)};
  const auto a = b.p->fetch(b.both);
  const auto c = b.p->publish(b.fresh);
  b.exec->run_all();
  CHECK(served_of(a->poll()).empty());
  CHECK(served_of(c->poll()).empty());
  CHECK(b.all_untouched());
  CHECK_FALSE(b.in_store("n"));
  CHECK(b.p->counters().misses == 4);
  CHECK(b.struck(fault_kind::miss) == 2);
}

TEST_CASE("faults: partial") {
  fault_bench b{always(fault_kind::partial)};
  for (int i = 0; i < 20; ++i) {
    const auto a = b.p->fetch(b.both);
    b.exec->run_all();
    CHECK(served_of(a->poll()).size() == 1);
  }
  const auto one = b.p->fetch(extent_of({at("a", 0, 4)}));
  const auto c = b.p->publish(b.fresh);
  b.exec->run_all();
  CHECK(served_of(one->poll()).empty());
  CHECK(served_of(c->poll()).size() == 1);
  CHECK(b.in_store("n") != b.in_store("m"));
}

TEST_CASE("faults: fail leaves noise in about half of the destinations") {
  fault_bench b{always(fault_kind::fail)};
  const auto a = b.p->fetch(b.both);
  CHECK(reason_of(a->poll()).find("injected failure") != std::string::npos);
  CHECK(b.access(a) == access_state::ended);
  CHECK(b.p->quiesce({&a, 1}));
  CHECK(b.holds(0, 4, untouched) != b.holds(0, 5, untouched));
  CHECK_FALSE(b.holds(0, 4, 1));
  CHECK_FALSE(b.holds(0, 5, 2));
  CHECK(b.touches->touched_bytes() == b.touched + 256);
  CHECK(b.touches->exposure_bytes() == 0);
  CHECK(b.p->counters().failures == 2);
  CHECK(b.wakes > 0);
  const auto c = b.p->publish(b.fresh);
  CHECK(reason_of(c->poll()).find("injected failure") != std::string::npos);
  CHECK_FALSE(b.in_store("n"));
  CHECK(b.touches->touched_bytes() == b.touched + 256);
}

TEST_CASE("faults: reject proves that nothing escaped") {
  fault_bench b{always(fault_kind::reject)};
  CHECK_THROWS_AS(b.p->fetch(b.both), submission_rejected);
  CHECK_THROWS_AS(b.p->publish(b.fresh), submission_rejected);
  b.exec->run_all();
  CHECK(b.all_untouched());
  CHECK(b.touches->touched_bytes() == b.touched);
  CHECK(b.struck(fault_kind::reject) == 2);
}

TEST_CASE("faults: escape throws after the submission was made") {
  fault_bench b{always(fault_kind::escape)};
  bool rejected = false;
  try {
    b.p->fetch(b.both);
    FAIL("no exception");
  } catch (const submission_rejected&) {
    rejected = true;
  } catch (const std::runtime_error&) {
    // expected
  }
  CHECK_FALSE(rejected);
  b.exec->run_all();
  CHECK(b.right_bytes());
  CHECK_THROWS_AS(b.p->publish(b.fresh), std::runtime_error);
  b.exec->run_all();
  CHECK(b.in_store("n"));
}

TEST_CASE("faults: hang never answers, acknowledges a cancel, and lets go when abandoned") {
  fault_bench b{always(fault_kind::hang)};
  const auto a = b.p->fetch(b.both);
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  b.exec->advance(24h);
  CHECK_FALSE(a->poll());
  CHECK(b.access(a) == access_state::running);
  CHECK(b.all_untouched());
  std::atomic<int> quiesced{-1};
  std::atomic<bool> threw{false};
  std::thread quiescing{[&] { quiesced = b.p->quiesce({&a, 1}); }};
  std::thread settling{[&] {
    try {
      b.p->settle({&a, 1});
    } catch (const std::runtime_error&) {
      threw = true;
    }
  }};
  std::this_thread::sleep_for(5ms);
  CHECK(quiesced == -1);
  CHECK_FALSE(threw);
  b.p->abandon();
  quiescing.join();
  settling.join();
  CHECK(quiesced == 0);
  CHECK(threw);
  CHECK(b.access(a) == access_state::running);
}

TEST_CASE("faults: late, early success: noise under a good outcome until access ends") {
  for (const bool background : {true, false}) {
    CAPTURE(background);
    const fault_plan plan = late_in(late_shape::early_success);
    fault_bench b{plan, background};
    const auto a = b.p->fetch(b.both);
    CHECK(a->poll().has_value() == !background);
    b.exec->advance(50us);
    CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b"});
    CHECK(b.access(a) == access_state::running);
    CHECK_FALSE(b.holds(0, 4, 1));
    CHECK_FALSE(b.holds(0, 5, 2));
    b.exec->advance(plan.late / 4 - 51us);
    CHECK(b.access(a) == access_state::running);
    b.exec->advance(plan.late);
    CHECK(b.access(a) == access_state::ended);
    CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b"});
    CHECK(b.right_bytes());
    CHECK(b.p->quiesce({&a, 1}));
    CHECK(b.touches->exposure_bytes() == 0);
    CHECK(b.wakes >= 2);
  }
}

TEST_CASE("faults: late, early failure: bytes land long after it") {
  fault_bench b{late_in(late_shape::early_failure)};
  const auto a = b.p->fetch(b.both);
  CHECK(reason_of(a->poll()) != "(not failed)");
  CHECK(b.access(a) == access_state::running);
  CHECK(b.all_untouched());
  b.exec->advance(11ms);
  CHECK(b.right_bytes());
  CHECK(reason_of(a->poll()) != "(not failed)");
  CHECK(b.access(a) == access_state::ended);
  CHECK(b.touches->exposure_bytes() == 0);
}

TEST_CASE("faults: late, silent: neither outcome nor end before the delay") {
  fault_bench b{late_in(late_shape::silent)};
  const auto a = b.p->fetch(b.both);
  b.exec->advance(4ms);
  CHECK_FALSE(a->poll());
  CHECK(b.access(a) == access_state::running);
  CHECK(b.all_untouched());
  b.exec->advance(17ms);
  CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b"});
  CHECK(b.access(a) == access_state::ended);
  CHECK(b.right_bytes());
  b.p->settle({&a, 1});
  CHECK(b.p->quiesce({&a, 1}));
}

TEST_CASE("faults: 8.1 a late fetch whose slots were given away early is counted") {
  for (const auto shape : {late_shape::early_success, late_shape::early_failure, late_shape::silent}) {
    CAPTURE(static_cast<int>(shape));
    fault_bench b{late_in(shape)};
    const auto a = b.p->fetch(b.both);
    b.exec->advance(100us);
    b.touches->revoke(0, 4);
    SUBCASE("and granted to another lease") { b.touches->grant(0, 4, lease_id{2}, true); }
    SUBCASE("and free") {}
    CHECK(b.touches->exposure_bytes() == 0);
    b.exec->advance(11ms);
    CHECK(b.touches->exposure_bytes() >= 256);
    CHECK(b.touches->exposure_bytes() <= 512);
    CHECK(b.holds(0, 4, 1));
  }
}

TEST_CASE("faults: 8.1 a late publish reads its source after the outcome, and is counted") {
  for (const auto shape : {late_shape::early_success, late_shape::early_failure, late_shape::silent}) {
    CAPTURE(static_cast<int>(shape));
    fault_bench b{late_in(shape)};
    const auto a = b.p->publish(b.fresh);
    b.exec->advance(100us);
    CHECK(b.access(a) == access_state::running);
    CHECK(a->poll().has_value() == (shape != late_shape::silent));
    const std::uint64_t before = b.touches->touched_bytes();
    b.touches->revoke(0, 2);
    b.exec->advance(11ms);
    CHECK(b.access(a) == access_state::ended);
    CHECK(b.touches->touched_bytes() >= before + 512);
    CHECK(b.touches->exposure_bytes() >= 256);
    CHECK(b.in_store("n"));
  }
}

TEST_CASE("faults: unproven once, then the truth") {
  fault_bench b{always(fault_kind::unproven)};
  const auto a = b.p->fetch(b.both);
  CHECK(b.access(a) == access_state::running);
  b.exec->run_all();
  CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b"});
  SUBCASE("polled") {
    CHECK(b.access(a) == access_state::unproven);
    CHECK(b.access(a) == access_state::ended);
    CHECK(b.p->quiesce({&a, 1}));
  }
  SUBCASE("blocking, several at once") {
    const auto c = b.p->publish(b.fresh);
    b.exec->run_all();
    const std::array<std::shared_ptr<attempt>, 2> list{a, c};
    CHECK_FALSE(b.p->quiesce(list));
    CHECK(b.p->quiesce(list));
    CHECK(b.access(a) == access_state::ended);
  }
}

TEST_CASE("faults: stubborn acknowledges a cancel and goes on") {
  fault_bench b{always(fault_kind::stubborn)};
  const auto a = b.p->fetch(b.both);
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  b.exec->advance(2ms);
  CHECK(b.access(a) == access_state::running);
  CHECK_FALSE(a->poll());
  CHECK(b.all_untouched());
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  b.exec->advance(9ms);
  CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b"});
  CHECK(b.right_bytes());
  CHECK(b.access(a) == access_state::ended);
}

TEST_CASE("faults: stubborn does not pass a cancel on while the bytes move either") {
  fault_bench b{always(fault_kind::stubborn)};
  const auto a = b.p->fetch(b.both);
  int asked = 0;
  b.p->on_progress([&] { asked += request_cancel(*a) == cancel_disposition::requested; });
  b.exec->advance(11ms);
  CHECK(asked > 0);
  CHECK(served_of(a->poll()) == std::set<bytes>{"a", "b"});
}

TEST_CASE("faults: what is delayed is dropped when the decorator goes, and proves nothing") {
  for (const auto kind : {fault_kind::late, fault_kind::stubborn}) {
    fault_bench b{kind == fault_kind::late ? late_in(late_shape::silent) : always(kind)};
    const auto a = b.p->fetch(b.both);
    b.p->abandon();
    CHECK_FALSE(b.p->quiesce({&a, 1}));
    b.p.reset();
    b.exec->advance(1s);
    CHECK(b.all_untouched());
    CHECK_FALSE(a->poll());
  }
}

/// Only fetches, blocking; attempts can't be cancelled. Rejects when told to.
struct plain_provider final : provider, fetches {
  struct done final : attempt {
    std::optional<outcome> poll() override { return delivered{{}}; }
  };
  std::string describe() const override { return "plain"; }
  unit_counters counters() const override { return {}; }
  fetches* as_fetches() override { return this; }
  std::shared_ptr<attempt> fetch(const cache_extent&, route*) override {
    ++submitted;
    if (rejects) throw submission_rejected{"told to"};
    return std::make_shared<done>();
  }
  std::optional<std::set<bytes>> probe(const bytes&, const std::set<bytes>&) override { return {}; }
  result<std::unique_ptr<route>> open_route(const std::string&) override {
    return fail(errc::invalid, "no hint is good");
  }
  bool quiesce(attempt_list) override { return true; }
  void settle(attempt_list) override {}
  bool rejects = false;
  int submitted = 0;
};

TEST_CASE("faults: exactly the capabilities of the provider behind") {
  staging_fixture f;
  const auto inner = std::make_shared<plain_provider>();
  fault_provider p{inner, late_in(late_shape::early_success), f.context};
  CHECK(p.as_fetches());
  CHECK_FALSE(p.as_publishes());
  CHECK_FALSE(p.as_registers_pools());
  CHECK_FALSE(p.as_pollable());
  CHECK_FALSE(p.as_notifies());
  CHECK_FALSE(p.probe("e", {"a"}));
  CHECK(p.open_route("x").error().text == "no hint is good");
  const auto a = p.fetch(extent_of({at("a", 0, 0)}));
  CHECK(request_cancel(*a) == cancel_disposition::unsupported);
  f.exec->advance(11ms);
  CHECK(p.quiesce({&a, 1}));
  CHECK(served_of(a->poll()).empty());

  fault_bench b{fault_plan{}};
  CHECK(b.p->as_fetches());
  CHECK(b.p->as_publishes());
  CHECK(b.p->as_registers_pools());
  CHECK(b.p->as_pollable());
  CHECK(b.p->as_notifies());
}

TEST_CASE("faults: a delayed submission that is rejected has failed, with nothing to prove") {
  staging_fixture f;
  const auto inner = std::make_shared<plain_provider>();
  inner->rejects = true;
  fault_provider p{inner, late_in(late_shape::silent), f.context};
  const auto a = p.fetch(extent_of({at("a", 0, 0)}));
  f.exec->advance(11ms);
  CHECK(reason_of(a->poll()) == "told to");
  CHECK(p.quiesce({&a, 1}));
}

TEST_CASE("faults: a route is used within the call only") {
  struct some_route final : route {
    void close() override {}
  };
  for (const auto kind : {fault_kind::late, fault_kind::stubborn}) {
    staging_fixture f;
    const auto inner = std::make_shared<plain_provider>();
    fault_provider p{inner, kind == fault_kind::late ? late_in(late_shape::silent) : always(kind), f.context};
    some_route along;
    const auto a = p.fetch(extent_of({at("a", 0, 0)}), &along);
    CHECK(inner->submitted == 1);
    f.exec->advance(11ms);
    CHECK(inner->submitted == 1);
  }
}

TEST_CASE("faults: decorators nest") {
  fault_bench b{always(fault_kind::unproven)};
  fault_provider outer{std::shared_ptr<provider>{b.p.get(), [](provider*) {}}, fault_plan{}, b.context};
  const auto a = outer.fetch(b.both);
  b.exec->run_all();
  CHECK(outer.poll_access(*a).state == access_state::unproven);
  CHECK(outer.quiesce({&a, 1}));
}

}  // namespace
}  // namespace kvlease::test
