// The backend actor: one provider and its attempts. Every provider call runs on a worker (7.2); the worker
// takes the operation's token right before the call, so that a call that has not begun can be taken back.
#pragma once

#include <memory>

#include "actors/poll_schedule.hpp"
#include "messages/backend.hpp"
#include "src/include/kvlease/provider.hpp"
#include "src/ledger.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct backend_config {
  incarnation runtime;
  std::shared_ptr<provider> service;
  std::shared_ptr<executor> workers;
  std::shared_ptr<ledger> roots;
  poll_limits polling;
  std::string description;  ///< the provider's own, asked once
  std::shared_ptr<observation> watch = {};
};

backend_actor spawn_backend(caf::actor_system& system, backend_config config);

}  // namespace kvlease
