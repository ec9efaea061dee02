#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tools/bench/kernels.hpp"
#include "tools/bench/target.hpp"

namespace kvlease::bench {

namespace {

result<void> checked(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return {};
  return fail(status == cudaErrorMemoryAllocation ? errc::no_memory : errc::device,
              fmt::format("bench: {}: {} ({})", call, cudaGetErrorName(status), cudaGetErrorString(status)));
}

struct stream_owner {
  cudaStream_t handle = nullptr;
  stream_owner() = default;
  stream_owner(const stream_owner&) = delete;
  stream_owner& operator=(const stream_owner&) = delete;
  ~stream_owner() {
    if (handle != nullptr) cudaStreamDestroy(handle);
  }
  /// Not ordered with the legacy default stream.
  result<void> make() {
    return checked(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
};

struct event_owner {
  cudaEvent_t handle = nullptr;
  event_owner() = default;
  event_owner(const event_owner&) = delete;
  event_owner& operator=(const event_owner&) = delete;
  ~event_owner() {
    if (handle != nullptr) cudaEventDestroy(handle);
  }
  result<void> make(unsigned flags) {
    return checked(cudaEventCreateWithFlags(&handle, flags | cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
  }
};

/// Page-locked host memory for one T, which the GPU sees too.
template <class T>
struct mapped_owner {
  T* at = nullptr;
  mapped_owner() = default;
  mapped_owner(const mapped_owner&) = delete;
  mapped_owner& operator=(const mapped_owner&) = delete;
  ~mapped_owner() {
    if (at != nullptr) cudaFreeHost(at);
  }
  result<void> make() {
    void* memory = nullptr;
    auto made = checked(cudaHostAlloc(&memory, sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
                        "cudaHostAlloc");
    if (made) at = new (memory) T{};
    return made;
  }
};

cudaMemcpyKind direction_of(copy_kind kind) {
  return kind == copy_kind::host_to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
}

void CUDART_CB stamp_now(void* where) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  static_cast<std::atomic<std::int64_t>*>(where)->store(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), std::memory_order_release);
}

class cuda_lane final : public lane {
 public:
  result<void> make() {
    if (auto made = stream_.make(); !made) return made;
    if (auto made = event_.make(0); !made) return made;
    return mark();  // so that event() can be waited for from the start
  }
  result<void> copy(copy_kind kind, std::uintptr_t to, std::uintptr_t from, std::size_t nbytes) override {
    return checked(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), nbytes,
                                   direction_of(kind), stream_.handle),
                   "cudaMemcpyAsync");
  }
  result<void> mark() override {
    return checked(cudaEventRecord(event_.handle, stream_.handle), "cudaEventRecord");
  }
  result<bool> reached() override {
    const auto status = cudaEventQuery(event_.handle);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // pending is no error, but is remembered as one
      return false;
    }
    if (const auto ok = checked(status, "cudaEventQuery"); !ok) return tl::unexpected{ok.error()};
    return true;
  }
  event_handle event() const override { return reinterpret_cast<event_handle>(event_.handle); }
  result<void> stamp_from_callback(std::atomic<std::int64_t>& stamp) override {
    return checked(cudaLaunchHostFunc(stream_.handle, stamp_now, &stamp), "cudaLaunchHostFunc");
  }
  cudaStream_t stream() const noexcept { return stream_.handle; }

 private:
  stream_owner stream_;
  event_owner event_;
};

class cuda_gate final : public gate {
 public:
  cuda_gate(std::shared_ptr<device_port> owner, cudaStream_t stream)
      : owner_{std::move(owner)}, stream_{stream} {}
  ~cuda_gate() override {
    if (flag_.at == nullptr) return;
    open();
    cudaStreamSynchronize(stream_);  // the kernel may still look at the flag
  }
  result<void> make() { return flag_.make(); }
  result<void> close(std::chrono::nanoseconds limit) override {
    flag_.at->store(0, std::memory_order_release);
    static_assert(sizeof(*flag_.at) == sizeof(std::uint32_t));
    return checked(launch_gate(stream_, reinterpret_cast<const volatile std::uint32_t*>(flag_.at),
                               static_cast<std::uint64_t>(limit.count())),
                   "launch of the gate kernel");
  }
  void open() override { flag_.at->store(1, std::memory_order_release); }

