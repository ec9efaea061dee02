// A compute load that fills every multiprocessor: fused multiply-adds from registers, and no memory traffic.
#include "tools/bench/kernels.hpp"

namespace kvlease::bench {

namespace {

constexpr int threads = 256;
constexpr int chains = 8;  // independent, so that the latency of one is hidden
// 8 blocks of 8 warps share four schedulers, each of which starts one warp's operation a cycle: a block takes
// 16 cycles for each operation a thread does, so about 150 us at 1.8 GHz.
constexpr int rounds = 2112;

__global__ void __launch_bounds__(threads) busy(unsigned long long* finished, float* sink) {
  float x[chains];
  for (int c = 0; c < chains; ++c) x[c] = static_cast<float>(threadIdx.x + c);
  const float a = 0.999f + static_cast<float>(blockIdx.x & 1) * 1e-4f;
  const float b = 1e-3f;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int c = 0; c < chains; ++c) x[c] = fmaf(x[c], a, b);
  }
  float sum = 0;
  for (int c = 0; c < chains; ++c) sum += x[c];
  if (sum == -1.0f) *sink = sum;  // never; keeps the compiler from dropping the work
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(finished, 1ULL);
}

}  // namespace

double busy_operations_per_block() {
  return static_cast<double>(threads) * static_cast<double>(rounds) * static_cast<double>(chains);
}

cudaError_t busy_blocks_per_multiprocessor(int* blocks) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, busy, threads, 0);
}

cudaError_t launch_busy(cudaStream_t stream, int blocks, unsigned long long* finished, float* sink) {
  void* arguments[] = {&finished, &sink};
  // Answers for this launch alone; cudaGetLastError would also tell of a query that found something pending.
  return cudaLaunchKernel(busy, dim3(blocks), dim3(threads), arguments, 0, stream);
}

}  // namespace kvlease::bench
