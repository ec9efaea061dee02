// What the lender shows of its leases, beside the core: since when, whose slots, how many bytes. Kept up
// lease by lease as messages touch them, so that nothing is walked when somebody asks.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/observe.hpp"
#include "src/facts.hpp"
#include "src/lending.hpp"
#include "src/slot_map.hpp"

namespace kvlease {

class lender_shown {
 public:
  lender_shown(const std::vector<part>& parts, gauges* numbers)
      : parts_{parts}, slots_{parts}, numbers_{numbers} {}

  /// The core has the lease from now on.
  void open(lease_id lease, direction way, request_id request, time_point now) {
    leases_.emplace(lease, entry{.way = way, .request = request, .opened = now, .changed = now});
    by_request_.emplace(request, lease);
  }
  void lent(lease_id lease, const std::vector<part_run>& runs, time_point now) {
    slots_.set(runs, slot_state::lent, lease, now);
    if (const auto it = leases_.find(lease); it != leases_.end())
      for (const auto& run : runs) it->second.nbytes += run.slots.count * parts_.at(run.part).slot_bytes;
  }
  void freed(const std::vector<part_run>& runs, time_point now) {
    slots_.set(runs, slot_state::free, {}, now);
  }
  void quarantined(lease_id lease, const std::vector<part_run>& runs, time_point now) {
    slots_.set(runs, slot_state::quarantined, lease, now);
  }
  std::pair<direction, request_id> of(lease_id lease) const {
    const auto it = leases_.find(lease);
    if (it == leases_.end()) return {};
    return {it->second.way, it->second.request};
  }

  /// Something has happened to the lease: looks at it anew. Forgets one that the core has no more.
  void touch(const lending& core, lease_id lease, time_point now) {
    const auto it = leases_.find(lease);
    if (it == leases_.end()) return;
    auto& e = it->second;
    const auto view = core.view(lease);
    if (!view) {
      recount(e, nullptr);
      const auto [first, last] = by_request_.equal_range(e.request);
      const auto mine = std::find_if(first, last, [lease](const auto& x) { return x.second == lease; });
      if (mine != last) by_request_.erase(mine);
      leases_.erase(it);
      return;
    }
    if (view->phase != e.phase) e.changed = now;
    e.phase = view->phase;
    if (view->awaiting_proof && !std::exchange(e.awaiting, true) && view->phase != lease_phase::unproven)
      slots_.set(core.runs(lease), slot_state::awaiting_proof, lease, now);
    recount(e, gauge_of(view->phase));
  }
  void show_pools() const {
    if (numbers_ == nullptr) return;
    for (std::size_t p = 0; p < slots_.parts() && p < numbers_->pools.size(); ++p) {
      const auto& c = slots_.of(p);
      auto& g = numbers_->pools[p];
      g.free.store(c.free, std::memory_order_relaxed);
      g.lent.store(c.lent, std::memory_order_relaxed);
      g.awaiting_proof.store(c.awaiting_proof, std::memory_order_relaxed);
      g.quarantined.store(c.quarantined, std::memory_order_relaxed);
    }
  }

  lease_fact fact_of(const lending::lease_view& v) const {
    lease_fact f{.id = v.lease,
                 .way = v.way,
                 .request = v.request,
                 .phase = v.phase,
                 .copying = v.copying,
                 .runs = {}};
    f.outcome_known = v.awaiting_proof;
    f.slots = v.slots;
    f.guards = v.guards;
    if (const auto it = leases_.find(v.lease); it != leases_.end()) {
      f.nbytes = it->second.nbytes;
      f.opened = it->second.opened;
      f.changed = it->second.changed;
    }
    return f;
  }

  facts_answer slice(const lending& core, const ask_slice& q) const {
    auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::lender});
    for (const auto& v : core.leases(lease_id{q.after}, q.most)) f->leases.push_back(fact_of(v));
    f->more = q.most > 0 && f->leases.size() == q.most;
    f->total = core.open_leases();
    if (q.summary)
      for (std::size_t p = 0; p < slots_.parts(); ++p) f->maps.push_back(slots_.text(p));
    return {std::move(f)};
  }

  facts_answer about(const lending& core, const about_question& q) const {
    auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::lender});
    std::set<lease_id> wanted{q.leases.begin(), q.leases.end()};
    if (q.slot)
      if (const auto* c = slots_.at(q.slot->first, q.slot->second)) {
        f->slot = slot_fact{static_cast<char>(c->state), c->lease, c->since};
        if (c->lease) wanted.insert(c->lease);
      }
    if (q.request) {
      const auto [first, last] = by_request_.equal_range(*q.request);
      for (auto it = first; it != last && wanted.size() < q.most; ++it) wanted.insert(it->second);
      f->total = by_request_.count(*q.request);
    }
    for (const auto lease : wanted)
      if (const auto v = core.view(lease)) {
        f->leases.push_back(fact_of(*v));
        f->leases.back().runs = core.runs(lease);
      }
    return {std::move(f)};
  }

 private:
  using gauge = std::atomic<std::int64_t> gauges::*;
  struct entry {
    direction way = direction::fetch;
    request_id request;
    time_point opened, changed;
    lease_phase phase = lease_phase::asking;
    bool awaiting = false;
    std::int64_t nbytes = 0;
    gauge counted = nullptr;
  };
  /// Where the lease's bytes count.
  static gauge gauge_of(lease_phase p) {
    switch (p) {
      case lease_phase::asking:
      case lease_phase::waiting:
        return nullptr;  // it has no slots
      case lease_phase::ready:
        return &gauges::ready;
      case lease_phase::pinning:
      case lease_phase::copying:
      case lease_phase::marking:
      case lease_phase::finished:  // the last step: the arbiter settles it
        return &gauges::copying;
      case lease_phase::guarded:
        return &gauges::reading;
      case lease_phase::unproven:
        return &gauges::quarantined;
    }
    return nullptr;
  }
  void recount(entry& e, gauge now) const {
    if (numbers_ == nullptr || e.counted == now) return;
    if (e.counted != nullptr) (numbers_->*e.counted).fetch_sub(e.nbytes, std::memory_order_relaxed);
    if (now != nullptr) (numbers_->*now).fetch_add(e.nbytes, std::memory_order_relaxed);
    e.counted = now;
  }

  std::vector<part> parts_;
  slot_map slots_;
  gauges* numbers_;
  std::unordered_map<lease_id, entry> leases_;
  std::unordered_multimap<request_id, lease_id> by_request_;
};

}  // namespace kvlease
