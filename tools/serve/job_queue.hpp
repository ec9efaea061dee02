// A few threads and a bounded queue: what does not fit is refused at once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvlease::serve {

class job_queue {
 public:
  job_queue(std::size_t threads, std::size_t max_waiting) : max_{max_waiting} {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~job_queue() { close(); }
  job_queue(const job_queue&) = delete;
  job_queue& operator=(const job_queue&) = delete;

  /// Any thread. Whether it was taken.
  bool post(std::function<void()> job) {
    const std::lock_guard lock{mutex_};
    if (closed_ || jobs_.size() >= max_) return false;
    jobs_.push_back(std::move(job));
    changed_.notify_one();
    return true;
  }
  /// Drops what waits, and waits for what runs. By one thread.
  void close() {
    std::deque<std::function<void()>> dropped;
    {
      const std::lock_guard lock{mutex_};
      closed_ = true;
      dropped.swap(jobs_);
      changed_.notify_all();
    }
    for (auto& t : threads_)
      if (t.joinable()) t.join();
  }

 private:
  void run() {
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
      if (closed_) return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  const std::size_t max_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvlease::serve
