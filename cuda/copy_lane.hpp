// The copies of one direction on one GPU: two streams, a bounce buffer, tables for kernels, events.
//
// `bus` carries copies over the bus, `inner` the kernels; `last` is the one of them that a bulk copy ends on,
// and every batch ends on it, so that events there complete in order. All waiting is stream for stream: no
// call here waits for the device. What a batch needs until it has run (itself, its tables) is kept until its
// event was seen complete; a bounce buffer is filled again only behind the event of its last reader.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/cuda_memory.hpp"
#include "src/copy_path.hpp"
#include "src/copy_plan.hpp"

namespace kvlease {

struct lane_options {
  int device = 0;
  copy_kind kind = copy_kind::host_to_device;
  std::shared_ptr<const locked_spans> locked;
  std::size_t bounce_bytes = 0;
  std::size_t chunk_bytes = 0;
  unsigned blocks = 1;  ///< of a copy kernel
  /// Path `rows` with more runs goes by `batch`: so many copies one by one would fill the device's queue.
  std::size_t most_single_copies = 256;
};

class copy_lane {
 public:
  static result<std::unique_ptr<copy_lane>> make(const lane_options& options);
  /// What may still be in use on the device is left to it.
  ~copy_lane();
  copy_lane(const copy_lane&) = delete;
  copy_lane& operator=(const copy_lane&) = delete;

  /// Room in the tables for this many pieces? Without it kernels get their pieces as arguments, some hundred
  /// at a time, which is right and slow. `ever`: when all tables are free.
  bool has_room(std::size_t pieces) const noexcept;
  bool has_room_ever(std::size_t pieces) const noexcept;

  /// Queues the rows behind `start` (null: nothing), by `path`. Adds to `operations` what was queued, also
  /// when it fails. With more than sample_rows rows path `bulk` checks them as they go: refused() says why it
  /// stopped.
  cudaError_t copy(std::span<const copy_row> rows, const batch_shape& shape, copy_path path,
                   cudaEvent_t start, std::size_t& operations);
  const std::string& refused() const noexcept { return refused_; }

  /// An event behind all that was queued; `kept` lives until it is recycled.
  cudaError_t record(std::uint64_t& id, std::vector<std::shared_ptr<const copy_batch>> kept,
                     cudaEvent_t& event);
  /// Null for an event that was not recorded here, or was recycled.
  cudaEvent_t find(std::uint64_t id) const noexcept;
  /// Marks an event as seen complete. One that was not is not recycled.
  void see_complete(std::uint64_t id) noexcept;
  void recycle(std::uint64_t id);
  /// Nobody will ask for this event again. It goes with the next later one that is recycled.
  void abandon(std::uint64_t id) noexcept;
  /// After a failed copy(): whatever of it was queued comes before the next event here, and before what
  /// `manager` gets from now on, as far as the device still takes calls.
  void join_failed(cudaStream_t manager) noexcept;
  bool busy() const noexcept { return !recorded_.empty(); }

 private:
  struct buffer {
    std::uintptr_t at = 0;
    cudaEvent_t filled = nullptr;
    cudaEvent_t drained = nullptr;  ///< behind its last reader
  };
  struct recorded_event {
    cudaEvent_t event = nullptr;
    std::size_t tables_end = 0;  ///< table pieces up to here are free once it is complete
    std::vector<std::shared_ptr<const copy_batch>> kept;
    bool complete = false;
    bool recycled = false;
    bool abandoned = false;
  };

  explicit copy_lane(const lane_options& options) : options_{options} {}
  result<void> open();
  bool in() const noexcept { return options_.kind == copy_kind::host_to_device; }
  cudaStream_t last() const noexcept { return in() ? inner_ : bus_; }
  cudaError_t follow(cudaStream_t behind, cudaStream_t ahead, std::size_t& operations);
  cudaError_t copy_rows(std::span<const copy_row> rows, std::size_t& operations);
  cudaError_t copy_batched(std::span<const copy_row> rows, std::size_t& operations);
  cudaError_t copy_by_kernel(std::span<const copy_row> rows, std::size_t& operations);
  cudaError_t copy_bulk(std::span<const copy_row> rows, const batch_shape& shape, std::size_t& operations);
  bool may_go(const bulk_chunk& chunk);
  std::vector<copy_row> split_at_spans(std::vector<copy_row> rows) const;
  /// Runs pieces on the inner stream. `table`: they lie in the ring (see room()) and stay there until the
  /// event behind them was recycled.
  cudaError_t launch(std::span<const copy_piece> pieces, bool table, std::size_t& operations);
  /// Cuts the chunk and runs its pieces.
  cudaError_t launch(const bulk_plan& plan, const bulk_chunk& chunk, std::size_t& operations);
  /// The next place in the ring of tables, `pieces` long; null when there is none. Taken by take().
  copy_piece* room(std::size_t pieces) noexcept;
  void take(std::size_t pieces) noexcept { tables_used_ += pieces; }

  lane_options options_;
  cudaStream_t bus_ = nullptr, inner_ = nullptr;
  cudaEvent_t crossing_ = nullptr;  ///< from one stream to the other; recorded again at once
  std::shared_ptr<memory_block> bounce_;
  std::vector<buffer> buffers_;
  std::size_t next_buffer_ = 0;

  // A ring of table pieces in page-locked memory; positions only grow.
  std::shared_ptr<memory_block> tables_;
  std::size_t tables_used_ = 0, tables_free_ = 0;
  std::string refused_;
  std::array<bulk_chunk, 2> chunks_;  ///< being queued; kept for their memory
  std::vector<copy_piece> pieces_;    ///< likewise

  std::deque<recorded_event> recorded_;
  std::uint64_t first_recorded_ = 1;  ///< id of recorded_.front()
  std::vector<cudaEvent_t> idle_events_;
};

}  // namespace kvlease
