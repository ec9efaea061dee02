// The lender: the pool, whose slots are whose (6.2, 6.5, 7.10), and the hold of it (5.1, 5.8).
#include <fmt/format.h>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;
using number = std::uint64_t;

namespace {

/// Of one run: no part has more.
constexpr number most_slots = number{1} << 32;

}  // namespace

void journal_model::pool_step(const journal_record& r) {
  if (!whole) return;
  if (lender_last != kind::actor_up && lender_last != kind::slots_freed)
    return fail(r, "7.10", "the pool begins anew");
  if (r.other != 0 || r.extra != pool.size())
    return fail(r, "7.10",
                fmt::format("part {} begins with slot {}, after {} parts", r.extra, r.other, pool.size()));
  pool.push_back(r.value);
}

void journal_model::owe_slots(kind what, number id, const lease_model& l, std::string_view rule) {
  for (const auto& run : l.runs)
    lender_owes.push_back(
        {.what = what, .about = id, .other = run.first, .value = run.count, .part = run.part, .rule = rule});
}

void journal_model::slots_step(const journal_record& r, lease_model* l, bool was_due) {
  if (r.value == 0 || r.value > most_slots)
    return fail(r, "7.10", fmt::format("{} slots in one run, must be 1 to {}", r.value, most_slots));
  const auto id = journal_id(r.lease);
  if (r.kind == kind::slots_freed && r.lease == 0) return pool_step(r);
  if (whole && (r.extra >= pool.size() || r.other > pool[r.extra] || r.value > pool[r.extra] - r.other))
    return fail(r, "7.10", fmt::format("part {} has no slots [{}, {})", r.extra, r.other, r.other + r.value));
  for (number i = 0; i < r.value && !broken; ++i) {
    const std::pair<number, number> at{r.extra, r.other + i};
    const auto name = [&at] { return fmt::format("slot {} of part {}", at.second, at.first); };
    const auto it = lent.find(at);
    if (r.kind == kind::slots_lent) {
      if (it != lent.end())
        return fail(
            r, "6.2",
            fmt::format("{} is lent to lease {} still, and lent to {}", name(), journal_id(it->second), id));
      if (lost.contains(at)) return fail(r, "6.5", name() + " is quarantined for good, and lent");
      lent.emplace(at, r.lease);
      continue;
    }
    if (it == lent.end()) {
      if (whole) fail(r, "7.10", name() + " is not lent: it comes back twice");
      continue;
    }
    if (it->second != r.lease)
      return fail(r, "7.10", fmt::format("{} is lease {}'s, not {}'s", name(), journal_id(it->second), id));
    if (r.kind == kind::slots_quarantined) lost.emplace(at, r.lease);
    lent.erase(it);
  }
  if (broken || l == nullptr) return;
  if (r.kind == kind::slots_lent) {
    if (!was_due) return fail(r, "6.2", fmt::format("lease {} was not granted them", id));
    if (!l->runs.empty() && l->runs.back().part >= r.extra)
      return fail(r, "6.2", fmt::format("lease {} has a run in part {} already", id, r.extra));
    l->runs.push_back({r.extra, r.other, r.value});
  }
}

void journal_model::hold_step(const journal_record& r) {
  auto& g = registrations;
  const auto id = journal_id(r.other);
  if (r.kind == kind::hold_taken) {
    if (!fresh(r, r.other, newest_hold, "hold")) return;
    if (whole && (g.claim == 0 || g.held))
      return fail(r, "5.1", g.held ? "the parts are held already" : "nobody tracks the registrations");
    g.held = true;
    g.hold = r.other;
    return;
  }
  if (open_operations > 0) return fail(r, "5.8", fmt::format("hold {} goes while operations are open", id));
  if (!g.live.empty())
    return fail(r, "5.8",
                fmt::format("hold {} goes while registration {} stands", id, journal_id(g.live.front())));
  if (!whole) return;
  if (g.hold != r.other) return fail(r, "7.1", fmt::format("hold {} is not what was taken", id));
  if (!g.settled) return fail(r, "5.8", fmt::format("hold {} goes before the claim is settled", id));
  g.hold = 0;
}

}  // namespace kvlease
