#include "src/known.hpp"

#include <algorithm>

namespace kvlease {

namespace {

template <class Map, class Key>
auto found_in(const Map& map, const Key& key) -> typename Map::mapped_type {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : it->second;
}

}  // namespace

known_facts::known_facts(const gathered_facts& g) : now{g.now} {
  for (const auto& a : g.answers)
    for (const auto& f : a.facts) {
      for (const auto& o : f->operations) {
        by_operation_[o.id] = &o;
        on_lease_[o.lease] = &o;
      }
      for (const auto& l : f->leases) by_lease_[l.id] = &l;
      for (const auto& o : f->owners) {
        owners.push_back(&o);
        if (o.operation) by_owned_[o.operation] = &o;
      }
      for (const auto& p : f->proofs) proofs_[p.operation] = &p;
      if (!f->registrations.empty()) registrations = f->registrations;
      if (!f->holds.empty()) holds = f->holds;
      if (!f->maps.empty()) maps = f->maps;
      if (f->backend && (!backend || f->backend->calling || !backend->calling)) backend = f->backend;
      if (f->device) device = f->device;
      if (f->slot) slot = f->slot;
      if (f->request) request = f->request;
      if (f->fatal) fatal = f->fatal;
      if (a.from == actor_kind::deadline_arbiter) first_grace = f->first_grace;
      if (a.from == actor_kind::supervisor || a.from == actor_kind::deadline_arbiter) stopping |= f->stopping;
      if (a.from == actor_kind::adapter) operations_total = std::max(operations_total, f->total);
      if (a.from == actor_kind::lender) leases_total = std::max(leases_total, f->total);
    }
  for (const auto& [id, o] : by_operation_) operations.push_back(o);
  for (const auto& [id, l] : by_lease_) leases.push_back(l);
  std::ranges::sort(operations, {}, &operation_fact::id);
  std::ranges::sort(leases, {}, &lease_fact::id);
}

const operation_fact* known_facts::operation_on(lease_id lease) const { return found_in(on_lease_, lease); }
const operation_fact* known_facts::operation_of(operation_id id) const { return found_in(by_operation_, id); }
const lease_fact* known_facts::lease_of(lease_id id) const { return found_in(by_lease_, id); }
const owner_fact* known_facts::owner_of(operation_id id) const { return found_in(by_owned_, id); }
const proof_fact* known_facts::proof_of(operation_id id) const { return found_in(proofs_, id); }

std::vector<held_reason> reasons_of(const operation_fact* op, const lease_fact* lease, bool stopping) {
  std::vector<held_reason> reasons;
  const auto phase = lease == nullptr ? lease_phase::ready : lease->phase;
  const auto add = [&reasons](held_reason r) {
    if (std::ranges::find(reasons, r) == reasons.end()) reasons.push_back(r);
  };
  if (phase == lease_phase::unproven) add(held_reason::quarantined);
  if (op == nullptr) {
    if (lease == nullptr || phase == lease_phase::asking || phase == lease_phase::waiting) return {};
    if (phase == lease_phase::ready) add(held_reason::lent_not_submitted);
    if (phase == lease_phase::pinning || phase == lease_phase::copying || phase == lease_phase::marking ||
        phase == lease_phase::finished)
      add(held_reason::local_copy_pending);
  } else if (op->claim != claim_phase::released) {
    const bool disputed = op->access == access_phase::disputed || op->access == access_phase::escaped;
    if (disputed)
      add(held_reason::backend_end_unproven);
    else if (op->copies == copy_phase::not_started)
      add(held_reason::backend_access_running);
    else if (op->copies == copy_phase::unproven || op->claim == claim_phase::fatal)
      add(held_reason::quarantined);
    else if (phase != lease_phase::guarded)
      add(held_reason::local_copy_pending);
  }
  if (lease != nullptr && (phase == lease_phase::guarded || lease->guards > 0))
    add(held_reason::consumer_reading);
  if (stopping && !reasons.empty()) add(held_reason::shutdown_drain);
  return reasons;
}

std::string_view access_text(access_phase p) noexcept {
  switch (p) {
    case access_phase::exposing:
    case access_phase::queued:
      return "not started";
    case access_phase::running:
      return "running";
    case access_phase::disputed:
    case access_phase::escaped:
      return "unproven";
    case access_phase::ended:
      return "ended";
  }
  return "";
}

std::string_view copies_text(copy_phase p) noexcept {
  return p == copy_phase::not_started ? "not started" : to_string(p);
}

}  // namespace kvlease
