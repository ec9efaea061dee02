#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cassert>
#include <thread>
#include <utility>

#include "cuda/copy_lane.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/cuda_status.hpp"
#include "src/include/kvlease/cuda_device.hpp"

namespace kvlease {

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// Which GPUs there are, or why none can be used.
result<int> device_count() {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    return tl::unexpected{cuda_error("no CUDA device can be used: cudaGetDeviceCount", status)};
  }
  if (count == 0) return fail(errc::device, "this machine has no CUDA device");
  return count;
}

result<cuda_device_info> describe_device(int ordinal) {
  cudaDeviceProp p{};
  if (const auto got = cuda_checked("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, ordinal)); !got)
    return tl::unexpected{got.error()};
  cuda_device_info info{p.name, p.totalGlobalMem, p.multiProcessorCount, 0, 0, {}};
  std::array<char, 32> bus{};
  cudaDriverGetVersion(&info.driver_version);
  cudaRuntimeGetVersion(&info.runtime_version);
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal) == cudaSuccess)
    info.bus_id = bus.data();
  return info;
}

result<void> check(const cuda_options& o) {
  const auto count = device_count();
  if (!count) return tl::unexpected{count.error()};
  if (o.device < 0 || o.device >= *count)
    return fail(errc::invalid, fmt::format("device is {}, must be from 0 to {}: this machine has {}",
                                           o.device, *count - 1, *count));
  if (o.bounce_bytes < 2 * mib)
    return fail(errc::invalid,
                fmt::format("bounce_bytes is {}, must be {} or more", o.bounce_bytes, 2 * mib));
  if (o.chunk_bytes < mib || o.chunk_bytes > o.bounce_bytes / 2)
    return fail(errc::invalid, fmt::format("chunk_bytes is {}, must be from {} to half of bounce_bytes, {}",
                                           o.chunk_bytes, mib, o.bounce_bytes / 2));
  if (o.stream == cudaStreamPerThread)
    return fail(errc::invalid, "stream is cudaStreamPerThread, which is another stream on each thread");
  if (o.sm_budget < 1 || o.sm_budget > 1024)
    return fail(errc::invalid, fmt::format("sm_budget is {}, must be from 1 to 1024", o.sm_budget));
  return {};
}

class device final : public cuda_device {
 public:
  device(cuda_options options, cuda_device_info info, copy_table table)
      : options_{std::move(options)},
        info_{std::move(info)},
        table_{std::move(table)},
        load_{options_.load} {}
  ~device() override;
  result<void> start();

  std::string describe() const override { return fmt::format("cuda:{} {}", options_.device, info_.name); }
  void* stream() const noexcept override { return stream_; }
  void set_load(device_load load) noexcept override { load_ = load; }
  std::array<std::uint64_t, all_copy_paths.size()> batches_by_path() const override;

  result<std::shared_ptr<memory_block>> allocate_device(std::size_t nbytes) override {
    return allocate_cuda(options_.device, nbytes);
  }
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t nbytes) override {
    return allocate_locked(options_.device, nbytes, locked_);
  }
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t address,
                                                         std::size_t nbytes) override {
    return lock_memory(options_.device, address, nbytes, locked_);
  }
  bool reaches(std::uintptr_t address, std::size_t nbytes) const override {
    const auto end = locked_->end_of(address);
    return end != 0 && nbytes <= end - address;
  }
  bool spins() const override { return true; }

  result<void> bind_thread() override;
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override;
  result<device_event> record(copy_kind kind) override;
  result<event_state> query(device_event e) override;
  void recycle(device_event e) override;
  std::optional<error> lost() const override { return lost_; }

 private:
  struct direction_state {
    std::unique_ptr<copy_lane> lane;
    std::vector<std::shared_ptr<const copy_batch>> unrecorded;
  };

  static std::size_t index(copy_kind kind) { return static_cast<std::size_t>(kind); }
  static device_event name(copy_kind kind, std::uint64_t id) { return {id << 1 | index(kind)}; }
  direction_state& of(copy_kind kind) { return directions_[index(kind)]; }
  copy_lane& lane_of(device_event e) { return *directions_[e.value & 1].lane; }

  result<void> check_rows(const copy_batch& batch) const;
  copy_path choose(copy_kind kind, const batch_shape& shape, std::size_t pieces) const;
  /// Is the host capturing its stream into a graph? Then it has no order to offer.
  bool capturing() const {
    auto status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream_, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
  }
  /// Remembers a sticky error.
  error broken(const char* call, cudaError_t status);
  void check_thread() const { assert(bound_ == std::thread::id{} || bound_ == std::this_thread::get_id()); }

  const cuda_options options_;
  const cuda_device_info info_;
  const copy_table table_;
  std::atomic<device_load> load_;
  std::shared_ptr<locked_spans> locked_ = std::make_shared<locked_spans>();
  cudaStream_t stream_ = nullptr;
  bool own_stream_ = false;
  cudaEvent_t point_ = nullptr;  ///< of the manager's stream; recorded again for each batch
  std::array<direction_state, 2> directions_;
  std::optional<error> lost_;
  std::array<std::atomic<std::uint64_t>, all_copy_paths.size()> batches_{};
  std::thread::id bound_;
};

