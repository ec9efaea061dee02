#include "src/providers/redis/transfer.hpp"

#include <fmt/format.h>

#include <utility>

#include "src/providers/redis/unit_command.hpp"

namespace kvlease::redis {

transfer::transfer(std::shared_ptr<routes> by, std::shared_ptr<transfer_book> in, direction way,
                   const cache_extent& what)
    : unit_transfer{std::move(in), way, what}, routes_{std::move(by)} {}

std::optional<std::string> transfer::oversize() const {
  for (std::size_t i = 0; i < places().size(); ++i) {
    const auto names = extent().name().size() + unit_at(i).name().size();
    if (names > frame_names)
      return fmt::format(
          "redis: the names of the extent and of {} have {} bytes together, must have at most {}",
          unit_text(unit_at(i)), names, frame_names);
    if (places()[i].memory.size() > value_limit - frame_head - names)
      return fmt::format("redis: {} has {} bytes, a value holds at most {}", unit_text(unit_at(i)),
                         places()[i].memory.size(), value_limit - frame_head - names);
  }
  return std::nullopt;
}

std::vector<std::shared_ptr<command>> transfer::commands() {
  open_ = places().size();
  std::vector<std::shared_ptr<command>> all;
  all.reserve(open_);
  const auto self = std::static_pointer_cast<transfer>(shared_from_this());
  for (std::size_t i = 0; i < places().size(); ++i) all.push_back(make_unit_command(routes_, self, i));
  return all;
}

cancel_disposition transfer::request_cancel() {
  const auto answer = unit_transfer::request_cancel();
  routes_->sweep();
  return answer;
}

void transfer::finish_unit(std::size_t i, unit_verdict v) {
  bool first_failure = false, last = false;
  {
    const std::lock_guard lock{mutex_};
    last = --open_ == 0;
    switch (v.what) {
      case unit_verdict::kind::served:
        served_.insert(unit_at(i).name());
        break;
      case unit_verdict::kind::missed:
        break;
      case unit_verdict::kind::failed:
        first_failure = !failure_;
        if (first_failure) failure_ = std::move(v.why);
        break;
      case unit_verdict::kind::withdrawn:
        withdrawn_ = true;
        break;
    }
  }
  if (first_failure) {
    stopped_.store(true, std::memory_order_release);
    if (!last) {
      finish(failed{*failure_});
      routes_->sweep();
    }
  }
  if (!last) return;
  if (failure_) return finish_and_end(failed{*failure_});
  if (withdrawn_) return finish_and_end(cancelled{cancelled_by::local});
  finish_and_end(delivered{std::move(served_)});
}

}  // namespace kvlease::redis
