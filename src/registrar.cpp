#include "src/registrar.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/guard.hpp"

namespace kvlease {

registrar_effects registrar::start() {
  if (phase_ != phase::idle) return {.retired = true, .start_answer = "stopped before the start"};
  phase_ = phase::holding;
  if (lender_down_) return fail_start("the lender is down");  // it died while the claim was being tracked
  hold_asked_ = true;
  auto e = mutated(mutation::register_before_hold) ? register_next() : registrar_effects{};
  e.take_hold = true;  // it comes before any registration (5.1)
  return e;
}

registrar_effects registrar::refused(const std::string& why) {
  if (phase_ == phase::closed) return {.start_answer = "stopped before the start"};
  if (phase_ != phase::idle) return {};
  problem_ = "registrations are refused: " + why;
  phase_ = phase::closed;
  return {.start_answer = problem_};
}

registrar_effects registrar::register_next() {
  if (live_.size() == parts_.size()) {
    phase_ = phase::registered;
    return {.start_answer = ""};
  }
  phase_ = phase::registering;
  if (backend_down_) return fail_start("the backend is down");
  if (fatal_) return fail_start("the runtime is fatal");
  in_flight_ = drawn_.next();
  return {.open = registrar_effects::opening{*in_flight_, parts_[live_.size()]}};
}

registrar_effects registrar::held(hold_id hold) {
  hold_asked_ = false;
  hold_ = hold;
  if (phase_ == phase::stopping) return {.start_answer = "stopped while taking the hold"};
  if (phase_ != phase::holding) return {};
  return register_next();
}

registrar_effects registrar::fail_start(const std::string& problem) {
  // What succeeded is kept, and so is the hold; only close() is left (5.1).
  problem_ = "pool registration failed: " + problem;
  if (phase_ == phase::registering || phase_ == phase::holding)
    phase_ = mutated(mutation::failed_registration_admits) ? phase::registered : phase::failed;
  registrar_effects e{.start_answer = problem_};
  if (!retained_) e.retain = problem_;
  retained_ = true;
  return e;
}

registrar_effects registrar::registered(registration_id id, const std::string& problem) {
  if (in_flight_ != id || std::ranges::find(live_, id) != live_.end()) return {};
  in_flight_.reset();
  if (!problem.empty()) return fail_start(problem);
  live_.push_back(id);
  if (phase_ != phase::registering) return {.start_answer = "stopped while registering"};
  return register_next();
}

registrar_effects registrar::stop() {
  if (phase_ == phase::idle) phase_ = phase::closed;
  if (phase_ == phase::closed || phase_ == phase::settling) return {};
  if (!mutated(mutation::close_keeps_admission)) phase_ = phase::stopping;
  if (retained_) return {};
  retained_ = true;
  return {.retain = "staging adapter shutdown"};
}

registrar_effects registrar::close(std::size_t open_operations) {
  if (open_operations > 0 && !mutated(mutation::deregister_early)) return {};
  return close_next();
}

registrar_effects registrar::close_next() {
  if (phase_ != phase::stopping || in_flight_ || hold_asked_) return {};
  if (fatal_ && !mutated(mutation::teardown_after_fatal)) return {};
  if (!live_.empty()) {
    if (backend_down_) {  // nobody is left to revoke them
      problem_ = "the backend is down";
      return {};
    }
    in_flight_ = live_.back();
    registrar_effects e{.close = in_flight_};
    if (mutated(mutation::hold_released_early)) e.release_hold = hold_;  // it goes last (5.8)
    return e;
  }
  phase_ = phase::settling;
  return {.settle = true};
}

registrar_effects registrar::revoked(registration_id id, const std::string& problem) {
  if (in_flight_ != id || live_.empty() || live_.back() != id) return {};
  in_flight_.reset();
  if (!problem.empty() && !mutated(mutation::failed_close_counts)) {
    problem_ = "deregistration failed: " + problem;
    return {};
  }
  problem_.clear();
  live_.pop_back();
  return close_next();
}

registrar_effects registrar::settled() {
  if (phase_ != phase::settling) return {};
  phase_ = phase::closed;
  return {.release_hold = hold_, .retired = true};
}

registrar_effects registrar::backend_down() {
  backend_down_ = true;
  if (!in_flight_) return {};
  // The answer is lost: a registration under way may exist, one being closed may still. So neither is over.
  const bool opening = std::ranges::find(live_, *in_flight_) == live_.end();
  problem_ = "the backend is down";
  if (opening) return fail_start(problem_);
  return {};
}

registrar_effects registrar::lender_down() {
  lender_down_ = true;
  if (!hold_asked_) return {};
  hold_asked_ = false;  // no registration was tried, and there is no hold to give back
  if (phase_ == phase::stopping) return {.start_answer = "stopped while taking the hold"};
  return fail_start("the lender is down");
}

bool registrar::accepting() const noexcept {
  return phase_ == phase::registered ||
         (phase_ == phase::registering && mutated(mutation::submit_unregistered));
}

std::vector<registrar::part_view> registrar::views() const {
  std::vector<part_view> all;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (p < live_.size())
      all.push_back({&parts_[p], live_[p], in_flight_ == live_[p] ? "closing" : "registered"});
    else if (p == live_.size() && in_flight_ && std::ranges::find(live_, *in_flight_) == live_.end())
      all.push_back({&parts_[p], *in_flight_, "registering"});
    else
      all.push_back({&parts_[p], {}, p == live_.size() && phase_ == phase::failed ? "failed" : "none"});
  }
  return all;
}

std::int64_t registrar::registered_bytes() const noexcept {
  std::int64_t n = 0;
  for (std::size_t p = 0; p < live_.size(); ++p) n += parts_[p].nbytes;
  return n;
}

std::string registrar::state_text() const {
  constexpr std::string_view names[] = {"not started",         "taking the hold", "registering", "registered",
                                        "registration failed", "stopping",        "settling",    "closed"};
  return fmt::format("registrations are {}: {} of {} parts live{}{}", names[static_cast<std::size_t>(phase_)],
                     live_.size(), parts_.size(), problem_.empty() ? "" : ", ", problem_);
}

}  // namespace kvlease
