// When to look next at what a provider has in flight: one round at a time, at once when something is new or
// the provider says so, else at a delay that doubles while nothing advances. Nothing runs while nothing is
// pending. Pure; the backend and the proof collector each own one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace kvlease {

struct poll_limits {
  std::chrono::nanoseconds first = std::chrono::microseconds{50};
  std::chrono::nanoseconds most = std::chrono::milliseconds{10};
};

class poll_schedule {
 public:
  explicit poll_schedule(poll_limits limits = {}) : limits_{limits}, delay_{limits.first} {}

  /// Something is pending that a look may advance. True: start a round now.
  bool wake() {
    delay_ = limits_.first;
    if (in_round_) {
      again_ = true;
      return false;
    }
    return begin();
  }
  /// The timer under `generation` is due. True: start a round now; false: it is stale.
  bool due(std::uint64_t generation) { return generation == generation_ && !in_round_ && begin(); }
  /// The round is over. Answers after which delay the next is due (zero: now), or nothing.
  std::optional<std::chrono::nanoseconds> end(bool advanced, bool pending) {
    in_round_ = false;
    if (!pending) {
      again_ = false;
      return std::nullopt;
    }
    if (again_ || advanced) {
      again_ = false;
      delay_ = limits_.first;
      return std::chrono::nanoseconds{0};
    }
    const auto now = delay_;
    delay_ = std::min(delay_ * 2, limits_.most);
    return now;
  }
  /// For the timer message; an older one is stale.
  std::uint64_t generation() const noexcept { return generation_; }
  std::uint64_t rounds() const noexcept { return rounds_; }

 private:
  bool begin() {
    in_round_ = true;
    ++generation_;
    ++rounds_;
    return true;
  }
  poll_limits limits_;
  std::chrono::nanoseconds delay_;
  std::uint64_t generation_ = 0;
  std::uint64_t rounds_ = 0;
  bool in_round_ = false;
  bool again_ = false;
};

}  // namespace kvlease
