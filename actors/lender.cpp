#include "actors/lender.hpp"

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "actors/errors.hpp"
#include "actors/outlet.hpp"
#include "messages/wiring.hpp"

namespace kvlease {

namespace {

struct lender_state {
  static inline const char* name = "kvlease.lender";
  lender_config config;
  std::shared_ptr<const wiring> peers;
  std::optional<lending> core;
  std::optional<slot_paint> paint;
  std::optional<id_source<hold_id>> holds_drawn;
  std::unordered_set<hold_id> holds;
  std::unordered_map<lease_id, caf::typed_response_promise<lease_id>> askers;
  std::unordered_map<lease_id, host_actor> holders;
  outlet_owner<lender_actor> way_in;
  std::uint64_t foreign = 0;   ///< messages of another runtime
  bool memory_may_go = false;  ///< after the last look at the paint
};

using self_pointer = lender_actor::stateful_pointer<lender_state>;

void count_paint(lender_state& s) {
  if (s.config.paint_exposure) s.config.paint_exposure->store(s.paint->exposure_bytes());
}

void look_at_paint(lender_state& s) {
  if (!s.memory_may_go) s.paint->check_all();
  count_paint(s);
}

/// Calls `each` with every slot of `runs`.
template <class F>
void for_slots(const std::vector<part_run>& runs, F each) {
  for (const auto& run : runs)
    for (auto slot = run.slots.start; slot < run.slots.start + run.slots.count; ++slot) each(run.part, slot);
}

struct effect_sender {
  self_pointer self;

  lender_state& s() const { return self->state; }

  void operator()(const lend_effect::ask_pages& e) const {
    tell(self, s().peers->manager, page_lease{e.lease, e.request, e.range, e.way, e.grow});
  }
  void operator()(const lend_effect::opened& e) const { reply(e.lease, e.lease); }
  void operator()(const lend_effect::refused& e) const {
    reply(e.lease, to_caf(e.why));
    s().holders.erase(e.lease);
  }
  void operator()(const lend_effect::granted& e) const {
    for_slots(e.slots, [&](std::size_t p, std::int64_t slot) {
      s().paint->check(p, slot);
      s().config.touches->grant(p, slot, e.lease, e.way == direction::fetch);
    });
    count_paint(s());
  }
  void operator()(const lend_effect::freed& e) const {
    for_slots(e.slots, [&](std::size_t p, std::int64_t slot) {
      s().config.touches->revoke(p, slot);
      s().paint->paint(p, slot);
    });
  }
  void operator()(const lend_effect::ready& e) const {
    s().config.roots->root_lease(e.lease, e.way, e.request, e.view);
    if (const auto it = s().holders.find(e.lease); it != s().holders.end())
      tell(self, it->second, lease_ready{e.lease, e.view});
  }
  void operator()(const lend_effect::lease_failed& e) const {
    if (const auto it = s().holders.find(e.lease); it != s().holders.end()) {
      tell(self, it->second, lease_failed{e.lease, e.why});
      s().holders.erase(it);
    }
  }
  void operator()(const lend_effect::pin& e) const {
    tell(self, s().peers->manager, pin_rows{e.lease, e.request, e.rows});
  }
  void operator()(const lend_effect::unpin& e) const { tell(self, s().peers->manager, unpin_rows{e.pin}); }
  void operator()(const lend_effect::copy& e) const {
    tell(self, s().peers->cuda, copy_rows{e.copy, e.batch, copy_client{self}});
  }
  void operator()(const lend_effect::copies_ended& e) const {
    tell(self, s().peers->adapter, copies_ended{e.lease});
  }
  void operator()(const lend_effect::copies_unproven& e) const {
    tell(self, s().peers->adapter, copies_lost{e.lease, e.reason});
  }