device::~device() {
  const current_device here{options_.device};
  for (auto& d : directions_) {
    // Without an event nobody knows when these have run: what they keep stays.
    if (!d.unrecorded.empty()) new auto{std::move(d.unrecorded)};
    d.lane.reset();
  }
  if (point_ != nullptr) cudaEventDestroy(point_);
  if (own_stream_) cudaStreamDestroy(stream_);
}

result<void> device::start() {
  const current_device here{options_.device};
  if (const auto set = cuda_checked("cudaSetDevice", here.status()); !set) return set;
  stream_ = static_cast<cudaStream_t>(options_.stream);
  if (stream_ == nullptr) {
    if (const auto made = cuda_checked("cudaStreamCreateWithFlags",
                                       cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        !made)
      return made;
    own_stream_ = true;
  }
  if (const auto made =
          cuda_checked("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&point_, cudaEventDisableTiming));
      !made)
    return made;
  for (const auto kind : {copy_kind::host_to_device, copy_kind::device_to_host}) {
    auto lane = copy_lane::make({.device = options_.device,
                                 .kind = kind,
                                 .locked = locked_,
                                 .bounce_bytes = options_.bounce_bytes,
                                 .chunk_bytes = options_.chunk_bytes,
                                 .blocks = options_.sm_budget,
                                 // A path that was asked for by name is taken as it is.
                                 .most_single_copies = options_.always ? SIZE_MAX : 256});
    if (!lane) return tl::unexpected{lane.error()};
    of(kind).lane = *std::move(lane);
  }
  return {};
}

std::array<std::uint64_t, all_copy_paths.size()> device::batches_by_path() const {
  std::array<std::uint64_t, all_copy_paths.size()> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = batches_[i];
  return counts;
}

error device::broken(const char* call, cudaError_t status) {
  auto e = cuda_error(call, status);
  if (is_sticky(status) && !lost_) lost_ = e;
  return e;
}

result<void> device::bind_thread() {
  bound_ = std::this_thread::get_id();
  // A host that captures a graph on another thread forbids our queries otherwise.
  auto mode = cudaStreamCaptureModeRelaxed;
  if (const auto relaxed =
          cuda_checked("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode));
      !relaxed)
    return relaxed;
  return cuda_checked("cudaSetDevice", cudaSetDevice(options_.device));
}

/// An address that the device can't reach would break the device; pageable memory would block the caller.
result<void> device::check_rows(const copy_batch& batch) const {
  const auto sum = sum_of(batch.kind, batch.rows);
  if (sum.bad_row != SIZE_MAX)
    return fail(errc::invalid, fmt::format("copy batch: row {} has a null address", sum.bad_row));
  if (sum.total_bytes == 0 || locked_->end_of(sum.staging_begin) >= sum.staging_end)
    return {};  // in one span
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    const auto& row = batch.rows[i];
    const auto at = batch.kind == copy_kind::host_to_device ? row.from : row.to;
    if (row.nbytes > 0 && locked_->end_of(at) < at + row.nbytes)
      return fail(
          errc::invalid,
          fmt::format("copy batch: row {}: {} bytes at {:#x} are not page-locked memory of this device; "
                      "allocate_staging or register_staging make it",
                      i, row.nbytes, at));
  }
  return {};
}

copy_path device::choose(copy_kind kind, const batch_shape& shape, std::size_t pieces) const {
  const auto path = options_.always ? *options_.always : table_.choose(shape);
  const bool tables = path == copy_path::kernel || path == copy_path::bulk;
  return tables && !directions_[index(kind)].lane->has_room_ever(pieces) ? copy_path::batch : path;
}

result<std::size_t> device::enqueue(std::shared_ptr<const copy_batch> batch) {
  check_thread();
  if (!batch) return fail(errc::invalid, "copy batch: none given");
  if (lost_) return tl::unexpected{*lost_};
  const std::span rows{batch->rows};
  auto& d = of(batch->kind);
  const auto shape = shape_of(batch->kind, load_, rows);
  const auto pieces = likely_pieces(rows.size(), shape.total_bytes);
  const auto path = choose(batch->kind, shape, pieces);
  if (path != copy_path::bulk || rows.size() <= sample_rows)
    if (const auto good = check_rows(*batch); !good) return tl::unexpected{good.error()};
  if (shape.rows == 0 && rows.size() <= sample_rows) {
    d.unrecorded.push_back(std::move(batch));
    return std::size_t{1};
  }
  const bool tables = path == copy_path::kernel || path == copy_path::bulk;
  if (tables && d.lane->busy() && !d.lane->has_room(pieces))
    return fail(errc::capacity, fmt::format("the tables of {} pieces do not fit now", pieces));
  if (batch->after == 0 && capturing())
    return fail(errc::state,
                "copy batch: the manager's stream is being captured into a graph; copies need its order, so "
                "capture on another stream");
  std::size_t operations = 0;
  auto start = reinterpret_cast<cudaEvent_t>(batch->after);
  // A stream that has run dry has nothing to wait for.
  if (start == nullptr && cudaStreamQuery(stream_) != cudaSuccess) {
    if (const auto status = cudaEventRecord(point_, stream_); status != cudaSuccess)
      return tl::unexpected{broken("cudaEventRecord on the manager's stream", status)};
    start = point_;
    ++operations;
  }
  d.unrecorded.push_back(std::move(batch));
  if (const auto status = d.lane->copy(rows, shape, path, start, operations); status != cudaSuccess) {
    d.lane->join_failed(stream_);
    if (!d.lane->refused().empty()) return fail(errc::invalid, "copy batch: " + d.lane->refused());
    return tl::unexpected{broken("copy batch", status)};
  }
  ++batches_[static_cast<std::size_t>(path)];
  return operations;
}

result<device_event> device::record(copy_kind kind) {
  check_thread();
  if (lost_) return tl::unexpected{*lost_};
  auto& d = of(kind);
  std::uint64_t id = 0;
  cudaEvent_t event = nullptr;
  // Kept on failure: without an event nobody can say when the batch has run.
  auto kept = d.unrecorded;
  if (const auto status = d.lane->record(id, std::move(kept), event); status != cudaSuccess)
    return tl::unexpected{broken("cudaEventRecord", status)};
  d.unrecorded.clear();
  if (capturing())
    return name(kind, id);  // what a graph holds runs later, when its host has heard of the copy
  if (const auto status = cudaStreamWaitEvent(stream_, event, 0); status != cudaSuccess) {
    d.lane->abandon(id);
    return tl::unexpected{broken("cudaStreamWaitEvent on the manager's stream", status)};
  }
  return name(kind, id);
}

result<event_state> device::query(device_event e) {
  check_thread();
  if (lost_) return tl::unexpected{*lost_};
  auto& lane = lane_of(e);
  const auto event = lane.find(e.value >> 1);
  if (event == nullptr)
    return fail(errc::unknown, fmt::format("event {}: not recorded on this device, or recycled", e.value));
  const auto status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return event_state::pending;  // no call of ours asks for the last error
  if (status != cudaSuccess) {
    lane.abandon(e.value >> 1);
    return tl::unexpected{broken("cudaEventQuery", status)};
  }
  lane.see_complete(e.value >> 1);
  return event_state::complete;
}

void device::recycle(device_event e) {
  check_thread();
  lane_of(e).recycle(e.value >> 1);
}

}  // namespace

result<std::vector<cuda_device_info>> cuda_devices() {
  const auto count = device_count();
  if (!count) return tl::unexpected{count.error()};
  std::vector<cuda_device_info> devices;
  for (int i = 0; i < *count; ++i) {
    auto info = describe_device(i);
    if (!info) return tl::unexpected{info.error()};
    devices.push_back(*std::move(info));
  }
  return devices;
}

result<std::shared_ptr<cuda_device>> cuda_device::open(cuda_options options) {
  if (const auto good = check(options); !good) return tl::unexpected{good.error()};
  auto info = describe_device(options.device);
  if (!info) return tl::unexpected{info.error()};
  auto table = options.table ? *options.table : copy_table::for_device(info->name);
  auto made = std::make_shared<device>(std::move(options), *std::move(info), std::move(table));
  if (const auto started = made->start(); !started) return tl::unexpected{started.error()};
  return made;
}

}  // namespace kvlease
