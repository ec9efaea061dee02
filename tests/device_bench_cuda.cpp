#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "src/include/kvlease/cuda_device.hpp"
#include "tests/device_bench.hpp"
#include "tools/bench/kernels.hpp"

namespace kvlease::test {

namespace {

void must(cudaError_t status) {
  INFO(cudaGetErrorName(status));
  REQUIRE(status == cudaSuccess);
}

/// Counts the copies whose event nobody has given back yet.
class counted_device final : public device_port {
 public:
  explicit counted_device(std::shared_ptr<cuda_device> of) : of_{std::move(of)} {}
  cuda_device& inner() { return *of_; }
  int open() const { return open_; }

  std::string describe() const override { return of_->describe(); }
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t n) override {
    return of_->allocate_device(n);
  }
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t n) override {
    return of_->allocate_staging(n);
  }
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t at, std::size_t n) override {
    return of_->register_staging(at, n);
  }
  bool reaches(std::uintptr_t at, std::size_t n) const override { return of_->reaches(at, n); }
  result<void> bind_thread() override { return of_->bind_thread(); }
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override {
    return of_->enqueue(std::move(batch));
  }
  result<device_event> record(copy_kind kind) override {
    auto e = of_->record(kind);
    if (e) ++open_;
    return e;
  }
  result<event_state> query(device_event e) override { return of_->query(e); }
  void recycle(device_event e) override {
    --open_;
    of_->recycle(e);
  }
  std::optional<error> lost() const override { return of_->lost(); }

 private:
  std::shared_ptr<cuda_device> of_;
  std::atomic<int> open_{0};
};

class cuda_bench final : public device_bench {
 public:
  explicit cuda_bench(std::shared_ptr<cuda_device> device)
      : device_{std::make_shared<counted_device>(std::move(device))} {
    must(cudaHostAlloc(reinterpret_cast<void**>(&gate_), 2 * sizeof(std::uint32_t), cudaHostAllocMapped));
    gate_[0] = 1;
    gate_[1] = 0;  // never opened: what waits for it waits for its limit
    must(bench::load_kernels());
    must(cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming));
  }
  ~cuda_bench() override {
    open();
    cudaDeviceSynchronize();
    cudaEventDestroy(mark_);
    cudaFreeHost(gate_);
  }

  std::shared_ptr<device_port> port() override { return device_; }
  void fill(std::uintptr_t at, std::byte value, std::size_t nbytes) override {
    // On a stream of its own: the manager's may be held.
    cudaStream_t s = nullptr;
    must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    must(cudaMemsetAsync(reinterpret_cast<void*>(at), std::to_integer<int>(value), nbytes, s));
    must(cudaStreamSynchronize(s));
    must(cudaStreamDestroy(s));
  }
  std::vector<std::byte> read(std::uintptr_t at, std::size_t nbytes) override {
    std::vector<std::byte> out(nbytes);
    cudaStream_t s = nullptr;
    must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    must(cudaMemcpyAsync(out.data(), reinterpret_cast<const void*>(at), nbytes, cudaMemcpyDefault, s));
    must(cudaStreamSynchronize(s));
    must(cudaStreamDestroy(s));
    return out;
  }
  void hold() override {
    std::atomic_ref{gate_[0]} = 0;
    must(bench::launch_gate(stream(), gate_, 20'000'000'000));
  }
  void open() override { std::atomic_ref{gate_[0]} = 1; }
  void compute(std::uintptr_t at, std::byte value, std::size_t nbytes) override {
    must(bench::launch_gate(stream(), gate_ + 1, 50'000));
    must(cudaMemsetAsync(reinterpret_cast<void*>(at), std::to_integer<int>(value), nbytes, stream()));
  }
  event_handle mark() override {
    must(cudaEventRecord(mark_, stream()));
    return reinterpret_cast<event_handle>(mark_);
  }
  void capture() override { must(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeGlobal)); }
  bool end_capture() override {
    cudaGraph_t graph = nullptr;
    const bool whole = cudaStreamEndCapture(stream(), &graph) == cudaSuccess && graph != nullptr;
    if (graph != nullptr) must(cudaGraphDestroy(graph));
    return whole;
  }
  bool settle() override {
    if (device_->open() == 0 || std::atomic_ref{gate_[0]} == 0) return false;
    must(cudaDeviceSynchronize());
    return true;
  }

 private:
  cudaStream_t stream() { return static_cast<cudaStream_t>(device_->inner().stream()); }

  std::shared_ptr<counted_device> device_;
  std::uint32_t* gate_ = nullptr;  ///< in mapped memory; the first is the gate
  cudaEvent_t mark_ = nullptr;
};

}  // namespace

result<std::shared_ptr<device_bench>> device_bench::cuda(const cuda_options& options) {
  auto device = cuda_device::open(options);
  if (!device) return tl::unexpected{device.error()};
  return std::make_shared<cuda_bench>(*std::move(device));
}

}  // namespace kvlease::test
