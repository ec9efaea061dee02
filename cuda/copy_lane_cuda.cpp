#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda/copy_kernels.hpp"
#include "cuda/copy_lane.hpp"
#include "cuda/cuda_status.hpp"

namespace kvlease {

namespace {

/// Table pieces of a lane, 16 bytes each: rows of 4 KiB of 1.4 GB, twice over.
constexpr std::size_t table_pieces = 700'000;

// Passes an error on, at once.
#define KVLEASE_TRY(call) \
  if (const auto status_ = (call); status_ != cudaSuccess) return status_

cudaError_t make_event(cudaEvent_t& event) {
  return cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

result<std::unique_ptr<copy_lane>> copy_lane::make(const lane_options& options) {
  std::unique_ptr<copy_lane> lane{new copy_lane{options}};
  if (const auto opened = lane->open(); !opened) return tl::unexpected{opened.error()};
  return lane;
}

result<void> copy_lane::open() {
  const current_device here{options_.device};
  int low = 0, high = 0;
  const auto first_calls = [&] {
    KVLEASE_TRY(here.status());
    KVLEASE_TRY(cudaDeviceGetStreamPriorityRange(&low, &high));
    KVLEASE_TRY(cudaStreamCreateWithPriority(&bus_, cudaStreamNonBlocking, high));
    KVLEASE_TRY(cudaStreamCreateWithPriority(&inner_, cudaStreamNonBlocking, high));
    KVLEASE_TRY(load_copy_kernels());
    return make_event(crossing_);
  };
  if (const auto made = cuda_checked("streams of a copy lane", first_calls()); !made) return made;
  auto bounce = allocate_cuda(options_.device, options_.bounce_bytes);
  if (!bounce) return tl::unexpected{bounce.error()};
  bounce_ = *std::move(bounce);
  buffers_.resize(options_.bounce_bytes / options_.chunk_bytes);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].at = bounce_->address() + i * options_.chunk_bytes;
    for (auto* event : {&buffers_[i].filled, &buffers_[i].drained})
      if (const auto made = cuda_checked("cudaEventCreateWithFlags", make_event(*event)); !made) return made;
  }
  auto tables =
      allocate_locked(options_.device, table_pieces * sizeof(copy_piece), std::make_shared<locked_spans>());
  if (!tables) return tl::unexpected{tables.error()};
  tables_ = *std::move(tables);
  tables_free_ = table_pieces;
  return {};
}

copy_lane::~copy_lane() {
  const bool passed = [this] {
    for (const auto stream : {bus_, inner_})
      if (stream != nullptr && cudaStreamQuery(stream) != cudaSuccess) return false;
    return true;
  }();
  if (!passed) {
    // Copies are under way, or the device is lost: nobody may reuse what they touch.
    new std::shared_ptr<memory_block>{std::move(bounce_)};
    new std::shared_ptr<memory_block>{std::move(tables_)};
    new std::deque<recorded_event>{std::move(recorded_)};
    return;
  }
  for (const auto& b : buffers_)
    for (const auto event : {b.filled, b.drained})
      if (event != nullptr) cudaEventDestroy(event);
  for (const auto event : idle_events_) cudaEventDestroy(event);
  for (const auto& r : recorded_)
    if (!r.recycled) cudaEventDestroy(r.event);
  if (crossing_ != nullptr) cudaEventDestroy(crossing_);
  for (const auto stream : {bus_, inner_})
    if (stream != nullptr) cudaStreamDestroy(stream);
}

bool copy_lane::has_room(std::size_t pieces) const noexcept {
  // A table does not wrap around: the rest of the ring may be lost to one, once a round.
  const auto rest = table_pieces - tables_used_ % table_pieces;
  return pieces + rest <= tables_free_ - tables_used_ ||
         (pieces <= rest && pieces <= tables_free_ - tables_used_);
}

bool copy_lane::has_room_ever(std::size_t pieces) const noexcept { return pieces <= table_pieces / 2; }

/// `behind` waits for all that `ahead` holds now.
cudaError_t copy_lane::follow(cudaStream_t behind, cudaStream_t ahead, std::size_t& operations) {
  if (behind == ahead) return cudaSuccess;
  KVLEASE_TRY(cudaEventRecord(crossing_, ahead));
  operations += 2;
  return cudaStreamWaitEvent(behind, crossing_, 0);
}

cudaError_t copy_lane::copy(std::span<const copy_row> rows, const batch_shape& shape, copy_path path,
                            cudaEvent_t start, std::size_t& operations) {
  refused_.clear();
  // The stream that reads first. In a bulk copy the other one follows it chunk by chunk.
  const bool by_kernel = path == copy_path::kernel || (path == copy_path::bulk && !in());
  const auto first = by_kernel ? inner_ : bus_;
  if (start != nullptr) {
    KVLEASE_TRY(cudaStreamWaitEvent(first, start, 0));
    ++operations;
  }
  if (path == copy_path::bulk) return copy_bulk(rows, shape, operations);
  KVLEASE_TRY(follow(first, last(), operations));  // behind the batches before it
  if (path == copy_path::kernel) {
    KVLEASE_TRY(copy_by_kernel(rows, operations));
  } else {
    const auto runs = split_at_spans(merge_rows(rows));
    const bool few = path == copy_path::rows && runs.size() <= options_.most_single_copies;
    KVLEASE_TRY(few ? copy_rows(runs, operations) : copy_batched(runs, operations));
  }
  return follow(last(), first, operations);
}

cudaError_t copy_lane::copy_rows(std::span<const copy_row> rows, std::size_t& operations) {
  for (const auto& row : rows) {
    KVLEASE_TRY(cudaMemcpyAsync(pointer(row.to), pointer(row.from), row.nbytes, cudaMemcpyDefault, bus_));
    ++operations;
  }
  return cudaSuccess;
}

cudaError_t copy_lane::copy_batched(std::span<const copy_row> rows, std::size_t& operations) {
#if CUDART_VERSION >= 12080
  if (rows.size() > 1) {
    std::vector<void*> to, from;
    std::vector<std::size_t> sizes;
    to.reserve(rows.size());
    from.reserve(rows.size());
    sizes.reserve(rows.size());
    for (const auto& row : rows) {
      to.push_back(pointer(row.to));
      from.push_back(pointer(row.from));
      sizes.push_back(row.nbytes);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    operations += rows.size();
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), rows.size(), &attributes, &first, 1,
                                bus_);
#else
    std::size_t failed = 0;
    return cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), rows.size(), &attributes, &first, 1,
                                &failed, bus_);
