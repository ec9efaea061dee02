#include "actors/manager.hpp"

#include <fmt/format.h>

#include <cassert>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "actors/errors.hpp"
#include "actors/guard.hpp"
#include "actors/observe.hpp"
#include "messages/wiring.hpp"
#include "src/facts.hpp"
#include "src/lending.hpp"
#include "src/page_moves.hpp"

namespace kvlease {

namespace {

struct manager_state {
  static inline const char* name = "kvlease.manager";
  manager_config config;
  std::shared_ptr<const wiring> peers;
  std::optional<id_source<request_id>> requests;
  std::optional<id_source<pin_id>> pins;
  std::optional<page_moves> moves;                                       ///< the engine's access to its pages
  std::unordered_map<pin_id, caf::typed_response_promise<done>> askers;  ///< one a move
  bool cuda_down = false;
  std::uint64_t pinned_for_good = 0;
  std::uint64_t rejected = 0;
  observer seen;
};

using self_pointer = metered_pointer<manager_actor, manager_state>;

/// What the lender asked for one lease, or why not.
result<lease_pages> pages_for(manager_port& port, const page_lease& q) {
  auto info = port.describe(q.request);
  if (!info) return tl::unexpected{info.error()};
  const auto checked = q.way == direction::fetch
                           ? check_fetch_range(*info, port.layout().tokens_per_block, q.range)
                           : check_publish_range(*info, q.range);
  if (!checked) return tl::unexpected{checked.error()};
  if (!q.grow) return lease_pages{*info, {}, {}};
  if (q.way == direction::fetch && q.range.end > info->capacity_tokens) {
    info = port.grow(q.request, q.range.end);
    if (!info) return tl::unexpected{info.error()};
  }
  auto rows = port.rows(q.request, q.range);
  if (!rows) return tl::unexpected{rows.error()};
  auto keys = port.block_keys(q.request, q.range);
  if (!keys) return tl::unexpected{keys.error()};
  return lease_pages{*info, *std::move(rows), *std::move(keys)};
}

void end_move(self_pointer self, const move_effect::ended& e) {
  auto& s = self->state;
  const bool keep = e.lost && !mutated(actor_mutation::lost_move_unpinned);
  note(self, keep ? journal_kind::rows_kept_pinned : journal_kind::rows_unpinned, {.other = e.pin.value});
  if (keep)
    ++s.pinned_for_good;  // 6.4
  else
    s.config.port->unpin(e.pin);
  const auto it = s.askers.find(e.pin);
  assert(it != s.askers.end());
  auto asker = std::move(it->second);
  s.askers.erase(it);
  if (!e.lost)
    asker.deliver(done{});
  else if (!mutated(actor_mutation::moves_unanswered))
    asker.deliver(to_caf({errc::device, "page access is unproven: " + *e.lost}));
}

void act(self_pointer self, const move_effects& effects) {
  for (const auto& effect : effects) {
    if (const auto* ended = std::get_if<move_effect::ended>(&effect)) {
      end_move(self, *ended);
    } else {
      const auto& copy = std::get<move_effect::copy>(effect);
      tell(self, self->state.peers->cuda, copy_rows{copy.copy, copy.batch, copy_client{self}});
    }
  }
}

caf::result<done> start_move(self_pointer self, const move_pages& m) {
  auto& s = self->state;
  auto rows = s.config.port->rows(m.request, m.range);
  if (!rows) return to_caf(rows.error());
  std::size_t total = 0;
  for (const auto& row : *rows) total += row.nbytes;
  if (!m.buffer || m.buffer->size() != total)
    return to_caf(
        {errc::invalid, fmt::format("buffer has {} bytes, the rows of [{}, {}) have {}",
                                    m.buffer ? m.buffer->size() : 0, m.range.start, m.range.end, total)});
  if (s.cuda_down && !mutated(actor_mutation::move_at_dead_cuda))
    return to_caf({errc::state, "the CUDA actor is down"});
  if (rows->empty()) return done{};
  const auto pin = s.pins->next();
  note(self, journal_kind::rows_pinned, {.request = m.request, .other = pin.value, .value = rows->size()});
  s.config.port->pin(pin, m.request, *rows);
  auto effects = s.moves->start({pin, m.kind, *std::move(rows), m.buffer});
  if (!effects) {
    note(self, journal_kind::rows_unpinned, {.other = pin.value});
    s.config.port->unpin(pin);
    return to_caf(effects.error());
  }
  auto rp = self->make_response_promise<done>();
  s.askers.emplace(pin, rp);
  act(self, *effects);
  if (mutated(actor_mutation::move_unpinned_early)) s.config.port->unpin(pin);
  return rp;
}

actor_report report(const manager_state& s) {
  actor_report r;
  r.kind = actor_kind::manager;
  const auto c = s.config.port->counts();
  r.figures = {{"pages_total", c.total},
               {"pages_free", c.free},
               {"pages_held", c.held},
               {"pages_cached", c.cached},
               {"pages_pinned", c.pinned},
               {"moves_open", static_cast<std::int64_t>(s.moves->open())},
               {"pinned_for_good", static_cast<std::int64_t>(s.pinned_for_good)},
               {"rejected", static_cast<std::int64_t>(s.rejected)}};
  return r;
}

facts_answer about(const manager_state& s, const about_question& q) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::manager});
  if (!q.request) return {std::move(f)};
  f->request.emplace();
  if (const auto info = s.config.port->describe(*q.request))
    *f->request = {true, info->prompt_tokens, info->committed_tokens, info->capacity_tokens};
  return {std::move(f)};
}

