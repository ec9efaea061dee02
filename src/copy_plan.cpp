#include "src/copy_plan.hpp"

#include <algorithm>
#include <cassert>

namespace kvlease {

namespace {

constexpr std::size_t first_chunk = std::size_t{1} << 20;
constexpr std::size_t least_chunk = std::size_t{8} << 20;  ///< that a batch is cut into a quarter for
constexpr std::size_t last_chunk = std::size_t{6} << 20;   ///< at most, of a copy to the device
constexpr std::size_t first_rows = 256;                    ///< of the first chunk of a copy to the device
constexpr std::size_t small_row = 24 * 1024;
constexpr std::size_t run_alignment = 256;  ///< of a run in the bounce buffer, before its page's own offset

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
    *out++ = {row.to + done, row.from + done,
              static_cast<std::uint32_t>(std::min(piece_bytes, row.nbytes - done)), 0};
  return out;
}

void cut(const copy_row& row, std::vector<copy_piece>& pieces) {
  const auto before = pieces.size();
  pieces.resize(before + pieces_of(row.nbytes));
  cut(row, pieces.data() + before);
}

bulk_plan::bulk_plan(copy_kind kind, std::span<const copy_row> rows, std::size_t total_bytes,
                     std::size_t chunk_bytes, bool bus_is_busy)
    : kind_{kind}, rows_{rows}, left_{total_bytes} {
  assert(chunk_bytes >= 64 * 1024);
  const auto row_bytes = rows.empty() ? 0 : total_bytes / rows.size();
  const bool small = row_bytes < small_row;
  chunk_bytes_ = std::min(chunk_bytes, std::max(total_bytes / (small ? 2 : 4), least_chunk));
  growth_ = small ? 2 : 16;
  if (bus_is_busy)
    first_ = chunk_bytes_;
  else if (kind == copy_kind::host_to_device)
    first_ = std::max(first_chunk, first_rows * row_bytes);  // nothing but our cutting delays it
  else
    first_ = first_chunk;  // a kernel has to gather it first
  more_ = rows_.next(row_);
}

bool bulk_plan::next(bulk_chunk& chunk, std::uintptr_t bounce) {
  chunk.nbytes = 0;
  chunk.bus.clear();
  chunk.count = 0;
  if (!more_) return false;
  chunk.null_page = false;
  // By what has gone already; at the end of a copy to the device three quarters of what is left.
  auto target = std::max(first_, growth_ * done_);
  if (kind_ == copy_kind::host_to_device && left_ > last_chunk) target = std::min(target, left_ / 4 * 3);
  target = std::min(target, chunk_bytes_);
  std::size_t offset = 0;          // in the bounce buffer
  std::uintptr_t staging_end = 0;  // of the last run
  while (more_ && chunk.nbytes < target) {
    const auto staging = staging_side(kind_, row_), page = page_side(kind_, row_);
    chunk.null_page |= page == 0;
    if (chunk.bus.empty() || staging != staging_end) {
      // A run starts where its first row is aligned as its page is: then kernels move 16 bytes at once.
      const auto start = (offset + run_alignment - 1) / run_alignment * run_alignment + page % 16;
      if (start >= chunk_bytes_) break;
      offset = start;
      chunk.bus.push_back(row_between(kind_, staging, bounce + offset, 0));
    }
    const auto nbytes = std::min({row_.nbytes, target - chunk.nbytes, chunk_bytes_ - offset});
    if (nbytes == 0) break;
    chunk.bus.back().nbytes += nbytes;
    if (chunk.storage.size() < chunk.count + pieces_of(nbytes))
      chunk.storage.resize(2 * chunk.storage.size() + pieces_of(nbytes) + 1024);
    const auto part = row_between(kind_, bounce + offset, page, nbytes);
    const auto* end = cut(part, chunk.storage.data() + chunk.count);
    chunk.count = static_cast<std::size_t>(end - chunk.storage.data());
    chunk.nbytes += nbytes;
    offset += nbytes;
    staging_end = staging + nbytes;
    row_.to += nbytes;
    row_.from += nbytes;
    row_.nbytes -= nbytes;
    if (row_.nbytes == 0) more_ = rows_.next(row_);
  }
  done_ += chunk.nbytes;
  left_ -= std::min(left_, chunk.nbytes);
  return true;
}

}  // namespace kvlease
