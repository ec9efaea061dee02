// The CUDA actor: enqueues copies on the manager's stream, records an event right behind each, and asks only
// the oldest pending one, since events of a stream complete in order (architecture, "Polling").
// In production it has a thread of its own, bound to the device. It calls nothing that can wait.
#pragma once

#include <chrono>
#include <memory>

#include "messages/cuda.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease {

struct cuda_config {
  std::shared_ptr<device_port> device;
  /// How long a look spins on a pending event before it backs off; zero under virtual time.
  std::chrono::nanoseconds spin = std::chrono::microseconds{30};
  std::chrono::nanoseconds first_delay = std::chrono::microseconds{20};
  std::chrono::nanoseconds most_delay = std::chrono::milliseconds{1};
};

cuda_actor spawn_cuda(caf::actor_system& system, cuda_config config);

}  // namespace kvlease
