// A device under test, with what a test needs beside the port: a look into device memory, the manager's own
// work, and a gate on the manager's stream. One on the host stand-in, one on a GPU; the suites run over both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/host_device.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease {
struct cuda_options;
}

namespace kvlease::test {

class device_bench {
 public:
  static std::shared_ptr<device_bench> host(host_stream mode = host_stream::inline_);
  /// Errors: as cuda_device::open; why there is none.
  static result<std::shared_ptr<device_bench>> cuda(const cuda_options& options);
  virtual ~device_bench() = default;

  virtual std::shared_ptr<device_port> port() = 0;
  virtual std::shared_ptr<host_device> host_port() { return nullptr; }  ///< null on a GPU

  // Device memory; these wait until it is done.
  virtual void fill(std::uintptr_t at, std::byte value, std::size_t nbytes) = 0;
  virtual std::vector<std::byte> read(std::uintptr_t at, std::size_t nbytes) = 0;

  // The manager's stream.
  virtual void hold() = 0;  ///< what is queued from now on waits
  virtual void open() = 0;
  /// Work of the manager's own that takes some 50 us and then sets these bytes. Returns at once.
  virtual void compute(std::uintptr_t at, std::byte value, std::size_t nbytes) = 0;
  virtual event_handle mark() = 0;  ///< an event behind all that is queued

  /// Of a GPU alone: the manager's stream is captured into a graph from here on, as an engine does it; true
  /// when the capture came to its end whole.
  virtual void capture() {}
  virtual bool end_capture() { return false; }

  /// Gives queued work the time that it needs, unless it is held. False when there was nothing to wait for.
  virtual bool settle() = 0;
};

/// Waits for the event, 20 s at most. False when its query failed or it did not complete.
bool wait_for(device_bench& bench, device_event e);

}  // namespace kvlease::test
