#include "actors/backend.hpp"

#include <map>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "actors/errors.hpp"
#include "actors/guard.hpp"
#include "actors/observe.hpp"
#include "actors/outlet.hpp"
#include "actors/thrown.hpp"
#include "messages/wiring.hpp"
#include "src/facts.hpp"

namespace kvlease {

namespace {

using backend_outlet = std::shared_ptr<outlet<backend_actor>>;

struct backend_state {
  static inline const char* name = "kvlease.backend";
  backend_config config;
  std::shared_ptr<const wiring> peers;
  outlet_owner<backend_actor> way_in;
  outlet_owner<proof_collector_actor> collector;
  std::set<operation_id> awaited;  ///< attempts without an outcome
  poll_schedule schedule;
  std::map<std::uint64_t, caf::typed_response_promise<probe_answer>> probes;
  std::map<std::uint64_t, caf::typed_response_promise<route_id>> opening;
  std::map<std::uint64_t, caf::typed_response_promise<done>> closing;
  std::optional<id_source<route_id>> routes;
  std::uint64_t probes_drawn = 0;  ///< of questions to the provider
  std::uint64_t submissions = 0;
  provider_figures units;
  bool looking = false;
  std::unordered_map<operation_id, time_point> queued;  ///< submissions that no worker has answered
  observer seen;
};

using self_pointer = metered_pointer<backend_actor, backend_state>;

/// Polls for an outcome; a poll that throws is a failure (scenarios 4.4).
std::optional<outcome> poll_outcome(attempt& a) {
  try {
    return a.poll();
  } catch (...) {
    if (mutated(actor_mutation::broken_poll_is_pending)) return std::nullopt;
    return failed{"poll failed: " + what_was_thrown()};
  }
}

// ---- jobs: on a worker, with everything they need in their hands

void submit_job(provider& service, ledger& roots, const backend_outlet& out, const start_submission& s,
                const observation* watch, const executor& clock) {
  const auto token = roots.token(s.operation);
  const auto extent = roots.extent(s.operation);
  const bool entered = token != nullptr && (token->enter() || mutated(actor_mutation::withdrawn_is_called));
  if (!entered) return out->send(submission_withdrawn{s.operation});
  const auto along = s.along ? roots.route_of(*s.along) : nullptr;
  if (s.along && along == nullptr && !mutated(actor_mutation::closed_route_is_none))
    return out->send(
        submission_refused{s.operation, "route " + to_string(*s.along) + " is closed, or foreign"});
  if (watch != nullptr)
    note_at(watch->log().get(), clock.now(), actor_kind::backend, journal_kind::submission_entered,
            {.operation = s.operation});
  std::shared_ptr<attempt> made;
  try {
    made = s.way == direction::fetch ? service.as_fetches()->fetch(*extent, along.get())
                                     : service.as_publishes()->publish(*extent);
  } catch (const submission_rejected& e) {
    if (mutated(actor_mutation::rejected_is_escaped))
      return out->send(submission_escaped{s.operation, e.what()});
    return out->send(submission_refused{s.operation, e.what()});
  } catch (...) {
    if (mutated(actor_mutation::escaped_is_rejected))
      return out->send(submission_refused{s.operation, what_was_thrown()});
    return out->send(submission_escaped{s.operation, what_was_thrown()});
  }
  if (made == nullptr) return out->send(submission_escaped{s.operation, "the provider returned no attempt"});
  if (!mutated(actor_mutation::attempt_not_rooted)) roots.root_attempt(s.operation, made);
  out->send(submission_accepted{s.operation, poll_outcome(*made)});
}

void poll_job(ledger& roots, const backend_outlet& out, const std::vector<operation_id>& awaited) {
  outcomes_polled round;
  for (const auto op : awaited)
    if (const auto a = roots.attempt_of(op))
      if (auto value = poll_outcome(*a)) round.found.push_back({op, *std::move(value)});
  out->send(std::move(round));
}

void cancel_job(ledger& roots, const backend_outlet& out, operation_id op) {
  cancel_answered answered{op, std::nullopt, {}};
  if (const auto a = roots.attempt_of(op)) {
    try {
      answered.disposition = request_cancel(*a);
    } catch (...) {
      if (!mutated(actor_mutation::cancel_error_lost)) answered.problem = what_was_thrown();
    }
  }
  out->send(std::move(answered));
}

void open_route_job(provider& service, ledger& roots, const backend_outlet& out, std::uint64_t ticket,
                    route_id id, const std::string& hint) {
  route_done answered{ticket, std::nullopt, std::nullopt};
  try {
    auto opened = service.as_fetches()->open_route(hint);
    if (opened) {
      roots.root_route(id, *std::move(opened));
      answered.route = id;
    } else {
      answered.problem = opened.error();
    }
  } catch (...) {
    answered.problem = error{errc::provider, "open_route failed: " + what_was_thrown()};
  }
  out->send(std::move(answered));
}

void close_route_job(ledger& roots, const backend_outlet& out, std::uint64_t ticket, route_id id) {
  route_done answered{ticket, std::nullopt, std::nullopt};
  try {
    if (const auto r = roots.route_of(id)) {
      if (mutated(actor_mutation::broken_route_close_is_done)) roots.route_closed(id);
      r->close();  // if it throws, the route is open still
      roots.route_closed(id);
      answered.route = id;
    } else {
      answered.problem = error{errc::unknown, "route " + to_string(id) + " is not open here"};
    }
  } catch (...) {
    answered.problem = error{errc::provider, "close failed, the route is open still: " + what_was_thrown()};
  }
  out->send(std::move(answered));
}

void register_job(provider& service, ledger& roots, const backend_outlet& out, const register_part& r) {
  registration_done answered{r.registration, {}};
  try {
    auto* pools = service.as_registers_pools();
    // A provider without pools takes memory as it comes; there is nothing to revoke.
    if (pools != nullptr) {
      auto handle = pools->register_pool(r.span.address, static_cast<std::size_t>(r.span.nbytes));
      if (handle == nullptr) throw std::runtime_error{"the provider returned no registration"};
      roots.root_registration(r.registration, std::move(handle));
    }
  } catch (...) {
    if (!mutated(actor_mutation::failed_registration_is_done)) answered.problem = what_was_thrown();
  }
  out->send(std::move(answered));
}

void unregister_job(ledger& roots, const backend_outlet& out, registration_id id) {
  registration_closed answered{id, {}};
  try {
    const auto handle = roots.registration_of(id);
    if (mutated(actor_mutation::broken_close_is_done)) roots.registration_closed(id);
    if (handle) handle->close();  // if it throws, the handle stays and is tried again
    roots.registration_closed(id);
  } catch (...) {
    answered.problem = what_was_thrown();
  }
  out->send(std::move(answered));
}

// ---- on the actor

/// Posts `job(service, roots, outlet)` to a worker.
template <class Job>
void on_worker(self_pointer self, Job job) {
  auto& s = self->state;
  s.config.workers->post([service = s.config.service, roots = s.config.roots, out = s.way_in.shared(),
                          job = std::move(job)] { job(*service, *roots, out); });
}

void start_round(self_pointer self) {
  std::vector<operation_id> ops{self->state.awaited.begin(), self->state.awaited.end()};
  on_worker(self, [ops = std::move(ops)](provider&, ledger& roots, const backend_outlet& out) {
    poll_job(roots, out, ops);
  });
}

void on_poll(self_pointer self, std::uint64_t generation) {
  auto& s = self->state;
  if (s.awaited.empty()) return;
  if (generation == 0 ? s.schedule.wake() : s.schedule.due(generation)) start_round(self);
}

void on_round(self_pointer self, const outcomes_polled& round) {
  auto& s = self->state;
  bool advanced = false;
  for (const auto& f : round.found)
    if (s.awaited.erase(f.operation) > 0) {
      advanced = true;
      tell(self, s.peers->adapter, outcome_reported{f.operation, f.value});
    }
  const auto next = s.schedule.end(advanced, !s.awaited.empty());
  if (!next) return;
  if (next->count() == 0) {
    if (s.schedule.wake()) start_round(self);
  } else {
    tell_later<backend_actor>(self, *next, poll_outcomes{s.schedule.generation()});
  }
}

void on_wired(self_pointer self, const wired& w) {
  auto& s = self->state;
  s.peers = w.peers;
  s.collector.open(w.peers->proof_collector);
  // Installing it is a provider call as well, so a worker does it. It is never taken back: the outlets close
  // with this actor.
  on_worker(self, [theirs = s.collector.shared()](provider& service, ledger&, const backend_outlet& mine) {
    if (auto* n = service.as_notifies())
      n->on_progress([mine, theirs] {
        mine->send(poll_outcomes{});
        theirs->send(poll_access{});
      });
  });
}

/// Looking is a provider call, so a worker does it; what it finds is shown the next time.
void look_at_units(self_pointer self) {
  if (std::exchange(self->state.looking, true)) return;
  on_worker(self, [](provider& service, ledger&, const backend_outlet& out) {
    const auto c = service.counters();
    out->send(provider_figures{c.hits, c.misses, c.failures});
  });
}

/// With the provider's figures as of the last look.
caf::result<actor_report> report(self_pointer self) {
  auto& s = self->state;
  look_at_units(self);
  actor_report r;
  r.kind = actor_kind::backend;
  r.figures = {{"submissions", static_cast<std::int64_t>(s.submissions)},
               {"awaiting_outcome", static_cast<std::int64_t>(s.awaited.size())},
               {"unit_hits", static_cast<std::int64_t>(s.units.hits)},
               {"unit_misses", static_cast<std::int64_t>(s.units.misses)},
               {"unit_failures", static_cast<std::int64_t>(s.units.failures)}};
  r.rows.push_back({"provider", s.config.description, {}});
  return r;
}

/// What a worker says of a submission.
template <class Message>
void pass_on(self_pointer self, const Message& m) {
  self->state.queued.erase(m.operation);
  tell(self, self->state.peers->adapter, m);
}

backend_fact fact_of(const backend_state& s) {
  const auto n = [](auto x) { return static_cast<std::int64_t>(x); };
  auto& service = *s.config.service;
  std::vector<proof_source> proofs{proof_source::terminal_status};  // what every provider gives (2.4)
  if (auto* offered = service.as_proof_rungs())
    for (const auto rung : offered->rungs()) proofs.push_back(rung);
  return {.uri = s.config.description,
          .registers = service.as_registers_pools() != nullptr,
          .polls = service.as_pollable() != nullptr,
          .proofs = std::move(proofs),
          .attempts = n(s.awaited.size()),
          .hits = n(s.units.hits),
          .misses = n(s.units.misses),
          .failures = n(s.units.failures),
          .queued_since = {}};
}

facts_answer about(const backend_state& s, const about_question& q) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::backend});
  f->backend = fact_of(s);
  for (const auto op : q.operations)
    if (const auto it = s.queued.find(op); it != s.queued.end()) {
      f->backend->calling = true;
      f->backend->queued_since = it->second;
    }
  return {std::move(f)};
}

