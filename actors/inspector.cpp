#include "actors/inspector.hpp"

#include <map>
#include <set>

#include "messages/retirement.hpp"
#include "messages/wiring.hpp"

namespace kvlease {

namespace {

struct last_report {
  actor_report report;
  time_point taken;
};

struct inspector_state {
  static inline const char* name = "kvlease.inspector";
  inspector_config config;
  std::shared_ptr<const wiring> peers;
  std::map<actor_kind, last_report> last;
  std::set<actor_kind> down;
  std::uint64_t snapshots = 0;
};

using self_pointer = inspector_actor::stateful_pointer<inspector_state>;

/// One snapshot being gathered.
struct gathering {
  std::set<actor_kind> open;
  std::set<actor_kind> answered;
  caf::typed_response_promise<snapshot> asker;
};

void close_one(self_pointer self, const std::shared_ptr<gathering>& g, actor_kind kind) {
  g->open.erase(kind);
  if (!g->open.empty()) return;
  auto& s = self->state;
  snapshot out;
  out.runtime = s.peers->runtime;
  for (const auto& [k, l] : s.last)
    out.actors.push_back({k, g->answered.contains(k), now_of(self) - l.taken, l.report});
  out.down.assign(s.down.begin(), s.down.end());
  g->asker.deliver(std::move(out));
}

template <class Handle>
void ask_one(self_pointer self, const std::shared_ptr<gathering>& g, actor_kind kind, const Handle& whom) {
  self->request(whom, self->state.config.answer_within, report_request{})
      .then(
          [self, g, kind](actor_report& r) {
            g->answered.insert(kind);
            self->state.last[kind] = {std::move(r), now_of(self)};
            close_one(self, g, kind);
          },
          [self, g, kind](caf::error&) {
            self->state.last.try_emplace(kind, last_report{actor_report{kind, {}, {}}, time_point{}});
            close_one(self, g, kind);
          });
}

caf::result<snapshot> gather(self_pointer self) {
  auto& s = self->state;
  ++s.snapshots;
  auto g = std::make_shared<gathering>();
  g->asker = self->make_response_promise<snapshot>();
  g->open = {actor_kind::manager, actor_kind::lender,          actor_kind::adapter,
             actor_kind::backend, actor_kind::proof_collector, actor_kind::deadline_arbiter,
             actor_kind::cuda,    actor_kind::supervisor};
  ask_one(self, g, actor_kind::manager, s.peers->manager);
  ask_one(self, g, actor_kind::lender, s.peers->lender);
  ask_one(self, g, actor_kind::adapter, s.peers->adapter);
  ask_one(self, g, actor_kind::backend, s.peers->backend);
  ask_one(self, g, actor_kind::proof_collector, s.peers->proof_collector);
  ask_one(self, g, actor_kind::deadline_arbiter, s.peers->deadline_arbiter);
  ask_one(self, g, actor_kind::cuda, s.peers->cuda);
  ask_one(self, g, actor_kind::supervisor, s.peers->supervisor);
  return g->asker;
}

inspector_actor::behavior_type inspector(self_pointer self, const inspector_config& config) {
  self->state.config = config;
  return {
      [self](const wired& w) { self->state.peers = w.peers; },
      [self](const peer_down& down) {
        if (down.runtime == self->state.peers->runtime) self->state.down.insert(down.kind);
      },
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> {
        actor_report r;
        r.kind = actor_kind::inspector;
        r.figures = {{"snapshots", static_cast<std::int64_t>(self->state.snapshots)}};
        return r;
      },
      [self](const take_snapshot&) { return gather(self); },
  };
}

}  // namespace

inspector_actor spawn_inspector(caf::actor_system& system, inspector_config config) {
  return system.spawn(inspector, std::move(config));
}

}  // namespace kvlease
