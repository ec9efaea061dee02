#include "actors/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "actors/adapter_state.hpp"
#include "actors/errors.hpp"
#include "actors/guard.hpp"
#include "messages/wiring.hpp"
#include "src/extent.hpp"
#include "src/operation.hpp"
#include "src/registrar.hpp"

namespace kvlease {

namespace {

using self_pointer = metered_pointer<adapter_actor, adapter_state>;

void apply(self_pointer self, operation_id op, const operation_event& event);

/// Does what the operation's state machine asked for.
struct effect_sender {
  self_pointer self;
  operation_id op;
  operation_entry& entry;

  adapter_state& s() const { return self->state; }
  /// What is sent to an actor that is gone vanishes (7.4).
  bool is_down(actor_kind kind) const { return s().down.contains(kind); }

  void operator()(const op_effect::start_backend&) const {
    ++s().queued;
    if (is_down(actor_kind::backend) && !mutated(actor_mutation::submit_to_dead_backend))
      return apply(self, op, op_event::backend_down{.token_withdrawn = true});
    tell(self, s().peers->backend, start_submission{op, entry.way, entry.along});
  }
  void operator()(const op_effect::withdraw_submission&) const {
    const auto token = s().config->roots->token(op);
    if (token != nullptr && token->withdraw()) apply(self, op, op_event::withdrawn{});
  }
  void operator()(const op_effect::commit& e) const {
    tell(self, s().peers->deadline_arbiter, commit_outcome{op, e.value});
  }
  void operator()(const op_effect::collect_proof&) const {
    const auto proof = s().proofs_drawn->next();
    entry.core.proof_started(proof);
    entry.proof = proof;
    note(self, journal_kind::proof_started, {.operation = op, .other = proof.value});
    if (is_down(actor_kind::proof_collector) && !mutated(actor_mutation::prove_at_dead_collector))
      return apply(self, op, op_event::collector_down{});
    tell(self, s().peers->proof_collector, collect_proof{op, proof});
    tell_grace();  // a retry, within it
  }
  void operator()(const op_effect::request_cancel&) const {
    note(self, journal_kind::cancel_asked, {.operation = op});
    tell(self, s().peers->backend, cancel_attempt{op});
  }
  void operator()(const op_effect::finish_lease& e) const {
    std::uint64_t rows = 0;
    for (const auto& mask : e.masks) rows += static_cast<std::uint64_t>(std::ranges::count(mask, true));
    note(self, journal_kind::lease_finish_asked, {.operation = op, .lease = entry.lease, .value = rows});
    if (is_down(actor_kind::lender) && !mutated(actor_mutation::finish_at_dead_lender))
      return apply(self, op, op_event::lender_down{});
    tell(self, s().peers->lender, finish_lease{entry.lease, e.masks});
  }
  void operator()(const op_effect::awaiting_proof&) const {
    tell(self, s().peers->lender, await_proof{entry.lease});
    tell_grace();
  }
  void tell_grace() const {
    const auto& value = entry.core.decided();
    if (!value || std::holds_alternative<delivered>(*value) || !entry.core.proof_in_flight()) return;
    tell(self, s().peers->proof_collector, grace_runs{op, *entry.proof, entry.grace});
  }
  void operator()(const op_effect::retain& e) const {
    tell(self, s().peers->deadline_arbiter, retain_claim{op, e.reason});
  }
  void operator()(const op_effect::settle&) const {
    tell(self, s().peers->deadline_arbiter, settle_claim{op});
  }
  /// The roots were erased with the token; see on_settled.
  void operator()(const op_effect::release&) const {
    ++s().released;
    note(self, journal_kind::operation_released, {.operation = op, .lease = entry.lease});
    forget(entry);
    tell(self, s().peers->backend, forget_attempt{op});
    tell(self, s().peers->lender, return_lease{entry.lease});
    tell(self, s().peers->deadline_arbiter, claim_retired{op, entry.times});
    s().by_lease.erase(entry.lease);
    if (entry.owner) s().owners.erase(*entry.owner);
    s().operations.erase(op);  // `entry` is gone: nothing may follow
  }
  void forget(operation_entry& e) const {
    recount(s().seen.numbers(), e, nullptr);
    s().decided.erase({e.times.outcome, op});
    show_decided(s());
    const auto [first, last] = s().by_request.equal_range(e.request);
    const auto mine = std::find_if(first, last, [this](const auto& x) { return x.second == op; });
    if (mine != last) s().by_request.erase(mine);
  }
};

/// Before the effects are sent: whoever acts on them is numbered behind (src/journal.hpp).
void show(self_pointer self, operation_id op, operation_entry& entry, const moved_evidence& moved) {
  auto& s = self->state;
  const noted what{.operation = op, .lease = entry.lease, .request = entry.request};
  if (moved.access) {
    auto access = what;
    const bool ended = moved.access == journal_kind::access_ended;
    if (entry.proof && (ended || moved.access == journal_kind::access_disputed))
      access.other = entry.proof->value;
    if (ended && entry.source) access.detail = static_cast<std::uint8_t>(*entry.source);
    note(self, *moved.access, access);
  }
  if (moved.copies) note(self, *moved.copies, what);
  recount(s.seen.numbers(), entry, gauge_of(entry.core));
  if (entry.core.decided() && entry.times.outcome == time_point{}) {
    entry.times.outcome = now_of(self);
    s.decided.emplace(entry.times.outcome, op);
    show_decided(s);
  }
}

void apply(self_pointer self, operation_id op, const operation_event& event) {
  auto& s = self->state;
  const auto it = s.operations.find(op);
  if (it == s.operations.end()) return s.seen.rejected(++s.rejected);  // late or foreign (7.1)
  auto& entry = it->second;
  const auto access_before = entry.core.access();
  const auto copies_before = entry.core.copies();
  const auto was_queued = entry.core.access() == access_phase::queued;
  const auto rejected_before = entry.core.rejected();
  const auto effects = entry.core.apply(event);
  s.rejected += entry.core.rejected() - rejected_before;
  if (was_queued && entry.core.access() != access_phase::queued) --s.queued;
  const auto now = now_of(self);
  if (entry.core.access() == access_phase::ended && entry.times.access_ended == time_point{})
    entry.times.access_ended = now;
  if (entry.core.copies() == copy_phase::complete && entry.times.copies_ended == time_point{})
    entry.times.copies_ended = now;
  show(self, op, entry, moved_evidence{access_before, copies_before, entry.core, event});
  s.seen.rejected(s.rejected);
  for (const auto& e : effects) std::visit(effect_sender{self, op, entry}, e);
}

void apply_to_all(self_pointer self, const std::function<operation_event(operation_id)>& event) {
  std::vector<operation_id> ops;
  for (const auto& [op, entry] : self->state.operations) ops.push_back(op);
  for (const auto op : ops) apply(self, op, event(op));
}

void send(self_pointer self, const registrar_effects& effects) {
  auto& s = self->state;
  time_registrations(s, now_of(self));
  if (effects.take_hold) tell(self, s.peers->lender, hold_parts{});
  if (effects.open)
    note(self, journal_kind::registration_started,
         {.operation = s.registrations->claim(), .other = effects.open->id.value});
  if (effects.close)
    note(self, journal_kind::registration_closing,
         {.operation = s.registrations->claim(), .other = effects.close->value});
  if (effects.open) tell(self, s.peers->backend, register_part{effects.open->id, effects.open->span});
  if (effects.close) tell(self, s.peers->backend, close_registration{*effects.close});
  if (effects.retain)
    tell(self, s.peers->deadline_arbiter, retain_claim{s.registrations->claim(), *effects.retain});
  if (effects.settle) tell(self, s.peers->deadline_arbiter, settle_claim{s.registrations->claim()});
  if (effects.release_hold) tell(self, s.peers->lender, release_hold{*effects.release_hold});
  if (effects.retired) tell(self, s.peers->deadline_arbiter, claim_retired{s.registrations->claim(), {}});
  if (effects.start_answer && s.starter.pending()) {
    if (effects.start_answer->empty()) {
      tell(self, s.peers->lender, parts_registered{});
      s.starter.deliver(done{});
    } else {
      s.starter.deliver(to_caf({errc::provider, *effects.start_answer}));
    }
  }
}

/// An operation needs all of them; without one it could neither be submitted nor be released.
result<void> all_are_up(const adapter_state& s) {
  for (const auto kind :
       {actor_kind::deadline_arbiter, actor_kind::backend, actor_kind::proof_collector, actor_kind::lender})
    if (s.down.contains(kind) && !mutated(actor_mutation::dead_peer_admits))
      return fail(errc::state, fmt::format("not accepting operations: the {} is down", to_string(kind)));
  return {};
}

/// The checks of 5.2 that need no lease.
result<void> may_submit(const adapter_state& s, const submit& m) {
  if (m.way == direction::fetch ? !s.config->can_fetch : !s.config->can_publish)
    return fail(errc::unsupported, fmt::format("the provider does not {}", to_string(m.way)));
  if (m.along && m.way == direction::publish && !mutated(actor_mutation::route_of_publish_ignored))
    return fail(errc::invalid,
                "route " + to_string(*m.along) + " is given to a publish: only a fetch has a route");
  if (s.fatal && !mutated(actor_mutation::fatal_admits_operations))
    return fail(errc::state, "not accepting operations: the runtime is fatal");
  if (!s.registrations->accepting())
    return fail(errc::state, fmt::format("not accepting operations: {}", s.registrations->state_text()));
  if (const auto up = all_are_up(s); !up) return up;
  if (s.operations.size() >= s.config->max_operations && !mutated(actor_mutation::operations_unbounded))
    return fail(errc::capacity, fmt::format("{} operations are open, max_operations is {}",
                                            s.operations.size(), s.config->max_operations));
  if (s.queued >= s.config->max_queued_submissions && !mutated(actor_mutation::submissions_unbounded))
    return fail(errc::capacity, fmt::format("{} submissions are queued, max_queued_submissions is {}",
                                            s.queued, s.config->max_queued_submissions));
  if (m.owner && m.owner->runtime() != s.config->runtime && !mutated(actor_mutation::foreign_owner_admitted))
    return fail(errc::invalid, fmt::format("retirement owner {} is of another runtime's watchdog, not of the "
                                           "retirement watchdog here",
                                           to_string(*m.owner)));
  if (m.owner && s.owners.contains(*m.owner) && !mutated(actor_mutation::owner_used_twice))
    return fail(errc::state,
                fmt::format("retirement owner {} is used by another operation: each needs its own "
                            "retirement owner",
                            to_string(*m.owner)));
  return {};
}

caf::result<operation_id> on_submit(self_pointer self, const submit& m) {
  auto& s = self->state;
  if (const auto may = may_submit(s, m); !may) return to_caf(may.error());
  const auto op = s.drawn->next();
  const auto view = s.config->roots->claim_lease(m.lease, op, m.way, m.request);
  if (!view) return to_caf(view.error());
  auto extent = build_extent(**view, s.config->parts, bytes{staging_namespace}, m.is_last);
  if (!extent) {
    if (!mutated(actor_mutation::bad_extent_keeps_lease)) s.config->roots->unclaim_lease(m.lease, op);
    return to_caf(extent.error());
  }
  s.config->roots->root_operation(op, m.lease, std::make_shared<const cache_extent>(*std::move(extent)));
  operation_entry entry{operation{m.way, *view}, m.lease, m.way, m.request, m.owner, {}, std::nullopt, {}};
  entry.along = m.along;
  entry.grace = std::chrono::duration_cast<std::chrono::nanoseconds>(m.timeout.value());
  entry.times.submitted = now_of(self);
  for (const auto& run : (*view)->runs())
    if (run.where())
      entry.nbytes += static_cast<std::int64_t>(run.size()) *
                      s.config->parts.at(static_cast<std::size_t>(run.where()->part_index)).slot_bytes;
  s.by_request.emplace(m.request, op);
  note(self, journal_kind::operation_admitted,
       {.operation = op, .lease = m.lease, .request = m.request, .detail = static_cast<std::uint8_t>(m.way)});
  recount(s.seen.numbers(), entry, gauge_of(entry.core));
  s.by_lease.emplace(m.lease, op);
  if (m.owner) s.owners.insert(*m.owner);
  tell(self, s.peers->deadline_arbiter,
       expose_operation{exposure{op, m.owner, m.request, m.way, m.timeout, entry.times.submitted}, m.host});
  s.operations.emplace(op, std::move(entry));
  ++s.admitted;
  return op;
}

void on_settled(self_pointer self, const claim_settled& c) {
  auto& s = self->state;
  const auto op = c.token.operation();
  if (op == s.registrations->claim()) return send(self, s.registrations->settled());
  const auto it = s.operations.find(op);
  if (it == s.operations.end() || it->second.core.claim() != claim_phase::settling)
    return s.seen.rejected(++s.rejected);
  s.config->roots->erase(c.token);
  apply(self, op, op_event::authorised{});
}

void on_backend_down(self_pointer self) {
  auto& s = self->state;
  apply_to_all(self, [&s](operation_id op) -> operation_event {
    const auto token = s.config->roots->token(op);
    const bool queued = s.operations.at(op).core.access() == access_phase::queued;
    return op_event::backend_down{.token_withdrawn = queued && token != nullptr && token->withdraw(),
                                  .attempt_rooted = s.config->roots->attempt_of(op) != nullptr};
  });
  send(self, s.registrations->backend_down());
}

void on_fatal(self_pointer self) {
  self->state.fatal = true;
  if (self->state.starter.pending())
    self->state.starter.deliver(to_caf({errc::state, "the runtime is fatal"}));
  self->state.registrations->fatal();
  apply_to_all(self, [](operation_id) -> operation_event { return op_event::fatal{}; });
}

void on_lease(self_pointer self, lease_id lease, const operation_event& event) {
  auto& s = self->state;
  const auto it = s.by_lease.find(lease);
  if (it == s.by_lease.end()) return s.seen.rejected(++s.rejected);
  apply(self, it->second, event);
}

caf::result<adapter_rest> close(self_pointer self) {
  auto& s = self->state;
  send(self, s.registrations->stop());
  if (!mutated(actor_mutation::close_keeps_operations))
    apply_to_all(self, [](operation_id) -> operation_event { return op_event::cancel{}; });
  send(self, s.registrations->close(s.operations.size()));
  adapter_rest rest;
  rest.closed = s.registrations->closed();
  for (const auto& [op, e] : s.operations)
    rest.waiting_for.push_back(fmt::format("operation {} ({} of request {}): access {}, copies {}, claim {}",
                                           to_string(op), to_string(e.way), to_string(e.request),
                                           to_string(e.core.access()), to_string(e.core.copies()),
                                           to_string(e.core.claim())));
  if (!rest.closed) rest.waiting_for.push_back(s.registrations->state_text());
  return rest;
}

caf::result<done> start(self_pointer self) {
  auto& s = self->state;
  if ((!s.registrations->may_start() || s.starter.pending()) && !mutated(actor_mutation::started_twice))
    return to_caf({errc::state, "the adapter was started before"});
  if (s.fatal) return to_caf({errc::state, "the runtime is fatal"});
  if (const auto up = all_are_up(s); !up) return to_caf(up.error());
  s.starter = self->make_response_promise<done>();
  tell(self, s.peers->deadline_arbiter,
       track_registrations{s.registrations->claim(), s.config->registration_timeout});
  return s.starter;
}

/// What the provider has answered for a registration: opened or closed, or not.
void on_registration(self_pointer self, registration_id id, const std::string& problem, bool opening) {
  auto& s = self->state;
  const auto before = s.registrations->registered_bytes();
  const auto effects =
      opening ? s.registrations->registered(id, problem) : s.registrations->revoked(id, problem);
  const auto after = s.registrations->registered_bytes();
  auto kind = opening ? journal_kind::registration_failed : journal_kind::registration_kept;
  if (after != before) kind = opening ? journal_kind::registration_made : journal_kind::registration_closed;
  if (after != before || !problem.empty())
    note(self, kind, {.operation = s.registrations->claim(), .other = id.value});
  if (auto* g = s.seen.numbers()) g->registered.store(after, std::memory_order_relaxed);
  send(self, effects);
}

/// Shown alone: what a rung has done comes as answers of the provider.
void on_climbed(self_pointer self, const rung_climbed& c) {
  auto& s = self->state;
  const auto it = s.operations.find(c.operation);
  const bool waits =
      it != s.operations.end() && it->second.core.proof_in_flight() && it->second.proof == c.proof;
  if (!waits) return s.seen.rejected(++s.rejected);  // it has been proven meanwhile
  note(self, journal_kind::rung_climbed,
       {.operation = c.operation, .other = c.proof.value, .detail = static_cast<std::uint8_t>(c.rung)});
  for (const auto op : c.taken_down)
    if (op != c.operation && s.operations.contains(op))
      note(self, journal_kind::operation_taken_down, {.operation = op, .other = c.proof.value});
}

void on_peer_down(self_pointer self, actor_kind kind) {
  self->state.down.insert(kind);
  switch (kind) {
    case actor_kind::backend:
      if (mutated(actor_mutation::backend_death_ignored)) return;
      return on_backend_down(self);
    case actor_kind::proof_collector:
      if (mutated(actor_mutation::collector_death_ignored)) return;
      return apply_to_all(self, [](operation_id) -> operation_event { return op_event::collector_down{}; });
    case actor_kind::lender:
      if (mutated(actor_mutation::lender_death_ignored)) return;
      apply_to_all(self, [](operation_id) -> operation_event { return op_event::lender_down{}; });
      return send(self, self->state.registrations->lender_down());
    case actor_kind::deadline_arbiter:
      if (mutated(actor_mutation::arbiter_death_ignored)) return;
      return on_fatal(self);  // nobody is left who could settle (7.4)
    default:
      return;
  }
}

adapter_actor::behavior_type adapter(self_pointer self, const adapter_config& config) {
  auto& s = self->state;
  s.config = std::make_shared<const adapter_config>(config);
  s.drawn.emplace(config.runtime);
  s.proofs_drawn.emplace(config.runtime);
  s.registrations.emplace(config.runtime, s.drawn->next(), config.parts);
  s.seen.open(self, config.watch, actor_kind::adapter);
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        const bool ours = down.runtime == self->state.config->runtime;
        if (!ours && !mutated(actor_mutation::adapter_believes_foreign_down))
          return self->state.seen.rejected(++self->state.rejected);
        on_peer_down(self, down.kind);
      },
      [self](const quit_now&) {
        if (self->state.starter.pending())
          self->state.starter.deliver(to_caf({errc::state, "the runtime has ended"}));
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const ask_slice& q) -> caf::result<facts_answer> { return slice(self->state, q); },
      [self](const ask_about& q) -> caf::result<facts_answer> { return about(self->state, *q.what); },
      [self](const submit& m) { return on_submit(self, m); },
      [self](const cancel_operation& c) -> caf::result<done> {
        if (!self->state.operations.contains(c.operation) &&
            !mutated(actor_mutation::unknown_cancel_answered))
          return to_caf({errc::unknown, "operation " + to_string(c.operation) + " is not open here"});
        apply(self, c.operation, op_event::cancel{c.who});
        return done{};
      },
      [self](const retry_proof& r) -> caf::result<done> {
        if (!self->state.operations.contains(r.operation))
          return to_caf({errc::unknown, "operation " + to_string(r.operation) + " is not open here"});
        apply(self, r.operation, op_event::retry_proof{});
        return done{};
      },
      [self](const start_adapter&) { return start(self); },
      [self](const close_adapter&) { return close(self); },
      [self](const exposure_granted& g) {
        auto& registrations = *self->state.registrations;
        if (g.operation == registrations.claim()) return send(self, registrations.start());
        apply(self, g.operation, op_event::granted{});
      },
      [self](const exposure_refused& r) {
        auto& registrations = *self->state.registrations;
        if (r.operation == registrations.claim()) return send(self, registrations.refused(r.reason));
        apply(self, r.operation, op_event::refused{});
      },
      [self](const outcome_committed& c) { apply(self, c.operation, op_event::decided{c.value}); },
      [self](const claim_settled& c) { on_settled(self, c); },
      [self](const claim_refused& c) {
        if (c.operation == self->state.registrations->claim()) return;
        apply(self, c.operation, op_event::not_authorised{});
      },
      [self](const fatal_record&) { on_fatal(self); },
      [self](const submission_accepted& a) { apply(self, a.operation, op_event::accepted{}); },
      [self](const submission_refused& r) { apply(self, r.operation, op_event::rejected{r.reason}); },
      [self](const submission_withdrawn& w) {
        // Whoever took the token back has said so already, and the operation may be over.
        const auto it = self->state.operations.find(w.operation);
        if (it != self->state.operations.end() && it->second.core.access() == access_phase::queued)
          apply(self, w.operation, op_event::withdrawn{});
      },
      [self](const submission_escaped& e) { apply(self, e.operation, op_event::escaped{e.reason}); },
      [self](const outcome_reported& o) {
        const auto f = fact_of(o.value);
        note(self, journal_kind::outcome_reported,
             {.operation = o.operation, .value = f.served, .detail = static_cast<std::uint8_t>(f.what)});
        apply(self, o.operation, op_event::reported{o.value});
      },
      [self](const cancel_answered& c) {
        const auto it = self->state.operations.find(c.operation);
        if (it == self->state.operations.end()) return;
        it->second.cancel_answer = c.disposition;
        it->second.cancel_error = c.problem;
      },
      [self](const registration_done& r) { on_registration(self, r.registration, r.problem, true); },
      [self](const registration_closed& r) { on_registration(self, r.registration, r.problem, false); },
      [self](const access_ended& a) {
        const auto it = self->state.operations.find(a.operation);
        if (it != self->state.operations.end() && it->second.proof == a.proof) it->second.source = a.source;
        apply(self, a.operation, op_event::access_ended{a.proof});
      },
      [self](const access_unproven& a) {
        const auto it = self->state.operations.find(a.operation);
        if (it != self->state.operations.end() && it->second.proof == a.proof)
          it->second.disputed = evidence_fact{now_of(self), a.reason};
        apply(self, a.operation, op_event::access_unproven{a.proof, a.reason});
      },
      [self](const rung_climbed& c) { on_climbed(self, c); },
      [self](const parts_held& h) { send(self, self->state.registrations->held(h.hold)); },
      [self](const copies_ended& c) { on_lease(self, c.lease, op_event::copies_ended{}); },
      [self](const copies_lost& c) { on_lease(self, c.lease, op_event::copies_unproven{c.reason}); },
  };
}

}  // namespace

adapter_actor spawn_adapter(caf::actor_system& system, adapter_config config) {
  return system.spawn(adapter, std::move(config));
}

}  // namespace kvlease
