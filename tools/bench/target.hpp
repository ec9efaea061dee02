// What a bench measures on: the device under test, and raw work beside it that the device port does not
// offer. target_cuda.cpp implements it on a GPU, target_host.cpp on the host stand-in. Threads: one thread
// uses a target and all that comes from it, unless a call says otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/copies.hpp"
#include "messages/error.hpp"
#include "src/include/kvlease/cuda_device.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease::bench {

struct target_facts {
  std::string device;  ///< its name
  std::string bus_id;
  std::string driver;   ///< "13.0"; empty on the host stand-in
  std::string runtime;  ///< likewise
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
};

/// A stream of the bench's own, with plain copies on it. Work on it runs in order.
class lane {
 public:
  virtual ~lane() = default;
  /// One cudaMemcpyAsync.
  virtual result<void> copy(copy_kind kind, std::uintptr_t to, std::uintptr_t from, std::size_t nbytes) = 0;
  /// Records the lane's event behind all that was queued.
  virtual result<void> mark() = 0;
  /// Whether the stream has passed the last mark. Never waits.
  virtual result<bool> reached() = 0;
  /// The last mark as copy_batch::after takes it. Stays the same when the lane is marked again.
  virtual event_handle event() const = 0;
  /// Calls back on a thread of the driver, which stores the nanoseconds of steady_clock in `stamp`.
  /// Errors: unsupported, on the host stand-in.
  virtual result<void> stamp_from_callback(std::atomic<std::int64_t>& stamp) = 0;
};

/// Keeps a stream from going on, until it is opened.
class gate {
 public:
  virtual ~gate() = default;
  /// Holds back all that is queued on the stream from now on. On a GPU a kernel waits there, `limit` at most.
  virtual result<void> close(std::chrono::nanoseconds limit) = 0;
  /// Returns at once.
  virtual void open() = 0;
};

/// A compute load that runs from its making until its destruction.
class busy_load {
 public:
  virtual ~busy_load() = default;
  /// Fused multiply-adds done so far, counted by the load itself in device memory. Waits for the answer.
  /// Errors: whatever ended the load.
  virtual result<double> operations() = 0;
};

class target {
 public:
  virtual ~target() = default;
  virtual const target_facts& facts() const = 0;

  /// A device with these settings, on this target's GPU, bound to no thread yet. The host stand-in has no
  /// settings.
  virtual result<std::shared_ptr<device_port>> open(cuda_options settings) = 0;
  virtual result<std::unique_ptr<lane>> open_lane() = 0;
  /// A gate on the manager's stream of a device from open().
  virtual result<std::unique_ptr<gate>> gate_on(const std::shared_ptr<device_port>& device) = 0;
  virtual result<std::unique_ptr<gate>> gate_on(lane& stream) = 0;
  /// Errors: unsupported, on the host stand-in.
  virtual result<std::unique_ptr<busy_load>> start_load() = 0;

  // These wait until it is done.
  virtual result<void> upload(std::uintptr_t to, const std::byte* from, std::size_t nbytes) = 0;
  virtual result<void> download(std::byte* to, std::uintptr_t from, std::size_t nbytes) = 0;
  virtual result<void> fill(std::uintptr_t at, std::byte value, std::size_t nbytes) = 0;
};

/// Errors: as cuda_devices(); invalid when there is no such device.
result<std::unique_ptr<target>> open_cuda_target(int device);
std::unique_ptr<target> open_host_target();

}  // namespace kvlease::bench
