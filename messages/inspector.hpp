// The inspector: what each actor tells of itself. It waits for no stuck actor, and frees nothing.
#pragma once

#include <cstddef>
#include <future>
#include <memory>

#include "messages/common.hpp"
#include "messages/inspection.hpp"

namespace kvlease {

struct take_snapshot {};

/// What the actors told (src/facts.hpp).
struct gathered_facts;
using facts_promise = std::shared_ptr<std::promise<gathered_facts>>;

/// One-way, from any thread: the answer goes into the promise within the inspector's bound, whatever is
/// stuck.
struct gather_all {
  std::size_t limit = 0;  ///< operations, leases and owners each
  facts_promise answer;
};
struct gather_about {
  subject what;
  facts_promise answer;
};

using inspector_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<snapshot>(take_snapshot), void(gather_all), void(gather_about)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::take_snapshot);
KVLEASE_LOCAL_MESSAGE(kvlease::snapshot);
KVLEASE_LOCAL_MESSAGE(kvlease::gather_all);
KVLEASE_LOCAL_MESSAGE(kvlease::gather_about);
