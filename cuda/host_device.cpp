#include "cuda/host_device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvlease {
namespace {

/// Anonymous pages: zero-filled, aligned to the system's page, and only touched ones cost memory.
class mapped_block final : public memory_block {
 public:
  mapped_block(void* at, std::size_t size) : at_{at}, size_{size} {}
  ~mapped_block() override { ::munmap(at_, size_); }
  mapped_block(const mapped_block&) = delete;
  mapped_block& operator=(const mapped_block&) = delete;
  std::uintptr_t address() const noexcept override { return reinterpret_cast<std::uintptr_t>(at_); }
  std::size_t size() const noexcept override { return size_; }

 private:
  void* at_;
  std::size_t size_;
};

result<std::shared_ptr<memory_block>> map(std::size_t nbytes, const char* what) {
  if (nbytes == 0) return fail(errc::invalid, std::string{what} + " of 0 bytes, must be 1 or more");
  void* at = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return fail(errc::no_memory,
                std::string{what} + " of " + std::to_string(nbytes) + " bytes: " + std::strerror(errno));
  return std::make_shared<mapped_block>(at, nbytes);
}

/// The host's own memory: there is nothing to undo.
class lent_block final : public memory_block {
 public:
  lent_block(std::uintptr_t at, std::size_t size) : at_{at}, size_{size} {}
  std::uintptr_t address() const noexcept override { return at_; }
  std::size_t size() const noexcept override { return size_; }

 private:
  std::uintptr_t at_;
  std::size_t size_;
};

const char* name(host_stream mode) {
  switch (mode) {
    case host_stream::threaded:
      return "threaded";
    case host_stream::inline_:
      return "inline";
    case host_stream::manual:
      return "manual";
  }
  return "unknown";
}

const error sticky{errc::device, "the device is lost (injected)"};

std::string text(device_event e) { return "event " + std::to_string(e.value); }

}  // namespace

host_device::host_device(host_stream mode) : mode_{mode}, held_{mode == host_stream::manual} {
  if (mode_ == host_stream::threaded) thread_ = std::thread{[this] { worker(); }};
}