#endif
  }
#endif
  return copy_rows(rows, operations);
}

cudaError_t copy_lane::copy_by_kernel(std::span<const copy_row> rows, std::size_t& operations) {
  std::size_t most = 0;
  for (const auto& row : rows) most += pieces_of(row.nbytes);
  auto* const table = room(most);
  if (table == nullptr) pieces_.resize(std::max(pieces_.size(), most));
  auto* const first = table != nullptr ? table : pieces_.data();
  auto* end = first;
  merged_rows from{rows};
  for (copy_row row; from.next(row);) end = cut(row, end);
  return launch({first, end}, table != nullptr, operations);
}

/// One copy must not cross from one page-locked span into another, though they may be neighbours.
std::vector<copy_row> copy_lane::split_at_spans(std::vector<copy_row> rows) const {
  const auto fits = [this](const copy_row& r) {
    const auto at = in() ? r.from : r.to;
    return options_.locked->end_of(at) >= at + r.nbytes;
  };
  if (std::ranges::all_of(rows, fits)) return rows;
  std::vector<copy_row> split;
  for (auto r : rows)
    while (r.nbytes > 0) {
      const auto at = in() ? r.from : r.to;
      const auto end = options_.locked->end_of(at);
      const auto part = end > at ? std::min(r.nbytes, end - at) : r.nbytes;
      split.push_back({r.to, r.from, part});
      r = {r.to + part, r.from + part, r.nbytes - part};
    }
  return split;
}

/// What check_rows() of the device says of smaller batches.
bool copy_lane::may_go(const bulk_chunk& chunk) {
  if (chunk.null_page) refused_ = "a row has a null address";
  for (const auto& run : split_at_spans(chunk.bus)) {
    const auto at = in() ? run.from : run.to;
    if (options_.locked->end_of(at) < at + run.nbytes)
      refused_ = fmt::format("{} bytes at {:#x} are not page-locked memory of this device", run.nbytes, at);
  }
  return refused_.empty();
}

cudaError_t copy_lane::copy_bulk(std::span<const copy_row> rows, const batch_shape& shape,
                                 std::size_t& operations) {
  bulk_plan plan{options_.kind, rows, shape.total_bytes, options_.chunk_bytes, busy()};
  // To the device the bus is one chunk ahead of the kernels: what is on it is cut meanwhile.
  const bulk_chunk* ahead = nullptr;
  buffer* ahead_in = nullptr;
  const auto scatter_ahead = [&]() -> cudaError_t {
    if (ahead == nullptr) return cudaSuccess;
    KVLEASE_TRY(cudaStreamWaitEvent(inner_, ahead_in->filled, 0));
    KVLEASE_TRY(launch(plan, *std::exchange(ahead, nullptr), operations));
    ++operations;
    return cudaEventRecord(ahead_in->drained, inner_);
  };
  for (std::size_t i = 0;; ++i) {
    auto& chunk = chunks_[i % chunks_.size()];
    auto& through = buffers_[next_buffer_];
    if (!plan.next(chunk, through.at)) return scatter_ahead();
    if (rows.size() > sample_rows && !may_go(chunk)) return cudaErrorInvalidValue;
    next_buffer_ = (next_buffer_ + 1) % buffers_.size();
    // A wait that is over costs the stream time all the same.
    const auto filler = in() ? bus_ : inner_;
    if (cudaEventQuery(through.drained) != cudaSuccess)
      KVLEASE_TRY(cudaStreamWaitEvent(filler, through.drained, 0));
    operations += 3;
    if (in()) {
      KVLEASE_TRY(copy_rows(split_at_spans(chunk.bus), operations));
      KVLEASE_TRY(cudaEventRecord(through.filled, bus_));
      KVLEASE_TRY(scatter_ahead());
      ahead = &chunk;
      ahead_in = &through;
    } else {
      KVLEASE_TRY(launch(plan, chunk, operations));
      KVLEASE_TRY(cudaEventRecord(through.filled, inner_));
      KVLEASE_TRY(cudaStreamWaitEvent(bus_, through.filled, 0));
      KVLEASE_TRY(copy_rows(split_at_spans(chunk.bus), operations));
      KVLEASE_TRY(cudaEventRecord(through.drained, bus_));
    }
  }
}

