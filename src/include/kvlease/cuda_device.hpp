// The device port on a GPU: plain device memory, page-locked staging, copies at the speed of the bus.
// In a build without CUDA every call says so.
//
// The copies of each direction have streams of their own. A batch starts behind the event that the host
// handed over with it, or behind all that is on the manager's stream; and the manager's stream waits for each
// batch that was queued. So batches with an event of their own run in both directions at once, and batches
// without one run in the order of the manager's stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/copy_path.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease {

struct cuda_options {
  int device = 0;  ///< ordinal, as cudaSetDevice takes it
  /// The manager's cudaStream_t, kept alive by the host; not cudaStreamPerThread. Null: the device makes one.
  /// An engine on the default stream, whose handle is null, gives cudaStreamLegacy.
  void* stream = nullptr;
  /// Device memory for the chunks of path `bulk`, a direction. Range: 2 MiB and more.
  std::size_t bounce_bytes = std::size_t{128} << 20;
  /// One chunk of path `bulk` at most. Range: 1 MiB to a half of bounce_bytes.
  std::size_t chunk_bytes = std::size_t{32} << 20;
  /// Blocks of 256 threads that a copy kernel may take. Range: 1 to 1,024.
  unsigned sm_budget = 64;
  device_load load = device_load::busy;  ///< what the choice of path assumes
  std::optional<copy_table> table;       ///< absent: copy_table::for_device()
  std::optional<copy_path> always;       ///< this path for every batch, to measure
};

struct cuda_device_info {
  std::string name;
  std::size_t memory_bytes = 0;
  int multiprocessors = 0;
  int driver_version = 0;   ///< as cudaDriverGetVersion: 13000 is 13.0
  int runtime_version = 0;  ///< as cudaRuntimeGetVersion
  std::string bus_id;
};

/// The devices of this machine, by ordinal. Errors: unsupported (a build without CUDA), device (no driver, no
/// device), each with the reason.
result<std::vector<cuda_device_info>> cuda_devices();

class cuda_device : public device_port {
 public:
  /// Errors: unsupported, device, no_memory; invalid with the option, its value and its range.
  static result<std::shared_ptr<cuda_device>> open(cuda_options options = {});

  /// The manager's cudaStream_t.
  virtual void* stream() const noexcept = 0;
  /// May be called on any thread; counts for the batches to come.
  virtual void set_load(device_load load) noexcept = 0;
  /// How many batches took each path, in the order of all_copy_paths.
  virtual std::array<std::uint64_t, all_copy_paths.size()> batches_by_path() const = 0;
};

}  // namespace kvlease
