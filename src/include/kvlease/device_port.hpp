// The device port: memory, the manager's stream, and events on it. cuda/host_device.hpp implements it
// without a GPU, kvlease/cuda_device.hpp with one.
// Threads: the CUDA actor alone enqueues, records, queries and recycles; none of these waits for the device.
// Memory may be allocated on any thread, and can take long: before the actors start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "messages/copies.hpp"
#include "messages/error.hpp"

namespace kvlease {

/// Owned memory, given back by the destructor. Never moved.
class memory_block {
 public:
  virtual ~memory_block() = default;
  virtual std::uintptr_t address() const noexcept = 0;
  virtual std::size_t size() const noexcept = 0;
};

/// Memory of the host's own.
struct host_span {
  std::uintptr_t address = 0;
  std::size_t nbytes = 0;
};

/// A recorded point of one direction's copies.
struct device_event {
  std::uint64_t value = 0;
};

enum class event_state : std::uint8_t { pending, complete };

class device_port {
 public:
  virtual ~device_port() = default;
  virtual std::string describe() const = 0;

  /// Errors: invalid for 0 bytes; no_memory with the size.
  virtual result<std::shared_ptr<memory_block>> allocate_device(std::size_t nbytes) = 0;
  /// Page-locked where the device gains from it. Errors: as above.
  virtual result<std::shared_ptr<memory_block>> allocate_staging(std::size_t nbytes) = 0;
  /// Makes the host's own memory fit for staging. The block's destructor undoes that, and leaves the memory
  /// itself to the host. Errors: invalid (null, 0 bytes, registered already); no_memory.
  virtual result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t address,
                                                                 std::size_t nbytes) = 0;

  /// Can copies read and write this memory of the host? Any thread.
  virtual bool reaches(std::uintptr_t address, std::size_t nbytes) const = 0;

  /// Whether asking without a pause pays: the copies need none of this machine's processors.
  virtual bool spins() const { return false; }

  /// Called once on the thread of the CUDA actor before anything below.
  virtual result<void> bind_thread() = 0;
  /// Queues the rows behind `batch->after`, or behind all that the manager's stream holds now. Copies of one
  /// kind end in the order in which they were queued. Answers how many operations that took on the device's
  /// queues, at least 1. The device keeps the batch until it has run. Errors: capacity, with nothing queued
  /// (ask again once an event of this kind has completed); after any other, any part of the batch may have
  /// been queued.
  virtual result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) = 0;
  /// An event behind all copies of this kind that were queued. Events of a kind complete in order. Work that
  /// is put on the manager's stream from now on waits for it.
  virtual result<device_event> record(copy_kind kind) = 0;
  /// Never blocks. An error means that nothing can be said about the event, now or later.
  virtual result<event_state> query(device_event e) = 0;
  /// Gives back an event that was seen complete, for reuse.
  virtual void recycle(device_event e) = 0;
  /// Why nothing can be said any more about any copy of the device, under way or to come (5.6).
  virtual std::optional<error> lost() const = 0;
};

}  // namespace kvlease
