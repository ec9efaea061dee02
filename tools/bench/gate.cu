// A kernel that holds a stream until the host lets it go on.
#include "tools/bench/kernels.hpp"

namespace kvlease::bench {

namespace {

__device__ std::uint64_t nanoseconds() {
  std::uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__global__ void wait_at_gate(const volatile std::uint32_t* open, std::uint64_t limit_ns) {
  const std::uint64_t start = nanoseconds();
  while (*open == 0 && nanoseconds() - start < limit_ns) {
  }
}

}  // namespace

cudaError_t launch_gate(cudaStream_t stream, const volatile std::uint32_t* open, std::uint64_t limit_ns) {
  void* arguments[] = {&open, &limit_ns};
  // Answers for this launch alone; cudaGetLastError would also tell of a query that found something pending.
  return cudaLaunchKernel(wait_at_gate, dim3(1), dim3(1), arguments, 0, stream);
}

cudaError_t load_kernels() {
  int blocks = 0;
  if (const auto status = busy_blocks_per_multiprocessor(&blocks); status != cudaSuccess) return status;
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(wait_at_gate));
}

}  // namespace kvlease::bench
