#include <fmt/format.h>

#include <algorithm>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;
using number = std::uint64_t;

/// Of one run: no part has more.
constexpr number most_slots = number{1} << 32;

// ---- the lender

void journal_model::slots_step(const journal_record& r) {
  if (r.value == 0 || r.value > most_slots)
    return fail(r, "7.10", fmt::format("{} slots in one run, must be 1 to {}", r.value, most_slots));
  for (number i = 0; i < r.value && !broken; ++i) {
    const std::pair<number, number> at{r.extra, r.other + i};
    const auto name = fmt::format("slot {} of part {}", at.second, at.first);
    const auto it = lent.find(at);
    if (r.kind == kind::slots_lent) {
      if (it != lent.end())
        return fail(r, "6.2",
                    fmt::format("{} is lent to lease {} still, and lent to {}", name, journal_id(it->second),
                                journal_id(r.lease)));
      if (lost.contains(at)) return fail(r, "6.5", name + " is quarantined for good, and lent");
      lent.emplace(at, r.lease);
      continue;
    }
    if (it == lent.end()) {
      if (whole) fail(r, "7.10", name + " is not lent: it comes back twice");
      continue;
    }
    if (r.lease != 0 && it->second != r.lease)
      return fail(
          r, "7.10",
          fmt::format("{} is lease {}'s, not {}'s", name, journal_id(it->second), journal_id(r.lease)));
    if (r.kind == kind::slots_quarantined) lost.emplace(at, it->second);
    lent.erase(it);
  }
}

void journal_model::lender_step(const journal_record& r) {
  auto* l = lease(r.lease);
  switch (r.kind) {
    case kind::lease_opened:
      if (!fresh(r, r.lease, newest_lease, "lease") && broken) return;
      leases[r.lease].way = static_cast<direction>(r.detail);
      leases[r.lease].place = r.sequence;
      line.emplace(r.sequence, r.lease);
      return;
    case kind::lease_granted:
      if (l == nullptr) return;
      if (l->granted) return fail(r, "6.2", fmt::format("lease {} is granted twice", journal_id(r.lease)));
      // One with no rows needs no slots, and waits for none.
      if (r.value > 0 && !line.empty() && line.begin()->second != r.lease)
        return fail(r, "6.2",
                    fmt::format("lease {} overtakes lease {}, which waits for slots", journal_id(r.lease),
                                journal_id(line.begin()->second)));
      line.erase(l->place);
      l->granted = true;
      l->slots = r.value;
      return;
    case kind::lease_failed:
    case kind::lease_withdrawn:
      if (l == nullptr) return;
      line.erase(l->place);
      if (r.kind == kind::lease_withdrawn)
        if (const auto id = owner_of_lease(r.lease); id != 0)
          return fail(r, "5.2",
                      fmt::format("lease {} is operation {}'s", journal_id(r.lease), journal_id(id)));
      if (!l->granted || l->slots == 0) leases.erase(r.lease);
      return;
    case kind::lease_ready:
      if (l == nullptr) return;
      if (l->way == direction::publish && l->slots > 0 && !l->copied)
        return fail(r, "5.7",
                    fmt::format("lease {} is ready before its copy is complete", journal_id(r.lease)));
      l->ready = true;
      return;
    case kind::lease_finishing:
      if (l == nullptr) return;
      if (const auto id = owner_of_lease(r.lease); id != 0 && !operations.at(id).ended)
        return fail(r, "5.6",
                    fmt::format("lease {} is marked before the access of operation {} has ended",
                                journal_id(r.lease), journal_id(id)));
      l->finishing = true;
      l->guards = r.value;
      l->copied = false;
      return;
    case kind::guards_gone:
      if (l != nullptr) l->guards = 0;
      return;
    case kind::copy_started:
      fresh(r, r.other, newest_copy, "copy");
      if (l == nullptr || broken) return;
      if (l->copy != 0)
        return fail(r, "5.6",
                    fmt::format("lease {} has copy {} under way", journal_id(r.lease), journal_id(l->copy)));
      if (l->way == direction::fetch && !l->finishing)
        return fail(r, "5.6",
                    fmt::format("lease {} is copied into pages before it is finished", journal_id(r.lease)));
      l->copy = r.other;
      return;
    case kind::copy_completed:
      if (l == nullptr || l->copy != r.other) return;
      l->copy = 0;
      l->copied = true;
      return;
    case kind::copy_lost:
      if (l == nullptr || l->copy != r.other) return;
      l->copy = 0;
      l->lost = true;
      return;
    case kind::lease_unpinned:
      if (l != nullptr && (l->copy != 0 || l->lost))
        fail(r, "6.4",
             fmt::format("pin {} goes, and copy {} of lease {} is not complete", journal_id(r.other),
                         journal_id(l->copy), journal_id(r.lease)));
      pin_of_lease.erase(r.lease);
      return;
    case kind::slots_lent:
      return slots_step(r);
    case kind::slots_quarantined:
      if (l != nullptr) l->lost = true;
      return slots_step(r);
    case kind::slots_freed:
      if (l != nullptr && l->lost)
        return fail(r, "6.5",
                    fmt::format("lease {} gives back slots whose copy is unproven", journal_id(r.lease)));
      if (l != nullptr && l->copy != 0)
        return fail(r, "6.5",
                    fmt::format("lease {} gives back slots while copy {} is under way", journal_id(r.lease),
                                journal_id(l->copy)));
      if (l != nullptr && l->guards > 0)
        return fail(r, "1.4",
                    fmt::format("lease {} gives back slots that are read still", journal_id(r.lease)));
      if (const auto id = owner_of_lease(r.lease); id != 0)
        return fail(r, "1.2",
                    fmt::format("slots of lease {} go back while operation {} has it", journal_id(r.lease),
                                journal_id(id)));
      slots_step(r);
      if (l != nullptr && !broken && (l->slots -= std::min(l->slots, r.value)) == 0) leases.erase(r.lease);
      return;
    case kind::lease_returned:
      if (l != nullptr && l->slots == 0) leases.erase(r.lease);
      return;
    case kind::hold_taken:
      holds.insert(r.other);
      return;
    case kind::hold_released:
      if (open_operations())
        return fail(r, "5.8", fmt::format("hold {} goes while operations are open", journal_id(r.other)));
      if (!registered.empty())
        return fail(r, "5.8",
                    fmt::format("hold {} goes while registration {} stands", journal_id(r.other),
                                journal_id(*registered.begin())));
      holds.erase(r.other);
      return;
    default:
      return;
  }
}

// ---- the manager

void journal_model::manager_step(const journal_record& r) {
  if (r.kind == kind::rows_pinned && r.lease != 0) {
    pins[r.other] = {r.lease, false};
    pin_of_lease[r.lease] = r.other;
  }
  if (r.kind != kind::rows_unpinned) return;
  const auto it = pins.find(r.other);
  if (it == pins.end()) return;
  const auto* l = lease(it->second.first);
  if (l != nullptr && (l->copy != 0 || (l->lost && l->copied == false)))
    return fail(r, "6.4",
                fmt::format("pin {} goes, and the copy of lease {} is not complete", journal_id(r.other),
                            journal_id(it->second.first)));
  pins.erase(it);
}

}  // namespace kvlease
