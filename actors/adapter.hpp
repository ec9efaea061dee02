// The adapter actor: turns messages about operations into events of their state machines and the effects
// into messages, and owns the life of the registrations (semantics 5).
#pragma once

#include <memory>
#include <vector>

#include "messages/adapter.hpp"
#include "src/include/kvlease/provider.hpp"
#include "src/ledger.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct adapter_config {
  incarnation runtime;
  std::shared_ptr<ledger> roots;
  std::vector<part> parts;
  transfer_timeout registration_timeout;  ///< grace for the registrations at close (5.8)
  bool can_fetch = true;
  bool can_publish = true;
  std::size_t max_operations = 1024;          ///< admitted and not released (7.7)
  std::size_t max_queued_submissions = 1024;  ///< handed to the backend, not answered (7.7)
  std::shared_ptr<observation> watch = {};
};

adapter_actor spawn_adapter(caf::actor_system& system, adapter_config config);

}  // namespace kvlease
