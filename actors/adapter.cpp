#include "actors/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "actors/errors.hpp"
#include "messages/wiring.hpp"
#include "src/extent.hpp"
#include "src/operation.hpp"
#include "src/registrar.hpp"

namespace kvlease {

namespace {

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
};

struct adapter_state {
  static inline const char* name = "kvlease.adapter";
  std::shared_ptr<const adapter_config> config;
  std::shared_ptr<const wiring> peers;
  std::optional<id_source<operation_id>> drawn;
  std::optional<id_source<proof_id>> proofs_drawn;
  std::map<operation_id, operation_entry> operations;
  std::unordered_map<lease_id, operation_id> by_lease;
  std::set<owner_id> owners;  ///< of hosts, used by open operations
  std::optional<registrar> registrations;
  caf::typed_response_promise<done> starter;
  std::size_t queued = 0;  ///< submissions that the backend has not answered
  bool fatal = false;
  std::set<actor_kind> down;
  std::uint64_t admitted = 0, released = 0, rejected = 0;
};

using self_pointer = adapter_actor::stateful_pointer<adapter_state>;

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
    if (is_down(actor_kind::backend)) return apply(self, op, op_event::backend_down{.token_withdrawn = true});
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
    if (is_down(actor_kind::proof_collector)) return apply(self, op, op_event::collector_down{});
    tell(self, s().peers->proof_collector, collect_proof{op, proof});
  }
  void operator()(const op_effect::request_cancel&) const {
    tell(self, s().peers->backend, cancel_attempt{op});
  }
  void operator()(const op_effect::finish_lease& e) const {
    if (is_down(actor_kind::lender)) return apply(self, op, op_event::lender_down{});
    tell(self, s().peers->lender, finish_lease{entry.lease, e.masks});
  }
  void operator()(const op_effect::awaiting_proof&) const {
    tell(self, s().peers->lender, await_proof{entry.lease});
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
    tell(self, s().peers->backend, forget_attempt{op});
    tell(self, s().peers->lender, return_lease{entry.lease});
    tell(self, s().peers->deadline_arbiter, claim_retired{op, entry.times});
    s().by_lease.erase(entry.lease);
    if (entry.owner) s().owners.erase(*entry.owner);
    s().operations.erase(op);  // `entry` is gone: nothing may follow
  }
};

void apply(self_pointer self, operation_id op, const operation_event& event) {
  auto& s = self->state;
  const auto it = s.operations.find(op);
  if (it == s.operations.end()) return void(++s.rejected);  // late or foreign (7.1)
  auto& entry = it->second;
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
  for (const auto& e : effects) std::visit(effect_sender{self, op, entry}, e);
}

void apply_to_all(self_pointer self, const std::function<operation_event(operation_id)>& event) {
  std::vector<operation_id> ops;
  for (const auto& [op, entry] : self->state.operations) ops.push_back(op);
  for (const auto op : ops) apply(self, op, event(op));
}

void send(self_pointer self, const registrar_effects& effects) {
  auto& s = self->state;
  if (effects.take_hold) tell(self, s.peers->lender, hold_parts{});
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
    if (s.down.contains(kind))
      return fail(errc::state, fmt::format("not accepting operations: the {} is down", to_string(kind)));
  return {};
}

