// The lender: leases and their copies (5.6, 5.7, 6). Their slots are in src/journal_model_slots.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "messages/copies.hpp"
#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;
using number = std::uint64_t;
using phase = lease_model::phase;

namespace {

bool of_slots(kind k) {
  return k == kind::slots_lent || k == kind::slots_freed || k == kind::slots_quarantined;
}

}  // namespace

void journal_model::close_lease(number id) {
  if (const auto* l = lease(id)) line.erase(l->place);
  leases.erase(id);
}

void journal_model::lose(number id, lease_model& l) {
  l.at = phase::lost;
  l.copy = 0;
  if (l.way == direction::publish && !l.doomed)
    lender_owes.push_back({.what = kind::lease_failed, .about = id, .others_first = true, .rule = "6.5"});
}

void journal_model::fail_step(const journal_record& r, lease_model& l, bool was_due) {
  if (l.at == phase::waiting) return close_lease(r.lease);
  l.doomed = true;
  if (was_due) return;
  // Its pages are no more what they were: only a pin tells, and it goes with the slots.
  if (l.way != direction::publish || l.at != phase::pinning || l.pin == 0 || l.pinned == l.rows)
    return fail(r, "6.2", fmt::format("lease {} has its slots, and fails", journal_id(r.lease)));
  lender_owes.push_back({.what = kind::lease_unpinned, .about = r.lease, .other = l.pin, .rule = "6.4"});
}

void journal_model::withdraw_step(const journal_record& r, lease_model& l) {
  const auto id = journal_id(r.lease);
  if (l.operation != 0)
    return fail(r, "5.2", fmt::format("lease {} is operation {}'s", id, journal_id(l.operation)));
  const due_record failure{.what = kind::lease_failed, .about = r.lease, .rule = "7.7"};
  switch (l.at) {
    case phase::waiting:
      return lender_owes.push_back(failure);
    case phase::pinning:
    case phase::copying:
      if (!l.doomed) lender_owes.push_back(failure);
      return;
    case phase::ready:
      owe_slots(kind::slots_freed, r.lease, l, "6.5");
      if (l.runs.empty()) close_lease(r.lease);
      return;
    default:
      return fail(r, "5.2", fmt::format("lease {} can't be given up any more", id));
  }
}

void journal_model::finish_step(const journal_record& r, lease_model& l) {
  const auto id = journal_id(r.lease);
  auto* o = op(l.operation);
  if (o == nullptr)
    return whole ? fail(r, "5.6", fmt::format("lease {} is marked, and no operation has it", id)) : void();
  if (!o->ended())
    return fail(r, "5.6",
                fmt::format("lease {} is marked before the access of operation {} has ended", id,
                            journal_id(l.operation)));
  if (!arrives(r, to_lender, r.lease, "5.6")) return;
  if (l.at != phase::ready || !l.awaiting)
    return fail(r, "5.6", fmt::format("lease {} is marked before its outcome was known here", id));
  l.finishing = true;
  l.guards = r.value;
  l.at = phase::done;
  if (l.way == direction::publish || l.rows == 0) return;
  l.at = phase::marking;
  to_manager.push_back({kind::rows_pinned, r.lease, r.at, r.sequence});
}

void journal_model::copy_step(const journal_record& r, lease_model& l) {
  const auto id = journal_id(r.lease), copy = journal_id(r.other);
  if (r.kind == kind::copy_started) {
    if (!fresh(r, r.other, newest_copy, "copy")) return;
    if (l.copy != 0)
      return fail(r, "5.6", fmt::format("lease {} has copy {} under way", id, journal_id(l.copy)));
    if (l.way == direction::fetch && !l.finishing)
      return fail(r, "5.6", fmt::format("lease {} is copied into pages before it is finished", id));
    if ((l.at != phase::pinning && l.at != phase::marking) || l.pin == 0 || l.pinned == 0)
      return fail(r, "6.4", fmt::format("lease {} is copied without a pin", id));
    if (l.doomed || (l.way == direction::publish && l.pinned != l.rows))
      return fail(r, "6.4", fmt::format("lease {} is copied, and its pages or its holder are gone", id));
    if (r.value < l.pinned)
      return fail(r, "6.4", fmt::format("{} rows are copied, and {} are pinned", r.value, l.pinned));
    const auto to_host = r.detail == static_cast<std::uint8_t>(copy_kind::device_to_host);
    if (to_host != (l.way == direction::publish))
      return fail(r, "6.3", fmt::format("lease {} is copied the wrong way", id));
    l.copy = r.other;
    l.at = l.way == direction::fetch ? phase::marking_copy : phase::copying;
    return;
  }
  if (l.copy == 0 || l.copy != r.other)
    return fail(r, "5.6", fmt::format("copy {} is not what is under way of lease {}", copy, id));
  l.copy = 0;
  if (!is_up(actor_kind::cuda)) return fail(r, "7.4", "the cuda actor is not up");
  if (r.kind == kind::copy_lost) {
    owe_slots(kind::slots_quarantined, r.lease, l, "6.5");
    return lose(r.lease, l);
  }
  lender_owes.push_back({.what = kind::lease_unpinned, .about = r.lease, .other = l.pin, .rule = "6.4"});
}