backend_actor::behavior_type backend(self_pointer self, const backend_config& config) {
  auto& s = self->state;
  s.config = config;
  s.schedule = poll_schedule{config.polling};
  s.way_in.open(backend_actor{self});
  s.routes.emplace(config.runtime);
  s.seen.open(self, config.watch, actor_kind::backend);
  return {
      [self](const wired& w) { on_wired(self, w); },
      [self](const peer_down& down) {
        if (down.kind == actor_kind::proof_collector && down.runtime == self->state.peers->runtime)
          self->state.collector.shared()->close();
      },
      [self](const quit_now&) {
        const auto ended = to_caf({errc::state, "the runtime has ended"});
        for (auto& [ticket, rp] : self->state.probes) rp.deliver(ended);
        for (auto& [ticket, rp] : self->state.opening) rp.deliver(ended);
        for (auto& [ticket, rp] : self->state.closing) rp.deliver(ended);
        self->quit();
      },
      [self](const report_request&) { return report(self); },
      [self](const ask_slice&) -> caf::result<facts_answer> {
        look_at_units(self);
        return about(self->state, {});
      },
      [self](const ask_about& q) -> caf::result<facts_answer> { return about(self->state, *q.what); },
      [self](const start_submission& start) {
        ++self->state.submissions;
        self->state.queued.emplace(start.operation, now_of(self));
        try {
          const auto& with = self->state.config;
          on_worker(self, [start, watch = with.watch, clock = with.workers](provider& service, ledger& roots,
                                                                            const backend_outlet& out) {
            submit_job(service, roots, out, start, watch.get(), *clock);
          });
        } catch (...) {  // no worker took it, so nothing escaped
          self->state.queued.erase(start.operation);
          if (mutated(actor_mutation::unposted_submission_is_silent)) return;
          tell(self, self->state.peers->adapter,
               submission_refused{start.operation, "no worker: " + what_was_thrown()});
        }
      },
      [self](const cancel_attempt& c) {
        self->state.awaited.erase(c.operation);  // its outcome is decided
        on_worker(self, [op = c.operation](provider&, ledger& roots, const backend_outlet& out) {
          cancel_job(roots, out, op);
        });
      },
      [self](const forget_attempt& f) { self->state.awaited.erase(f.operation); },
      [self](const register_part& r) {
        on_worker(self, [r](provider& service, ledger& roots, const backend_outlet& out) {
          register_job(service, roots, out, r);
        });
      },
      [self](const close_registration& c) {
        on_worker(self, [id = c.registration](provider&, ledger& roots, const backend_outlet& out) {
          unregister_job(roots, out, id);
        });
      },
      [self](const probe_units& p) -> caf::result<probe_answer> {
        auto* f = self->state.config.service->as_fetches();
        if (f == nullptr) return to_caf({errc::unsupported, "the provider does not fetch"});
        auto rp = self->make_response_promise<probe_answer>();
        // The promise belongs to this actor: the worker's answer comes back as a message of its own.
        const auto ticket = ++self->state.probes_drawn;
        self->state.probes.emplace(ticket, rp);
        on_worker(self, [p, ticket](provider& service, ledger&, const backend_outlet& out) {
          probe_done answered{ticket, {}, {}};
          try {
            answered.value.hits = service.as_fetches()->probe(p.extent, p.names);
          } catch (...) {
            if (!mutated(actor_mutation::probe_error_is_miss)) answered.problem = what_was_thrown();
          }
          out->send(std::move(answered));
        });
        return rp;
      },
      [self](const open_route& o) -> caf::result<route_id> {
        auto& state = self->state;
        if (state.config.service->as_fetches() == nullptr)
          return to_caf({errc::unsupported, "the provider does not fetch"});
        const auto ticket = ++state.probes_drawn;
        auto rp = self->make_response_promise<route_id>();
        state.opening.emplace(ticket, rp);
        on_worker(self, [ticket, hint = o.hint, id = state.routes->next()](provider& service, ledger& roots,
                                                                           const backend_outlet& out) {
          open_route_job(service, roots, out, ticket, id, hint);
        });
        return rp;
      },
      [self](const close_route& c) -> caf::result<done> {
        auto& state = self->state;
        const auto ticket = ++state.probes_drawn;
        auto rp = self->make_response_promise<done>();
        state.closing.emplace(ticket, rp);
        on_worker(self, [ticket, id = c.route](provider&, ledger& roots, const backend_outlet& out) {
          close_route_job(roots, out, ticket, id);
        });
        return rp;
      },
      [self](const route_done& r) {
        auto& state = self->state;
        if (const auto it = state.opening.find(r.ticket); it != state.opening.end()) {
          r.problem ? it->second.deliver(to_caf(*r.problem)) : it->second.deliver(*r.route);
          state.opening.erase(it);
        } else if (const auto closing = state.closing.find(r.ticket); closing != state.closing.end()) {
          r.problem ? closing->second.deliver(to_caf(*r.problem)) : closing->second.deliver(done{});
          state.closing.erase(closing);
        }
      },
      [self](const probe_done& p) {
        const auto it = self->state.probes.find(p.ticket);
        if (it == self->state.probes.end()) return;
        if (p.problem.empty())
          it->second.deliver(p.value);
        else
          it->second.deliver(to_caf({errc::provider, "probe failed: " + p.problem}));
        self->state.probes.erase(it);
      },
      [self](const submission_accepted& a) {
        auto& state = self->state;
        state.queued.erase(a.operation);
        tell(self, state.peers->adapter, a);
        if (a.value) {
          tell(self, state.peers->adapter, outcome_reported{a.operation, *a.value});
          return;
        }
        state.awaited.insert(a.operation);
        if (state.schedule.wake()) start_round(self);
      },
      [self](const submission_refused& r) { pass_on(self, r); },
      [self](const submission_withdrawn& w) { pass_on(self, w); },
      [self](const submission_escaped& e) { pass_on(self, e); },
      [self](const cancel_answered& c) { tell(self, self->state.peers->adapter, c); },
      [self](const registration_done& r) { tell(self, self->state.peers->adapter, r); },
      [self](const registration_closed& r) { tell(self, self->state.peers->adapter, r); },
      [self](const provider_figures& f) {
        self->state.units = f;
        self->state.looking = false;
      },
      [self](const outcomes_polled& round) { on_round(self, round); },
      [self](const poll_outcomes& p) { on_poll(self, p.generation); },
  };
}

}  // namespace

backend_actor spawn_backend(caf::actor_system& system, backend_config config) {
  return system.spawn(backend, std::move(config));
}

}  // namespace kvlease
