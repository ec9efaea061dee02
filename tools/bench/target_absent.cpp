// Without CUDA there is no GPU to measure.
#include "tools/bench/target.hpp"

namespace kvlease::bench {

result<std::unique_ptr<target>> open_cuda_target(int) {
  const auto devices = cuda_devices();
  if (!devices) return tl::unexpected{devices.error()};
  return fail(errc::unsupported, "kvlease was built without CUDA");
}

}  // namespace kvlease::bench
