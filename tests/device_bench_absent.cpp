#include "src/include/kvlease/cuda_device.hpp"
#include "tests/device_bench.hpp"

namespace kvlease::test {

result<std::shared_ptr<device_bench>> device_bench::cuda(const cuda_options& options) {
  return cuda_device::open(options).map([](const auto&) { return std::shared_ptr<device_bench>{}; });
}

}  // namespace kvlease::test