void journal_model::unpin_step(const journal_record& r, lease_model& l, bool was_due) {
  const auto id = journal_id(r.lease);
  const bool copied = was_due && !l.doomed;
  if (r.other != l.pin)
    return fail(r, "6.4", fmt::format("pin {} is not lease {}'s", journal_id(r.other), id));
  // Without a copy: nothing was there to be copied, or its holder has given it up.
  const bool nothing = (l.at == phase::marking && l.pinned == 0) || (l.at == phase::pinning && l.doomed);
  if (!was_due && !nothing)
    return fail(
        r, "6.4",
        fmt::format("pin {} goes, and the copy of lease {} is not complete", journal_id(r.other), id));
  if (const auto it = pins.find(r.other); it != pins.end()) it->second.given_up = true;
  to_manager.push_back({kind::rows_unpinned, r.other, r.at, r.sequence});
  l.pin = 0;
  if (l.way == direction::fetch) {
    l.at = phase::done;
  } else if (copied) {
    l.at = phase::ready;
    lender_owes.push_back({.what = kind::lease_ready, .about = r.lease, .rule = "5.7"});
  } else {
    owe_slots(kind::slots_freed, r.lease, l, "6.5");
  }
}

void journal_model::lease_step(const journal_record& r, lease_model& l, bool was_due) {
  const auto id = journal_id(r.lease);
  switch (r.kind) {
    case kind::lease_granted: {
      if (l.at != phase::waiting) return fail(r, "6.2", fmt::format("lease {} is granted twice", id));
      // One with no rows needs no slots, and waits for none.
      if (r.value > 0 && line.begin()->second != r.lease)
        return fail(r, "6.2",
                    fmt::format("lease {} overtakes lease {}, which waits for slots", id,
                                journal_id(line.begin()->second)));
      if (r.value == 0 && (lender_last != kind::lease_opened || lender_last_lease != r.lease))
        return fail(r, "6.2", fmt::format("lease {} needs no slots, and has waited", id));
      line.erase(l.place);
      l.slots = l.rows = r.value;
      // Ahead of what else is owed: a lease may be granted in the midst of what follows a quarantine.
      const bool ready = l.way == direction::fetch || r.value == 0;
      l.at = ready ? phase::ready : phase::pinning;
      if (ready) lender_owes.push_front({.what = kind::lease_ready, .about = r.lease, .rule = "6.2"});
      if (r.value > 0)
        lender_owes.push_front({.what = kind::slots_lent, .about = r.lease, .value = r.value, .rule = "6.2"});
      if (!ready) to_manager.push_back({kind::rows_pinned, r.lease, r.at, r.sequence});
      return;
    }
    case kind::lease_ready:
      if (!was_due) return fail(r, "5.7", fmt::format("lease {} is ready before its copy is complete", id));
      if (r.request != l.request)
        fail(r, "7.1",
             fmt::format("lease {} is of request {}, not {}", id, journal_id(l.request),
                         journal_id(r.request)));
      return;
    case kind::lease_failed:
      return fail_step(r, l, was_due);
    case kind::lease_withdrawn:
      return withdraw_step(r, l);
    case kind::lease_awaiting:
      if (l.awaiting) return fail(r, "7.1", fmt::format("lease {} waits for its evidence already", id));
      if (const auto* o = op(l.operation);
          l.at != phase::ready || (o == nullptr && whole) || (o != nullptr && !o->value))
        return fail(r, "1.1", fmt::format("lease {} waits for evidence, and there is no outcome", id));
      l.awaiting = true;
      return;
    case kind::lease_finishing:
      return finish_step(r, l);
    case kind::guards_gone:
      if (!l.finishing || l.guards == 0)
        return fail(r, "1.4", fmt::format("lease {} has no read guard to lose", id));
      l.guards = 0;
      return;
    case kind::copy_started:
    case kind::copy_completed:
    case kind::copy_lost:
      return copy_step(r, l);
    case kind::lease_unpinned:
      return unpin_step(r, l, was_due);
    case kind::lease_returned: {
      if (!arrives(r, to_lender, r.lease, "6.5")) return;
      owe_slots(kind::slots_freed, r.lease, l, "6.5");
      if (l.runs.empty()) close_lease(r.lease);
      return;
    }
    case kind::slots_lent:
      return slots_step(r, &l, was_due);
    case kind::slots_quarantined:
      if (!was_due) {  // its pin or its copy can't be answered any more
        if (!may_be_down(actor_kind::manager) && !may_be_down(actor_kind::cuda))
          return fail(r, "6.5", fmt::format("lease {} is quarantined, and no copy of it was lost", id));
        if (l.at != phase::pinning && l.at != phase::copying && l.at != phase::marking &&
            l.at != phase::marking_copy)
          return fail(r, "6.5", fmt::format("lease {} is quarantined, and has nothing to copy", id));
        // Then it was not even asked for.
        if (lender_last == kind::lease_finishing && lender_last_lease == r.lease && !to_manager.empty())
          to_manager.pop_back();
        owe_slots(kind::slots_quarantined, r.lease, l, "6.5");
        lose(r.lease, l);
        bool paid = false;
        if (!pays(r, lender_owes, r.lease, paid)) return;
      }
      return slots_step(r, &l, true);
    case kind::slots_freed: {
      if (l.at == phase::lost)
        return fail(r, "6.5", fmt::format("lease {} gives back slots whose copy is unproven", id));
      if (l.copy != 0)
        return fail(
            r, "6.5",
            fmt::format("lease {} gives back slots while copy {} is under way", id, journal_id(l.copy)));
      if (l.guards > 0)
        return fail(r, "1.4", fmt::format("lease {} gives back slots that are read still", id));
      if (const auto* o = op(l.operation); o != nullptr && !o->released)
        return fail(
            r, "1.2",
            fmt::format("slots of lease {} go back while operation {} has it", id, journal_id(l.operation)));
      slots_step(r, &l, was_due);
      if (broken) return;
      if (!was_due) return fail(r, "6.5", fmt::format("lease {} has not come back", id));
      if (lender_owes.empty() || lender_owes.front().about != r.lease) close_lease(r.lease);
      return;
    }
    default:
      return;
  }
}

