#include "src/providers/segment_committer.hpp"

#include <atomic>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "src/providers/segment_store.hpp"

namespace kvlease {

struct segment_committer::shared {
  std::mutex mutex;
  std::condition_variable due;
  std::vector<std::shared_ptr<incoming_unit>> written, waiting;
  std::atomic<std::size_t> without_place{0};  ///< waiting, or in a round for it
  bool look = false;                          ///< at those that wait
  bool stopping = false;
};

segment_committer::segment_committer()
    : shared_{std::make_shared<shared>()}, thread_{[s = shared_] { work(s); }} {}

segment_committer::~segment_committer() {
  {
    const std::lock_guard lock{shared_->mutex};
    shared_->stopping = true;
  }
  shared_->due.notify_one();
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
}

void segment_committer::add_written(std::shared_ptr<incoming_unit> unit) {
  {
    const std::lock_guard lock{shared_->mutex};
    shared_->written.push_back(std::move(unit));
  }
  shared_->due.notify_one();
}

void segment_committer::add_waiting(std::shared_ptr<incoming_unit> unit) {
  {
    const std::lock_guard lock{shared_->mutex};
    shared_->waiting.push_back(std::move(unit));
    ++shared_->without_place;
    shared_->look = true;
  }
  shared_->due.notify_one();
}

void segment_committer::look_again() {
  if (shared_->without_place == 0) return;
  {
    const std::lock_guard lock{shared_->mutex};
    shared_->look = true;  // also for those that are in a round just now
  }
  shared_->due.notify_one();
}

void segment_committer::work(const std::shared_ptr<shared>& s) {
  std::unique_lock lock{s->mutex};
  for (;;) {
    s->due.wait(lock, [&] { return s->stopping || !s->written.empty() || (s->look && !s->waiting.empty()); });
    if (s->written.empty() && s->waiting.empty()) {
      if (s->stopping) return;
      continue;
    }
    auto written = std::exchange(s->written, {});
    auto waiting = std::exchange(s->waiting, {});
    s->look = false;
    lock.unlock();
    const bool some = !written.empty();
    const auto asked = waiting.size();
    // One of them holds the store until the round is over.
    auto holder = some ? written.front() : waiting.front();
    holder->store().round(written, waiting);
    lock.lock();
    s->without_place -= asked - waiting.size();
    s->written.insert(s->written.begin(), std::make_move_iterator(written.begin()),
                      std::make_move_iterator(written.end()));
    s->waiting.insert(s->waiting.begin(), std::make_move_iterator(waiting.begin()),
                      std::make_move_iterator(waiting.end()));
    s->look |= some;
    lock.unlock();
    written.clear();
    waiting.clear();
    holder.reset();  // may be the last to hold the store
    lock.lock();
  }
}

}  // namespace kvlease