 private:
  std::shared_ptr<device_port> owner_;  ///< of the stream; null when a lane owns it
  cudaStream_t stream_;
  mapped_owner<std::atomic<std::uint32_t>> flag_;
};

/// A thread keeps a few kernels queued on a stream of its own, each some 1.2 ms long.
class cuda_load final : public busy_load {
 public:
  explicit cuda_load(int device) : device_{device} {}
  ~cuda_load() override {
    stop_ = true;
    if (feeder_.joinable()) feeder_.join();
    if (stream_.handle != nullptr) cudaStreamSynchronize(stream_.handle);
    if (counter_ != nullptr) cudaFree(counter_);
  }
  cuda_load(const cuda_load&) = delete;
  cuda_load& operator=(const cuda_load&) = delete;

  result<void> make(int multiprocessors) {
    // Several blocks for each place, so that blocks end all the time, as those of a prefill do.
    constexpr int waves = 8;
    int resident = 0;
    if (auto ok = checked(busy_blocks_per_multiprocessor(&resident),
                          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        !ok)
      return ok;
    blocks_ = resident * multiprocessors * waves;
    if (auto ok = stream_.make(); !ok) return ok;
    if (auto ok = reader_.make(); !ok) return ok;
    for (auto& e : queued_)
      if (auto ok = e.make(cudaEventBlockingSync); !ok) return ok;
    void* memory = nullptr;
    if (auto ok = checked(cudaMalloc(&memory, sizeof(counters)), "cudaMalloc"); !ok) return ok;
    counter_ = static_cast<counters*>(memory);
    if (auto ok = checked(cudaMemsetAsync(memory, 0, sizeof(counters), stream_.handle), "cudaMemsetAsync");
        !ok)
      return ok;
    if (auto ok = answer_.make(); !ok) return ok;
    feeder_ = std::thread{[this] { feed(); }};
    return {};
  }

  result<double> operations() override {
    {
      const std::lock_guard lock{mutex_};
      if (ended_) return tl::unexpected{*ended_};
    }
    const auto copied = checked(cudaMemcpyAsync(answer_.at, &counter_->finished, sizeof(*answer_.at),
                                                cudaMemcpyDeviceToHost, reader_.handle),
                                "cudaMemcpyAsync");
    if (!copied) return tl::unexpected{copied.error()};
    if (const auto done = checked(cudaStreamSynchronize(reader_.handle), "cudaStreamSynchronize"); !done)
      return tl::unexpected{done.error()};
    return static_cast<double>(*answer_.at) * busy_operations_per_block();
  }

 private:
  struct counters {
    unsigned long long finished;
    float sink;
  };

  void feed() {
    auto ok = checked(cudaSetDevice(device_), "cudaSetDevice");
    for (std::size_t i = 0; ok && !stop_; ++i) {
      const auto event = queued_[i % queued_.size()].handle;
      // Sleeps until the kernel of `size` launches ago has ended; at first the event was never recorded.
      ok = checked(cudaEventSynchronize(event), "cudaEventSynchronize");
      if (ok)
        ok = checked(launch_busy(stream_.handle, blocks_, &counter_->finished, &counter_->sink),
                     "launch of the busy kernel");
      if (ok) ok = checked(cudaEventRecord(event, stream_.handle), "cudaEventRecord");
    }
    const std::lock_guard lock{mutex_};
    if (!ok) ended_ = ok.error();
  }

  const int device_;
  int blocks_ = 0;
  stream_owner stream_, reader_;
  std::array<event_owner, 4> queued_;
  counters* counter_ = nullptr;
  mapped_owner<unsigned long long> answer_;
  std::mutex mutex_;
  std::optional<error> ended_;
  std::atomic<bool> stop_{false};
  std::thread feeder_;
};

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

class cuda_target final : public target {
 public:
  cuda_target(int device, const cuda_device_info& info)
      : device_{device},
        facts_{.device = info.name,
               .bus_id = info.bus_id,
               .driver = version(info.driver_version),
               .runtime = version(info.runtime_version),
               .multiprocessors = info.multiprocessors,
               .memory_bytes = info.memory_bytes} {}

