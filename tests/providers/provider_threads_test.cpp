// Providers under real threads: for the sanitizers, and for what virtual time can't show.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "src/providers/fault_provider.hpp"
#include "src/providers/memory_provider.hpp"
#include "tests/providers/provider_fixture.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

class thread_executor final : public executor {
 public:
  explicit thread_executor(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~thread_executor() override {
    {
      const std::lock_guard lock{mutex_};
      stopped_ = true;
    }
    due_.notify_all();
    for (auto& t : threads_) t.join();
  }
  void post(std::function<void()> job) override { post_after(0ns, std::move(job)); }
  void post_after(std::chrono::nanoseconds delay, std::function<void()> job) override {
    {
      const std::lock_guard lock{mutex_};
      jobs_.emplace(now() + delay, std::move(job));
    }
    due_.notify_one();
  }
  time_point now() const override { return std::chrono::steady_clock::now(); }

 private:
  void work() {
    std::unique_lock lock{mutex_};
    while (!stopped_) {
      if (jobs_.empty()) {
        due_.wait(lock);
      } else if (const auto at = jobs_.begin()->first; at > now()) {
        due_.wait_until(lock, at);
      } else {
        auto job = std::move(jobs_.extract(jobs_.begin()).mapped());
        lock.unlock();
        job();
        job = nullptr;
        lock.lock();
      }
    }
  }
  std::mutex mutex_;
  std::condition_variable due_;
  std::multimap<time_point, std::function<void()>> jobs_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

/// Each client owns two slots of part 0: publishes from one, fetches into the other, and looks at bytes only
/// after their access was proven to have ended.
TEST_CASE("faults: 2.4, 8.1 bytes read after the proof are right, under real threads") {
  staging_fixture f;
  auto threads = std::make_unique<thread_executor>(3);
  f.context.exec = {threads.get(), [](executor*) {}};
  fault_plan plan = *parse_faults("miss=.1,partial=.1,fail=.1,reject=.1,late=.2,unproven=.1,stubborn=.1", 3);
  plan.late = 400us;
  const auto store = std::make_shared<memory_store>(40 * 256);
  const auto inner = std::make_shared<memory_provider>(store, f.context);
  fault_provider p{inner, plan, f.context};
  const auto handles = f.register_all(p);
  std::atomic<int> wakes{0}, wrong{0}, good{0};
  p.on_progress([&] { ++wakes; });

  const auto client = [&](std::int64_t c) {
    const auto proven = [&](const std::shared_ptr<attempt>& a) {
      p.settle({&a, 1});
      while (!p.quiesce({&a, 1})) continue;
      if (p.poll_access(*a).state != access_state::ended) ++wrong;
      return a->poll();
    };
    for (int n = 0; n < 120; ++n) {
      const int key = (n * 5 + static_cast<int>(c)) % 60;
      const std::string name = std::to_string(key);
      try {
        f.fill(0, 2 * c, static_cast<unsigned char>(key));
        proven(p.publish(extent_of({at(name.c_str(), 0, 2 * c)})));
        const auto a = p.fetch(extent_of({at(name.c_str(), 0, 2 * c + 1)}));
        if (n % 7 == 0) request_cancel(*a);
        if (served_of(proven(a)).contains(name)) {
          ++(f.holds(0, 2 * c + 1, static_cast<unsigned char>(key)) ? good : wrong);
        }
      } catch (const submission_rejected&) {
        continue;
      }
    }
  };
  std::vector<std::thread> clients;
  for (std::int64_t c = 0; c < 4; ++c) clients.emplace_back(client, c);
  for (auto& t : clients) t.join();
  threads.reset();  // a wake may still be under way
  CHECK(wrong == 0);
  CHECK(good > 50);
  CHECK(wakes > 0);
  CHECK(f.touches->exposure_bytes() == 0);
  CHECK(store->bytes() <= store->capacity());
  CHECK(p.struck()[static_cast<std::size_t>(fault_kind::late)] > 0);
}

TEST_CASE("memory provider: destroyed under running jobs, with real threads") {
  staging_fixture f;
  const auto threads = std::make_unique<thread_executor>(3);
  f.context.exec = {threads.get(), [](executor*) {}};
  for (int n = 0; n < 50; ++n) {
    std::vector<std::shared_ptr<attempt>> attempts;
    {
      memory_provider p{std::make_shared<memory_store>(1u << 16), f.context};
      const auto handles = f.register_all(p);
      p.on_progress([] {});
      for (std::int64_t i = 0; i < 8; ++i) {
        attempts.push_back(p.publish(extent_of({at("x", 0, i), at("y", 1, i % 6)})));
      }
    }
    for (const auto& a : attempts) {
      while (!a->poll()) std::this_thread::yield();
    }
  }
}

}  // namespace
}  // namespace kvlease::test
