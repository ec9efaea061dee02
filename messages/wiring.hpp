// The handles of one runtime, given to each actor once all are spawned.
#pragma once

#include "messages/adapter.hpp"
#include "messages/backend.hpp"
#include "messages/cuda.hpp"
#include "messages/deadline_arbiter.hpp"
#include "messages/inspector.hpp"
#include "messages/lender.hpp"
#include "messages/manager.hpp"
#include "messages/proof_collector.hpp"
#include "messages/supervisor.hpp"

namespace kvlease {

struct wiring {
  incarnation runtime;
  manager_actor manager;
  lender_actor lender;
  adapter_actor adapter;
  backend_actor backend;
  proof_collector_actor proof_collector;
  deadline_arbiter_actor deadline_arbiter;
  cuda_actor cuda;
  supervisor_actor supervisor;
  inspector_actor inspector;
};

}  // namespace kvlease
