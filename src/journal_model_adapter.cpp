// The adapter and the backend's workers: operations from admission to release (1.2, 2, 5), and the parts'
// registrations (5.1, 5.8).
#include <fmt/format.h>

#include <algorithm>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;
using phase = operation_model::phase;

// ---- registrations

void journal_model::registration_step(const journal_record& r) {
  auto& g = registrations;
  const auto id = journal_id(r.other);
  if (whole && (g.claim == 0 || r.operation != g.claim))
    return fail(r, "5.1",
                fmt::format("operation {} does not stand for the registrations", journal_id(r.operation)));
  const bool opening = r.kind == kind::registration_started;
  const bool answered = r.kind == kind::registration_made || r.kind == kind::registration_failed;
  if (opening) {
    if (!fresh(r, r.other, newest_registration, "registration")) return;
    if (whole && g.hold == 0) return fail(r, "5.1", "a part is registered before the hold is taken");
    if (fatal) return fail(r, "4.5", "a part is registered after fatal");
    if (whole && (g.opening != 0 || g.closing != 0 || g.failed || g.live.size() >= pool.size()))
      return fail(r, "5.1",
                  fmt::format("registration {} starts, and {}", id,
                              g.failed         ? "one has failed"
                              : g.opening != 0 ? "another is not answered"
                                               : "there is no part for it"));
    g.opening = r.other;
    return;
  }
  if (answered) {
    if (whole && g.opening != r.other)
      return fail(r, "5.1", fmt::format("registration {} was not started", id));
    g.opening = 0;
    g.failed |= r.kind == kind::registration_failed;
    if (r.kind == kind::registration_made) g.live.push_back(r.other);
    g.complete |= whole && g.live.size() == pool.size();
    return;
  }
  if (open_operations > 0)
    return fail(r, "5.8", fmt::format("registration {} goes while operations are open", id));
  if (r.kind == kind::registration_closing && fatal)
    return fail(r, "5.8", fmt::format("registration {} is torn down after fatal", id));
  if (r.kind == kind::registration_closing) {
    if (whole && (g.closing != 0 || g.opening != 0 || g.live.empty() || g.live.back() != r.other))
      return fail(r, "5.8", fmt::format("registration {} is not the last that stands", id));
    g.closing = r.other;
    return;
  }
  if (whole && g.closing != r.other)
    return fail(r, "5.8", fmt::format("registration {} is not being closed", id));
  g.closing = 0;
  if (r.kind == kind::registration_closed) std::erase(g.live, r.other);
}

// ---- operations

void journal_model::admit_step(const journal_record& r) {
  if (!fresh(r, r.operation, newest_operation, "operation", false)) return;
  const auto id = journal_id(r.operation);
  auto* l = lease(r.lease);
  const auto way = static_cast<direction>(r.detail);
  if (whole && (l == nullptr || l->at != lease_model::phase::ready || !lender_is_done_with(r.lease)))
    return fail(r, "5.2",
                fmt::format("operation {} takes lease {}, which is not ready", id, journal_id(r.lease)));
  if (l != nullptr) {
    if (l->operation != 0)
      return fail(
          r, "5.2",
          fmt::format("lease {} is operation {}'s already", journal_id(r.lease), journal_id(l->operation)));
    if (l->way != way || l->request != r.request)
      return fail(r, "5.2",
                  fmt::format("lease {} is a {} of request {}", journal_id(r.lease), to_string(l->way),
                              journal_id(l->request)));
    l->operation = r.operation;
  }
  auto& o = operations[r.operation];
  o.lease = r.lease;
  o.request = r.request;
  o.way = way;
  o.last = r.at;
  ++open_operations;
  to_arbiter.push_back({kind::exposed, r.operation, r.at, r.sequence});
}