host_device::~host_device() {
  {
    lock held{mutex_};
    stop_ = true;
    queue_.clear();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::string host_device::describe() const { return std::string{"host stand-in, stream "} + name(mode_); }

result<std::shared_ptr<memory_block>> host_device::allocate_device(std::size_t nbytes) {
  return map(nbytes, "device memory");
}

result<std::shared_ptr<memory_block>> host_device::allocate_staging(std::size_t nbytes) {
  return map(nbytes, "staging memory");
}

result<std::shared_ptr<memory_block>> host_device::register_staging(std::uintptr_t address,
                                                                    std::size_t nbytes) {
  if (address == 0) return fail(errc::invalid, "staging memory at a null address can't be registered");
  if (nbytes == 0) return fail(errc::invalid, "staging memory of 0 bytes, must be 1 or more");
  return std::make_shared<lent_block>(address, nbytes);
}

bool host_device::reaches(std::uintptr_t, std::size_t) const { return reaches_; }

void host_device::reach_nothing() { reaches_ = false; }

result<void> host_device::bind_thread() {
  std::thread::id nobody{};
  const std::thread::id self = std::this_thread::get_id();
  if (mode_ != host_stream::threaded) {
    bound_ = self;
    return {};
  }
  if (!bound_.compare_exchange_strong(nobody, self) && nobody != self)
    return fail(errc::state, "host device: another thread is bound, must be one for good");
  return {};
}

void host_device::check_thread() const {
#ifndef NDEBUG
  const std::thread::id bound = bound_;
  assert(mode_ != host_stream::threaded || bound == std::thread::id{} || bound == std::this_thread::get_id());
#endif
}

result<std::size_t> host_device::enqueue(std::shared_ptr<const copy_batch> batch) {
  check_thread();
  if (!batch) return fail(errc::invalid, "copy batch: none given");
  for (std::size_t i = 0; i < batch->rows.size(); ++i) {
    const copy_row& row = batch->rows[i];
    if (row.nbytes > 0 && (row.to == 0 || row.from == 0))
      return fail(errc::invalid, "copy batch: row " + std::to_string(i) + " has a null address");
  }
  lock held{mutex_};
  if (lost_) return tl::unexpected{sticky};
  if (batch->after > marks_)
    return fail(errc::invalid, "copy batch: waits for event " + std::to_string(batch->after) +
                                   ", which mark() did not make");
  if (queue_.size() >= room_)
    return fail(errc::capacity,
                std::to_string(queue_.size()) + " works are queued, the bound is " + std::to_string(room_));
  std::size_t rows = batch->rows.size();
  const bool struck = std::exchange(fail_enqueue_, false);
  if (struck) {
    ++struck_;
    rows = std::min(rows, fail_after_rows_);
  }
  const std::size_t of = batch->rows.size();
  push(held, work{.batch = std::move(batch), .rows = rows});
  if (struck)
    return fail(errc::device, "copy batch: failed after " + std::to_string(rows) + " of " +
                                  std::to_string(of) + " rows (injected)");
  return std::size_t{1};
}

result<device_event> host_device::record(copy_kind) {
  check_thread();
  lock held{mutex_};
  if (lost_) return tl::unexpected{sticky};
  if (std::exchange(fail_record_, false)) {
    ++struck_;
    return fail(errc::device, "event record: failed (injected)");
  }
  const device_event e{++recorded_};
  events_.emplace(e.value, event_memory::recorded);
  push(held, work{.batch = nullptr, .event = e.value});
  return e;
}

result<event_state> host_device::query(device_event e) {
  check_thread();
  lock held{mutex_};
  const auto at = events_.find(e.value);
  if (at == events_.end()) return fail(errc::unknown, text(e) + ": not recorded on this device, or recycled");
  if (lost_) return tl::unexpected{sticky};
  if (std::exchange(fail_query_, false)) {
    ++struck_;
    at->second = event_memory::in_error;
  }
  if (at->second == event_memory::in_error) return fail(errc::device, text(e) + ": query failed (injected)");
  if (e.value > completed_) return event_state::pending;
  at->second = event_memory::seen_complete;
  return event_state::complete;
}

void host_device::recycle(device_event e) {
  check_thread();
  lock held{mutex_};
  const auto at = events_.find(e.value);
  if (at == events_.end() || at->second != event_memory::seen_complete)
    ++bad_recycles_;
  else
    events_.erase(at);
}

std::optional<error> host_device::lost() const {
  lock held{mutex_};
  if (!lost_) return std::nullopt;
  return sticky;
}

void host_device::launch(std::function<void()> call) {
  lock held{mutex_};
  push(held, work{.call = std::move(call)});
}

event_handle host_device::mark() {
  lock held{mutex_};
  return ++marks_;
}

void host_device::lose() {
  lock held{mutex_};
  lost_ = true;
  ++struck_;
}

void host_device::set_room(std::size_t works) {
  lock held{mutex_};
  room_ = works;
}

void host_device::fail_next_enqueue(std::size_t after_rows) {
  lock held{mutex_};
  fail_enqueue_ = true;
  fail_after_rows_ = after_rows;
}

void host_device::fail_next_record() {
  lock held{mutex_};
  fail_record_ = true;
}

void host_device::fail_next_query() {
  lock held{mutex_};
  fail_query_ = true;
}

std::uint64_t host_device::faults_struck() const {
  lock held{mutex_};
  return struck_;
}

void host_device::hold() {
  lock held{mutex_};
  held_ = true;
  changed_.wait(held, [this] { return !busy_; });
}

void host_device::open() {
  lock held{mutex_};
  held_ = false;
  changed_.notify_all();
  if (mode_ != host_stream::threaded) drain_here(held);
}

std::size_t host_device::run(std::size_t n) {
  lock held{mutex_};
  std::size_t ran = 0;
  while (ran < n) {
    changed_.wait(held, [this] { return !busy_; });
    if (queue_.empty()) break;
    run_one(held);
    ++ran;
  }
  return ran;
}

std::size_t host_device::queued() const {
  lock held{mutex_};
  return queue_.size();
}

std::uint64_t host_device::rows_copied() const { return rows_copied_.load(std::memory_order_relaxed); }

std::size_t host_device::live_events() const {
  lock held{mutex_};
  return events_.size();
}

std::uint64_t host_device::bad_recycles() const {
  lock held{mutex_};
  return bad_recycles_;
}

void host_device::push(lock& held, work w) {
  queue_.push_back(std::move(w));
  if (mode_ == host_stream::threaded)
    changed_.notify_all();
  else
    drain_here(held);
}

void host_device::run_one(lock& held) {
  assert(!busy_ && !queue_.empty());
  const work w = std::move(queue_.front());
  queue_.pop_front();
  busy_ = true;
  held.unlock();
  copy(w);
  held.lock();
  busy_ = false;
  if (w.event != 0) {
    assert(w.event > completed_);
    completed_ = w.event;
  }
  changed_.notify_all();
}

void host_device::drain_here(lock& held) {
  for (;;) {
    changed_.wait(held, [this] { return !busy_; });
    if (held_ || queue_.empty()) return;
    run_one(held);
  }
}

void host_device::copy(const work& w) {
  if (w.call) w.call();
  for (std::size_t i = 0; i < w.rows && !stop_.load(std::memory_order_relaxed); ++i) {
    const copy_row& row = w.batch->rows[i];
    if (row.nbytes > 0)
      std::memcpy(reinterpret_cast<void*>(row.to), reinterpret_cast<const void*>(row.from), row.nbytes);
    rows_copied_.fetch_add(1, std::memory_order_relaxed);
  }
}

void host_device::worker() {
  lock held{mutex_};
  for (;;) {
    changed_.wait(held, [this] { return stop_ || (!busy_ && !held_ && !queue_.empty()); });
    if (stop_) return;
    run_one(held);
  }
}

}  // namespace kvlease
