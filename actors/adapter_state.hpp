// What the adapter keeps, and what it shows of it: facts, records, gauges.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "actors/adapter.hpp"
#include "actors/observe.hpp"
#include "src/facts.hpp"
#include "src/operation.hpp"
#include "src/registrar.hpp"

namespace kvlease {

struct operation_entry {
  operation core;
  lease_id lease;
  direction way;
  request_id request;
  std::optional<owner_id> owner;  ///< the host's
  operation_times times;
  std::optional<cancel_disposition> cancel_answer;
  std::string cancel_error;
  std::optional<route_id> along = {};
  std::chrono::nanoseconds grace{0};  ///< T
  // ---- shown only
  std::int64_t nbytes = 0;  ///< of the lease's slots
  std::optional<proof_id> proof = {};
  std::optional<proof_source> source = {};
  std::optional<evidence_fact> disputed = {};
  std::atomic<std::int64_t> gauges::*counted = nullptr;  ///< where its bytes are counted
};

inline operation_fact fact_of(operation_id id, const operation_entry& e) {
  operation_fact f{.id = id,
                   .way = e.way,
                   .request = e.request,
                   .lease = e.lease,
                   .value = {},
                   .times = e.times,
                   .source = e.source,
                   .proof = {},
                   .disputed = e.disputed,
                   .cancel = e.cancel_error};
  if (e.core.decided()) f.value = fact_of(*e.core.decided());
  f.access = e.core.access();
  f.copies = e.core.copies();
  f.claim = e.core.claim();
  if (e.core.proof_in_flight()) f.proof = e.proof;
  if (e.cancel_answer) f.cancel = to_string(*e.cancel_answer);
  return f;
}

/// Where an operation's bytes count; nothing once the lender's evidence is what is awaited.
inline std::atomic<std::int64_t> gauges::*gauge_of(const operation& core) {
  if (core.claim() == claim_phase::released || core.copies() != copy_phase::not_started) return nullptr;
  const auto a = core.access();
  return a == access_phase::disputed || a == access_phase::escaped ? &gauges::backend_unproven
                                                                   : &gauges::backend_running;
}

inline void recount(gauges* to, operation_entry& e, std::atomic<std::int64_t> gauges::*now) {
  if (to == nullptr || e.counted == now) return;
  if (e.counted != nullptr) (to->*e.counted).fetch_sub(e.nbytes, std::memory_order_relaxed);
  if (now != nullptr) (to->*now).fetch_add(e.nbytes, std::memory_order_relaxed);
  e.counted = now;
}

/// How an event has moved an operation's evidence, as the journal has it.
struct moved_evidence {
  std::optional<journal_kind> access, copies;

  moved_evidence(access_phase access_before, copy_phase copies_before, const operation& core,
                 const operation_event& event) {
    if (access_before != core.access()) access = of_access(core.access(), event);
    if (copies_before == core.copies()) return;
    if (core.copies() == copy_phase::complete) copies = journal_kind::copies_ended;
    if (core.copies() == copy_phase::unproven) copies = journal_kind::copies_disputed;
  }