  template <class T>
  void reply(lease_id lease, T&& value) const {
    const auto it = s().askers.find(lease);
    if (it == s().askers.end()) return;
    it->second.deliver(std::forward<T>(value));
    s().askers.erase(it);
  }
};

void send_effects(self_pointer self) {
  for (const auto& e : self->state.core->take_effects()) std::visit(effect_sender{self}, e);
}

caf::result<lease_id> open(self_pointer self, const lend& l) {
  auto& s = self->state;
  const auto id = s.core->open(l.way, l.request, l.range);
  if (!id) return to_caf(id.error());
  auto rp = self->make_response_promise<lease_id>();
  s.askers.emplace(*id, rp);
  s.holders.emplace(*id, l.holder);
  if (l.wait_at_most) tell_later<lender_actor>(self, *l.wait_at_most, lease_overdue{*id});
  send_effects(self);
  return rp;
}

caf::result<done> withdraw(self_pointer self, lease_id lease) {
  auto& s = self->state;
  const auto unrooted = s.config.roots->withdraw_lease(lease);
  if (!unrooted && unrooted.error().code == errc::state) return to_caf(unrooted.error());
  const auto gone = s.core->withdraw(lease, "released while waiting");
  send_effects(self);
  if (!gone) return to_caf(gone.error());
  s.holders.erase(lease);
  return done{};
}

caf::result<readiness_answer> readiness_of(self_pointer self, request_id request) {
  auto& s = self->state;
  auto rp = self->make_response_promise<readiness_answer>();
  self->request(s.peers->manager, s.config.answer_within, describe_request{request})
      .then(
          [self, rp](const request_info& info) mutable {
            rp.deliver(readiness_answer{self->state.core->ready_from(info)});
          },
          [rp](caf::error& e) mutable { rp.deliver(std::move(e)); });
  return rp;
}

actor_report report(const lender_state& s) {
  actor_report r;
  r.kind = actor_kind::lender;
  const auto c = s.core->counts();
  r.figures = {{"slots_total", c.total},
               {"slots_free", c.free},
               {"slots_lent", c.lent},
               {"slots_awaiting_proof", c.awaiting_proof},
               {"slots_quarantined", c.quarantined},
               {"leases_open", static_cast<std::int64_t>(s.core->open_leases())},
               {"holds", static_cast<std::int64_t>(s.holds.size())},
               {"paint_exposure_bytes", static_cast<std::int64_t>(s.paint->exposure_bytes())},
               {"rejected", static_cast<std::int64_t>(s.core->rejected() + s.foreign)}};
  for (const auto& l : s.core->leases())
    r.rows.push_back({"lease",
                      to_string(l.lease),
                      {{"direction", std::string{to_string(l.way)}},
                       {"request", to_string(l.request)},
                       {"phase", std::string{to_string(l.phase)}},
                       {"awaiting_proof", l.awaiting_proof ? "yes" : "no"},
                       {"slots", std::to_string(l.slots)}}});
  return r;
}

lender_rest shut(self_pointer self) {
  auto& s = self->state;
  s.core->shut_down();
  send_effects(self);
  look_at_paint(s);
  const lender_rest rest{s.core->open_leases(), s.holds.size(), s.core->counts()};
  s.memory_may_go = rest.leases == 0 && rest.holds == 0;
  return rest;
}

/// A holder's message about a lease of this runtime: the core acts, its effects go out.
template <class F>
void act(self_pointer self, F on_core) {
  on_core(*self->state.core);
  send_effects(self);
}

lender_actor::behavior_type lender(self_pointer self, const lender_config& config) {
  auto& s = self->state;
  s.config = config;
  s.core.emplace(*lending::make(config.core));
  s.paint.emplace(config.core.parts, config.paint);
  s.holds_drawn.emplace(config.core.runtime);
  for (std::size_t p = 0; p < config.core.parts.size(); ++p)
    for (std::int64_t slot = 0; slot < config.core.parts[p].slots; ++slot) s.paint->paint(p, slot);
  s.way_in.open(lender_actor{self});
  config.roots->on_guards_gone([way = s.way_in.shared()](lease_id lease) { way->send(guards_gone{lease}); });
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        if (down.runtime != self->state.config.core.runtime) return void(++self->state.foreign);
        if (down.kind == actor_kind::manager) act(self, [](lending& c) { c.on_manager_down(); });
        if (down.kind == actor_kind::cuda) act(self, [](lending& c) { c.on_cuda_down(); });
      },
      [self](const quit_now&) {
        for (auto& [lease, rp] : self->state.askers)
          rp.deliver(to_caf({errc::state, "the runtime has ended"}));
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const lend& l) { return open(self, l); },
      [self](const withdraw_lease& w) { return withdraw(self, w.lease); },
      [self](const ask_readiness& a) { return readiness_of(self, a.request); },
      [self](const ask_slots&) -> caf::result<slot_counts> { return self->state.core->counts(); },
      [self](const check_paint&) -> caf::result<std::uint64_t> {
        look_at_paint(self->state);
        return self->state.paint->exposure_bytes();
      },
      [self](const parts_registered&) { self->state.core->on_registered(); },
      [self](const hold_parts&) {
        const auto hold = self->state.holds_drawn->next();
        self->state.holds.insert(hold);
        tell(self, self->state.peers->adapter, parts_held{hold});
      },
      [self](const release_hold& r) { self->state.holds.erase(r.hold); },
      [self](const await_proof& a) { self->state.core->awaiting_proof(a.lease); },
      [self](const finish_lease& f) {
        const auto guards = self->state.config.roots->begin_finish(f.lease);
        act(self, [&](lending& c) { c.finish(f.lease, f.masks, guards); });
      },
      [self](const return_lease& r) {
        act(self, [&](lending& c) { static_cast<void>(c.release(r.lease)); });
        self->state.holders.erase(r.lease);
      },
      [self](const guards_gone& g) { act(self, [&](lending& c) { c.guards_gone(g.lease); }); },
      [self](const lease_overdue& o) { act(self, [&](lending& c) { c.overdue(o.lease); }); },
      [self](const shut_lender&) -> caf::result<lender_rest> { return shut(self); },
      [self](const lease_paged& p) { act(self, [&](lending& c) { c.on_pages(p.lease, *p.pages); }); },
      [self](const rows_pinned& p) { act(self, [&](lending& c) { c.on_pinned(p.lease, p.pin, p.kept); }); },
      [self](const request_freed& f) { act(self, [&](lending& c) { c.on_request_freed(f.request); }); },
      [self](const copy_complete& c) { act(self, [&](lending& core) { core.on_copy_complete(c.copy); }); },
      [self](const copy_unproven& c) {
        act(self, [&](lending& core) { core.on_copy_unproven(c.copy, c.reason); });
      },
  };
}

}  // namespace

lender_actor spawn_lender(caf::actor_system& system, lender_config config) {
  return system.spawn(lender, std::move(config));
}

}  // namespace kvlease
