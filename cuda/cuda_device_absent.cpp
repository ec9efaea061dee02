// kvlease/cuda_device.hpp in a build without CUDA.
#include "src/include/kvlease/cuda_device.hpp"

namespace kvlease {

namespace {
const char* const reason = "this build of kvlease has no CUDA: no toolkit was found, or KVLEASE_CUDA was OFF";
}

result<std::vector<cuda_device_info>> cuda_devices() { return fail(errc::unsupported, reason); }

result<std::shared_ptr<cuda_device>> cuda_device::open(cuda_options) {
  return fail(errc::unsupported, reason);
}

}  // namespace kvlease
