// The engine for where io_uring is refused, and for sanitizers: a thread for each transfer at a time, which
// stays in preadv() or pwritev() until the disk has answered.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "src/providers/segment/engine.hpp"

namespace kvlease {

namespace {

/// Shared by the engine and its threads, so that these may outlive it.
struct shared {
  std::mutex mutex;
  std::condition_variable due;
  std::deque<std::shared_ptr<disk_operation>> queue;
  unsigned busy = 0;  ///< threads with an operation
  bool stopping = false;
};

/// The return of the last system call is the end of access.
int move_all(disk_transfer t) {
  for (;;) {
    const auto* parts = t.parts.data();
    const int count = static_cast<int>(t.count);
    const auto offset = static_cast<off_t>(t.offset);
    const auto moved = t.which == disk_transfer::way::read ? ::preadv(t.file, parts, count, offset)
                                                           : ::pwritev(t.file, parts, count, offset);
    if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EIO;  // the file ends before it should
    if (static_cast<std::size_t>(moved) == t.size()) return 0;
    t = t.after(static_cast<std::size_t>(moved));
  }
}

void run(disk_operation& operation) {
  std::optional<disk_transfer> transfer;
  try {
    transfer = operation.begin();
  } catch (...) {
    return operation.end(ENOMEM);  // nothing was begun
  }
  if (transfer) operation.end(move_all(*transfer));
}

void work(const std::shared_ptr<shared>& s) {
  std::unique_lock lock{s->mutex};
  for (;;) {
    s->due.wait(lock, [&] { return s->stopping || !s->queue.empty(); });
    if (s->queue.empty()) return;
    auto operation = std::move(s->queue.front());
    s->queue.pop_front();
    ++s->busy;
    lock.unlock();
    run(*operation);
    lock.lock();
    --s->busy;
    lock.unlock();
    operation.reset();  // may be the last to hold the store, and so this engine
    lock.lock();
  }
}

class thread_engine final : public disk_engine {
 public:
  explicit thread_engine(unsigned depth) {
    try {
      for (unsigned i = 0; i < depth; ++i) threads_.emplace_back([s = shared_] { work(s); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // else fewer have to do
    }
  }
  ~thread_engine() override {
    bool idle = false;
    {
      const std::lock_guard lock{shared_->mutex};
      shared_->stopping = true;
      idle = shared_->busy == 0 && shared_->queue.empty();
    }
    shared_->due.notify_all();
    for (auto& t : threads_)
      if (idle && t.get_id() != std::this_thread::get_id())
        t.join();
      else
        t.detach();
  }
  void submit(disk_operations operations) override {
    const auto s = shared_;  // once they are in the queue, their end may be the end of this object too
    {
      const std::lock_guard lock{s->mutex};
      for (auto& o : operations) s->queue.push_back(std::move(o));
    }
    s->due.notify_all();
  }
  std::string describe() const override { return fmt::format("{} threads", threads_.size()); }

 private:
  const std::shared_ptr<shared> shared_ = std::make_shared<shared>();
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<disk_engine> open_thread_engine(unsigned depth) {
  return std::make_unique<thread_engine>(depth);
}

}  // namespace kvlease
