#include "tools/bench/watched_device.hpp"

#include <pthread.h>

#include <cassert>
#include <chrono>
#include <cstring>
#include <utility>

namespace kvlease::bench {

std::int64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

watched_device::watched_device(std::shared_ptr<device_port> watched) : to_{std::move(watched)} {}

double watched_device::cpu_seconds() const {
  assert(bound());
  timespec t{};
  ::clock_gettime(clock_, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

result<std::shared_ptr<memory_block>> watched_device::allocate_device(std::size_t nbytes) {
  return to_->allocate_device(nbytes);
}

result<std::shared_ptr<memory_block>> watched_device::allocate_staging(std::size_t nbytes) {
  return to_->allocate_staging(nbytes);
}

result<std::shared_ptr<memory_block>> watched_device::register_staging(std::uintptr_t address,
                                                                       std::size_t nbytes) {
  return to_->register_staging(address, nbytes);
}

bool watched_device::reaches(std::uintptr_t address, std::size_t nbytes) const {
  return to_->reaches(address, nbytes);
}

result<void> watched_device::bind_thread() {
  if (const int problem = ::pthread_getcpuclockid(::pthread_self(), &clock_); problem != 0)
    return fail(errc::unsupported, std::string{"the CPU clock of a thread: "} + std::strerror(problem));
  auto bound = to_->bind_thread();
  if (bound) bound_.store(true, std::memory_order_release);
  return bound;
}

result<std::size_t> watched_device::enqueue(std::shared_ptr<const copy_batch> batch) {
  return to_->enqueue(std::move(batch));
}

result<device_event> watched_device::record(copy_kind kind) {
  auto event = to_->record(kind);
  if (event) recorded_.fetch_add(1, std::memory_order_release);
  return event;
}

result<event_state> watched_device::query(device_event e) {
  auto state = to_->query(e);
  if (state && *state == event_state::complete) seen_.store(steady_ns(), std::memory_order_release);
  return state;
}

}  // namespace kvlease::bench