void journal_model::access_step(const journal_record& r, operation_model& o) {
  const auto id = journal_id(r.operation);
  const auto wrong = [&](std::string_view what) {
    return fail(r, "5.3", fmt::format("operation {} {}", id, what));
  };
  switch (r.kind) {
    case kind::submission_queued:
      if (!o.granted)
        return fail(r, "4.1", fmt::format("operation {} is submitted before it is exposed", id));
      if (o.access != phase::exposing) return wrong("is submitted twice");
      o.access = phase::queued;
      o.last = r.at;
      return;
    case kind::submission_entered: {
      if (o.withdrawn) return wrong("was withdrawn, and its call is entered");
      if (o.entered) return wrong("has its call entered twice");
      const bool given_up = o.access == phase::escaped && may_be_down(actor_kind::backend);
      if (o.access != phase::queued && !given_up) return wrong("is not submitted, and its call is entered");
      if (r.at < o.last)
        return fail(r, "form", fmt::format("it is {} ns before it was submitted", o.last - r.at));
      o.entered = true;
      o.last = r.at;
      return;
    }
    case kind::submission_accepted:
      if (o.access != phase::queued || !o.entered) return wrong("is accepted, and its call was not entered");
      if (r.at < o.last) return fail(r, "form", fmt::format("it is {} ns before the call", o.last - r.at));
      o.attempt = true;
      o.access = phase::running;
      adapter_owes.push_back({.what = kind::proof_started, .about = r.operation, .rule = "5.4"});
      return;
    case kind::submission_rejected:
      if (o.access != phase::queued) return wrong("is rejected, and was not submitted");
      o.rejected = true;
      o.access = phase::ended;
      return;
    case kind::submission_withdrawn:
      if (o.access != phase::queued) return wrong("is withdrawn, and was not submitted");
      if (o.entered) return wrong("is withdrawn, and a worker has entered its call");
      if (!o.value && !may_be_down(actor_kind::backend)) return wrong("is withdrawn, and has no outcome");
      o.withdrawn = true;
      o.access = phase::ended;
      return;
    case kind::submission_escaped:
      if (o.access != phase::queued) return wrong("escapes, and was not submitted");
      if (!o.entered && !may_be_down(actor_kind::backend)) return wrong("escapes, and was not called");
      o.access = phase::escaped;
      to_arbiter.push_back({kind::claim_retained, r.operation, r.at, r.sequence});
      return;
    case kind::proof_started:
      if (o.proof != 0)
        return fail(r, "5.4", fmt::format("operation {} has proof {} in flight", id, journal_id(o.proof)));
      if (o.access != phase::running && o.access != phase::disputed)
        return fail(r, "5.4", fmt::format("operation {} has nothing to prove", id));
      if (!fresh(r, r.other, newest_proof, "proof")) return;
      o.access = phase::running;
      o.proof = r.other;
      return;
    case kind::rung_climbed:
      if (r.other != o.proof)
        return fail(r, "5.4",
                    fmt::format("a rung is climbed for proof {}, which is not in flight for operation {}",
                                journal_id(r.other), id));
      climbed_proofs.insert(r.other);
      return;
    case kind::operation_taken_down:
      if (whole && !climbed_proofs.contains(r.other))
        fail(r, "5.4",
             fmt::format("operation {} is taken down for proof {}, for which no rung was climbed", id,
                         journal_id(r.other)));
      return;
    case kind::access_disputed:
    case kind::access_ended: {
      const bool ends = r.kind == kind::access_ended;
      if (ends && r.other == 0) {  // nothing was submitted: refused, or decided before the grant had come
        if (o.access == phase::exposing && (o.refused || (o.granted && o.value)))
          o.access = phase::ended;
        else
          fail(r, "2.4", fmt::format("the access of operation {} ends without a proof", id));
        return;
      }
      if (r.other != o.proof)
        return fail(
            r, "5.4",
            fmt::format("proof {} is not the one in flight for operation {}", journal_id(r.other), id));
      if (!is_up(actor_kind::proof_collector)) return fail(r, "7.4", "the proof_collector is not up");
      o.proof = 0;
      o.access = ends ? phase::ended : phase::disputed;
      if (!ends) to_arbiter.push_back({kind::claim_retained, r.operation, r.at, r.sequence});
      return;
    }
    default:
      return;
  }
}

