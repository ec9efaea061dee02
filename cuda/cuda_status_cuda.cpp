#include <fmt/format.h>

#include "cuda/cuda_status.hpp"

namespace kvlease {

error cuda_error(const char* call, cudaError_t status, errc code) {
  return {code, fmt::format("{}: {} ({}): {}", call, cudaGetErrorName(status), static_cast<int>(status),
                            cudaGetErrorString(status))};
}

result<void> cuda_checked(const char* call, cudaError_t status) {
  if (status == cudaSuccess) return {};
  return tl::unexpected{cuda_error(call, status)};
}

current_device::current_device(int device) noexcept {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
  status_ = cudaSetDevice(device);
}

current_device::~current_device() {
  if (before_ >= 0) cudaSetDevice(before_);
}

bool is_sticky(cudaError_t status) noexcept {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorSystemNotReady:
    case cudaErrorCudartUnloading:
    case cudaErrorExternalDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace kvlease