/// The checks of 5.2 that need no lease.
result<void> may_submit(const adapter_state& s, const submit& m) {
  if (m.way == direction::fetch ? !s.config->can_fetch : !s.config->can_publish)
    return fail(errc::unsupported, fmt::format("the provider does not {}", to_string(m.way)));
  if (m.along && m.way == direction::publish)
    return fail(errc::invalid,
                "route " + to_string(*m.along) + " is given to a publish: only a fetch has a route");
  if (s.fatal) return fail(errc::state, "not accepting operations: the runtime is fatal");
  if (!s.registrations->accepting())
    return fail(errc::state, fmt::format("not accepting operations: {}", s.registrations->state_text()));
  if (const auto up = all_are_up(s); !up) return up;
  if (s.operations.size() >= s.config->max_operations)
    return fail(errc::capacity, fmt::format("{} operations are open, max_operations is {}",
                                            s.operations.size(), s.config->max_operations));
  if (s.queued >= s.config->max_queued_submissions)
    return fail(errc::capacity, fmt::format("{} submissions are queued, max_queued_submissions is {}",
                                            s.queued, s.config->max_queued_submissions));
  if (m.owner && m.owner->runtime() != s.config->runtime)
    return fail(errc::invalid, fmt::format("retirement owner {} is of another runtime's watchdog, not of the "
                                           "retirement watchdog here",
                                           to_string(*m.owner)));
  if (m.owner && s.owners.contains(*m.owner))
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
    s.config->roots->unclaim_lease(m.lease, op);
    return to_caf(extent.error());
  }
  s.config->roots->root_operation(op, m.lease, std::make_shared<const cache_extent>(*std::move(extent)));
  operation_entry entry{operation{m.way, *view}, m.lease, m.way, m.request, m.owner, {}, std::nullopt, {}};
  entry.along = m.along;
  entry.times.submitted = now_of(self);
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
  if (it == s.operations.end() || it->second.core.claim() != claim_phase::settling) return void(++s.rejected);
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
  if (it == s.by_lease.end()) return void(++s.rejected);
  apply(self, it->second, event);
}

caf::result<adapter_rest> close(self_pointer self) {
  auto& s = self->state;
  send(self, s.registrations->stop());
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
  if (!s.registrations->may_start() || s.starter.pending())
    return to_caf({errc::state, "the adapter was started before"});
  if (s.fatal) return to_caf({errc::state, "the runtime is fatal"});
  if (const auto up = all_are_up(s); !up) return to_caf(up.error());
  s.starter = self->make_response_promise<done>();
  tell(self, s.peers->deadline_arbiter,
       track_registrations{s.registrations->claim(), s.config->registration_timeout});
  return s.starter;
}

actor_report report(const adapter_state& s) {
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

void on_peer_down(self_pointer self, actor_kind kind) {
  self->state.down.insert(kind);
  switch (kind) {
    case actor_kind::backend:
      return on_backend_down(self);
    case actor_kind::proof_collector:
      return apply_to_all(self, [](operation_id) -> operation_event { return op_event::collector_down{}; });
    case actor_kind::lender:
      apply_to_all(self, [](operation_id) -> operation_event { return op_event::lender_down{}; });
      return send(self, self->state.registrations->lender_down());
    case actor_kind::deadline_arbiter:
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
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        if (down.runtime != self->state.config->runtime) return void(++self->state.rejected);
        on_peer_down(self, down.kind);
      },
      [self](const quit_now&) {
        if (self->state.starter.pending())
          self->state.starter.deliver(to_caf({errc::state, "the runtime has ended"}));
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const submit& m) { return on_submit(self, m); },
      [self](const cancel_operation& c) -> caf::result<done> {
        if (!self->state.operations.contains(c.operation))
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
      [self](const outcome_reported& o) { apply(self, o.operation, op_event::reported{o.value}); },
      [self](const cancel_answered& c) {
        const auto it = self->state.operations.find(c.operation);
        if (it == self->state.operations.end()) return;
        it->second.cancel_answer = c.disposition;
        it->second.cancel_error = c.problem;
      },
      [self](const registration_done& r) {
        send(self, self->state.registrations->registered(r.registration, r.problem));
      },
      [self](const registration_closed& r) {
        send(self, self->state.registrations->revoked(r.registration, r.problem));
      },
      [self](const access_ended& a) { apply(self, a.operation, op_event::access_ended{a.proof}); },
      [self](const access_unproven& a) {
        apply(self, a.operation, op_event::access_unproven{a.proof, a.reason});
      },
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
