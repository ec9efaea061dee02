// The proof collector actor: is the end of access proven? Attempt by attempt, never merged (2.4). A provider
// that can be polled is polled in rounds on a worker; one that can only block gets one quiesce call a proof.
#pragma once

#include <memory>

#include "actors/ladder.hpp"
#include "actors/poll_schedule.hpp"
#include "messages/proof_collector.hpp"
#include "src/include/kvlease/provider.hpp"
#include "src/ledger.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct collector_config {
  std::shared_ptr<provider> service;
  std::shared_ptr<executor> workers;
  std::shared_ptr<ledger> roots;
  poll_limits polling;
  std::shared_ptr<observation> watch = {};
  ladder_options ladder = {};
};

proof_collector_actor spawn_proof_collector(caf::actor_system& system, collector_config config);

}  // namespace kvlease