void journal_model::evidence_step(const journal_record& r, operation_model& o) {
  const auto id = journal_id(r.operation);
  switch (r.kind) {
    case kind::outcome_reported:
      if (!o.attempt || o.reported_any)
        return fail(
            r, "2.3",
            fmt::format("operation {} is reported {}", id, o.attempt ? "twice" : "without an attempt"));
      o.reported_any = true;
      o.reported = r.detail;
      o.reported_served = r.value;
      return;
    case kind::cancel_asked:
      if (!o.value || o.delivered())
        return fail(r, "5.5",
                    fmt::format("operation {} is cancelled at the provider before its outcome", id));
      if (o.cancel_asked || !o.attempt)
        return fail(r, "5.5",
                    fmt::format("operation {} is cancelled at the provider {}", id,
                                o.attempt ? "twice" : "without an attempt"));
      o.cancel_asked = true;
      return;
    case kind::lease_finish_asked: {
      if (!o.ended())
        return fail(r, "5.6", fmt::format("operation {} is marked before its access has ended", id));
      if (o.finish_asked) return fail(r, "5.6", fmt::format("operation {} is marked twice", id));
      if (!o.value) return fail(r, "5.6", fmt::format("operation {} is marked without an outcome", id));
      const bool marks = o.delivered() && o.way == direction::fetch;
      if (r.value != (marks ? o.served : 0))
        return fail(r, "5.6",
                    fmt::format("operation {} marks {} rows, and {} were delivered", id, r.value,
                                marks ? o.served : 0));
      if (o.attempt && !o.delivered() && !o.cancel_asked && !may_be_down(actor_kind::backend))
        return fail(r, "5.5", fmt::format("operation {} was not cancelled at the provider", id));
      o.finish_asked = true;
      if (auto* l = lease(o.lease)) l->rows = r.value;
      if (whole || lease(o.lease) != nullptr)
        to_lender.push_back({kind::lease_finishing, o.lease, r.at, r.sequence});
      return;
    }
    default:
      return;
  }
}

void journal_model::copies_step(const journal_record& r, operation_model& o) {
  const auto id = journal_id(r.operation);
  if (!o.finish_asked || o.copies || o.copies_lost)
    return fail(r, "5.6", fmt::format("the copies of operation {} were not awaited", id));
  const auto* l = lease(o.lease);
  if (r.kind == kind::copies_disputed) {
    const bool lost_here = l != nullptr && l->at == lease_model::phase::lost && lender_is_done_with(o.lease);
    if (l != nullptr && !lost_here && !may_be_down(actor_kind::lender))
      return fail(r, "5.6", fmt::format("no copy of operation {} was lost", id));
    o.copies_lost = true;
    to_arbiter.push_back({kind::claim_retained, r.operation, r.at, r.sequence});
    return;
  }
  if (l != nullptr && l->finishing && l->guards > 0)
    return fail(r, "1.4",
                fmt::format("the copies of operation {} end with {} read guards open", id, l->guards));
  if (l != nullptr && (!l->finishing || l->at != lease_model::phase::done || !lender_is_done_with(o.lease)))
    return fail(
        r, "5.6",
        fmt::format("the copies of operation {} end while copy {} is not complete", id, journal_id(l->copy)));
  o.copies = true;
  o.copies_at = r.sequence;
}

void journal_model::release_step(const journal_record& r, operation_model& o) {
  const auto id = journal_id(r.operation);
  if (!o.settled)
    return fail(r, "1.2", fmt::format("operation {} is released, and its claim is not settled", id));
  o.released = true;
  --open_operations;
  if (whole || lease(o.lease) != nullptr)
    to_lender.push_back({kind::lease_returned, o.lease, r.at, r.sequence});
  to_arbiter.push_back({kind::claim_retired, r.operation, r.at, r.sequence});
}

void journal_model::adapter_step(const journal_record& r) {
  if (r.kind == kind::actor_up) return;
  if (r.from == actor_kind::adapter) {
    bool was_due = false;
    const auto* known = op(r.operation);
    if ((known != nullptr || whole) && !pays(r, adapter_owes, r.operation, was_due)) return;
  }
  switch (r.kind) {
    case kind::operation_admitted:
      return admit_step(r);
    case kind::registration_started:
    case kind::registration_made:
    case kind::registration_failed:
    case kind::registration_closing:
    case kind::registration_closed:
    case kind::registration_kept:
      return registration_step(r);
    default:
      break;
  }
  auto* o = op(r.operation);
  if (o == nullptr) {
    return whole ? fail(r, "7.1", fmt::format("operation {} was not admitted", journal_id(r.operation)))
                 : void();
  }
  if (o->released && r.kind != kind::outcome_reported)
    return fail(r, "7.1", fmt::format("operation {} is released", journal_id(r.operation)));
  if (!names_its_own(r, *o)) return;
  switch (r.kind) {
    case kind::operation_released:
      return release_step(r, *o);
    case kind::copies_ended:
    case kind::copies_disputed:
      return copies_step(r, *o);
    case kind::outcome_reported:
    case kind::cancel_asked:
    case kind::lease_finish_asked:
      return evidence_step(r, *o);
    default:
      return access_step(r, *o);
  }
}

}  // namespace kvlease
