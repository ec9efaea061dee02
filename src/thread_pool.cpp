#include "src/thread_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "src/guard.hpp"

namespace kvlease {

struct thread_pool::shared {
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable idle;
  std::deque<std::function<void()>> queue;
  std::multimap<time_point, std::function<void()>> timed;
  std::size_t running = 0;  ///< threads that have not ended
  std::size_t busy = 0;
  std::uint64_t escaped = 0;
  bool closed = false;
  std::chrono::nanoseconds patience{};

  /// The next job, or nothing once closed. Timed jobs that are due go before the queue's.
  std::function<void()> take(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      if (closed) return {};
      if (!timed.empty() && timed.begin()->first <= std::chrono::steady_clock::now()) {
        auto job = std::move(timed.begin()->second);
        timed.erase(timed.begin());
        return job;
      }
      if (!queue.empty()) {
        auto job = std::move(queue.front());
        queue.pop_front();
        return job;
      }
      if (timed.empty()) {
        work.wait(lock);
      } else {
        const auto due = timed.begin()->first;  // a copy: the entry may go while this waits
        work.wait_until(lock, due);
      }
    }
  }

  void serve() {
    std::unique_lock lock{mutex};
    while (auto job = take(lock)) {
      ++busy;
      lock.unlock();
      bool threw = false;
      try {
        job();
      } catch (...) {
        threw = true;
      }
      job = nullptr;  // what the job holds goes before the thread counts as idle
      lock.lock();
      --busy;
      if (threw) ++escaped;
    }
    --running;
    idle.notify_all();
  }
};

thread_pool::thread_pool(const std::string& name, std::size_t threads, std::chrono::nanoseconds patience)
    : shared_{std::make_shared<shared>()} {
  shared_->patience = patience;
  shared_->running = std::max<std::size_t>(threads, 1);
  for (std::size_t i = 0; i < shared_->running; ++i) {
    std::thread t{[s = shared_] { s->serve(); }};
    pthread_setname_np(t.native_handle(), name.substr(0, 15).c_str());
    t.detach();  // close() waits by count, so that a stuck thread can be left behind
  }
}

thread_pool::~thread_pool() { close(); }

void thread_pool::post(std::function<void()> job) {
  if (mutated(mutation::jobs_run_inline)) return job();
  {
    const std::lock_guard lock{shared_->mutex};
    if (shared_->closed) return;
    shared_->queue.push_back(std::move(job));
  }
  shared_->work.notify_one();
}

void thread_pool::post_after(std::chrono::nanoseconds delay, std::function<void()> job) {
  {
    const std::lock_guard lock{shared_->mutex};
    if (shared_->closed) return;
    shared_->timed.emplace(now() + delay, std::move(job));
  }
  shared_->work.notify_all();  // whoever waits for a later time must look again
}

thread_pool::figures thread_pool::look() const {
  const std::lock_guard lock{shared_->mutex};
  return {shared_->running, shared_->busy, shared_->queue.size() + shared_->timed.size(), shared_->escaped};
}

std::size_t thread_pool::close() {
  {
    std::deque<std::function<void()>> queue;  // destroyed outside the lock, and before the wait
    std::multimap<time_point, std::function<void()>> timed;
    const std::lock_guard lock{shared_->mutex};
    shared_->closed = true;
    queue.swap(shared_->queue);
    timed.swap(shared_->timed);
    shared_->work.notify_all();
  }
  std::unique_lock lock{shared_->mutex};
  const auto patience = mutated(mutation::patience_ignored) ? std::chrono::seconds{3} : shared_->patience;
  shared_->idle.wait_for(lock, patience, [this] { return shared_->running == 0; });
  return shared_->running;
}

}  // namespace kvlease
