// The device port: memory, the manager's stream, and events on it. cuda/host_device.hpp implements it
// without a GPU, cuda/cuda_device.hpp with one.
// Threads: the CUDA actor alone enqueues, records and queries; allocation happens before it starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/copies.hpp"
#include "messages/error.hpp"

namespace kvlease {

/// Owned memory, unmapped by the destructor. Never moved.
class memory_block {
 public:
  virtual ~memory_block() = default;
  virtual std::uintptr_t address() const noexcept = 0;
  virtual std::size_t size() const noexcept = 0;
};

/// A recorded point of the stream.
struct device_event {
  std::uint64_t value = 0;
};

enum class event_state : std::uint8_t { pending, complete };

class device_port {
 public:
  virtual ~device_port() = default;
  virtual std::string describe() const = 0;

  /// Errors: no_memory with the size.
  virtual result<std::shared_ptr<memory_block>> allocate_device(std::size_t nbytes) = 0;
  /// Page-locked where the device gains from it. Errors: no_memory with the size.
  virtual result<std::shared_ptr<memory_block>> allocate_staging(std::size_t nbytes) = 0;

  /// Called once on the thread of the CUDA actor before anything below.
  virtual result<void> bind_thread() = 0;
  /// Queues the rows on the manager's stream, in order behind all that was queued. After an error any part
  /// of the batch may have been queued. The device keeps the batch until it has run.
  virtual result<void> enqueue(std::shared_ptr<const copy_batch> batch) = 0;
  /// An event behind all that was queued. Events complete in order.
  virtual result<device_event> record() = 0;
  /// Never blocks. An error means that nothing can be said about the event, now or later.
  virtual result<event_state> query(device_event e) = 0;
  /// Gives back an event that was seen complete, for reuse.
  virtual void recycle(device_event e) = 0;
};

}  // namespace kvlease