void journal_model::lender_step(const journal_record& r) {
  if (r.kind == kind::actor_up) return;
  auto* l = lease(r.lease);
  const bool told = r.lease != 0 && l == nullptr && r.kind != kind::lease_opened;
  if (told && !whole) return of_slots(r.kind) ? slots_step(r, nullptr, false) : void();
  if (told) return fail(r, "7.1", fmt::format("lease {} is not open", journal_id(r.lease)));
  bool was_due = false;
  if (!pays(r, lender_owes, r.lease, was_due)) return;
  switch (r.kind) {
    case kind::lease_opened: {
      if (!fresh(r, r.lease, newest_lease, "lease", false)) return;
      if (whole && !requests.contains(r.request))
        return fail(r, "7.1", fmt::format("request {} was not admitted", journal_id(r.request)));
      if (whole && !registrations.complete)
        return fail(r, "5.1",
                    fmt::format("lease {} is opened, and {} of {} parts are registered", journal_id(r.lease),
                                registrations.live.size(), pool.size()));
      auto& made = leases[r.lease];
      made.way = static_cast<direction>(r.detail);
      made.request = r.request;
      made.place = r.sequence;
      line.emplace(r.sequence, r.lease);
      if (shut) lender_owes.push_back({.what = kind::lease_failed, .about = r.lease, .rule = "6.7"});
      break;
    }
    case kind::lender_shut:
      if (shut) return fail(r, "6.7", "the lender is shut already");
      shut = true;
      for (const auto& [place, id] : line)
        lender_owes.push_back({.what = kind::lease_failed, .about = id, .rule = "6.7"});
      break;
    case kind::hold_taken:
    case kind::hold_released:
      hold_step(r);
      break;
    default:
      if (l != nullptr)
        lease_step(r, *l, was_due);
      else if (of_slots(r.kind))
        slots_step(r, nullptr, was_due);
  }
  lender_last = r.kind;
  lender_last_lease = r.lease;
}

}  // namespace kvlease
