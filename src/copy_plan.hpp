// How a batch of rows is cut for a GPU: contiguous rows merged, rows cut into pieces for a kernel, and chunks
// that travel through a bounce buffer. Arithmetic only; addresses are numbers here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "messages/copies.hpp"
#include "src/copy_path.hpp"

namespace kvlease {

inline constexpr std::size_t piece_bytes = 16 * 1024;  ///< of one piece, at most

#ifdef __CUDACC__
#define KVLEASE_ANYWHERE __host__ __device__
#else
#define KVLEASE_ANYWHERE
#endif

/// What one warp of a copy kernel moves at a time. The kernels read tables of these over the bus, so it is
/// short: no address has more than 57 bits, and the size less one, of 14 bits, lies above the two.
class alignas(16) copy_piece {
 public:
  copy_piece() = default;
  /// Precondition: nbytes is from 1 to piece_bytes.
  KVLEASE_ANYWHERE constexpr copy_piece(std::uint64_t to, std::uint64_t from, std::size_t nbytes)
      : to_{to | (nbytes - 1) << address_bits}, from_{from | (nbytes - 1) >> size_bits << address_bits} {}
  KVLEASE_ANYWHERE constexpr std::uint64_t to() const { return to_ & address_mask; }
  KVLEASE_ANYWHERE constexpr std::uint64_t from() const { return from_ & address_mask; }
  KVLEASE_ANYWHERE constexpr std::uint32_t nbytes() const {
    return static_cast<std::uint32_t>((to_ >> address_bits | from_ >> address_bits << size_bits) + 1);
  }
  friend bool operator==(const copy_piece&, const copy_piece&) = default;

 private:
  static constexpr int address_bits = 57;
  static constexpr int size_bits = 64 - address_bits;
  static constexpr std::uint64_t address_mask = (std::uint64_t{1} << address_bits) - 1;
  static_assert(piece_bytes <= std::size_t{1} << 2 * size_bits);

  std::uint64_t to_ = 0;
  std::uint64_t from_ = 0;
};
#undef KVLEASE_ANYWHERE

/// Reads rows in their order, without empty ones, neighbours that are contiguous on both sides as one.
class merged_rows {
 public:
  explicit merged_rows(std::span<const copy_row> rows) : rows_{rows} {}
  /// False at the end.
  bool next(copy_row& row) {
    while (at_ < rows_.size() && rows_[at_].nbytes == 0) ++at_;
    if (at_ == rows_.size()) return false;
    row = rows_[at_++];
    while (at_ < rows_.size()) {
      const auto& behind = rows_[at_];
      if (behind.nbytes != 0) {
        if (row.to + row.nbytes != behind.to || row.from + row.nbytes != behind.from) break;
        row.nbytes += behind.nbytes;
      }
      ++at_;
    }
    return true;
  }

 private:
  std::span<const copy_row> rows_;
  std::size_t at_ = 0;
};

std::vector<copy_row> merge_rows(std::span<const copy_row> rows);

/// What all rows have, in one pass that is as short as it can be.
struct batch_sum {
  std::size_t total_bytes = 0;
  std::size_t bad_row = SIZE_MAX;  ///< the first one with bytes and a null address
  std::uintptr_t staging_begin = UINTPTR_MAX, staging_end = 0;  ///< all of its staging lies in between
};
batch_sum sum_of(copy_kind kind, std::span<const copy_row> rows);

/// So many rows are looked at before the first of them is on its way; those of a larger batch are checked as
/// they go.
inline constexpr std::size_t sample_rows = 256;

/// The shape by the first sample_rows: the others are taken to be like them.
batch_shape shape_of(copy_kind kind, device_load load, std::span<const copy_row> rows);

/// How many pieces cut() makes of the row.
constexpr std::size_t pieces_of(std::size_t nbytes) { return (nbytes + piece_bytes - 1) / piece_bytes; }
/// Hardly fewer than the pieces of all rows, whichever chunks they are cut into.
constexpr std::size_t likely_pieces(std::size_t rows, std::size_t total_bytes) {
  return rows + total_bytes / piece_bytes + 64;
}
/// Writes pieces_of() them to `out`; answers the place behind the last.
copy_piece* cut(const copy_row& row, copy_piece* out);

/// Part of a batch that fills one bounce buffer.
struct bulk_chunk {
  std::size_t nbytes = 0;
  std::vector<copy_row> bus;    ///< staging ↔ bounce buffer: one contiguous run each
  bool null_page = false;       ///< a row has one: the chunk must not be queued
  std::size_t most_pieces = 0;  ///< bulk_plan::cut() makes no more of it
  std::size_t first_row = 0;    ///< of the batch, that it takes bytes of
  std::size_t first_byte = 0;   ///< of that row
};

/// Cuts a batch into chunks in two steps, so that its bytes are on the bus while it is still being cut:
/// next() only finds the runs of staging, cut() makes the pieces for the kernel.
/// A chunk is small where nothing overlaps with it: the first of a copy to the host, which a kernel has to
/// gather before the bus has work, and the last of a copy to the device, which a kernel scatters when the bus
/// is done. Otherwise chunks are few: each one costs the bus 2.4 us (docs/devices.md).
class bulk_plan {
 public:
  /// Precondition: chunk_bytes is 64 KiB or more. `total_bytes` may be an estimate. `bus_is_busy`: other
  /// copies are under way, so that the first chunk need not be small.
  bulk_plan(copy_kind kind, std::span<const copy_row> rows, std::size_t total_bytes, std::size_t chunk_bytes,
            bool bus_is_busy = false);
  /// Fills `chunk` for the bounce buffer at this address, at most chunk_bytes with all gaps. False at the
  /// end.
  bool next(bulk_chunk& chunk, std::uintptr_t bounce);
  /// Writes the pieces between bounce buffer and pages of a chunk that next() has filled, most_pieces or
  /// fewer, contiguous neighbours as one. Answers the place behind the last.
  copy_piece* cut(const bulk_chunk& chunk, copy_piece* out) const;

 private:
  std::size_t target() const noexcept;

  copy_kind kind_;
  std::span<const copy_row> rows_;
  std::size_t row_ = 0;       ///< that is next
  std::size_t row_byte_ = 0;  ///< of it
  std::size_t chunk_bytes_;
  std::size_t first_ = 0;  ///< chunk, bytes
  std::size_t last_;       ///< likewise, of a copy to the device
  std::size_t left_;       ///< bytes
  std::size_t chunks_ = 0;
  std::span<const std::size_t> ramp_;  ///< sizes of the first chunks; those behind have chunk_bytes_
};

}  // namespace kvlease
