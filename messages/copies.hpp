// Copies between staging slots and device pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvlease {

enum class copy_kind : std::uint8_t { host_to_device, device_to_host };

struct copy_row {
  std::uintptr_t to = 0;
  std::uintptr_t from = 0;
  std::size_t nbytes = 0;
  friend bool operator==(const copy_row&, const copy_row&) = default;
};

/// An event of the device, handed over by the host: a cudaEvent_t as a number, already recorded. With the
/// host stand-in one of host_device::make_event(). 0: none.
using event_handle = std::uintptr_t;

/// Rows of a batch do not overlap. Those of one lease lie in staging in the order of its slots.
struct copy_batch {
  copy_kind kind = copy_kind::host_to_device;
  std::vector<copy_row> rows;
  /// The copy starts behind this event, and behind nothing else. 0: behind all that the manager's stream
  /// holds when the copy is queued.
  event_handle after = 0;
};

}  // namespace kvlease
