#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/copy_kernels.hpp"
#include "tests/cuda/planted.hpp"

namespace kvlease::test {

namespace {

/// Every thread reads its neighbour's word with no barrier between.
__global__ void racing(std::uint32_t* out) {
  __shared__ std::uint32_t words[256];
  words[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = words[255 - threadIdx.x];
}

copy_piece piece(void* to, const void* from, std::uint32_t nbytes) {
  return {reinterpret_cast<std::uint64_t>(to), reinterpret_cast<std::uint64_t>(from), nbytes};
}

}  // namespace

bool run_planted(planted what) {
  char *from = nullptr, *to = nullptr;
  if (cudaMalloc(&from, 4096) != cudaSuccess || cudaMalloc(&to, 4096) != cudaSuccess) return false;
  switch (what) {
    case planted::out_of_bounds_write: {
      // Our own kernel with a piece that is longer than its target.
      if (cudaMemset(from, 1, 4096) != cudaSuccess) return false;
      const auto p = piece(to + 512, from, 4096);
      if (launch_copy({&p, 1}, nullptr, 1, nullptr) != cudaSuccess) return false;
      break;
    }
    case planted::uninitialized_read: {
      const auto p = piece(to, from, 4096);
      if (launch_copy({&p, 1}, nullptr, 1, nullptr) != cudaSuccess) return false;
      break;
    }
    case planted::race:
      racing<<<1, 256>>>(reinterpret_cast<std::uint32_t*>(to));
      if (cudaGetLastError() != cudaSuccess) return false;
      break;
  }
  const bool quiet = cudaDeviceSynchronize() == cudaSuccess;
  cudaFree(from);
  cudaFree(to);
  return quiet;
}

}  // namespace kvlease::test
