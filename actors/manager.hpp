// The manager actor: the manager port, the engine's own page access, pins.
#pragma once

#include <memory>

#include "messages/manager.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/manager_port.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct manager_config {
  incarnation runtime;
  std::shared_ptr<manager_port> port;
  bool blocking = false;  ///< the port can block: the actor gets a thread of its own (7.2)
  std::shared_ptr<device_port> device = nullptr;  ///< of the engine's page access
  /// Page-locked, for buffers that the device does not reach.
  std::shared_ptr<memory_block> page_access = nullptr;
  std::shared_ptr<observation> watch = {};
};

manager_actor spawn_manager(caf::actor_system& system, manager_config config);

}  // namespace kvlease
