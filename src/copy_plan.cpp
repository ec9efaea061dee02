#include "src/copy_plan.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace kvlease {

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
/// The first chunks of a copy to the host: while one is on the bus, the next must be cut and gathered.
constexpr std::size_t ramp[] = {1 * mib, 8 * mib, 24 * mib};
constexpr std::size_t ramp_of_small_rows[] = {1 * mib, 3 * mib, 8 * mib, 24 * mib};
constexpr std::size_t small_row = 12 * 1024;
constexpr std::size_t first_rows = 1024;     ///< looked at before the first byte of a copy to the device goes
constexpr std::size_t last_chunk = 3 * mib;  ///< at most, of a copy to the device
constexpr std::size_t rows_ahead = 128;      ///< that are fetched into the processor's cache
constexpr std::size_t run_alignment = 256;   ///< of a run in the bounce buffer, before its page's own offset

std::uintptr_t staging_side(copy_kind kind, const copy_row& row) {
  return kind == copy_kind::host_to_device ? row.from : row.to;
}
std::uintptr_t page_side(copy_kind kind, const copy_row& row) {
  return kind == copy_kind::host_to_device ? row.to : row.from;
}
copy_row row_between(copy_kind kind, std::uintptr_t nearer_host, std::uintptr_t nearer_pages,
                     std::size_t nbytes) {
  return kind == copy_kind::host_to_device ? copy_row{nearer_pages, nearer_host, nbytes}
                                           : copy_row{nearer_host, nearer_pages, nbytes};
}

}  // namespace

std::vector<copy_row> merge_rows(std::span<const copy_row> rows) {
  std::vector<copy_row> merged;
  merged_rows from{rows};
  for (copy_row row; from.next(row);) merged.push_back(row);
  return merged;
}

batch_sum sum_of(copy_kind kind, std::span<const copy_row> rows) {
  batch_sum sum;
  bool bad = false;
  for (const auto& row : rows) {
    const auto at = staging_side(kind, row);
    sum.total_bytes += row.nbytes;
    sum.staging_begin = std::min(sum.staging_begin, at);
    sum.staging_end = std::max(sum.staging_end, at + row.nbytes);
    bad |= row.to == 0 || row.from == 0;
  }
  if (bad)
    for (std::size_t i = 0; i < rows.size() && sum.bad_row == SIZE_MAX; ++i)
      if (rows[i].nbytes > 0 && (rows[i].to == 0 || rows[i].from == 0)) sum.bad_row = i;
  return sum;
}

batch_shape shape_of(copy_kind kind, device_load load, std::span<const copy_row> rows) {
  const auto seen = rows.first(std::min(rows.size(), sample_rows));
  batch_shape shape{kind, load, 0, 0, 0};
  std::uintptr_t end = 0;
  merged_rows from{seen};
  for (copy_row row; from.next(row);) {
    ++shape.rows;
    shape.total_bytes += row.nbytes;
    const auto at = staging_side(kind, row);
    if (at != end) ++shape.runs;
    end = at + row.nbytes;
  }
  if (seen.size() < rows.size()) {
    const auto all = [&](std::size_t n) { return std::max<std::size_t>(n * rows.size() / seen.size(), 1); };
    shape.rows = all(shape.rows);
    shape.total_bytes = all(shape.total_bytes);
    if (shape.runs > 1) shape.runs = all(shape.runs);
  }
  return shape;
}

copy_piece* cut(const copy_row& row, copy_piece* out) {
  for (std::size_t done = 0; done < row.nbytes; done += piece_bytes)
    *out++ = {row.to + done, row.from + done, std::min(piece_bytes, row.nbytes - done)};
  return out;
}

bulk_plan::bulk_plan(copy_kind kind, std::span<const copy_row> rows, std::size_t total_bytes,
                     std::size_t chunk_bytes, bool bus_is_busy)
    : kind_{kind},
      rows_{rows},
      chunk_bytes_{chunk_bytes},
      last_{total_bytes < 8 * mib ? 0 : std::min(last_chunk, total_bytes / 8)},
      left_{total_bytes} {
  assert(chunk_bytes >= 64 * 1024);
  const auto row_bytes = rows.empty() ? 0 : total_bytes / rows.size();
  if (bus_is_busy)
    first_ = chunk_bytes;
  else if (kind == copy_kind::host_to_device)
    first_ = std::max(mib, first_rows * row_bytes);
  else
    ramp_ = row_bytes < small_row ? std::span<const std::size_t>{ramp_of_small_rows} : ramp;
}

