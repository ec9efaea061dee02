// Ways to copy a batch between staging and pages on a GPU, and which one a batch takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/copies.hpp"
#include "messages/error.hpp"

namespace kvlease {

enum class copy_path : std::uint8_t {
  rows,    ///< one cudaMemcpyAsync a run of rows that are contiguous on both sides
  batch,   ///< cudaMemcpyBatchAsync
  kernel,  ///< one kernel that reads or writes staging over the bus
  bulk,    ///< copies of contiguous staging to or from a bounce buffer, and a kernel between it and the pages
};
inline constexpr std::array all_copy_paths{copy_path::rows, copy_path::batch, copy_path::kernel,
                                           copy_path::bulk};

std::string_view to_string(copy_path path) noexcept;
/// Errors: invalid, with the name.
result<copy_path> parse_copy_path(std::string_view name);

/// Whether the host keeps the multiprocessors busy beside the copies.
enum class device_load : std::uint8_t { idle, busy };

std::string_view to_string(device_load load) noexcept;
std::string_view to_string(copy_kind kind) noexcept;  ///< "h2d" or "d2h"

/// What the choice depends on.
struct batch_shape {
  copy_kind kind = copy_kind::host_to_device;
  device_load load = device_load::busy;
  std::size_t rows = 0;         ///< after contiguous ones were merged
  std::size_t total_bytes = 0;  ///< of all rows
  std::size_t runs = 0;         ///< of contiguous staging
};

/// One line of a table: the path that was best for batches of about this shape.
struct copy_choice {
  copy_kind kind = copy_kind::host_to_device;
  device_load load = device_load::busy;
  std::size_t row_bytes = 0;
  std::size_t total_bytes = 0;
  copy_path path = copy_path::bulk;
  friend bool operator==(const copy_choice&, const copy_choice&) = default;
};

/// Choices as `kvlease bench copy --table FILE` measured them on one kind of device.
class copy_table {
 public:
  copy_table() = default;
  copy_table(std::string device, std::vector<copy_choice> choices);

  /// One choice a line, `h2d busy 4096 1048576 kernel`; `device NAME` first; # starts a comment.
  /// Errors: invalid, with the line's number.
  static result<copy_table> parse(std::string_view text);
  std::string text() const;
  /// The table that comes with the library for this device's name, or one for devices that are not known.
  static copy_table for_device(std::string_view name);

  const std::string& device() const noexcept { return device_; }
  const std::vector<copy_choice>& choices() const noexcept { return choices_; }

  /// The choice nearest to the shape, on logarithmic scales of row and batch size. Rows that are not
  /// contiguous in staging leave `bulk` out where its copies would be as small as the rows.
  copy_path choose(const batch_shape& shape) const;

 private:
  std::string device_;
  std::vector<copy_choice> choices_;
};

}  // namespace kvlease
