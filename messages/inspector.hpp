// The inspector: the last snapshot of each actor. It waits for no stuck actor.
#pragma once

#include "messages/common.hpp"

namespace kvlease {

struct take_snapshot {};

using inspector_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<snapshot>(take_snapshot)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::take_snapshot);
KVLEASE_LOCAL_MESSAGE(kvlease::snapshot);
