// The arbiter: exposure, outcomes, claims (1.3, 4.7, 7.5). Its clocks are in src/journal_model_deadlines.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;

namespace {

constexpr bool is(std::uint8_t detail, outcome_detail d) { return detail == static_cast<std::uint8_t>(d); }

/// Noted when its message comes, before what has elapsed by then is committed.
bool ahead_of_the_clock(kind k) {
  return k == kind::claim_retained || k == kind::claim_retired || k == kind::admission_closed ||
         k == kind::owner_created || k == kind::registrations_tracked || k == kind::actor_up;
}

/// May stand before a drain that is due: what has elapsed, what fatal expiry and a dead adapter bring about.
bool of_the_clock(const journal_record& r) {
  return r.kind == kind::drain_started || r.kind == kind::fatal_latched ||
         (r.kind == kind::outcome_committed &&
          (is(r.detail, outcome_detail::timed_out) || is(r.detail, outcome_detail::failed)));
}

}  // namespace

void journal_model::elapsed_step(const journal_record& r) {
  const bool fatal_goes_on = r.kind == kind::fatal_latched ||
                             (r.kind == kind::outcome_committed && is(r.detail, outcome_detail::failed));
  if (fatal_due && !fatal_goes_on)
    return fail(r, "4.5", "an operation has failed for no reason but fatal expiry, and that is not latched");
  if (!of_the_clock(r) && !drains_due.empty())
    return fail(r, "4.4",
                fmt::format("the drain of owner {} has to start first", journal_id(*drains_due.begin())));
  if (!of_the_clock(r) && shutdown_due) {
    for (const auto& [id, o] : owners)
      if (!o.drain)
        return fail(r, "4.10",
                    fmt::format("admission is closed, and owner {} does not drain", journal_id(id)));
    shutdown_due = false;
  }
  const bool commits = r.kind == kind::drain_started
                           ? r.detail == static_cast<std::uint8_t>(drain_cause::timeout)
                           : of_the_clock(r);
  if (fatal || due.empty() || commits || ahead_of_the_clock(r.kind) || due.begin()->first > r.at) return;
  const auto [when, id] = *due.begin();
  const auto& o = owners.at(id);
  const bool request = o.deadline && *o.deadline == when && !o.expired;
  fail(r, request ? "4.2" : "4.5",
       fmt::format("the {} of owner {} has elapsed {} ns ago, and is not committed",
                   request ? "deadline" : "grace", journal_id(id), r.at - when));
}

void journal_model::expose_step(const journal_record& r) {
  const auto id = journal_id(r.operation);
  auto* o = op(r.operation);
  if (o == nullptr && whole) return fail(r, "4.1", fmt::format("operation {} was not admitted", id));
  if (r.kind == kind::exposed && fatal)
    return fail(r, "4.5", fmt::format("operation {} is exposed after fatal", id));
  if (r.kind == kind::exposed && (closed || stopped))
    return fail(r, "4.10", fmt::format("operation {} is exposed after admission was closed", id));
  if (o == nullptr) {
    newest_owner = std::max(newest_owner, r.other);
    return;
  }
  if (!arrives(r, to_arbiter, r.operation, "4.1", kind::exposed)) return;
  o->owner = r.other;
  if (r.kind == kind::exposure_refused) {
    o->refused = true;
    if (auto* w = owner(r.other); w != nullptr && w->operation == 0) w->operation = r.operation;
    arbiter_owes.push_back({.what = kind::outcome_committed, .about = r.operation, .rule = "4.1"});
    return;
  }
  auto* w = owner(r.other);
  if (w == nullptr) {
    if (r.other <= newest_owner ? whole : !fresh(r, r.other, newest_owner, "owner"))
      return fail(r, "4.1", fmt::format("owner {} is closed", journal_id(r.other)));
    newest_owner = std::max(newest_owner, r.other);
    w = &owners[r.other];
    w->request = o->request;
    w->span = r.value;
  }
  if (w->operation != 0 || w->registrations)
    return fail(r, "4.1", fmt::format("owner {} is in use", journal_id(r.other)));
  if (w->drain)
    return fail(r, "4.1",
                fmt::format("operation {} is exposed while owner {} drains", id, journal_id(r.other)));
  if (r.value != w->span)
    return fail(r, "4.1",
                fmt::format("the request clock of owner {} runs for {} ns, not {}", journal_id(r.other),
                            r.value, w->span));
  o->granted = true;
  w->operation = r.operation;
  w->claim = true;
  w->deadline = later(r.at, w->span);
  rearm(r.other);
}

