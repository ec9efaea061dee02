#include "src/assemble.hpp"

#include <algorithm>
#include <utility>

#include "src/known.hpp"

namespace kvlease {

namespace {

std::chrono::nanoseconds between(time_point from, time_point to) {
  if (from == time_point{}) return {};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from);
}
std::optional<std::chrono::nanoseconds> until(const std::optional<time_point>& t, time_point now) {
  if (!t) return std::nullopt;
  return between(now, *t);
}

actor_line line_of(actor_kind kind, const gathered_facts& told, const observation& seen,
                   std::chrono::nanoseconds stuck_after) {
  actor_line l{.kind = kind, .state = "up", .oldest_unanswered = {}};
  if (const auto meter = seen.meter(kind)) {
    l.mailbox = meter->waiting();
    l.handled = meter->handled();
    l.busy = meter->busy();
    if (const auto t = meter->inside_since()) {
      const auto inside = between(*t, told.now);
      if (kind != actor_kind::inspector && inside > stuck_after) l.state = "stuck";
      if (l.mailbox > 0) --l.mailbox;  // the one that it is in does not wait
    }
    if (const auto t = meter->oldest(); t && kind != actor_kind::inspector)
      l.oldest_unanswered = between(*t, told.now);
  }
  if (kind == actor_kind::inspector) l.answered = !told.answers.empty();
  for (const auto& a : told.answers)
    if (a.from == kind) {
      l.answered = a.answered;
      if (a.at) l.age = between(*a.at, told.now);
      if (!a.answered) l.state = "stuck";
    }
  if (std::ranges::find(told.down, kind) != told.down.end()) l.state = "down";
  return l;
}

operation_line line_of(const known_facts& k, const operation_fact& o) {
  operation_line l{.id = o.id,
                   .way = o.way,
                   .request = o.request,
                   .lease = o.lease,
                   .outcome = {},
                   .access = {},
                   .copies = {},
                   .proof = {},
                   .outcome_age = {},
                   .deadline_in = {},
                   .fatal_in = {},
                   .reasons = {}};
  if (o.value) l.outcome = text_of(*o.value);
  l.access = access_text(o.access);
  l.copies = copies_text(o.copies);
  if (o.source && o.access == access_phase::ended) l.proof = to_string(*o.source);
  l.age = between(o.times.submitted, k.now);
  if (o.times.outcome != time_point{}) l.outcome_age = between(o.times.outcome, k.now);
  if (const auto* owner = k.owner_of(o.id)) {
    if (!o.value) l.deadline_in = until(owner->deadline, k.now);
    l.fatal_in = until(owner->fatal_at, k.now);
  }
  l.reasons = reasons_of(&o, k.lease_of(o.lease), k.stopping);
  return l;
}

lease_line line_of(const known_facts& k, const lease_fact& f) {
  lease_line l{.id = f.id,
               .way = f.way,
               .request = f.request,
               .state = std::string{to_string(f.phase)},
               .reasons = {}};
  l.rows = f.slots;
  l.bytes = f.nbytes;
  l.age = between(f.opened, k.now);
  l.reasons = reasons_of(k.operation_on(f.id), &f, k.stopping);
  return l;
}

std::vector<pool_line> pools_of(const known_facts& k, const observation& seen) {
  auto pools = seen.pools();
  for (std::size_t p = 0; p < pools.size(); ++p) {
    if (p >= k.maps.size()) continue;
    auto& l = pools[p];
    l.map = k.maps[p];
    if (std::cmp_not_equal(l.map.size(), l.total)) continue;
    // The map and the counts are of one moment.
    const auto n = [&l](char c) { return static_cast<std::int64_t>(std::ranges::count(l.map, c)); };
    l.free = n('.');
    l.lent = n('L');
    l.awaiting_proof = n('A');
    l.quarantined = n('Q');
  }
  return pools;
}

provider_line line_of(const backend_fact& b) {
  provider_line l{.uri = b.uri, .proofs = {}, .units = {}};
  for (const auto p : b.proofs) l.proofs.emplace_back(to_string(p));
  l.attempts = b.attempts;
  l.units = {{"hit", b.hits}, {"miss", b.misses}, {"failed", b.failures}};
  return l;
}

}  // namespace

inspection_snapshot assemble(const gathered_facts& told, const observation& seen, time_point started,
                             std::size_t limit, std::chrono::nanoseconds stuck_after) {
  const known_facts k{told};
  inspection_snapshot s;
  s.runtime = told.runtime;
  s.uptime = between(started, told.now);
  for (std::size_t kind = 0; kind < actor_kind_count; ++kind)
    s.actors.push_back(line_of(static_cast<actor_kind>(kind), told, seen, stuck_after));
  const auto most = [limit](const auto& list) { return std::min(limit, list.size()); };
  for (std::size_t i = 0; i < most(k.operations); ++i) s.operations.push_back(line_of(k, *k.operations[i]));
  for (std::size_t i = 0; i < most(k.leases); ++i) s.leases.push_back(line_of(k, *k.leases[i]));
  s.operations_total = std::max(k.operations_total, k.operations.size());
  s.leases_total = std::max(k.leases_total, k.leases.size());
  s.pools = pools_of(k, seen);
  for (const auto& r : k.registrations)
    s.registrations.push_back({r.part, r.state, r.reason, between(r.since, k.now)});
  for (std::size_t i = 0; i < most(k.owners); ++i) {
    const auto& o = *k.owners[i];
    s.owners.push_back({to_string(o.id), o.request, o.way, static_cast<std::int64_t>(o.claims),
                        o.drain_started ? std::nullopt : until(o.deadline, k.now), until(o.fatal_at, k.now),
                        o.reason});
  }
  if (k.backend) s.providers.push_back(line_of(*k.backend));
  if (k.device)
    s.devices.push_back({k.device->name, k.device->pending, k.device->copies, k.device->nbytes,
                         k.device->unproven, k.device->lost});
  s.holds = k.holds;
  s.fatal = k.fatal;
  s.draining = k.stopping || seen.numbers().draining;
  return s;
}

}  // namespace kvlease
