// CUDA's answers as errors of ours: the call, the status's name and number, and CUDA's own words.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "messages/error.hpp"

namespace kvlease {

/// "cudaEventQuery: cudaErrorIllegalAddress (700): an illegal memory access was encountered".
error cuda_error(const char* call, cudaError_t status, errc code = errc::device);

/// Ok, or cuda_error().
result<void> cuda_checked(const char* call, cudaError_t status);

/// Makes a device the current one of this thread, and the one before again in the end: the thread may be the
/// host's.
class current_device {
 public:
  explicit current_device(int device) noexcept;
  ~current_device();
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;
  cudaError_t status() const noexcept { return status_; }

 private:
  int before_ = -1;
  cudaError_t status_ = cudaSuccess;
};

/// After such a status no later call on the device can succeed: it must be taken for lost.
bool is_sticky(cudaError_t status) noexcept;

}  // namespace kvlease