void journal_model::outcome_step(const journal_record& r) {
  const auto id = journal_id(r.operation);
  auto* o = op(r.operation);
  if (o == nullptr) return whole ? fail(r, "7.1", fmt::format("operation {} was not admitted", id)) : void();
  if (o->value) return fail(r, "1.3", fmt::format("operation {} has an outcome, and gets another", id));
  if (!o->granted && !o->refused)
    return fail(r, "4.1", fmt::format("operation {} has an outcome, and was not exposed", id));
  if (r.other != o->owner)
    return fail(
        r, "7.1",
        fmt::format("operation {} has owner {}, not {}", id, journal_id(o->owner), journal_id(r.other)));
  o->value = r.detail;
  o->served = r.value;
  auto* w = owner(r.other);
  const bool success = is(r.detail, outcome_detail::delivered);
  if (!success && r.value != 0)
    return fail(r, "1.5", fmt::format("operation {} serves {} units, and was not delivered", id, r.value));
  if (o->refused) {
    if (!is(r.detail, outcome_detail::cancelled))
      fail(r, "4.1", fmt::format("operation {} was refused, and is not cancelled", id));
    return;
  }
  if (success) {
    if (o->reported != r.detail || o->reported_served != r.value)
      return fail(r, "1.5", fmt::format("operation {} delivers what was not reported", id));
    if (w != nullptr) w->complete = true;
  }
  if (is(r.detail, outcome_detail::timed_out)) {
    if (w != nullptr && w->deadline && r.at < *w->deadline)
      return fail(r, "4.3", fmt::format("operation {} times out {} ns early", id, *w->deadline - r.at));
    if (w != nullptr) w->expired = true;
  }
  if (is(r.detail, outcome_detail::failed)) {
    const bool told = o->reported_any || o->rejected || o->withdrawn ||
                      o->access == operation_model::phase::escaped || may_be_down(actor_kind::backend) ||
                      may_be_down(actor_kind::lender) || may_be_down(actor_kind::adapter);
    const bool late = !fatal && !due.empty() && due.begin()->first <= r.at;
    fatal_due |= whole && (!told || late);
    if (!fatal_due && !drains_due.empty() && !may_be_down(actor_kind::adapter))
      return fail(r, "4.4",
                  fmt::format("the drain of owner {} has to start first", journal_id(*drains_due.begin())));
  }
  if (w == nullptr) return;
  if (!success && !w->drain && !fatal_due) drains_due.insert(r.other);
  rearm(r.other);
}

/// All that the adapter has sent before record `asked` has shown at the arbiter.
bool journal_model::overtakes_none(const journal_record& r, number asked) {
  if (to_arbiter.empty() || to_arbiter.front().sequence > asked) return true;
  const auto& head = to_arbiter.front();
  fail(r, "4.7",
       fmt::format("{} of operation {} was asked for before, by record {}", to_string(head.what),
                   journal_id(head.about), head.sequence));
  return false;
}

void journal_model::claim_step(const journal_record& r) {
  auto* o = op(r.operation);
  auto* w = owner(r.other);
  auto& g = registrations;
  const auto id = journal_id(r.operation);
  const bool parts = g.claim != 0 && r.operation == g.claim;
  if (o == nullptr && !parts)
    return whole ? fail(r, "7.1", fmt::format("operation {} was not admitted", id)) : void();
  if (const auto mine = parts ? g.owner : o->owner; mine != r.other)
    return fail(r, "7.1",
                fmt::format("operation {} has owner {}, not {}", id, journal_id(mine), journal_id(r.other)));
  switch (r.kind) {
    case kind::claim_retained:
      if (!parts && !arrives(r, to_arbiter, r.operation, "4.7")) return;
      if (parts && g.retained) return fail(r, "4.7", "the registrations' claim is retained twice");
      if (parts) g.retained = true;
      if (w == nullptr) return;
      w->retained = w->claim = true;
      if (!w->drain) drains_due.insert(r.other);
      rearm(r.other);
      return;
    case kind::claim_settled:
    case kind::claim_refused: {
      const bool settles = r.kind == kind::claim_settled;
      if (settles && fatal)
        return fail(r, "4.7", fmt::format("the claim of operation {} is settled after fatal", id));
      if (!settles && !fatal && whole)
        return fail(r, "4.7", fmt::format("the claim of operation {} is refused before fatal", id));
      if (parts) {
        if (!g.live.empty() || g.closing != 0 || open_operations > 0)
          return fail(r, "5.8",
                      g.live.empty() ? std::string{"the registrations' claim is settled too early"}
                                     : fmt::format("the registrations' claim is settled while {} stands",
                                                   journal_id(g.live.front())));
        if (whole && !g.retained) return fail(r, "5.8", "the registrations' claim is settled undrained");
        if (g.settled) return fail(r, "4.7", "the registrations' claim is settled twice");
        g.settled = settles;
        if (!overtakes_none(r, r.sequence)) return;
      } else {
        if (!o->ended())
          return fail(r, "1.2", fmt::format("operation {} is settled before its access has ended", id));
        if (!o->copies)
          return fail(r, "1.2", fmt::format("operation {} is settled before its copies are complete", id));
        if (o->settled || o->claim_refused)
          return fail(r, "4.7", fmt::format("the claim of operation {} is answered twice", id));
        if (!overtakes_none(r, o->copies_at)) return;
        (settles ? o->settled : o->claim_refused) = true;
      }
      if (w == nullptr || !settles) return;
      w->claim = false;
      rearm(r.other);
      return;
    }
    case kind::claim_retired:
      if (parts ? !g.settled : !o->released)
        return fail(r, "7.5", fmt::format("operation {} is retired before it is released", id));
      if (!parts && !arrives(r, to_arbiter, r.operation, "7.5")) return;
      if (parts) g.claim = g.owner = 0;
      if (w == nullptr || fatal) return;
      if (w->armed) due.erase({*w->armed, r.other});
      owners.erase(r.other);
      return;
    default:
      return;
  }
}

void journal_model::arbiter_step(const journal_record& r) {
  if (r.kind == kind::actor_up) return;
  bool was_due = false;
  const bool told = op(r.operation) != nullptr || whole;
  if (told && !pays(r, arbiter_owes, r.operation, was_due)) return;
  elapsed_step(r);
  if (broken) return;
  switch (r.kind) {
    case kind::exposed:
    case kind::exposure_refused:
      return expose_step(r);
    case kind::outcome_committed:
      return outcome_step(r);
    case kind::claim_retained:
    case kind::claim_settled:
    case kind::claim_refused:
    case kind::claim_retired:
      return claim_step(r);
    default:
      return clock_step(r);
  }
}

}  // namespace kvlease
