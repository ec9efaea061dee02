// The CUDA actor: the manager's stream, its copies and their events.
#pragma once

#include <memory>
#include <string>

#include "messages/common.hpp"
#include "messages/copies.hpp"

namespace kvlease {

/// The copy's event has completed.
struct copy_complete {
  copy_id copy;
};
/// Enqueue, record or query failed: nothing can be said of the copy, now or later (5.6).
struct copy_unproven {
  copy_id copy;
  std::string reason;
};

/// Who may ask for copies.
using copy_client = iface<void(copy_complete), void(copy_unproven)>;

/// Enqueue the batch on the manager's stream, record an event right behind it, answer once.
struct copy_rows {
  copy_id copy;
  std::shared_ptr<const copy_batch> batch;
  copy_client client;
};

/// To itself: look at the oldest pending event. Stale when `generation` is not the current one.
struct poll_events {
  std::uint64_t generation = 0;
};

using cuda_actor = iface<void(wired), void(peer_down), void(quit_now),
                         caf::result<actor_report>(report_request), caf::result<facts_answer>(ask_slice),
                         caf::result<facts_answer>(ask_about), void(copy_rows), void(poll_events)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::copy_complete);
KVLEASE_LOCAL_MESSAGE(kvlease::copy_unproven);
KVLEASE_LOCAL_MESSAGE(kvlease::copy_rows);
KVLEASE_LOCAL_MESSAGE(kvlease::poll_events);
