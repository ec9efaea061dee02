#include <fmt/format.h>

#include <algorithm>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;

// ---- the arbiter

void journal_model::clock_step(const journal_record& r) {
  const auto id = journal_id(r.other);
  switch (r.kind) {
    case kind::owner_created:
      if (fatal) return fail(r, "4.5", fmt::format("owner {} is made after fatal", id));
      owners[r.other] = {.request = r.request, .span = r.value, .deadline = {}, .drain = {}};
      return;
    case kind::registrations_tracked:
      if (fatal) return fail(r, "4.5", fmt::format("owner {} is made after fatal", id));
      owners[r.other] = {.span = r.value, .registrations = true, .deadline = {}, .drain = {}};
      operations[r.operation].registrations = true;
      operations[r.operation].owner = r.other;
      newest_operation = std::max(newest_operation, r.operation);
      return;
    case kind::exposed: {
      if (fatal)
        return fail(r, "4.5", fmt::format("operation {} is exposed after fatal", journal_id(r.operation)));
      if (closed)
        return fail(
            r, "4.10",
            fmt::format("operation {} is exposed after admission was closed", journal_id(r.operation)));
      auto& o = owners[r.other];
      if (o.drain)
        return fail(
            r, "4.1",
            fmt::format("operation {} is exposed while owner {} drains", journal_id(r.operation), id));
      if (o.deadline)
        return fail(r, "4.1", fmt::format("the request clock of owner {} is started again", id));
      o.span = r.value;
      o.deadline = r.at + static_cast<std::int64_t>(r.value);
      if (auto* mine = op(r)) {
        mine->granted = true;
        mine->owner = r.other;
      }
      return;
    }
    case kind::exposure_refused:
      if (auto* o = op(r)) o->refused = true;
      return;
    case kind::drain_started: {
      auto* o = owner(r.other);
      if (o == nullptr) return;
      if (o->drain) return fail(r, "4.4", fmt::format("the drain of owner {} starts again", id));
      const auto at = static_cast<std::int64_t>(r.value);
      const bool timeout = r.detail == static_cast<std::uint8_t>(drain_cause::timeout);
      if (timeout && o->deadline && at != *o->deadline)
        return fail(
            r, "4.3",
            fmt::format("the drain of owner {} starts {} ns after its deadline", id, at - *o->deadline));
      if (!timeout && o->deadline && at > r.at)
        return fail(r, "4.4", fmt::format("the drain of owner {} starts later than now", id));
      o->drain = at;
      return;
    }
    case kind::fatal_latched: {
      if (fatal) return fail(r, "4.5", "fatal is latched twice");
      fatal = true;
      const auto* o = owner(r.other);
      if (o == nullptr || !o->drain || o->span == 0) return;
      const auto due = *o->drain + static_cast<std::int64_t>(o->span);
      if (static_cast<std::int64_t>(r.value) != due)
        return fail(r, "4.5",
                    fmt::format("the grace of owner {} ends {} ns from where it should", id,
                                static_cast<std::int64_t>(r.value) - due));
      if (r.at < due) return fail(r, "4.5", fmt::format("fatal is latched {} ns early", due - r.at));
      return;
    }
    default:
      return;
  }
}

void journal_model::claim_step(const journal_record& r) {
  auto* o = op(r);
  const auto id = journal_id(r.operation);
  switch (r.kind) {
    case kind::outcome_committed: {
      if (o == nullptr) return;
      if (o->value) return fail(r, "1.3", fmt::format("operation {} has an outcome, and gets another", id));
      o->value = r.detail;
      const auto* w = owner(r.other);
      const bool timed_out = r.detail == static_cast<std::uint8_t>(outcome_detail::timed_out);
      if (w != nullptr && w->deadline && r.at >= *w->deadline && !timed_out && !fatal && !o->refused) {
        suspended = broken_rule{
            r.sequence, "4.2",
            fmt::format("{}: operation {} has an outcome {} ns after its deadline, and it is not the timeout",
                        to_string(r.kind), id, r.at - *w->deadline)};
        suspended_at = r.at;
        return;
      }
      if (w != nullptr && w->deadline && r.at < *w->deadline && timed_out)
        return fail(r, "4.3", fmt::format("operation {} times out {} ns early", id, *w->deadline - r.at));
      return;
    }
    case kind::claim_settled: {
      if (fatal) return fail(r, "4.7", fmt::format("the claim of operation {} is settled after fatal", id));
      const auto* w = owner(r.other);
      if (w != nullptr && w->drain && w->span > 0 && r.at >= *w->drain + static_cast<std::int64_t>(w->span))
        return fail(r, "4.5",
                    fmt::format("the claim of operation {} is settled after its grace has run out", id));
      if (o == nullptr) return;
      if (!o->registrations) {
        if (!o->ended)
          return fail(r, "1.2", fmt::format("operation {} is settled before its access has ended", id));
        if (!o->copies)
          return fail(r, "1.2", fmt::format("operation {} is settled before its copies are complete", id));
        if (!o->value) return fail(r, "1.1", fmt::format("operation {} is settled without an outcome", id));
      } else if (!registered.empty()) {
        return fail(r, "5.8",
                    fmt::format("the registrations' claim is settled while {} stands",
                                journal_id(*registered.begin())));
      }
      o->settled = true;
      return;
    }
    case kind::claim_retained:
      if (o != nullptr) o->settled = false;
      return;
    case kind::claim_retired:
      if (o == nullptr) {  // released before, as it must be
        owners.erase(r.other);
        return;
      }
      if (!o->registrations)
        return fail(r, "7.5", fmt::format("operation {} is retired before it is released", id));
      operations.erase(r.operation);
      owners.erase(r.other);
      return;
    case kind::owner_closed:
      owners.erase(r.other);
      return;
    default:
      return;
  }
}

void journal_model::arbiter_step(const journal_record& r) {
  if (suspended && r.kind == kind::fatal_latched && r.at == suspended_at) suspended.reset();
  if (suspended && r.at != suspended_at) {
    broken = std::exchange(suspended, std::nullopt);
    return;
  }

  clock_step(r);
  if (!broken) claim_step(r);
  if (broken) return;
  if (r.kind == kind::admission_closed) closed = true;
  if (r.kind == kind::arbiter_stopped && (fatal || !owners.empty()))
    fail(r, "4.10",
         fatal ? std::string{"the arbiter is stopped after fatal"}
               : fmt::format("the arbiter is stopped with owner {} retained",
                             journal_id(owners.begin()->first)));
}

}  // namespace kvlease
