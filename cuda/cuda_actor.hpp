// The CUDA actor: queues copies on the device, records an event right behind each, and asks only the oldest
// pending one of each direction, since events of a direction complete in order (architecture, "Polling").
// The device's queues are kept shallow: copies beyond `most_queued` operations wait here, in order.
// While something is pending it asks without a pause at first, then at intervals that grow; with nothing
// pending it does nothing. In production it has a thread of its own, bound to the device, and calls nothing
// that waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "messages/cuda.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct cuda_config {
  std::shared_ptr<device_port> device;
  /// How long it asks without a pause after the last progress, where the device spins(); zero under virtual
  /// time. Then at intervals of an eighth of the time since, within these two.
  std::chrono::nanoseconds spin = std::chrono::milliseconds{2};
  std::chrono::nanoseconds first_delay = std::chrono::microseconds{20};
  std::chrono::nanoseconds most_delay = std::chrono::milliseconds{1};
  /// While it asks without a pause, one of the scheduler's workers stays awake too, so that who hears of the
  /// copy need not be woken first.
  bool keep_awake = true;
  /// Operations on the device's queues, a direction (design: a full queue blocks the caller).
  std::size_t most_queued = 512;
  std::shared_ptr<observation> watch = {};
};

cuda_actor spawn_cuda(caf::actor_system& system, cuda_config config);

}  // namespace kvlease
