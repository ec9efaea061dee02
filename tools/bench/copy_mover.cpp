#include "tools/bench/copy_mover.hpp"

#include <cassert>
#include <utility>

namespace kvlease::bench {

port_mover::port_mover(device_port& device, std::vector<std::shared_ptr<const copy_batch>> batches,
                       std::shared_ptr<lane> before)
    : device_{device}, batches_{std::move(batches)}, before_{std::move(before)} {
  assert(!batches_.empty());
}

result<void> port_mover::prepare() { return before_ ? before_->mark() : result<void>{}; }

result<void> port_mover::submit() {
  const auto& batch = batches_[next_];
  if (auto queued = device_.enqueue(batch); !queued) return tl::unexpected{queued.error()};
  const auto event = device_.record(batch->kind);
  if (!event) return tl::unexpected{event.error()};
  pending_.push_back(*event);
  next_ = (next_ + 1) % batches_.size();
  return {};
}

result<bool> port_mover::finished() {
  while (!pending_.empty()) {
    const auto state = device_.query(pending_.front());
    if (!state) return tl::unexpected{state.error()};
    if (*state == event_state::pending) return false;
    device_.recycle(pending_.front());
    pending_.pop_front();
  }
  return true;
}

one_copy_mover::one_copy_mover(std::shared_ptr<lane> on, copy_kind kind, std::vector<copy_row> copies)
    : on_{std::move(on)}, kind_{kind}, copies_{std::move(copies)} {
  assert(!copies_.empty());
}

result<void> one_copy_mover::submit() {
  const auto& c = copies_[next_];
  next_ = (next_ + 1) % copies_.size();
  if (auto queued = on_->copy(kind_, c.to, c.from, c.nbytes); !queued) return queued;
  return on_->mark();
}

result<bool> one_copy_mover::finished() { return on_->reached(); }

pair_mover::pair_mover(std::unique_ptr<mover> in, std::unique_ptr<mover> out)
    : in_{std::move(in)}, out_{std::move(out)} {}

result<void> pair_mover::prepare() {
  if (auto ready = in_->prepare(); !ready) return ready;
  return out_->prepare();
}

result<void> pair_mover::submit() {
  if (!in_submitted_)
    if (auto queued = in_->submit(); !queued) return queued;
  auto queued = out_->submit();
  in_submitted_ = !queued;
  return queued;
}

result<bool> pair_mover::finished() {
  auto in = in_->finished();  // both are asked, so that both get their events back
  auto out = out_->finished();
  if (!in) return in;
  if (!out) return out;
  return *in && *out;
}

}  // namespace kvlease::bench