std::size_t bulk_plan::target() const noexcept {
  auto bytes = chunks_ == 0 ? first_ : chunk_bytes_;
  if (chunks_ < ramp_.size()) bytes = ramp_[chunks_];
  bytes = std::min(bytes, chunk_bytes_);
  if (kind_ == copy_kind::host_to_device && last_ > 0 && left_ > last_ && bytes + last_ > left_)
    bytes = left_ - last_;
  return std::max<std::size_t>(bytes, 1);
}

bool bulk_plan::next(bulk_chunk& chunk, std::uintptr_t bounce) {
  while (row_ < rows_.size() && rows_[row_].nbytes == 0) ++row_;
  chunk.bus.clear();
  chunk.nbytes = chunk.most_pieces = 0;
  chunk.null_page = false;
  chunk.first_row = row_;
  chunk.first_byte = row_byte_;
  if (row_ == rows_.size()) return false;
  const auto target_bytes = target();
  std::size_t offset = 0;          // in the bounce buffer
  std::uintptr_t staging_end = 0;  // of the last run
  while (row_ < rows_.size() && chunk.nbytes < target_bytes) {
    const auto& row = rows_[row_];
    __builtin_prefetch(rows_.data() + std::min(row_ + rows_ahead, rows_.size()));
    const auto staging = staging_side(kind_, row) + row_byte_, page = page_side(kind_, row) + row_byte_;
    const auto row_left = row.nbytes - row_byte_;
    if (row_left == 0) {
      ++row_;
      continue;
    }
    chunk.null_page |= page == row_byte_;
    if (chunk.bus.empty() || staging != staging_end) {
      // A run starts where its first row is aligned as its page is: then kernels move 16 bytes at once.
      const auto start = (offset + run_alignment - 1) / run_alignment * run_alignment + page % 16;
      if (start >= chunk_bytes_) break;
      offset = start;
      chunk.bus.push_back(row_between(kind_, staging, bounce + offset, 0));
    }
    const auto nbytes = std::min({row_left, target_bytes - chunk.nbytes, chunk_bytes_ - offset});
    if (nbytes == 0) break;
    chunk.bus.back().nbytes += nbytes;
    chunk.most_pieces += pieces_of(nbytes);
    chunk.nbytes += nbytes;
    offset += nbytes;
    staging_end = staging + nbytes;
    row_byte_ += nbytes;
    if (nbytes == row_left) {
      ++row_;
      row_byte_ = 0;
    }
  }
  ++chunks_;
  left_ -= std::min(left_, chunk.nbytes);
  return true;
}

copy_piece* bulk_plan::cut(const bulk_chunk& chunk, copy_piece* out) const {
  const bool in = kind_ == copy_kind::host_to_device;
  std::size_t run = 0, in_run = 0;  // of chunk.bus
  auto row_byte = chunk.first_byte;
  // What may yet grow; in registers, since this loop is what publishing small rows waits for.
  std::uintptr_t bounce_at = 0, page_at = 0;
  std::size_t open = 0;
  const auto close = [&] {
    for (; open > piece_bytes; open -= piece_bytes, bounce_at += piece_bytes, page_at += piece_bytes)
      *out++ = in ? copy_piece{page_at, bounce_at, piece_bytes} : copy_piece{bounce_at, page_at, piece_bytes};
    if (open > 0) *out++ = in ? copy_piece{page_at, bounce_at, open} : copy_piece{bounce_at, page_at, open};
  };
  auto left = chunk.nbytes;
  for (auto i = chunk.first_row; left > 0; ++i) {
    const auto& row = rows_[i];
    const auto nbytes = std::min(row.nbytes - row_byte, left);
    if (nbytes == 0) continue;
    if (in_run == chunk.bus[run].nbytes) {
      ++run;
      in_run = 0;
    }
    const auto bounce = (in ? chunk.bus[run].to : chunk.bus[run].from) + in_run;
    const auto page = page_side(kind_, row) + row_byte;
    if (open == 0 || page_at + open != page || bounce_at + open != bounce) {
      close();
      bounce_at = bounce;
      page_at = page;
      open = 0;
    }
    open += nbytes;
    in_run += nbytes;
    left -= nbytes;
    row_byte = 0;
  }
  close();
  return out;
}

}  // namespace kvlease
