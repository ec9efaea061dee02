// Two detectors of exposure, outside the adapter (semantics 8).
// 8.1 touch_table: who may touch which slot now; providers that can, pass each read and write through it.
// 8.2 slot_paint: free slots carry a pattern of their slot and generation; a write after the right to it had
//     ended destroys the pattern. It sees no reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "messages/ids.hpp"
#include "messages/staging.hpp"

namespace kvlease {

enum class touch_kind : std::uint8_t { read, write };

/// The right that a provider took at submission: valid while the same lease holds the span.
struct touch_right {
  std::uint64_t holder = 0;
};

/// Thread-safe. Spans outside every part count as exposure: nobody may touch them.
class touch_table {
 public:
  /// Parts must not overlap. A part without positive geometry has no slots.
  explicit touch_table(std::vector<part> parts);

  /// The lender's side: `slots` of part `p` now belong to `to`, which lets a backend write (fetch) or only
  /// read (publish).
  void grant(std::size_t p, std::int64_t slot, lease_id to, bool writable);
  void revoke(std::size_t p, std::int64_t slot);

  /// The provider's side. claim(): who holds the slots at `span` now; a right of nobody, which allows
  /// nothing, when one is free, outside every part, or held by another lease than the first.
  touch_right claim(std::span<const std::byte> span) const;
  /// Call right before bytes move. Counts the bytes of `span` whose slot `right` does not hold any more (or
  /// may not be written), and answers whether there were none.
  bool touch(touch_right right, std::span<const std::byte> span, touch_kind kind);

  std::uint64_t exposure_bytes() const noexcept { return exposure_.load(std::memory_order_relaxed); }
  std::uint64_t touched_bytes() const noexcept { return touched_.load(std::memory_order_relaxed); }

 private:
  struct slot_cell {
    std::atomic<std::uint64_t> holder{0};  ///< lease id; 0 when free
    std::atomic<bool> writable{false};
  };
  struct table {
    part geometry;
    std::unique_ptr<slot_cell[]> cells;
  };
  struct piece {
    const slot_cell* cell;  ///< null outside every slot
    std::size_t size;
  };
  /// The longest beginning of address..+size that lies in one slot, or in none.
  piece first_piece(std::uintptr_t address, std::size_t size) const noexcept;
  slot_cell& cell(std::size_t p, std::int64_t slot);

  std::vector<table> parts_;             ///< in the caller's order: grant() and revoke() name them by index
  std::vector<std::size_t> by_address_;  ///< into parts_, rising
  std::atomic<std::uint64_t> exposure_{0};
  std::atomic<std::uint64_t> touched_{0};
};

enum class paint_mode : std::uint8_t {
  off,
  edges,  ///< the first and last 64 bytes of each 4 KiB
  full,
};

/// Not thread-safe: the lender's own.
class slot_paint {
 public:
  slot_paint(std::vector<part> parts, paint_mode mode);
  /// Call when a slot becomes free: writes the pattern of (part, slot, generation).
  void paint(std::size_t p, std::int64_t slot);
  /// Call before a slot is granted, and at the end: counts the painted bytes that differ. The slot counts as
  /// unpainted afterwards; an unpainted slot has no damage.
  std::uint64_t check(std::size_t p, std::int64_t slot);
  /// Checks every painted slot, without ending its paint: the painted bytes that differ now.
  std::uint64_t check_all();
  /// Each damaged byte counts once, however often its slot is checked.
  std::uint64_t exposure_bytes() const noexcept { return exposure_; }

 private:
  struct slot_state {
    std::uint64_t generation = 0;
    std::uint64_t counted = 0;  ///< damage of this generation that exposure_ holds already
    bool painted = false;
  };
  std::uint64_t count_damage(std::size_t p, std::int64_t slot);
  std::uint64_t damage(std::size_t p, std::int64_t slot) const;
  std::vector<part> parts_;
  std::vector<std::vector<slot_state>> slots_;  ///< by part, then slot
  paint_mode mode_;
  std::uint64_t exposure_ = 0;
};

}  // namespace kvlease
