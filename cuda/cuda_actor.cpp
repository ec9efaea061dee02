#include "cuda/cuda_actor.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace kvlease {

namespace {

struct pending_copy {
  copy_id copy;
  device_event event;
  copy_client client;
};

struct cuda_state {
  static inline const char* name = "kvlease.cuda";
  cuda_config config;
  std::optional<error> unbound;  ///< why the device can't be used at all
  std::deque<pending_copy> pending;
  std::uint64_t generation = 0;
  std::chrono::nanoseconds delay{};
  std::uint64_t copies = 0, bytes = 0, unproven = 0, queries = 0;
};

using self_pointer = cuda_actor::stateful_pointer<cuda_state>;

void lose(self_pointer self, const copy_client& client, copy_id copy, const error& why) {
  ++self->state.unproven;
  tell(self, client, copy_unproven{copy, why.text});
}

/// Asks the oldest event, and while it is complete the next. True when something completed.
bool walk(self_pointer self) {
  auto& s = self->state;
  bool advanced = false;
  while (!s.pending.empty()) {
    ++s.queries;
    const auto state = s.config.device->query(s.pending.front().event);
    if (state && *state == event_state::pending) break;
    const auto oldest = std::move(s.pending.front());
    s.pending.pop_front();
    advanced = true;
    if (!state) {
      lose(self, oldest.client, oldest.copy, state.error());
      continue;
    }
    s.config.device->recycle(oldest.event);
    tell(self, oldest.client, copy_complete{oldest.copy});
  }
  return advanced;
}

void look(self_pointer self) {
  auto& s = self->state;
  ++s.generation;  // a timer under way is stale now
  bool advanced = walk(self);
  if (s.config.spin.count() > 0 && !s.pending.empty()) {
    const auto until = std::chrono::steady_clock::now() + s.config.spin;
    while (!s.pending.empty() && std::chrono::steady_clock::now() < until) advanced |= walk(self);
  }
  if (s.pending.empty()) return;
  s.delay = advanced ? s.config.first_delay : std::min(s.delay * 2, s.config.most_delay);
  tell_later<cuda_actor>(self, s.delay, poll_events{s.generation});
}

void start(self_pointer self, const copy_rows& c) {
  auto& s = self->state;
  if (s.unbound) return lose(self, c.client, c.copy, *s.unbound);
  if (c.batch == nullptr) return lose(self, c.client, c.copy, {errc::invalid, "the copy has no batch"});
  ++s.copies;
  for (const auto& row : c.batch->rows) s.bytes += row.nbytes;
  // After a failed enqueue part of the batch may be under way: only an event could tell, and there is none.
  if (const auto queued = s.config.device->enqueue(c.batch); !queued)
    return lose(self, c.client, c.copy, queued.error());
  const auto event = s.config.device->record();
  if (!event) return lose(self, c.client, c.copy, event.error());
  s.pending.push_back({c.copy, *event, c.client});
  s.delay = s.config.first_delay;
  look(self);
}

cuda_actor::behavior_type cuda(self_pointer self, const cuda_config& config) {
  self->state.config = config;
  return {
      [self](const wired&) {
        if (const auto bound = self->state.config.device->bind_thread(); !bound)
          self->state.unbound = bound.error();
      },
      [](const peer_down&) {},
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> {
        const auto& s = self->state;
        actor_report r;
        r.kind = actor_kind::cuda;
        r.figures = {{"pending", static_cast<std::int64_t>(s.pending.size())},
                     {"copies", static_cast<std::int64_t>(s.copies)},
                     {"bytes", static_cast<std::int64_t>(s.bytes)},
                     {"unproven", static_cast<std::int64_t>(s.unproven)},
                     {"queries", static_cast<std::int64_t>(s.queries)}};
        if (!s.pending.empty())
          r.rows.push_back({"copy", to_string(s.pending.front().copy), {{"state", "oldest pending"}}});
        return r;
      },
      [self](const copy_rows& c) { start(self, c); },
      [self](const poll_events& p) {
        if (p.generation == self->state.generation) look(self);
      },
  };
}

}  // namespace

cuda_actor spawn_cuda(caf::actor_system& system, cuda_config config) {
  if (is_deterministic(system)) config.spin = std::chrono::nanoseconds{0};
  return spawn_own_thread(system, cuda, std::move(config));
}

}  // namespace kvlease