 private:
  static std::optional<journal_kind> of_access(access_phase to, const operation_event& event) {
    const bool retried = std::holds_alternative<op_event::retry_proof>(event);
    switch (to) {
      case access_phase::exposing:
        return std::nullopt;
      case access_phase::queued:
        return journal_kind::submission_queued;
      case access_phase::running:
        return retried ? std::nullopt : std::optional{journal_kind::submission_accepted};
      case access_phase::disputed:
        return journal_kind::access_disputed;
      case access_phase::escaped:
        return journal_kind::submission_escaped;
      case access_phase::ended:
        break;
    }
    if (std::holds_alternative<op_event::rejected>(event)) return journal_kind::submission_rejected;
    if (std::holds_alternative<op_event::withdrawn>(event) ||
        std::holds_alternative<op_event::backend_down>(event))
      return journal_kind::submission_withdrawn;
    return journal_kind::access_ended;
  }
};

struct adapter_state {
  static inline const char* name = "kvlease.adapter";
  std::shared_ptr<const adapter_config> config;
  std::shared_ptr<const wiring> peers;
  std::optional<id_source<operation_id>> drawn;
  std::optional<id_source<proof_id>> proofs_drawn;
  std::map<operation_id, operation_entry> operations;
  std::unordered_map<lease_id, operation_id> by_lease;
  std::unordered_multimap<request_id, operation_id> by_request;
  std::set<std::pair<time_point, operation_id>> decided;  ///< outcomes that are not released yet
  std::set<owner_id> owners;                              ///< of hosts, used by open operations
  std::optional<registrar> registrations;
  /// Since when each part's registration is in its state, in the parts' order.
  std::vector<std::pair<std::string_view, time_point>> registered_since;
  caf::typed_response_promise<done> starter;
  std::size_t queued = 0;  ///< submissions that the backend has not answered
  bool fatal = false;
  std::set<actor_kind> down;
  std::uint64_t admitted = 0, released = 0, rejected = 0;
  observer seen;
};

inline void show_decided(const adapter_state& s) {
  if (auto* g = s.seen.numbers()) {
    g->held.store(static_cast<std::int64_t>(s.decided.size()), std::memory_order_relaxed);
    const auto first = s.decided.empty() ? time_point{} : s.decided.begin()->first;
    g->oldest_held.store(
        std::chrono::duration_cast<std::chrono::nanoseconds>(first.time_since_epoch()).count(),
        std::memory_order_relaxed);
  }
}

/// Call it whenever the registrations may have moved.
inline void time_registrations(adapter_state& s, time_point now) {
  const auto views = s.registrations->views();
  s.registered_since.resize(views.size());
  for (std::size_t p = 0; p < views.size(); ++p)
    if (auto& mine = s.registered_since[p]; mine.first != views[p].state) mine = {views[p].state, now};
}

inline void tell_registrations(const adapter_state& s, actor_facts& f) {
  const auto views = s.registrations->views();
  for (std::size_t p = 0; p < views.size(); ++p)
    f.registrations.push_back({views[p].span->name, views[p].id, std::string{views[p].state},
                               s.registrations->problem(),
                               p < s.registered_since.size() ? s.registered_since[p].second : time_point{}});
}

inline facts_answer slice(const adapter_state& s, const ask_slice& q) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::adapter});
  f->total = s.operations.size();
  auto it = s.operations.upper_bound(operation_id{q.after});
  for (; it != s.operations.end() && f->operations.size() < q.most; ++it)
    f->operations.push_back(fact_of(it->first, it->second));
  f->more = it != s.operations.end();
  if (q.summary) tell_registrations(s, *f);
  return {std::move(f)};
}

inline facts_answer about(const adapter_state& s, const about_question& q) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::adapter});
  std::set<operation_id> wanted{q.operations.begin(), q.operations.end()};
  for (const auto lease : q.leases)
    if (const auto it = s.by_lease.find(lease); it != s.by_lease.end()) wanted.insert(it->second);
  if (q.request) {
    const auto [first, last] = s.by_request.equal_range(*q.request);
    for (auto it = first; it != last && wanted.size() < q.most; ++it) wanted.insert(it->second);
    f->total = s.by_request.count(*q.request);
  }
  for (const auto op : wanted)
    if (const auto it = s.operations.find(op); it != s.operations.end())
      f->operations.push_back(fact_of(op, it->second));
  tell_registrations(s, *f);
  f->stopping = !s.registrations->accepting();
  return {std::move(f)};
}

inline actor_report report(const adapter_state& s) {
  actor_report r;
  r.kind = actor_kind::adapter;
  r.figures = {{"operations_open", static_cast<std::int64_t>(s.operations.size())},
               {"submissions_queued", static_cast<std::int64_t>(s.queued)},
               {"admitted", static_cast<std::int64_t>(s.admitted)},
               {"released", static_cast<std::int64_t>(s.released)},
               {"rejected", static_cast<std::int64_t>(s.rejected)},
               {"fatal", s.fatal ? 1 : 0}};
  r.rows.push_back(
      {"registrations", to_string(s.registrations->claim()), {{"state", s.registrations->state_text()}}});
  for (const auto& [op, e] : s.operations) {
    report_row row{"operation", to_string(op), {{"direction", std::string{to_string(e.way)}}}};
    row.facts.emplace_back("request", to_string(e.request));
    row.facts.emplace_back("lease", to_string(e.lease));
    row.facts.emplace_back("outcome", e.core.decided() ? to_string(*e.core.decided()) : "pending");
    row.facts.emplace_back("access", std::string{to_string(e.core.access())});
    row.facts.emplace_back("copies", std::string{to_string(e.core.copies())});
    row.facts.emplace_back("claim", std::string{to_string(e.core.claim())});
    if (e.cancel_answer) row.facts.emplace_back("cancel", std::string{to_string(*e.cancel_answer)});
    if (!e.cancel_error.empty()) row.facts.emplace_back("cancel_error", e.cancel_error);
    r.rows.push_back(std::move(row));
  }
  return r;
}

}  // namespace kvlease
