#include "cuda/stay_awake.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <utility>

namespace kvlease {

namespace {

struct token {
  caf::actor back;
};

}  // namespace

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::token);

namespace kvlease {

namespace {

caf::behavior player(caf::event_based_actor* self, const std::shared_ptr<stay_awake::passing>& state) {
  return {[self, state](const token& t) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    if (now < state->until)
      self->send(t.back, token{self});
    else
      state->going = false;
  }};
}

}  // namespace

stay_awake::stay_awake(cuda_actor::pointer owner)
    : first_{owner->spawn<caf::linked>(player, state_)}, second_{owner->spawn<caf::linked>(player, state_)} {}

stay_awake::~stay_awake() {
  for (const auto& player : {first_, second_}) caf::anon_send_exit(player, caf::exit_reason::user_shutdown);
}

void stay_awake::until(std::chrono::steady_clock::time_point when) {
  state_->until = when.time_since_epoch().count();
  if (!state_->going.exchange(true)) caf::anon_send(first_, token{second_});
}

}  // namespace kvlease
