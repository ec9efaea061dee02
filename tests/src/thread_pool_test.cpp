#include "src/thread_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/actors/stuck.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

constexpr std::chrono::milliseconds patience{50};

/// Runs a job behind all that is queued; false after five seconds without.
bool passes(thread_pool& pool) {
  auto done = std::make_shared<std::promise<void>>();
  pool.post([done] { done->set_value(); });
  return done->get_future().wait_for(5s) == std::future_status::ready;
}

template <class Predicate>
bool comes_true(Predicate p) {
  for (int i = 0; i < 5000; ++i) {
    if (p()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

const broken_by inline_jobs{mutation::jobs_run_inline, "7.2 thread pool*"};

TEST_CASE("7.2 thread pool: post never runs a job on the caller's thread, and never waits for one") {
  const auto held = std::make_shared<gate>();
  thread_pool pool{"test", 1, patience};
  auto where = std::make_shared<std::promise<std::thread::id>>();
  pool.post([where] { where->set_value(std::this_thread::get_id()); });
  CHECK(where->get_future().get() != std::this_thread::get_id());
  std::atomic<bool> posted{false};
  std::thread opener{[&] {  // so that this ends when post() blocks
    comes_true([&] { return posted.load(); });
    held->open();
  }};
  pool.post([held] { held->pass(); });
  pool.post([] {});
  CHECK(held->holds());
  CHECK(comes_true([&] { return pool.look().queued == 1 && pool.look().busy == 1; }));
  posted = true;
  opener.join();
  CHECK(held->is_left());
}

TEST_CASE("7.4 thread pool: an exception escapes a job, and later jobs run on every thread") {
  thread_pool pool{"test", 2, patience};
  for (int i = 0; i < 20; ++i) {
    pool.post([] { throw std::runtime_error{"escaped"}; });
    pool.post([] { throw 1; });
  }
  CHECK(passes(pool));
  CHECK(comes_true([&] { return pool.look().escaped == 40; }));
  CHECK(pool.look().threads == 2);
  const auto held = std::make_shared<gate>();
  for (int i = 0; i < 2; ++i) pool.post([held] { held->pass(); });
  CHECK(comes_true([&] { return pool.look().busy == 2; }));  // both threads still serve
  held->open();
  CHECK(held->is_left());
  CHECK(pool.close() == 0);
}

const broken_by waits_on{mutation::patience_ignored, "7.8 thread pool*"};

TEST_CASE("7.8 thread pool: a stuck job is left behind within the patience, with what it holds") {
  const auto held = std::make_shared<gate>();
  const auto root = std::make_shared<int>(1);
  {
    thread_pool pool{"test", 2, patience};
    pool.post([held, root] { held->pass(); });
    REQUIRE(held->holds());
    CHECK(passes(pool));  // on the other thread
    const auto from = std::chrono::steady_clock::now();
    CHECK(pool.close() == 1);
    const auto took = std::chrono::steady_clock::now() - from;
    CHECK(took >= patience);
    CHECK(took < 2s);
    std::weak_ptr<int> dropped;
    {
      auto late = std::make_shared<int>(2);
      dropped = late;
      pool.post([late] {});
      pool.post_after(0ms, [late] {});
    }
    CHECK(dropped.expired());  // a closed pool takes nothing
    CHECK(root.use_count() == 2);
  }
  CHECK(root.use_count() == 2);  // also after the pool has gone
  held->open();
  CHECK(held->is_left());
  CHECK(comes_true([&] { return root.use_count() == 1; }));  // its thread ends, and lets go
}

TEST_CASE("thread pool: what is queued at close is dropped, what runs is waited for") {
  const auto held = std::make_shared<gate>();
  thread_pool pool{"test", 1, 5s};
  std::atomic<bool> ran{false}, late{false};
  const auto token = std::make_shared<int>(0);
  pool.post([&, held] {
    held->pass();
    ran = true;
  });
  REQUIRE(held->holds());
  pool.post([&, token] { late = true; });
  pool.post_after(0ms, [&, token] { late = true; });
  std::thread opener{[&] {
    comes_true([&] { return token.use_count() == 1; });  // dropped at once
    held->open();
  }};
  CHECK(pool.close() == 0);
  opener.join();
  CHECK(ran);
  CHECK_FALSE(late);
  CHECK(pool.close() == 0);
}

TEST_CASE("thread pool: post_after runs in the order of the times, and of the calls at one time") {
  thread_pool pool{"test", 1, 5s};
  std::vector<int> order;  // of the one thread, until `last` says so
  auto last = std::make_shared<std::promise<void>>();
  const auto held = std::make_shared<gate>();
  pool.post([held] { held->pass(); });
  REQUIRE(held->holds());
  const auto from = pool.now();
  pool.post_after(60ms, [&order, last] {
    order.push_back(4);
    last->set_value();
  });
  pool.post_after(20ms, [&order] { order.push_back(2); });
  pool.post_after(40ms, [&order] { order.push_back(3); });
  pool.post_after(-1ms, [&order] { order.push_back(0); });
  pool.post([&order] { order.push_back(1); });
  held->open();
  REQUIRE(last->get_future().wait_for(5s) == std::future_status::ready);
  CHECK(pool.now() - from >= 60ms);
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("thread pool: a due job finds a thread that waits for a later one") {
  thread_pool pool{"test", 1, patience};
  const auto never = std::make_shared<std::atomic<bool>>(false);
  pool.post_after(1h, [never] { *never = true; });
  CHECK(comes_true([&] { return pool.look().queued == 1; }));
  auto done = std::make_shared<std::promise<void>>();
  pool.post_after(5ms, [done] { done->set_value(); });
  CHECK(done->get_future().wait_for(5s) == std::future_status::ready);
  CHECK(passes(pool));
  CHECK(pool.close() == 0);
  CHECK_FALSE(*never);
}

}  // namespace
}  // namespace kvlease::test
