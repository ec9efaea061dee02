// The arbiter's clocks: owners, deadlines, drain, fatal expiry, shutdown (4).
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;

std::int64_t journal_model::later(std::int64_t at, number span) {
  const auto room = static_cast<number>(std::numeric_limits<std::int64_t>::max() - at);
  return at + static_cast<std::int64_t>(std::min(span, room));
}

/// Its next boundary that a record must tell of.
void journal_model::rearm(number id) {
  auto& o = owners.at(id);
  std::optional<std::int64_t> next;
  const auto* used = op(o.operation);
  const bool undecided = used != nullptr && !used->value;
  // Where there is an outcome and drain has begun, nothing is left to be told at the deadline.
  if (o.deadline && !o.expired && !(o.complete && !o.claim) && (undecided || !o.drain)) next = *o.deadline;
  if (o.claim && o.drain) {
    const auto grace = later(*o.drain, o.span);
    next = next ? std::min(*next, grace) : grace;
  }
  if (next == o.armed) return;
  if (o.armed) due.erase({*o.armed, id});
  if (next) due.emplace(*next, id);
  o.armed = next;
}

void journal_model::drain_step(const journal_record& r) {
  const auto id = journal_id(r.other);
  auto* o = owner(r.other);
  if (o == nullptr) return whole ? fail(r, "7.1", fmt::format("owner {} is not open", id)) : void();
  if (o->drain) return fail(r, "4.4", fmt::format("the drain of owner {} starts again", id));
  const auto wanted = o->registrations ? registrations.claim : o->operation;
  if (r.operation != wanted)
    return fail(
        r, "7.1",
        fmt::format("owner {} is operation {}'s, not {}'s", id, journal_id(wanted), journal_id(r.operation)));
  const auto at = static_cast<std::int64_t>(r.value);
  const auto cause = static_cast<drain_cause>(r.detail);
  const auto* used = op(o->operation);
  if (cause == drain_cause::timeout) {
    if (!o->deadline || r.at < *o->deadline || (used != nullptr && !used->value))
      return fail(r, "4.3", fmt::format("the drain of owner {} starts by a timeout that has not come", id));
    if (at != *o->deadline)
      return fail(
          r, "4.3",
          fmt::format("the drain of owner {} starts {} ns after its deadline", id, at - *o->deadline));
    o->expired = true;
  } else if (at != r.at) {
    return fail(r, "4.4", fmt::format("the drain of owner {} starts {} ns from now", id, at - r.at));
  }
  if (cause == drain_cause::unsuccessful && (used == nullptr || !used->value || used->delivered()))
    return fail(r, "4.4", fmt::format("owner {} drains for an outcome that there is not", id));
  if (cause == drain_cause::disputed && !o->retained && !may_be_down(actor_kind::adapter))
    return fail(r, "4.4", fmt::format("owner {} drains, and nothing of it is disputed", id));
  if (cause == drain_cause::shutdown && whole && !closed)
    return fail(r, "4.10", fmt::format("owner {} drains for a shutdown that there is not", id));
  if (cause == drain_cause::disputed) o->claim = true;
  o->drain = at;
  drains_due.erase(r.other);
  rearm(r.other);
}

void journal_model::fatal_step(const journal_record& r) {
  if (fatal) return fail(r, "4.5", "fatal is latched twice");
  fatal = true;
  fatal_due = false;
  const auto id = journal_id(r.other);
  const auto* o = owner(r.other);
  if (o == nullptr) return whole ? fail(r, "7.1", fmt::format("owner {} is not open", id)) : void();
  if (r.request != (o->registrations ? 0 : o->request))
    return fail(
        r, "7.1",
        fmt::format("owner {} is of request {}, not {}", id, journal_id(o->request), journal_id(r.request)));
  // A dead adapter's claims are all retained, also those that were settled, and no record says so.
  if (!o->drain || (!o->claim && !may_be_down(actor_kind::adapter)))
    return fail(r, "4.5", fmt::format("fatal is latched, and owner {} has no claim under the clock", id));
  const auto grace = later(*o->drain, o->span);
  if (static_cast<std::int64_t>(r.value) != grace)
    return fail(r, "4.5",
                fmt::format("the grace of owner {} ends {} ns from where it should", id,
                            static_cast<std::int64_t>(r.value) - grace));
  if (r.at < grace) return fail(r, "4.5", fmt::format("fatal is latched {} ns early", grace - r.at));
  if (!due.empty() && due.begin()->first < grace)
    return fail(r, "4.2", fmt::format("owner {} was due before", journal_id(due.begin()->second)));
  for (const auto& [number_of, x] : operations)
    if ((x.granted || x.refused) && !x.settled && !x.value)
      return fail(r, "4.5",
                  fmt::format("fatal is latched, and operation {} has no outcome", journal_id(number_of)));
  due.clear();
}

void journal_model::clock_step(const journal_record& r) {
  const auto id = journal_id(r.other);
  switch (r.kind) {
    case kind::owner_created:
    case kind::registrations_tracked:
      if (fatal) return fail(r, "4.5", fmt::format("owner {} is made after fatal", id));
      if (closed || stopped)
        return fail(r, "4.10", fmt::format("owner {} is made after admission was closed", id));
      if (!fresh(r, r.other, newest_owner, "owner")) return;
      owners[r.other].request = r.request;
      owners[r.other].span = r.value;
      if (r.kind == kind::owner_created) return;
      owners[r.other].registrations = true;
      if (whole && registrations.claim != 0) return fail(r, "5.1", "the registrations are tracked twice");
      registrations.claim = r.operation;
      registrations.owner = r.other;
      newest_operation = std::max(newest_operation, r.operation);
      return;
    case kind::owner_closed: {
      if (fatal) return fail(r, "4.5", fmt::format("owner {} is closed after fatal", id));
      const auto* o = owner(r.other);
      if (o == nullptr) return whole ? fail(r, "7.1", fmt::format("owner {} is not open", id)) : void();
      if (o->operation != 0 || o->registrations)
        return fail(r, "4.10", fmt::format("owner {} is in use, and closed", id));
      if (o->armed) due.erase({*o->armed, r.other});
      owners.erase(r.other);
      return;
    }
    case kind::drain_started:
      return drain_step(r);
    case kind::fatal_latched:
      return fatal_step(r);
    case kind::admission_closed:
      if (closed) return fail(r, "4.10", "admission is closed already");
      closed = shutdown_due = true;
      return;
    case kind::arbiter_stopped:
      if (stopped) return fail(r, "4.10", "the arbiter is stopped already");
      stopped = true;
      if (fatal || !owners.empty())
        fail(r, "4.10",
             fatal ? std::string{"the arbiter is stopped after fatal"}
                   : fmt::format("the arbiter is stopped with owner {} retained",
                                 journal_id(owners.begin()->first)));
      return;
    default:
      return;
  }
}

}  // namespace kvlease
