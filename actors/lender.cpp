#include "actors/lender.hpp"

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "actors/errors.hpp"
#include "actors/guard.hpp"
#include "actors/lender_shown.hpp"
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
  bool shut = false;           ///< nothing is lent any more
  bool memory_may_go = false;  ///< after the last look at the paint
  observer seen;
  std::optional<lender_shown> shown;
};

using self_pointer = metered_pointer<lender_actor, lender_state>;

void count_paint(lender_state& s) {
  if (s.config.paint_exposure) s.config.paint_exposure->store(s.paint->exposure_bytes());
}

void look_at_paint(lender_state& s) {
  if (!s.memory_may_go) s.paint->check_all();
  count_paint(s);
}

/// What is said of a lease that there is not, or no more, changes nothing (7.1).
void note_known(self_pointer self, journal_kind kind, lease_id lease, std::uint64_t value = 0) {
  if (self->state.seen.log != nullptr && self->state.core->view(lease))
    note(self, kind, {.lease = lease, .value = value});
}

/// A record a run of slots.
void note_runs(self_pointer self, journal_kind kind, lease_id lease, const std::vector<part_run>& runs) {
  for (const auto& run : runs)
    note(self, kind,
         {.lease = lease,
          .other = static_cast<std::uint64_t>(run.slots.start),
          .value = static_cast<std::uint64_t>(run.slots.count),
          .extra = static_cast<std::uint32_t>(run.part)});
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
    s().shown->open(e.lease, e.way, e.request, now_of(self));
    tell(self, s().peers->manager, page_lease{e.lease, e.request, e.range, e.way, e.grow});
  }
  void operator()(const lend_effect::opened& e) const {
    const auto [way, request] = s().shown->of(e.lease);
    note(self, journal_kind::lease_opened,
         {.lease = e.lease, .request = request, .detail = static_cast<std::uint8_t>(way)});
    reply(e.lease, e.lease);
  }
  void operator()(const lend_effect::refused& e) const {
    reply(e.lease, to_caf(e.why));
    s().holders.erase(e.lease);
  }
  void operator()(const lend_effect::granted& e) const {
    std::uint64_t total = 0;
    for (const auto& run : e.slots) total += static_cast<std::uint64_t>(run.slots.count);
    note(self, journal_kind::lease_granted, {.lease = e.lease, .value = total});
    note_runs(self, journal_kind::slots_lent, e.lease, e.slots);
    s().shown->lent(e.lease, e.slots, now_of(self));
    for_slots(e.slots, [&](std::size_t p, std::int64_t slot) {
      if (!mutated(actor_mutation::granted_slot_unchecked)) s().paint->check(p, slot);
      const bool writable = e.way == direction::fetch || mutated(actor_mutation::publish_may_write);
      s().config.touches->grant(p, slot, e.lease, writable);
    });
    count_paint(s());
  }
  void operator()(const lend_effect::quarantined& e) const {
    note_runs(self, journal_kind::slots_quarantined, e.lease, e.slots);
    s().shown->quarantined(e.lease, e.slots, now_of(self));
  }
  void operator()(const lend_effect::freed& e) const {
    note_runs(self, journal_kind::slots_freed, e.lease, e.slots);
    s().shown->freed(e.slots, now_of(self));
    for_slots(e.slots, [&](std::size_t p, std::int64_t slot) {
      if (!mutated(actor_mutation::freed_slot_keeps_right)) s().config.touches->revoke(p, slot);
      if (!mutated(actor_mutation::freed_slot_unpainted)) s().paint->paint(p, slot);
    });
  }
  void operator()(const lend_effect::ready& e) const {
    note(self, journal_kind::lease_ready, {.lease = e.lease, .request = e.request});
    s().config.roots->root_lease(e.lease, e.way, e.request, e.view);
    if (const auto it = s().holders.find(e.lease); it != s().holders.end())
      tell(self, it->second, lease_ready{e.lease, e.view});
  }
  void operator()(const lend_effect::lease_failed& e) const {
    note(self, journal_kind::lease_failed, {.lease = e.lease});
    if (const auto it = s().holders.find(e.lease); it != s().holders.end()) {
      tell(self, it->second, lease_failed{e.lease, e.why});
      s().holders.erase(it);
    }
  }
  void operator()(const lend_effect::pin& e) const {
    tell(self, s().peers->manager, pin_rows{e.lease, e.request, e.rows});
  }
  void operator()(const lend_effect::unpin& e) const {
    note(self, journal_kind::lease_unpinned, {.lease = e.lease, .other = e.pin.value});
    tell(self, s().peers->manager, unpin_rows{e.pin});
  }
  void operator()(const lend_effect::copy& e) const {
    note(self, journal_kind::copy_started,
         {.lease = e.lease,
          .other = e.copy.value,
          .value = e.batch->rows.size(),
          .detail = static_cast<std::uint8_t>(e.batch->kind)});
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

/// `also`: a lease that was spoken of, whether or not anything came of it.
void send_effects(self_pointer self, lease_id also = {}) {
  auto& s = self->state;
  const auto effects = s.core->take_effects();
  for (const auto& e : effects) std::visit(effect_sender{self}, e);
  const auto now = now_of(self);
  for (const auto& e : effects)
    s.shown->touch(*s.core, std::visit([](const auto& x) { return x.lease; }, e), now);
  if (also) s.shown->touch(*s.core, also, now);
  s.shown->show_pools();
  s.seen.rejected(s.core->rejected() + s.foreign);
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
  if (!unrooted && unrooted.error().code == errc::state && !mutated(actor_mutation::owned_lease_withdrawn))
    return to_caf(unrooted.error());
  const auto gone = s.core->withdraw(lease, "released while waiting");
  if (gone) note(self, journal_kind::lease_withdrawn, {.lease = lease});
  send_effects(self, lease);
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
  if (!std::exchange(s.shut, true)) note(self, journal_kind::lender_shut, {});
  send_effects(self);
  look_at_paint(s);
  const lender_rest rest{s.core->open_leases(), s.holds.size(), s.core->counts()};
  s.memory_may_go = rest.leases == 0 && rest.holds == 0;
  return rest;
}

/// The ledger knows who reads now; the core only who did when the lease finished (1.4).
facts_answer with_guards(const lender_state& s, const facts_answer& told) {
  auto f = std::make_shared<actor_facts>(*told.facts);
  for (auto& l : f->leases) l.guards = s.config.roots->guards(l.id);
  return {std::move(f)};
}

facts_answer with_holds(const lender_state& s, const ask_slice& q, facts_answer told) {
  if (!q.summary || s.holds.empty()) return told;
  auto f = std::make_shared<actor_facts>(*told.facts);
  for (const auto hold : s.holds) f->holds.push_back(to_string(hold));
  return {std::move(f)};
}

/// A holder's message about a lease of this runtime: the core acts, its effects go out.
template <class F>
void act(self_pointer self, F on_core, lease_id about = {}) {
  on_core(*self->state.core);
  send_effects(self, about);
}

lender_actor::behavior_type lender(self_pointer self, const lender_config& config) {
  auto& s = self->state;
  s.config = config;
  s.core.emplace(*lending::make(config.core));
  s.seen.open(self, config.watch, actor_kind::lender);
  s.shown.emplace(config.core.parts, s.seen.numbers());
  s.paint.emplace(config.core.parts, config.paint);
  s.holds_drawn.emplace(config.core.runtime);
  for (std::size_t p = 0; p < config.core.parts.size(); ++p) {
    const auto slots = config.core.parts[p].slots;
    note_runs(self, journal_kind::slots_freed, {}, {{p, {0, slots}}});  // the pool as it begins
    for (std::int64_t slot = 0; slot < slots; ++slot) s.paint->paint(p, slot);
  }
  s.way_in.open(lender_actor{self});
  config.roots->on_guards_gone([way = s.way_in.shared()](lease_id lease) { way->send(guards_gone{lease}); });
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        const bool ours = down.runtime == self->state.config.core.runtime;
        if (!ours && !mutated(actor_mutation::lender_believes_foreign_down))
          return void(++self->state.foreign);
        if (down.kind == actor_kind::manager && !mutated(actor_mutation::manager_death_ignored))
          act(self, [](lending& c) { c.on_manager_down(); });
        if (down.kind == actor_kind::cuda && !mutated(actor_mutation::cuda_death_ignored))
          act(self, [](lending& c) { c.on_cuda_down(); });
      },
      [self](const quit_now&) {
        for (auto& [lease, rp] : self->state.askers)
          rp.deliver(to_caf({errc::state, "the runtime has ended"}));
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const ask_slice& q) -> caf::result<facts_answer> {
        const auto& state = self->state;
        auto told = state.shown->slice(*state.core, q);
        return with_holds(state, q, std::move(told));
      },
      [self](const ask_about& q) -> caf::result<facts_answer> {
        return with_guards(self->state, self->state.shown->about(*self->state.core, *q.what));
      },
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
        note(self, journal_kind::hold_taken, {.other = hold.value});
        tell(self, self->state.peers->adapter, parts_held{hold});
      },
      [self](const release_hold& r) {
        if (self->state.holds.erase(r.hold) > 0)
          note(self, journal_kind::hold_released, {.other = r.hold.value});
      },
      [self](const await_proof& a) {
        note_known(self, journal_kind::lease_awaiting, a.lease);
        act(
            self, [&](lending& c) { c.awaiting_proof(a.lease); }, a.lease);
      },
      [self](const finish_lease& f) {
        const auto found = self->state.config.roots->begin_finish(f.lease);
        const auto guards = mutated(actor_mutation::guards_unasked) ? decltype(found){} : found;
        note_known(self, journal_kind::lease_finishing, f.lease, guards);
        act(
            self, [&](lending& c) { c.finish(f.lease, f.masks, guards); }, f.lease);
      },
      [self](const return_lease& r) {
        note_known(self, journal_kind::lease_returned, r.lease);
        act(self, [&](lending& c) { static_cast<void>(c.release(r.lease)); });
        self->state.holders.erase(r.lease);
      },
      [self](const guards_gone& g) {
        note_known(self, journal_kind::guards_gone, g.lease);
        act(
            self, [&](lending& c) { c.guards_gone(g.lease); }, g.lease);
      },
      [self](const lease_overdue& o) { act(self, [&](lending& c) { c.overdue(o.lease); }); },
      [self](const shut_lender&) -> caf::result<lender_rest> { return shut(self); },
      [self](const lease_paged& p) { act(self, [&](lending& c) { c.on_pages(p.lease, *p.pages); }); },
      [self](const rows_pinned& p) {
        act(
            self, [&](lending& c) { c.on_pinned(p.lease, p.pin, p.kept, p.written); }, p.lease);
      },
      [self](const request_freed& f) { act(self, [&](lending& c) { c.on_request_freed(f.request); }); },
      [self](const copy_complete& c) {
        const auto lease = self->state.core->lease_of(c.copy);
        if (lease) note(self, journal_kind::copy_completed, {.lease = lease, .other = c.copy.value});
        act(
            self, [&](lending& core) { core.on_copy_complete(c.copy); }, lease);
      },
      [self](const copy_unproven& c) {
        const auto lease = self->state.core->lease_of(c.copy);
        if (lease) note(self, journal_kind::copy_lost, {.lease = lease, .other = c.copy.value});
        act(
            self, [&](lending& core) { core.on_copy_unproven(c.copy, c.reason); }, lease);
      },
  };
}

}  // namespace

lender_actor spawn_lender(caf::actor_system& system, lender_config config) {
  return system.spawn(lender, std::move(config));
}

}  // namespace kvlease
