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
};

struct copy_batch {
  copy_kind kind = copy_kind::host_to_device;
  std::vector<copy_row> rows;
};

}  // namespace kvlease
