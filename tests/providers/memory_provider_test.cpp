#include "src/providers/memory_provider.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/providers/provider_fixture.hpp"

namespace kvlease::test {
namespace {

std::shared_ptr<memory_store> large_store() { return std::make_shared<memory_store>(1u << 20); }

std::vector<std::byte> content(std::size_t size, unsigned char value) {
  return std::vector<std::byte>(size, std::byte{value});
}

struct memory_bench : staging_fixture {
  explicit memory_bench(memory_options options = {}, std::size_t capacity = 1u << 20)
      : store{std::make_shared<memory_store>(capacity)},
        p{std::make_unique<memory_provider>(store, context, options)},
        handles{register_all(*p)} {}
  std::shared_ptr<memory_store> store;
  std::unique_ptr<memory_provider> p;
  std::vector<std::unique_ptr<registration>> handles;
};

cache_extent eight_units() {
  std::vector<unit> units;
  for (std::int64_t i = 0; i < 8; ++i) units.push_back(at(std::to_string(i).c_str(), 0, i));
  return extent_of(units);
}

TEST_CASE("memory provider: providers of one store see each other's units") {
  staging_fixture f;
  const auto store = large_store();
  memory_provider a{store, f.context, {.background = false}};
  memory_provider b{store, f.context, {.background = false}};
  const auto ha = f.register_all(a);
  const auto hb = f.register_all(b);
  f.fill(0, 0, 9);
  CHECK(served_of(a.publish(extent_of({at("x", 0, 0)}))->poll()) == std::set<bytes>{"x"});
  CHECK(served_of(b.fetch(extent_of({at("x", 0, 7)}))->poll()) == std::set<bytes>{"x"});
  CHECK(f.holds(0, 7, 9));
}

TEST_CASE("memory provider: the first content of a name stays, and the source is not even read again") {
  memory_bench b{{.background = false}};
  b.fill(0, 0, 1);
  b.p->publish(extent_of({at("x", 0, 0)}));
  b.fill(0, 0, 2);
  const std::uint64_t touched = b.touches->touched_bytes();
  CHECK(served_of(b.p->publish(extent_of({at("x", 0, 0)}))->poll()) == std::set<bytes>{"x"});
  CHECK(b.touches->touched_bytes() == touched);
  b.p->fetch(extent_of({at("x", 0, 1)}));
  CHECK(b.holds(0, 1, 1));
  CHECK(b.store->units() == 1);
}

TEST_CASE("memory provider: a unit of another size names both sizes") {
  memory_bench b{{.background = false}};
  b.p->publish(extent_of({at("x", 0, 0)}));
  for (const auto& a : {b.p->fetch(extent_of({at("x", 1, 0)})), b.p->publish(extent_of({at("x", 1, 0)}))}) {
    const std::string why = reason_of(a->poll());
    CHECK(why.find("256") != std::string::npos);
    CHECK(why.find("1000") != std::string::npos);
  }
}

TEST_CASE("memory provider: 1.5 a full store is a failure, and what fitted stays") {
  memory_bench b{{.background = false}, 600};
  const auto o = b.p->publish(extent_of({at("x", 0, 0), at("large", 1, 0)}))->poll();
  CHECK(reason_of(o).find("store is full") != std::string::npos);
  CHECK(b.p->probe("extent", {"x", "large"}) == std::set<bytes>{"x"});
  CHECK(b.store->bytes() == 256);
}

TEST_CASE(
    "memory provider: 2.12 a cancel stops between units; what was moved stays; access ends with the job") {
  memory_bench b;
  const auto all = eight_units();
  b.p->publish(all);
  b.exec->run_all();
  b.clear();
  const unit_counters before = b.p->counters();
  const auto a = b.p->fetch(all);
  CHECK(b.all_untouched());
  CHECK(b.exec->run_one());
  CHECK(b.exec->pending() == 1);
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  // The acknowledgement proves nothing: the job has not stopped yet.
  CHECK_FALSE(a->poll());
  CHECK(b.p->poll_access(*a).state == access_state::running);
  b.exec->run_all();
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK(b.p->poll_access(*a).state == access_state::ended);
  CHECK(b.holds(0, 0, untouched));  // published before the clear: the same pattern
  CHECK(b.touches->touched_bytes() == 8 * 256 + 4 * 256);
  CHECK(b.p->counters() == before);
}

TEST_CASE("memory provider: 2.12 a cancel after the last unit changes nothing") {
  memory_bench b;
  const auto a = b.p->publish(extent_of({at("x", 0, 0)}));
  b.exec->run_all();
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  CHECK(served_of(a->poll()) == std::set<bytes>{"x"});
}

TEST_CASE("memory provider: wakes after each change, outside its locks") {
  memory_bench b;
  int wakes = 0;
  std::shared_ptr<attempt> a;
  b.p->on_progress([&] {
    ++wakes;
    if (a) CHECK(b.p->poll_access(*a).state == access_state::ended);  // would deadlock under a lock
  });
  a = b.p->publish(extent_of({at("x", 0, 0)}));
  CHECK(wakes == 0);
  b.exec->run_all();
  CHECK(wakes == 1);
  b.p->on_progress({});
  b.p->publish(extent_of({at("y", 0, 0)}));
  b.exec->run_all();
  CHECK(wakes == 1);
}

TEST_CASE("memory provider: jobs outlive their provider and stop") {
  memory_bench b;
  const auto a = b.p->publish(eight_units());
  b.exec->run_one();
  b.handles.clear();
  b.p.reset();
  b.exec->run_all();
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK(b.exec->pending() == 0);
  CHECK(b.store->units() == 4);
}

TEST_CASE("memory provider: 8.1 a slot that was revoked during a fetch is counted, and still written") {
  memory_bench b;
  b.fill(0, 0, 3);
  b.p->publish(extent_of({at("x", 0, 0)}));
  b.exec->run_all();
  const auto a = b.p->fetch(extent_of({at("x", 0, 1)}));
  b.touches->revoke(0, 1);
  b.touches->grant(0, 1, lease_id{2}, true);
  b.exec->run_all();
  CHECK(b.holds(0, 1, 3));
  CHECK(b.touches->exposure_bytes() == 256);
}

TEST_CASE("memory provider: 8.1 a source that was revoked during a publish is counted") {
  memory_bench b;
  b.p->publish(extent_of({at("x", 0, 1)}));
  b.touches->revoke(0, 1);
  b.exec->run_all();
  CHECK(b.touches->exposure_bytes() == 256);
}

TEST_CASE("memory provider: misuse of the constructor and of registration is refused") {
  staging_fixture f;
  CHECK_THROWS_AS((memory_provider{nullptr, f.context}), std::invalid_argument);
  CHECK_THROWS_AS((memory_provider{large_store(), {nullptr, f.exec, nullptr}}), std::invalid_argument);
  CHECK_THROWS_AS((memory_provider{large_store(), {f.resolver, nullptr, nullptr}}), std::invalid_argument);
  memory_provider without_executor{large_store(), {f.resolver, nullptr, nullptr}, {.background = false}};
  memory_bench b;
  CHECK_THROWS_AS(b.p->register_pool(4096, 0), std::invalid_argument);
  CHECK_THROWS_AS(b.p->register_pool(~std::uintptr_t{0} - 1, 3), std::invalid_argument);
  CHECK_NOTHROW(b.p->register_pool(~std::uintptr_t{0} - 1, 2));
}

struct refusing_executor final : executor {
  void post(std::function<void()>) override { throw std::runtime_error{"stopped"}; }
  void post_after(std::chrono::nanoseconds, std::function<void()>) override {
    throw std::runtime_error{"stopped"};
  }
  time_point now() const override { return {}; }
};

TEST_CASE("memory provider: 2.2 an executor that takes no job rejects the submission") {
  staging_fixture f;
  f.context.exec = std::make_shared<refusing_executor>();
  memory_provider p{large_store(), f.context};
  const auto handles = f.register_all(p);
  CHECK_THROWS_AS(p.fetch(extent_of({at("x", 0, 0)})), submission_rejected);
}

TEST_CASE("memory provider: 2.4 a blocked quiesce returns when the job has ended, under real threads") {
  memory_bench b;
  const auto a = b.p->publish(eight_units());
  std::atomic<bool> proven{false};
  std::thread waiter{[&] { proven = b.p->quiesce({&a, 1}); }};
  b.exec->run_one();
  CHECK_FALSE(proven);
  b.exec->run_all();
  waiter.join();
  CHECK(proven);
}

TEST_CASE("memory store: bounded; the unit used longest ago goes first") {
  memory_store s{1000};
  for (const char* name : {"a", "b", "c", "d"}) {
    CHECK(s.put("e", name, content(250, 1)) == memory_store::put_result::added);
  }
  CHECK(s.bytes() == 1000);
  CHECK(s.get("e", "a"));
  CHECK(s.put("e", "b", content(250, 9)) == memory_store::put_result::kept);
  CHECK(s.put("e", "f", content(500, 1)) == memory_store::put_result::added);
  CHECK(s.units() == 3);
  CHECK(s.evicted() == 2);
  CHECK(s.bytes() == 1000);
  CHECK(s.find("e", "a"));
  CHECK(s.find("e", "b"));
  CHECK_FALSE(s.find("e", "c"));
  CHECK_FALSE(s.find("e", "d"));
  CHECK(s.find("e", "f") == 500);
}

TEST_CASE("memory store: what is being read is never evicted") {
  memory_store s{1000};
  s.put("e", "a", content(500, 1));
  s.put("e", "b", content(500, 2));
  {
    const auto a = s.get("e", "a");
    s.get("e", "b");
    CHECK(s.put("e", "c", content(500, 3)) == memory_store::put_result::added);
    CHECK(s.find("e", "a"));
    CHECK_FALSE(s.find("e", "b"));
    const auto c = s.get("e", "c");
    CHECK(s.put("e", "d", content(1, 4)) == memory_store::put_result::full);
    CHECK(*a == content(500, 1));
    CHECK(s.bytes() == 1000);
  }
  CHECK(s.put("e", "d", content(1, 4)) == memory_store::put_result::added);
}

TEST_CASE("memory store: what never fits evicts nothing; sizes and empty units") {
  memory_store s{100};
  s.put("e", "a", content(100, 1));
  CHECK(s.put("e", "b", content(101, 1)) == memory_store::put_result::full);
  CHECK(s.evicted() == 0);
  CHECK(s.put("e", "a", content(99, 1)) == memory_store::put_result::other_size);
  CHECK(s.put("e", "none", {}) == memory_store::put_result::added);
  CHECK(s.find("e", "none") == 0);
  CHECK(s.units() == 2);
}

TEST_CASE("memory store: many threads, exact accounting, whole units") {
  memory_store s{64 * 100};
  std::atomic<bool> torn{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned n = 0; n < 1500; ++n) {
        const unsigned k = (n * 7 + t * 13) % 200;
        const auto value = static_cast<unsigned char>(k);
        s.put("e", std::to_string(k), content(64 + k % 3, value));
        if (const auto blob = s.get("e", std::to_string((k * 3) % 200))) {
          if (*blob != content(64 + (k * 3) % 200 % 3, static_cast<unsigned char>((k * 3) % 200)))
            torn = true;
        }
        if (s.bytes() > s.capacity()) torn = true;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK_FALSE(torn);
  std::size_t sum = 0;
  std::size_t units = 0;
  for (unsigned k = 0; k < 200; ++k) {
    if (const auto size = s.find("e", std::to_string(k))) sum += *size, ++units;
  }
  CHECK(s.bytes() == sum);
  CHECK(s.units() == units);
  CHECK(s.evicted() > 0);
}

}  // namespace
}  // namespace kvlease::test
