// The bench's own kernels; in CUDA builds only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kvlease::bench {

/// Fused multiply-adds of one block of the load.
double busy_operations_per_block();
/// Blocks of the load that a multiprocessor holds at once.
cudaError_t busy_blocks_per_multiprocessor(int* blocks);
/// `blocks` blocks that do nothing but fused multiply-adds for some 150 us each, and then add 1 to
/// `finished`.
cudaError_t launch_busy(cudaStream_t stream, int blocks, unsigned long long* finished, float* sink);

/// One thread that waits until `*open` is not 0, `limit_ns` at most. `open` is mapped host memory.
cudaError_t launch_gate(cudaStream_t stream, const volatile std::uint32_t* open, std::uint64_t limit_ns);
/// Loads the kernels' code now: later it could wait for a stream that is held.
cudaError_t load_kernels();

}  // namespace kvlease::bench
