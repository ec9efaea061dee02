#include <fmt/format.h>

#include <algorithm>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;

// ---- the adapter

void journal_model::registration_step(const journal_record& r) {
  switch (r.kind) {
    case kind::registration_started:
      fresh(r, r.other, newest_registration, "registration");
      if (broken) return;
      if (whole && holds.empty()) return fail(r, "5.1", "a part is registered before the hold is taken");
      if (fatal) return fail(r, "4.5", "a part is registered after fatal");
      return;
    case kind::registration_made:
      registered.insert(r.other);
      return;
    case kind::registration_closing:
    case kind::registration_closed:
      if (open_operations())
        return fail(r, "5.8",
                    fmt::format("registration {} goes while operations are open", journal_id(r.other)));
      if (r.kind == kind::registration_closing && fatal)
        return fail(r, "5.8", fmt::format("registration {} is torn down after fatal", journal_id(r.other)));
      if (r.kind == kind::registration_closed) registered.erase(r.other);
      return;
    default:
      return;
  }
}

void journal_model::release_step(const journal_record& r, operation_model& o) {
  const auto id = journal_id(r.operation);
  if (!o.settled)
    return fail(r, "1.2", fmt::format("operation {} is released, and its claim is not settled", id));
  if (!o.ended)
    return fail(r, "1.2", fmt::format("operation {} is released before its access has ended", id));
  if (!o.copies)
    return fail(r, "1.2", fmt::format("operation {} is released before its copies are complete", id));
  by_lease.erase(o.lease);
  operations.erase(r.operation);
}

void journal_model::evidence_step(const journal_record& r, operation_model& o) {
  const auto id = journal_id(r.operation);
  switch (r.kind) {
    case kind::submission_queued:
      if (!o.granted)
        return fail(r, "4.1", fmt::format("operation {} is submitted before it is exposed", id));
      if (o.queued) return fail(r, "5.3", fmt::format("operation {} is submitted twice", id));
      o.queued = true;
      return;
    case kind::submission_entered: {
      if (o.withdrawn)
        return fail(r, "5.3", fmt::format("operation {} was withdrawn, and its call is entered", id));
      if (o.entered) return fail(r, "5.3", fmt::format("the call of operation {} is entered twice", id));
      const auto* l = lease(o.lease);
      if (l != nullptr && l->way == direction::publish && l->slots > 0 && !l->copied)
        return fail(r, "5.7", fmt::format("publish {} is submitted before its copy is complete", id));
      o.entered = true;
      return;
    }
    case kind::submission_accepted:
      o.attempt = true;
      return;
    case kind::submission_rejected:
      o.ended = o.nothing_submitted = true;
      return;
    case kind::submission_withdrawn:
      if (o.entered)
        return fail(r, "5.3",
                    fmt::format("operation {} is withdrawn, and a worker has entered its call", id));
      o.withdrawn = o.ended = o.nothing_submitted = true;
      return;
    case kind::cancel_asked:
      if (!o.value)
        return fail(r, "5.5",
                    fmt::format("operation {} is cancelled at the provider before its outcome", id));
      return;
    case kind::proof_started:
      if (o.proof != 0)
        return fail(r, "5.4", fmt::format("operation {} has proof {} in flight", id, journal_id(o.proof)));
      if (!fresh(r, r.other, newest_proof, "proof")) return;
      o.proof = r.other;
      return;
    case kind::access_disputed:
      o.proof = 0;
      return;
    case kind::access_ended:
      // Without a proof only what was never submitted has ended.
      if (r.other == 0 && o.entered && !o.nothing_submitted)
        return fail(r, "2.4", fmt::format("the access of operation {} ends without a proof", id));
      if (r.other != 0 && r.other != o.proof)
        return fail(
            r, "5.4",
            fmt::format("proof {} is not the one in flight for operation {}", journal_id(r.other), id));
      o.proof = 0;
      o.ended = true;
      return;
    case kind::lease_finish_asked:
      if (!o.ended)
        return fail(r, "5.6", fmt::format("operation {} is marked before its access has ended", id));
      if (o.finish_asked) return fail(r, "5.6", fmt::format("operation {} is marked twice", id));
      if (r.value > 0 && o.value && *o.value != static_cast<std::uint8_t>(outcome_detail::delivered))
        return fail(r, "5.6", fmt::format("operation {} marks {} rows, and was not delivered", id, r.value));
      o.finish_asked = true;
      return;
    case kind::copies_ended: {
      const auto* l = lease(o.lease);
      if (l != nullptr && (l->copy != 0 || l->lost))
        return fail(r, "5.6",
                    fmt::format("the copies of operation {} end while copy {} is not complete", id,
                                journal_id(l->copy)));
      if (l != nullptr && l->guards > 0)
        return fail(r, "1.4",
                    fmt::format("the copies of operation {} end with {} read guards open", id, l->guards));
      o.copies = true;
      return;
    }
    default:
      return;
  }
}

void journal_model::adapter_step(const journal_record& r) {
  if (r.kind == kind::operation_admitted) {
    if (!fresh(r, r.operation, newest_operation, "operation")) return;
    auto* l = lease(r.lease);
    if (whole && (l == nullptr || !l->ready))
      return fail(r, "5.2",
                  fmt::format("operation {} takes lease {}, which is not ready", journal_id(r.operation),
                              journal_id(r.lease)));
    if (const auto id = owner_of_lease(r.lease); id != 0)
      return fail(r, "5.2",
                  fmt::format("lease {} is operation {}'s already", journal_id(r.lease), journal_id(id)));
    by_lease[r.lease] = r.operation;
    operations[r.operation] = {.lease = r.lease, .way = static_cast<direction>(r.detail), .value = {}};
    return;
  }
  registration_step(r);
  if (broken) return;
  auto* o = op(r);
  if (o == nullptr) return;
  if (r.kind == kind::operation_released) return release_step(r, *o);
  evidence_step(r, *o);
}

}  // namespace kvlease
