#include "src/providers/segment/committer.hpp"

#include <atomic>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "src/providers/segment/store.hpp"

namespace kvlease {

struct segment_committer::shared {
  std::mutex mutex;
  std::condition_variable due;
  std::vector<std::shared_ptr<incoming_unit>> written, waiting;
  std::atomic<std::size_t> without_place{0};  ///< waiting, or in a round for it
  bool look = false;                          ///< at those that wait
  bool busy = false;
  bool stopping = false;
};

segment_committer::segment_committer()
    : shared_{std::make_shared<shared>()}, thread_{[s = shared_] { work(s); }} {}

segment_committer::~segment_committer() {
  bool busy = false;
  {
    const std::lock_guard lock{shared_->mutex};
    shared_->stopping = true;
    busy = shared_->busy;
  }
  shared_->due.notify_one();
  if (busy)
    thread_.detach();
  else
    thread_.join();
}

// Once a unit is in a list, its end may be the end of this object too.
void segment_committer::add_written(std::shared_ptr<incoming_unit> unit) {
  const auto s = shared_;
  {
    const std::lock_guard lock{s->mutex};
    s->written.push_back(std::move(unit));
  }
  s->due.notify_one();
}

void segment_committer::add_waiting(std::shared_ptr<incoming_unit> unit) {
  const auto s = shared_;
  {
    const std::lock_guard lock{s->mutex};
    s->waiting.push_back(std::move(unit));
    ++s->without_place;
    s->look = true;
  }
  s->due.notify_one();
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
    s->busy = true;
    lock.unlock();
    const bool some = !written.empty();
    const auto asked = waiting.size();
    auto store = (some ? written : waiting).front()->store();
    auto settled = store->round(written, waiting);
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
    store.reset();
    for (auto& unit : settled) std::exchange(unit, nullptr)->tell();
    lock.lock();
    s->busy = false;
  }
}

}  // namespace kvlease
