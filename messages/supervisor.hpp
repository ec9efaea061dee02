// The supervisor: who is alive, and the order of shutdown (semantics 6.7, 7.4, 7.8).
#pragma once

#include <chrono>

#include "messages/common.hpp"

namespace kvlease {

/// Shut the runtime down in order, waiting at most `bound` for evidence.
struct stop_runtime {
  std::chrono::nanoseconds bound{};
};
/// To itself: the next look at a shutdown under way.
struct continue_stop {};

using supervisor_actor = iface<void(wired), void(quit_now), caf::result<actor_report>(report_request),
                               caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about),
                               caf::result<stop_report>(stop_runtime), void(continue_stop)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::stop_runtime);
KVLEASE_LOCAL_MESSAGE(kvlease::stop_report);
KVLEASE_LOCAL_MESSAGE(kvlease::continue_stop);
