// Every spelling of CAF that differs between 0.17 and 1.x stands here, so that a port touches one file.
// Actor interfaces are written the 1.x way: iface<caf::result<R>(Question), void(Note)>.
#pragma once

#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/result.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_behavior.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>
#include <chrono>
#include <type_traits>
#include <utility>

/// Allows T in messages within this process. kvlease publishes no actor, so nothing is ever serialised
/// (architecture, "Inspection"). Use at global scope.
#define KVLEASE_LOCAL_MESSAGE(T) \
  template <>                    \
  struct caf::allowed_unsafe_message_type<T> : std::true_type {}

namespace kvlease {

namespace caf_detail {

template <class F>
struct signature;
template <class... A>
struct signature<void(A...)> {
  using type = caf::typed_mpi<caf::detail::type_list<A...>, caf::output_tuple<void>>;
};
template <class R, class... A>
struct signature<caf::result<R>(A...)> {
  using type = caf::typed_mpi<caf::detail::type_list<A...>, caf::output_tuple<R>>;
};

}  // namespace caf_detail

/// A typed actor handle from function types.
template <class... F>
using iface = caf::typed_actor<typename caf_detail::signature<F>::type...>;

/// One-way message; a null handle or a dead receiver swallows it (semantics 7.4).
template <class Self, class Handle, class Message>
void tell(Self* self, const Handle& to, Message&& what) {
  if (to) self->send(to, std::forward<Message>(what));
}

/// One-way message to oneself after `delay`. Can't be taken back: carry a generation in it.
template <class Handle, class Self, class Message>
void tell_later(Self* self, std::chrono::nanoseconds delay, Message&& what) {
  self->delayed_send(Handle{self}, delay, std::forward<Message>(what));
}

/// Now, on the clock that the system's timers run on; virtual under the deterministic scheduler.
template <class Self>
std::chrono::steady_clock::time_point now_of(Self* self) {
  return self->clock().now();
}

/// Is this system driven by a test that steps every actor?
inline bool is_deterministic(const caf::actor_system& system) {
  return caf::get_or(system.config(), "scheduler.policy", caf::atom("stealing")) == caf::atom("testing");
}

/// Spawns an actor with a thread of its own; under the deterministic scheduler a scheduled one, since a
/// thread is a property of the spawn and not of the actor.
template <class F, class... X>
auto spawn_own_thread(caf::actor_system& system, F fun, X&&... xs) {
  if (is_deterministic(system)) return system.spawn(fun, std::forward<X>(xs)...);
  return system.spawn<caf::detached>(fun, std::forward<X>(xs)...);
}

/// The scheduler's settings for a production system (design: caf.md section 3).
inline void configure_scheduler(caf::actor_system_config& config, std::size_t threads) {
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", threads);
  config.set("scheduler.max-throughput", std::size_t{300});
}

}  // namespace kvlease
