// The manager: device pages, requests, reuse, pins. Hosts ask it with requests; the lender with one-way
// messages (semantics 7.6).
#pragma once

#include <memory>
#include <vector>

#include "messages/common.hpp"
#include "messages/contract.hpp"
#include "messages/cuda.hpp"
#include "messages/pages.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// Prompt and reuse scope; see src/include/kvlease/manager_port.hpp.
struct request_spec;

// ---- host → manager
struct admit_request {
  std::shared_ptr<const request_spec> spec;
};
struct describe_request {
  request_id request;
};
/// Hold pages for tokens [0, end).
struct grow_request {
  request_id request;
  std::int64_t end = 0;
};
struct commit_request {
  request_id request;
  std::int64_t end = 0;
  event_handle written = 0;  ///< behind which the content is there; 0: the manager's stream
};
/// The request exits, whatever its leases are doing.
struct free_request {
  request_id request;
};
/// The engine's own access to pages, on the manager's stream: all whole blocks of `range`, rows in the order
/// of manager_port::rows, from or into `buffer` (rows back to back). The pages are pinned meanwhile.
struct move_pages {
  request_id request;
  token_range range;
  copy_kind kind = copy_kind::host_to_device;
  std::shared_ptr<std::vector<std::byte>> buffer;
};

// ---- lender → manager
/// Check the range, grow the cache (a fetch), answer lease_paged.
struct page_lease {
  lease_id lease;
  request_id request;
  token_range range;
  direction way = direction::fetch;
  bool grow = true;
};
struct pin_rows {
  lease_id lease;
  request_id request;
  std::vector<page_row> rows;
};
struct unpin_rows {
  pin_id pin;
};

// ---- manager → lender
/// An answer, or why there is none.
struct lease_paged {
  lease_id lease;
  std::shared_ptr<const result<lease_pages>> pages;
};
struct rows_pinned {
  lease_id lease;
  pin_id pin;
  std::vector<std::size_t> kept;  ///< indices into the rows asked for
  event_handle written = 0;       ///< behind which their content is there; 0: the manager's stream
};
struct request_freed {
  request_id request;
};

using manager_actor =
    iface<void(wired), void(peer_down), void(quit_now), caf::result<actor_report>(report_request),
          caf::result<facts_answer>(ask_slice), caf::result<facts_answer>(ask_about),
          caf::result<request_info>(admit_request), caf::result<request_info>(describe_request),
          caf::result<request_info>(grow_request), caf::result<request_info>(commit_request),
          caf::result<done>(free_request), caf::result<done>(move_pages), void(page_lease), void(pin_rows),
          void(unpin_rows), void(copy_complete), void(copy_unproven)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::request_info);
KVLEASE_LOCAL_MESSAGE(kvlease::admit_request);
KVLEASE_LOCAL_MESSAGE(kvlease::describe_request);
KVLEASE_LOCAL_MESSAGE(kvlease::grow_request);
KVLEASE_LOCAL_MESSAGE(kvlease::commit_request);
KVLEASE_LOCAL_MESSAGE(kvlease::free_request);
KVLEASE_LOCAL_MESSAGE(kvlease::move_pages);
KVLEASE_LOCAL_MESSAGE(kvlease::page_lease);
KVLEASE_LOCAL_MESSAGE(kvlease::pin_rows);
KVLEASE_LOCAL_MESSAGE(kvlease::unpin_rows);
KVLEASE_LOCAL_MESSAGE(kvlease::lease_paged);
KVLEASE_LOCAL_MESSAGE(kvlease::rows_pinned);
KVLEASE_LOCAL_MESSAGE(kvlease::request_freed);
