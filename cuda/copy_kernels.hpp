// Kernels that move pieces inside a device, or between it and page-locked memory of the host.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <span>

#include "src/copy_plan.hpp"

namespace kvlease {

/// Few pieces travel as the kernel's argument and need no table.
inline constexpr std::size_t argument_pieces = 240;

/// Loads the kernels' code. Left to the first launch, it would wait there for streams that are held.
cudaError_t load_copy_kernels();

/// Copies the pieces on `stream`, with at most `blocks` blocks. `table` is page-locked memory that the device
/// can read, and stays as it is until the stream has passed the kernel; unused for argument_pieces or fewer.
/// Pieces do not overlap; any alignment and size is right, and 16-byte alignment on both sides is fast.
cudaError_t launch_copy(std::span<const copy_piece> pieces, const copy_piece* table, unsigned blocks,
                        cudaStream_t stream);

}  // namespace kvlease
