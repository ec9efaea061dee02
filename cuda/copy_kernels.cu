#include <algorithm>
#include <cstdint>

#include "cuda/copy_kernels.hpp"

namespace kvlease {

namespace {

constexpr unsigned threads = 256;
constexpr unsigned warp = 32;
constexpr unsigned warps = threads / warp;
constexpr unsigned tile_pieces = 128;  ///< of a table that a block reads at a time
constexpr unsigned in_flight = 8;      ///< loads of a thread before its first store

struct argument_table {
  copy_piece pieces[argument_pieces];
};
static_assert(sizeof(argument_table) < 4096, "kernel arguments are 4 KiB at most on older drivers");

/// `count` words by one warp, several loads in flight.
template <class Word>
__device__ void copy_words(Word* __restrict__ to, const Word* __restrict__ from, unsigned count,
                           unsigned lane) {
  unsigned i = lane;
  for (; i + (in_flight - 1) * warp < count; i += in_flight * warp) {
    Word held[in_flight];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) held[k] = from[i + k * warp];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) to[i + k * warp] = held[k];
  }
  for (; i < count; i += warp) to[i] = from[i];
}

/// Bytes up to the first boundary of a Word, then Words, then what is left. Both sides are equally far from
/// such a boundary.
template <class Word>
__device__ void copy_as(std::uint8_t* to, const std::uint8_t* from, unsigned nbytes, unsigned lane) {
  const auto head = min(nbytes, static_cast<unsigned>(-reinterpret_cast<std::uintptr_t>(to) % sizeof(Word)));
  if (lane < head) to[lane] = from[lane];
  const unsigned count = (nbytes - head) / sizeof(Word);
  copy_words(reinterpret_cast<Word*>(to + head), reinterpret_cast<const Word*>(from + head), count, lane);
  const unsigned done = head + count * static_cast<unsigned>(sizeof(Word));
  if (lane < nbytes - done) to[done + lane] = from[done + lane];
}

__device__ void copy_piece_by_warp(const copy_piece& piece, unsigned lane) {
  auto* to = reinterpret_cast<std::uint8_t*>(piece.to());
  const auto* from = reinterpret_cast<const std::uint8_t*>(piece.from());
  const unsigned nbytes = piece.nbytes();
  const auto apart = static_cast<unsigned>((piece.to() ^ piece.from()) & 15);
  if (apart == 0)
    copy_as<uint4>(to, from, nbytes, lane);
  else if (apart % 8 == 0)
    copy_as<std::uint64_t>(to, from, nbytes, lane);
  else if (apart % 4 == 0)
    copy_as<std::uint32_t>(to, from, nbytes, lane);
  else
    copy_words(to, from, nbytes, lane);
}

__global__ void __launch_bounds__(threads)
    copy_by_argument(const __grid_constant__ argument_table table, unsigned count) {
  const unsigned lane = threadIdx.x % warp;
  for (unsigned i = blockIdx.x * warps + threadIdx.x / warp; i < count; i += gridDim.x * warps)
    copy_piece_by_warp(table.pieces[i], lane);
}

/// The table lies in the host's memory: a block fetches its part of it at once, since one read of it takes
/// as long as many.
__global__ void __launch_bounds__(threads)
    copy_by_table(const copy_piece* __restrict__ table, unsigned count, unsigned tile) {
  static_assert(sizeof(copy_piece) == sizeof(ulonglong2));
  __shared__ ulonglong2 mine[tile_pieces];
  const unsigned lane = threadIdx.x % warp;
  for (unsigned first = blockIdx.x * tile; first < count; first += gridDim.x * tile) {
    const unsigned here = min(tile, count - first);
    const auto* from = reinterpret_cast<const ulonglong2*>(table + first);
    for (unsigned i = threadIdx.x; i < here; i += threads) mine[i] = from[i];
    __syncthreads();
    for (unsigned i = threadIdx.x / warp; i < here; i += warps)
      copy_piece_by_warp(reinterpret_cast<const copy_piece&>(mine[i]), lane);
    __syncthreads();
  }
}

}  // namespace

cudaError_t load_copy_kernels() {
  cudaFuncAttributes attributes{};
  const auto status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(copy_by_argument));
  if (status != cudaSuccess) return status;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(copy_by_table));
}

cudaError_t launch_copy(std::span<const copy_piece> pieces, const copy_piece* table, unsigned blocks,
                        cudaStream_t stream) {
  auto count = static_cast<unsigned>(pieces.size());
  if (count == 0) return cudaSuccess;
  // Not <<<>>>, whose only answer is the last error of the thread, and that may be another call's.
  if (count <= argument_pieces) {
    argument_table argument;
    std::copy(pieces.begin(), pieces.end(), argument.pieces);
    const auto needed = (count + warps - 1) / warps;
    void* arguments[] = {&argument, &count};
    return cudaLaunchKernel(reinterpret_cast<const void*>(copy_by_argument), std::min(blocks, needed),
                            threads, arguments, 0, stream);
  }
  auto tile = std::min(tile_pieces, (count + blocks - 1) / blocks);
  const auto needed = (count + tile - 1) / tile;
  void* arguments[] = {&table, &count, &tile};
  return cudaLaunchKernel(reinterpret_cast<const void*>(copy_by_table), std::min(blocks, needed), threads,
                          arguments, 0, stream);
}

}  // namespace kvlease