manager_actor::behavior_type manager(self_pointer self, const manager_config& config) {
  auto& s = self->state;
  s.config = config;
  s.requests.emplace(config.runtime);
  s.pins.emplace(config.runtime);
  s.seen.open(self, config.watch, actor_kind::manager);
  // The lender draws copies of its own; the client tells answers apart, the offset tells ids apart.
  s.moves.emplace(config.device, config.page_access,
                  id_source<copy_id>{config.runtime, std::uint64_t{1} << (id_sequence_bits - 1)});
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        const bool ours = down.runtime == self->state.config.runtime;
        if (!ours && !mutated(actor_mutation::manager_believes_foreign_down))
          return self->state.seen.rejected(++self->state.rejected);
        if (down.kind != actor_kind::cuda) return;
        self->state.cuda_down = true;
        act(self, self->state.moves->lose_all("the CUDA actor is down"));
      },
      [self](const quit_now&) {
        for (auto& [pin, asker] : self->state.askers)
          asker.deliver(to_caf({errc::state, "the runtime has ended"}));
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const ask_slice&) -> caf::result<facts_answer> { return about(self->state, {}); },
      [self](const ask_about& q) -> caf::result<facts_answer> { return about(self->state, *q.what); },
      [self](const admit_request& a) -> caf::result<request_info> {
        const auto id = self->state.requests->next();
        auto admitted = self->state.config.port->admit(id, *a.spec);
        if (admitted) note(self, journal_kind::request_admitted, {.request = id});
        return answer(std::move(admitted));
      },
      [self](const describe_request& d) -> caf::result<request_info> {
        return answer(self->state.config.port->describe(d.request));
      },
      [self](const grow_request& g) -> caf::result<request_info> {
        return answer(self->state.config.port->grow(g.request, g.end));
      },
      [self](const commit_request& c) -> caf::result<request_info> {
        auto& port = *self->state.config.port;
        auto committed = port.commit(c.request, c.end);
        if (committed) port.written(c.request, c.written);
        return answer(std::move(committed));
      },
      [self](const free_request& f) -> caf::result<done> {
        const auto freed = self->state.config.port->free(f.request);
        if (!freed) return to_caf(freed.error());
        note(self, journal_kind::request_freed, {.request = f.request});
        tell(self, self->state.peers->lender, request_freed{f.request});
        return done{};
      },
      [self](const move_pages& m) { return start_move(self, m); },
      [self](const page_lease& q) {
        auto pages = std::make_shared<const result<lease_pages>>(pages_for(*self->state.config.port, q));
        tell(self, self->state.peers->lender, lease_paged{q.lease, std::move(pages)});
      },
      [self](const pin_rows& p) {
        auto& state = self->state;
        const auto pin = state.pins->next();
        auto kept = state.config.port->pin(pin, p.request, p.rows);
        note(self, journal_kind::rows_pinned,
             {.lease = p.lease, .request = p.request, .other = pin.value, .value = kept.size()});
        tell(self, state.peers->lender,
             rows_pinned{p.lease, pin, std::move(kept), state.config.port->written(p.request)});
      },
      [self](const unpin_rows& u) {
        note(self, journal_kind::rows_unpinned, {.other = u.pin.value});
        self->state.config.port->unpin(u.pin);
      },
      [self](const copy_complete& c) {
        auto& moves = *self->state.moves;
        if (!moves.knows(c.copy)) return self->state.seen.rejected(++self->state.rejected);
        act(self, moves.on_complete(c.copy));
      },
      [self](const copy_unproven& c) {
        auto& moves = *self->state.moves;
        if (!moves.knows(c.copy)) return self->state.seen.rejected(++self->state.rejected);
        act(self, moves.on_lost(c.copy, c.reason));
      },
  };
}

}  // namespace

manager_actor spawn_manager(caf::actor_system& system, manager_config config) {
  return config.blocking ? spawn_own_thread(system, manager, std::move(config))
                         : system.spawn(manager, std::move(config));
}

}  // namespace kvlease
