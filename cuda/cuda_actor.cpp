#include "cuda/cuda_actor.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "actors/guard.hpp"
#include "actors/observe.hpp"
#include "cuda/stay_awake.hpp"
#include "src/facts.hpp"

namespace kvlease {

namespace {

struct pending_copy {
  copy_id copy;
  device_event event;
  copy_client client;
  std::size_t operations = 0;
};

/// Copies of one direction, which end in their order.
struct lane {
  std::deque<copy_rows> waiting;
  std::deque<pending_copy> queued;
  std::size_t operations = 0;  ///< of `queued`
};

struct cuda_state {
  static inline const char* name = "kvlease.cuda";
  cuda_config config;
  std::optional<error> unusable;  ///< why no copy can be proven any more
  std::array<lane, 2> lanes;      ///< by copy_kind
  std::uint64_t generation = 0;
  std::chrono::steady_clock::time_point progress;  ///< the last copy that was queued or has ended
  std::optional<stay_awake> awake;
  std::uint64_t copies = 0, bytes = 0, unproven = 0, queries = 0;
  std::optional<time_point> last_look;
  observer seen;

  lane& of(copy_kind kind) { return lanes[static_cast<std::size_t>(kind)]; }
  std::size_t count(auto lane::*which) const { return (lanes[0].*which).size() + (lanes[1].*which).size(); }
  bool anything_queued() const { return count(&lane::queued) > 0; }
};

using self_pointer = metered_pointer<cuda_actor, cuda_state>;

/// How long other messages wait while it asks without a pause.
constexpr auto slice = std::chrono::microseconds{20};

void lose(self_pointer self, const copy_client& client, copy_id copy, const error& why) {
  ++self->state.unproven;
  tell(self, client, copy_unproven{copy, why.text});
}

/// After any error: when it is the device's, every copy of the device is lost with it.
void lose_all_if_lost(self_pointer self) {
  auto& s = self->state;
  if (s.unusable) return;
  s.unusable = s.config.device->lost();
  if (!s.unusable || mutated(actor_mutation::lost_device_spares_others)) return;
  for (auto& l : s.lanes) {
    for (const auto& p : std::exchange(l.queued, {})) lose(self, p.client, p.copy, *s.unusable);
    for (const auto& c : std::exchange(l.waiting, {})) lose(self, c.client, c.copy, *s.unusable);
    l.operations = 0;
  }
}

/// Queues the oldest waiting copy. False when it has to wait for room.
bool queue_one(self_pointer self, lane& l) {
  auto& s = self->state;
  const bool full = l.operations >= s.config.most_queued && !mutated(actor_mutation::queue_unbounded);
  if (!l.queued.empty() && full) return false;
  auto operations = s.config.device->enqueue(l.waiting.front().batch);
  if (!operations && operations.error().code == errc::capacity && !l.queued.empty()) return false;
  const auto c = std::move(l.waiting.front());
  l.waiting.pop_front();
  if (!operations && mutated(actor_mutation::failed_enqueue_goes_on)) operations = 1;
  // After a failed enqueue part of the batch may be under way: only an event could tell, and there is none.
  const auto event = operations ? s.config.device->record(c.batch->kind)
                                : result<device_event>{tl::unexpected{operations.error()}};
  if (!event) {
    if (mutated(actor_mutation::failed_record_is_complete)) {
      tell(self, c.client, copy_complete{c.copy});
      return true;
    }
    lose(self, c.client, c.copy, event.error());
    lose_all_if_lost(self);
    return true;
  }
  l.queued.push_back({c.copy, *event, c.client, *operations});
  l.operations += *operations;
  return true;
}

void fill(self_pointer self, lane& l) {
  while (!l.waiting.empty() && queue_one(self, l)) {
  }
}

/// Asks the oldest event, and while it is complete the next. True when one did.
bool walk(self_pointer self, lane& l) {
  auto& s = self->state;
  bool advanced = false;
  while (!l.queued.empty()) {
    ++s.queries;
    if (mutated(actor_mutation::event_recycled_early)) s.config.device->recycle(l.queued.front().event);
    const auto state = s.config.device->query(l.queued.front().event);
    const bool pending = state && *state == event_state::pending;
    if (pending && !mutated(actor_mutation::pending_is_complete)) break;
    const auto oldest = std::move(l.queued.front());
    l.queued.pop_front();
    l.operations -= oldest.operations;
    advanced = true;
    if (!state && !mutated(actor_mutation::failed_query_is_complete)) {
      lose(self, oldest.client, oldest.copy, state.error());
      lose_all_if_lost(self);
      continue;
    }
    s.config.device->recycle(oldest.event);
    tell(self, oldest.client, copy_complete{oldest.copy});
  }
  if (advanced) fill(self, l);
  return advanced;
}

bool walk(self_pointer self) {
  auto& lanes = self->state.lanes;
  const bool in = walk(self, lanes[0]), out = walk(self, lanes[1]);
  return in || out;
}

/// The next look, by how long nothing has happened: an eighth of that is what detection may be late by.
void look_later(self_pointer self) {
  auto& s = self->state;
  const auto quiet = now_of(self) - s.progress;
  const auto delay =
      std::clamp(std::chrono::nanoseconds{quiet / 8}, s.config.first_delay, s.config.most_delay);
  tell_later<cuda_actor>(self, delay, poll_events{s.generation});
}

void look(self_pointer self) {
  auto& s = self->state;
  ++s.generation;  // a message or timer under way is stale now
  s.last_look = now_of(self);
  if (walk(self)) s.progress = *s.last_look;
  if (!s.anything_queued()) return;
  if (s.config.spin.count() == 0) return look_later(self);
  auto now = now_of(self);
  const auto end = now + slice;
  while (now < end && now - s.progress < s.config.spin) {
    if (s.awake) s.awake->until(now + 2 * slice);
    const bool advanced = walk(self);
    now = now_of(self);
    if (advanced) s.progress = now;
    if (!s.anything_queued()) return;
  }
  if (now - s.progress >= s.config.spin) return look_later(self);
  tell(self, cuda_actor{self}, poll_events{s.generation});  // other messages first
}

void start(self_pointer self, const copy_rows& c) {
  auto& s = self->state;
  if (s.unusable && !mutated(actor_mutation::device_used_unbound))
    return lose(self, c.client, c.copy, *s.unusable);
  if (c.batch == nullptr) return lose(self, c.client, c.copy, {errc::invalid, "the copy has no batch"});
  ++s.copies;
  for (const auto& row : c.batch->rows) s.bytes += row.nbytes;
  auto& l = s.of(c.batch->kind);
  l.waiting.push_back(c);
  fill(self, l);
  if (!s.anything_queued()) return;
  s.progress = now_of(self);
  if (s.config.spin.count() == 0) return look(self);
  // The next copies first: a look takes a slice.
  tell(self, cuda_actor{self}, poll_events{++s.generation});
}

actor_report report(const cuda_state& s) {
  actor_report r;
  r.kind = actor_kind::cuda;
  r.figures = {{"pending", static_cast<std::int64_t>(s.count(&lane::queued) + s.count(&lane::waiting))},
               {"waiting", static_cast<std::int64_t>(s.count(&lane::waiting))},
               {"copies", static_cast<std::int64_t>(s.copies)},
               {"bytes", static_cast<std::int64_t>(s.bytes)},
               {"unproven", static_cast<std::int64_t>(s.unproven)},
               {"queries", static_cast<std::int64_t>(s.queries)}};
  for (const auto& l : s.lanes)
    if (!l.queued.empty())
      r.rows.push_back({"copy", to_string(l.queued.front().copy), {{"state", "oldest pending"}}});
  if (s.unusable) r.rows.push_back({"device", s.config.device->describe(), {{"unusable", s.unusable->text}}});
  return r;
}

facts_answer facts(const cuda_state& s) {
  auto f = std::make_shared<actor_facts>(actor_facts{.from = actor_kind::cuda});
  const auto n = [](auto x) { return static_cast<std::int64_t>(x); };
  f->device = device_fact{.name = s.config.device->describe(),
                          .pending = n(s.count(&lane::queued) + s.count(&lane::waiting)),
                          .copies = n(s.copies),
                          .nbytes = n(s.bytes),
                          .unproven = n(s.unproven),
                          .lost = s.unusable ? s.unusable->text : std::string{},
                          .oldest = {},
                          .last_look = s.last_look};
  for (const auto& l : s.lanes)
    if (!l.queued.empty() && (!f->device->oldest || l.queued.front().copy < *f->device->oldest))
      f->device->oldest = l.queued.front().copy;
  return {std::move(f)};
}

cuda_actor::behavior_type cuda(self_pointer self, const cuda_config& config) {
  self->state.config = config;
  if (config.keep_awake) self->state.awake.emplace(self);
  self->state.seen.open(self, config.watch, actor_kind::cuda);
  return {
      [self](const wired&) {
        if (const auto bound = self->state.config.device->bind_thread(); !bound)
          self->state.unusable = bound.error();
      },
      [](const peer_down&) {},
      [self](const quit_now&) { self->quit(); },
      [self](const report_request&) -> caf::result<actor_report> { return report(self->state); },
      [self](const ask_slice&) -> caf::result<facts_answer> { return facts(self->state); },
      [self](const ask_about&) -> caf::result<facts_answer> { return facts(self->state); },
      [self](const copy_rows& c) { start(self, c); },
      [self](const poll_events& p) {
        const bool current = p.generation == self->state.generation;
        if (current || mutated(actor_mutation::stale_poll_counts)) look(self);
      },
  };
}

}  // namespace

cuda_actor spawn_cuda(caf::actor_system& system, cuda_config config) {
  const bool worth_it = config.device->spins() && !is_deterministic(system);
  if (!worth_it) config.spin = std::chrono::nanoseconds{0};
  config.keep_awake = config.keep_awake && worth_it;
  return spawn_own_thread(system, cuda, std::move(config));
}

}  // namespace kvlease
