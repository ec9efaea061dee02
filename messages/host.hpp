// What a host hears. Leases from the lender, operations from the arbiter alone (semantics 7.5).
#pragma once

#include <memory>

#include "messages/common.hpp"
#include "messages/operation.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// The lease can be submitted: a write's slots are lent, a read's copy is complete.
struct lease_ready {
  lease_id lease;
  std::shared_ptr<const region_view> view;
};
/// The lease brings nothing; it needs no release.
struct lease_failed {
  lease_id lease;
  error why;
};

using host_actor = iface<void(lease_ready), void(lease_failed), void(operation_outcome),
                         void(operation_released), void(operation_retained), void(fatal_record)>;

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::lease_ready);
KVLEASE_LOCAL_MESSAGE(kvlease::lease_failed);
KVLEASE_LOCAL_MESSAGE(kvlease::operation_outcome);
KVLEASE_LOCAL_MESSAGE(kvlease::operation_released);
KVLEASE_LOCAL_MESSAGE(kvlease::operation_retained);
KVLEASE_LOCAL_MESSAGE(kvlease::fatal_record);
