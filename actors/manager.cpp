#include "actors/manager.hpp"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "actors/errors.hpp"
#include "messages/wiring.hpp"
#include "src/lending.hpp"

namespace kvlease {

namespace {

/// The engine's access to its pages, under way.
struct page_move {
  pin_id pin;
  caf::typed_response_promise<done> asker;
};

struct manager_state {
  static inline const char* name = "kvlease.manager";
  manager_config config;
  std::shared_ptr<const wiring> peers;
  std::optional<id_source<request_id>> requests;
  std::optional<id_source<pin_id>> pins;
  std::optional<id_source<copy_id>> copies;
  std::unordered_map<copy_id, page_move> moves;
  bool cuda_down = false;
  std::uint64_t pinned_for_good = 0;
  std::uint64_t rejected = 0;
};

using self_pointer = manager_actor::stateful_pointer<manager_state>;

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
  if (s.cuda_down) return to_caf({errc::state, "the CUDA actor is down"});
  auto rp = self->make_response_promise<done>();
  if (rows->empty()) {
    rp.deliver(done{});
    return rp;
  }
  auto batch = std::make_shared<copy_batch>();
  batch->kind = m.kind;
  auto at = reinterpret_cast<std::uintptr_t>(m.buffer->data());
  for (const auto& row : *rows) {
    batch->rows.push_back(m.kind == copy_kind::host_to_device ? copy_row{row.address, at, row.nbytes}
                                                              : copy_row{at, row.address, row.nbytes});
    at += row.nbytes;
  }
  const auto pin = s.pins->next();
  s.config.port->pin(pin, m.request, *rows);
  const auto copy = s.copies->next();
  // The batch keeps the buffer: the device keeps the batch until it has run.
  std::shared_ptr<const copy_batch> kept{batch.get(), [batch, buffer = m.buffer](const copy_batch*) {}};
  s.moves.emplace(copy, page_move{pin, rp});
  tell(self, s.peers->cuda, copy_rows{copy, std::move(kept), copy_client{self}});
  return rp;
}

void end_move(self_pointer self, copy_id copy, const std::optional<std::string>& lost) {
  auto& s = self->state;
  const auto it = s.moves.find(copy);
  if (it == s.moves.end()) return void(++s.rejected);
  auto move = std::move(it->second);
  s.moves.erase(it);
  if (lost) {
    ++s.pinned_for_good;  // 6.4
    move.asker.deliver(to_caf({errc::device, "page access is unproven: " + *lost}));
    return;
  }
  s.config.port->unpin(move.pin);
  move.asker.deliver(done{});
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
               {"moves_open", static_cast<std::int64_t>(s.moves.size())},
               {"pinned_for_good", static_cast<std::int64_t>(s.pinned_for_good)},
               {"rejected", static_cast<std::int64_t>(s.rejected)}};
  return r;
}

manager_actor::behavior_type manager(self_pointer self, const manager_config& config) {
  auto& s = self->state;
  s.config = config;
  s.requests.emplace(config.runtime);
  s.pins.emplace(config.runtime);
  // The lender draws copies of its own; the client tells answers apart, the offset tells ids apart.
  s.copies.emplace(config.runtime, std::uint64_t{1} << (id_sequence_bits - 1));
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        if (down.runtime != self->state.config.runtime) return void(++self->state.rejected);
        if (down.kind != actor_kind::cuda) return;
        self->state.cuda_down = true;
        auto moves = std::exchange(self->state.moves, {});
        for (auto& [copy, move] : moves) {
          ++self->state.pinned_for_good;
          move.asker.deliver(to_caf({errc::state, "the CUDA actor is down"}));
        }
      },
      [self](const quit_now&) {
        for (auto& [copy, move] : self->state.moves)
          move.asker.deliver(to_caf({errc::state, "the runtime has ended"}));
        self->quit();
      },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const admit_request& a) -> caf::result<request_info> {
        return answer(self->state.config.port->admit(self->state.requests->next(), *a.spec));
      },
      [self](const describe_request& d) -> caf::result<request_info> {
        return answer(self->state.config.port->describe(d.request));
      },
      [self](const grow_request& g) -> caf::result<request_info> {
        return answer(self->state.config.port->grow(g.request, g.end));
      },
      [self](const commit_request& c) -> caf::result<request_info> {
        return answer(self->state.config.port->commit(c.request, c.end));
      },
      [self](const free_request& f) -> caf::result<done> {
        const auto freed = self->state.config.port->free(f.request);
        if (!freed) return to_caf(freed.error());
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
        tell(self, state.peers->lender, rows_pinned{p.lease, pin, std::move(kept)});
      },
      [self](const unpin_rows& u) { self->state.config.port->unpin(u.pin); },
      [self](const copy_complete& c) { end_move(self, c.copy, std::nullopt); },
      [self](const copy_unproven& c) { end_move(self, c.copy, c.reason); },
  };
}

}  // namespace

manager_actor spawn_manager(caf::actor_system& system, manager_config config) {
  return config.blocking ? spawn_own_thread(system, manager, std::move(config))
                         : system.spawn(manager, std::move(config));
}

}  // namespace kvlease
