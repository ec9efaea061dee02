#include "src/containment.hpp"

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "src/guard.hpp"

namespace kvlease {

struct containment::shared {
  callback call;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::optional<fatal_record> fatal;
  bool closed = false;
  bool failed = false;

  void serve() {
    std::unique_lock lock{mutex};
    changed.wait(lock, [this] { return fatal || closed; });
    if (!fatal) return;
    const auto record = *fatal;
    lock.unlock();
    try {
      if (call) call(record);
    } catch (const std::exception& e) {
      note_failure(e.what());
    } catch (...) {
      note_failure("something that is no std::exception");
    }
  }

  /// The decision and the roots stay (4.8).
  void note_failure(const char* what) {
    std::fprintf(stderr, "kvlease: the containment callback threw: %s; all memory stays mapped\n", what);
    const std::lock_guard again{mutex};
    failed = true;
  }
};

containment::containment(callback call) : shared_{std::make_shared<shared>()} {
  shared_->call = std::move(call);
  if (!mutated(mutation::contain_thread_late)) std::thread{[s = shared_] { s->serve(); }}.detach();
}

containment::~containment() {
  const std::lock_guard lock{shared_->mutex};
  shared_->closed = true;
  shared_->changed.notify_all();
}

void containment::trigger(const fatal_record& fatal) {
  const std::lock_guard lock{shared_->mutex};
  const bool repeated = shared_->fatal.has_value();
  if (repeated && !mutated(mutation::contain_repeats)) return;
  shared_->fatal = fatal;
  if (mutated(mutation::contain_inline)) return shared_->call(fatal);
  if (repeated || mutated(mutation::contain_thread_late)) std::thread{[s = shared_] { s->serve(); }}.detach();
  shared_->changed.notify_all();
}

bool containment::failed() const {
  const std::lock_guard lock{shared_->mutex};
  return shared_->failed;
}

}  // namespace kvlease
