// The memory of one direction of a copy bench, and whether every row of it arrived.
//
// Staging slots are contiguous, as those of a lease are; their pages lie at random in the device's memory,
// and no page lies right behind the page of the slot before. Each way to copy ("target") has a destination of
// its own, so that one can't hide what another did wrong. Destinations are poisoned before, and compared byte
// for byte after; on the device also the pages that no row belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/target.hpp"

namespace kvlease::bench {

struct copy_shape {
  copy_kind kind = copy_kind::host_to_device;
  std::size_t row_bytes = 0;
  std::size_t total_bytes = 0;  ///< of one batch; a multiple of row_bytes
  std::size_t rows() const noexcept { return total_bytes / row_bytes; }
};

/// A page for each slot, all different, and none right behind that of the slot before.
/// Precondition: at least two pages a slot.
std::vector<std::uint32_t> scatter(std::size_t slots, std::size_t pages, std::uint64_t seed);

class copy_arena {
 public:
  struct limits {
    std::size_t most_total = 0;  ///< of any shape to come
    /// A shape's batches cycle through this many bytes or its total, whichever is more: past the caches.
    std::size_t window_bytes = std::size_t{128} << 20;
  };

  /// One target a device: staging is taken from the device that will copy it, and filled with random bytes
  /// where it is the source. Errors: no_memory, device.
  static result<std::unique_ptr<copy_arena>> make(target& on, const std::vector<device_port*>& devices,
                                                  copy_kind kind, const limits& most);

  /// Draws pages for the shape and poisons every target. Precondition: the shape is within the limits.
  result<void> begin(const copy_shape& shape, std::uint64_t seed);
  /// The batches that target `t` cycles through, each with this `after`.
  std::vector<std::shared_ptr<const copy_batch>> batches(std::size_t t, event_handle after = 0) const;
  /// The same bytes as one contiguous row a batch: what one large copy moves.
  std::vector<copy_row> contiguous(std::size_t t) const;
  /// What is wrong in target `t`; empty when nothing is. `scattered`: as batches() say, or contiguous().
  result<std::optional<std::string>> wrong(std::size_t t, bool scattered);

 private:
  copy_arena(target& on, copy_kind kind, const limits& most);
  std::size_t window_of(const copy_shape& shape) const noexcept;
  std::uintptr_t page_at(std::size_t t, std::size_t page) const noexcept;
  std::uintptr_t slot_at(std::size_t t, std::size_t slot) const noexcept;
  std::optional<std::string> compare_pages(std::size_t t, bool scattered);
  std::optional<std::string> compare_slots(std::size_t t, bool scattered) const;

  target& on_;
  const copy_kind kind_;
  const limits most_;
  std::size_t part_bytes_ = 0;   ///< device memory of one target: two windows
  std::size_t most_window_ = 0;  ///< staging of one target
  std::shared_ptr<memory_block>
      pool_;  ///< on the device: a part each target to copy in, one part to copy out
  std::vector<std::shared_ptr<memory_block>> staging_;  ///< a window each target
  std::shared_ptr<memory_block> mirror_;                ///< one part, on the host: of what lies on the device

  copy_shape shape_;
  std::size_t window_ = 0;
  std::vector<std::uint32_t> page_of_slot_;
};

}  // namespace kvlease::bench
