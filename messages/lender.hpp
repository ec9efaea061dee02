// The lender: staging slots, leases, holds, readiness.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "messages/common.hpp"
#include "messages/cuda.hpp"
#include "messages/host.hpp"
#include "messages/manager.hpp"
#include "messages/staging.hpp"

namespace kvlease {

// ---- host → lender
/// A write lease (fetch) grows the cache and lends empty slots; a read lease (publish) copies committed
/// blocks into slots. Answered with the lease's id or a call error; lease_ready or lease_failed follows.
struct lend {
  direction way = direction::fetch;
  request_id request;
  token_range range;
  host_actor holder;
  std::optional<std::chrono::nanoseconds> wait_at_most;  ///< for slots (7.7)
};
/// Give up a lease that no operation owns.
struct withdraw_lease {
  lease_id lease;
};
/// Empty while a fetch is unsettled.
struct ask_readiness {
  request_id request;
};
struct readiness_answer {
  std::optional<readiness> value;
};
struct ask_slots {};
/// Look at the paint of every free slot now; answered with the bytes of exposure found so far (8.2).
struct check_paint {};

// ---- adapter → lender
/// The provider has registered every part: from now on slots may be lent.
struct parts_registered {};
struct hold_parts {};
struct release_hold {
  hold_id hold;
};
/// The outcome is known; the slots wait for evidence.
struct await_proof {
  lease_id lease;
};
/// Access has ended: mark (a write), then answer copies_ended or copies_lost.
struct finish_lease {
  lease_id lease;
  row_masks masks;
};
/// The operation is settled and its roots are erased: slots back.
struct return_lease {
  lease_id lease;
};

// ---- ledger → lender
struct guards_gone {
  lease_id lease;
};
// ---- to itself
struct lease_overdue {
  lease_id lease;
};

// ---- supervisor → lender
struct shut_lender {};
/// What keeps the staging memory mapped; all zero: it can go.
struct lender_rest {
  std::size_t leases = 0;
  std::size_t holds = 0;
  slot_counts slots;
};

// ---- lender → adapter
struct parts_held {
  hold_id hold;
};
struct copies_ended {
  lease_id lease;
};
struct copies_lost {
  lease_id lease;
  std::string reason;
};

using lender_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about),
          caf::result<lease_id>(lend), caf::result<done>(withdraw_lease),
          caf::result<readiness_answer>(ask_readiness), caf::result<slot_counts>(ask_slots),
          caf::result<std::uint64_t>(check_paint), void(parts_registered), void(hold_parts),
          void(release_hold), void(await_proof), void(finish_lease), void(return_lease), void(guards_gone),
          void(lease_overdue), caf::result<lender_rest>(shut_lender), void(lease_paged), void(rows_pinned),
          void(request_freed), void(copy_complete), void(copy_unproven)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::lease_id);
KVLEASE_LOCAL_MESSAGE(kvlease::slot_counts);
KVLEASE_LOCAL_MESSAGE(kvlease::lend);
KVLEASE_LOCAL_MESSAGE(kvlease::withdraw_lease);
KVLEASE_LOCAL_MESSAGE(kvlease::ask_readiness);
KVLEASE_LOCAL_MESSAGE(kvlease::readiness_answer);
KVLEASE_LOCAL_MESSAGE(kvlease::ask_slots);
KVLEASE_LOCAL_MESSAGE(kvlease::check_paint);
KVLEASE_LOCAL_MESSAGE(kvlease::parts_registered);
KVLEASE_LOCAL_MESSAGE(kvlease::hold_parts);
KVLEASE_LOCAL_MESSAGE(kvlease::release_hold);
KVLEASE_LOCAL_MESSAGE(kvlease::await_proof);
KVLEASE_LOCAL_MESSAGE(kvlease::finish_lease);
KVLEASE_LOCAL_MESSAGE(kvlease::return_lease);
KVLEASE_LOCAL_MESSAGE(kvlease::guards_gone);
KVLEASE_LOCAL_MESSAGE(kvlease::lease_overdue);
KVLEASE_LOCAL_MESSAGE(kvlease::shut_lender);
KVLEASE_LOCAL_MESSAGE(kvlease::lender_rest);
KVLEASE_LOCAL_MESSAGE(kvlease::parts_held);
KVLEASE_LOCAL_MESSAGE(kvlease::copies_ended);
KVLEASE_LOCAL_MESSAGE(kvlease::copies_lost);