copy_piece* copy_lane::room(std::size_t pieces) noexcept {
  if (!has_room(pieces)) return nullptr;
  if (const auto rest = table_pieces - tables_used_ % table_pieces; pieces > rest) tables_used_ += rest;
  return reinterpret_cast<copy_piece*>(tables_->address()) + tables_used_ % table_pieces;
}

cudaError_t copy_lane::launch(const bulk_plan& plan, const bulk_chunk& chunk, std::size_t& operations) {
  auto* const table = room(chunk.most_pieces);
  if (table == nullptr) pieces_.resize(std::max(pieces_.size(), chunk.most_pieces));
  auto* const first = table != nullptr ? table : pieces_.data();
  return launch({first, plan.cut(chunk, first)}, table != nullptr, operations);
}

cudaError_t copy_lane::launch(std::span<const copy_piece> pieces, bool table, std::size_t& operations) {
  if (!table) {
    for (; pieces.size() > argument_pieces; pieces = pieces.subspan(argument_pieces)) {
      KVLEASE_TRY(launch_copy(pieces.first(argument_pieces), nullptr, options_.blocks, inner_));
      ++operations;
    }
  } else if (pieces.size() > argument_pieces) {
    take(pieces.size());
  }
  ++operations;
  return launch_copy(pieces, table ? pieces.data() : nullptr, options_.blocks, inner_);
}

cudaError_t copy_lane::record(std::uint64_t& id, std::vector<std::shared_ptr<const copy_batch>> kept,
                              cudaEvent_t& event) {
  recorded_event r;
  if (idle_events_.empty()) {
    KVLEASE_TRY(make_event(r.event));
  } else {
    r.event = idle_events_.back();
    idle_events_.pop_back();
  }
  if (const auto status = cudaEventRecord(r.event, last()); status != cudaSuccess) {
    idle_events_.push_back(r.event);
    return status;
  }
  r.tables_end = tables_used_;
  r.kept = std::move(kept);
  event = r.event;
  id = first_recorded_ + recorded_.size();
  recorded_.push_back(std::move(r));
  return cudaSuccess;
}

cudaEvent_t copy_lane::find(std::uint64_t id) const noexcept {
  if (id < first_recorded_ || id - first_recorded_ >= recorded_.size()) return nullptr;
  const auto& r = recorded_[id - first_recorded_];
  return r.recycled ? nullptr : r.event;
}

void copy_lane::see_complete(std::uint64_t id) noexcept {
  auto& r = recorded_[id - first_recorded_];
  r.complete = true;
  // And with it all before it, whoever asks for those.
  tables_free_ = std::max(tables_free_, r.tables_end + table_pieces);
}

void copy_lane::abandon(std::uint64_t id) noexcept {
  if (find(id) != nullptr) recorded_[id - first_recorded_].abandoned = true;
}

void copy_lane::join_failed(cudaStream_t manager) noexcept {
  std::size_t uncounted = 0;
  follow(inner_, bus_, uncounted);
  follow(bus_, inner_, uncounted);
  if (cudaEventRecord(crossing_, last()) == cudaSuccess) cudaStreamWaitEvent(manager, crossing_, 0);
}

void copy_lane::recycle(std::uint64_t id) {
  if (find(id) == nullptr) return;
  auto& r = recorded_[id - first_recorded_];
  if (!r.complete) return;
  r.recycled = true;
  r.kept.clear();
  idle_events_.push_back(r.event);
  // Earlier events are complete too, but who recorded them has not given them back.
  while (!recorded_.empty() &&
         (recorded_.front().recycled || (recorded_.front().abandoned && first_recorded_ < id))) {
    recorded_.pop_front();
    ++first_recorded_;
  }
  // From the start again, which the processor's cache still holds.
  if (recorded_.empty() && tables_used_ == tables_free_ - table_pieces) {
    tables_used_ = 0;
    tables_free_ = table_pieces;
  }
}

#undef KVLEASE_TRY

}  // namespace kvlease