  result<void> make() {
    if (auto ok = checked(cudaSetDevice(device_), "cudaSetDevice"); !ok) return ok;
    if (auto ok = checked(load_kernels(), "cudaFuncGetAttributes"); !ok) return ok;
    return stream_.make();
  }
  const target_facts& facts() const override { return facts_; }
  result<std::shared_ptr<device_port>> open(cuda_options settings) override {
    settings.device = device_;
    auto device = cuda_device::open(std::move(settings));
    if (!device) return tl::unexpected{device.error()};
    return *std::move(device);
  }
  result<std::unique_ptr<lane>> open_lane() override {
    auto made = std::make_unique<cuda_lane>();
    if (const auto ok = made->make(); !ok) return tl::unexpected{ok.error()};
    return made;
  }
  result<std::unique_ptr<gate>> gate_on(const std::shared_ptr<device_port>& device) override {
    const auto* cuda = dynamic_cast<const cuda_device*>(device.get());
    if (cuda == nullptr) return fail(errc::invalid, "the device is no CUDA device");
    return gate_at(device, static_cast<cudaStream_t>(cuda->stream()));
  }
  result<std::unique_ptr<gate>> gate_on(lane& stream) override {
    return gate_at(nullptr, dynamic_cast<cuda_lane&>(stream).stream());
  }
  result<std::unique_ptr<busy_load>> start_load() override {
    auto made = std::make_unique<cuda_load>(device_);
    if (const auto ok = made->make(facts_.multiprocessors); !ok) return tl::unexpected{ok.error()};
    return made;
  }
  result<void> upload(std::uintptr_t to, const std::byte* from, std::size_t nbytes) override {
    return waited(checked(
        cudaMemcpyAsync(reinterpret_cast<void*>(to), from, nbytes, cudaMemcpyHostToDevice, stream_.handle),
        "cudaMemcpyAsync"));
  }
  result<void> download(std::byte* to, std::uintptr_t from, std::size_t nbytes) override {
    return waited(checked(cudaMemcpyAsync(to, reinterpret_cast<const void*>(from), nbytes,
                                          cudaMemcpyDeviceToHost, stream_.handle),
                          "cudaMemcpyAsync"));
  }
  result<void> fill(std::uintptr_t at, std::byte value, std::size_t nbytes) override {
    return waited(checked(
        cudaMemsetAsync(reinterpret_cast<void*>(at), std::to_integer<int>(value), nbytes, stream_.handle),
        "cudaMemsetAsync"));
  }

 private:
  result<void> waited(const result<void>& queued) {
    if (!queued) return queued;
    return checked(cudaStreamSynchronize(stream_.handle), "cudaStreamSynchronize");
  }
  static result<std::unique_ptr<gate>> gate_at(std::shared_ptr<device_port> owner, cudaStream_t stream) {
    auto made = std::make_unique<cuda_gate>(std::move(owner), stream);
    if (const auto ok = made->make(); !ok) return tl::unexpected{ok.error()};
    return made;
  }

  const int device_;
  const target_facts facts_;
  stream_owner stream_;
};

}  // namespace

result<std::unique_ptr<target>> open_cuda_target(int device) {
  const auto devices = cuda_devices();
  if (!devices) return tl::unexpected{devices.error()};
  if (device < 0 || static_cast<std::size_t>(device) >= devices->size())
    return fail(errc::invalid,
                fmt::format("device {}, must be below the {} of this machine", device, devices->size()));
  auto made = std::make_unique<cuda_target>(device, (*devices)[static_cast<std::size_t>(device)]);
  if (const auto ok = made->make(); !ok) return tl::unexpected{ok.error()};
  return made;
}

}  // namespace kvlease::bench
