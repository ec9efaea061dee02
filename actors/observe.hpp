// The seam between an actor and who watches it: its meter, its pen in the journal, its gauges. An actor's
// state has a member `observer seen`, and its type is metered<Handle, State>.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "messages/caf.hpp"
#include "src/observation.hpp"

namespace kvlease {

/// A stateful actor whose messages are counted and timed.
template <class Handle, class State>
class metered : public caf::stateful_actor<State, typename Handle::base> {
 public:
  using super = caf::stateful_actor<State, typename Handle::base>;
  using super::consume;
  using super::enqueue;
  using super::super;

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* by) override {
    if (metering.load(std::memory_order_relaxed)) meter->arrive(this->home_system().clock().now());
    super::enqueue(std::move(what), by);
  }
  caf::invoke_message_result consume(caf::mailbox_element& what) override {
    if (!metering.load(std::memory_order_relaxed)) return super::consume(what);
    const auto began = this->home_system().clock().now();
    const auto mine = meter;  // outlives the state, and may outlive this actor
    mine->begin(began);
    const auto result = super::consume(what);
    mine->end(began, this->home_system().clock().now());
    return result;
  }

  const std::shared_ptr<actor_meter> meter = std::make_shared<actor_meter>();
  std::atomic<bool> metering{true};  ///< false where nobody watches
};

template <class Handle, class State>
using metered_pointer = metered<Handle, State>*;

/// Null where nobody watches.
struct observer {
  std::shared_ptr<observation> of;
  journal* log = nullptr;
  actor_kind from = actor_kind::manager;

  /// Called once, when the actor starts.
  template <class Self>
  void open(Self* self, std::shared_ptr<observation> what, actor_kind kind) {
    from = kind;
    self->metering = what != nullptr;
    if (what == nullptr) return;
    of = std::move(what);
    log = of->log().get();
    of->meet(kind, self->meter);
    if (log != nullptr)
      log->write(self->clock().now(),
                 {.kind = journal_kind::actor_up, .from = kind, .value = static_cast<std::uint64_t>(kind)});
  }
  gauges* numbers() const noexcept { return of == nullptr ? nullptr : &of->numbers(); }
  /// What was late, foreign or impossible, so far in all.
  void rejected(std::uint64_t n) const noexcept {
    if (of != nullptr)
      of->numbers().rejected[static_cast<std::size_t>(from)].store(n, std::memory_order_relaxed);
  }
};

/// What a record is about; see journal_kind for `other`, `value`, `detail` and `extra`.
struct noted {
  operation_id operation = {};
  lease_id lease = {};
  request_id request = {};
  std::uint64_t other = 0;
  std::uint64_t value = 0;
  std::uint8_t detail = 0;
  std::uint32_t extra = 0;
};

inline void note_at(journal* log, time_point now, actor_kind from, journal_kind kind, const noted& a) {
  if (log == nullptr) return;
  log->write(now, {.kind = kind,
                   .from = from,
                   .detail = a.detail,
                   .extra = a.extra,
                   .operation = a.operation.value,
                   .lease = a.lease.value,
                   .request = a.request.value,
                   .other = a.other,
                   .value = a.value});
}

/// Notes it at the actor's time. Call it before what tells others of it.
template <class Self>
void note(Self* self, journal_kind kind, const noted& a) {
  const auto& seen = self->state.seen;
  if (seen.log != nullptr) note_at(seen.log, now_of(self), seen.from, kind, a);
}

}  // namespace kvlease
