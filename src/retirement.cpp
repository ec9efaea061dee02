#include "src/retirement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/guard.hpp"

namespace kvlease {

namespace {

/// now + span, saturating: a deadline past the clock's range never comes.
time_point later(time_point now, duration span) {
  return now > time_point::max() - span ? time_point::max() : now + span;
}

/// Boundaries are inclusive (4.2).
bool reached(time_point now, time_point deadline) {
  return mutated(mutation::exclusive_boundary) ? now > deadline : now >= deadline;
}

}  // namespace

result<transfer_timeout> transfer_timeout::make(std::chrono::duration<double> seconds) {
  const double s = seconds.count();
  if (!std::isfinite(s) || s <= 0)
    return fail(errc::invalid, fmt::format("timeout is {} s, must be finite positive", s));
  constexpr double most = std::chrono::duration<double>(duration::max()).count() / 4;
  const auto d = s >= most ? duration::max() / 4
                           : std::chrono::duration_cast<duration>(std::chrono::duration<double>(s));
  return transfer_timeout{std::max(d, duration{1})};
}

retirement::owner_state* retirement::find(owner_id owner) {
  const auto it = owners_.find(owner);
  return it == owners_.end() ? nullptr : &it->second;
}

std::optional<time_point> retirement::boundary(const owner_state& o) const {
  if (fatal_) return std::nullopt;
  const bool complete = o.pieces_complete && (o.claims.empty() || mutated(mutation::complete_hides_claims));
  std::optional<time_point> next;
  // Also while draining: a disputed proof starts drain without giving the request an answer, and the answer
  // is due at its deadline all the same (4.3).
  if (!complete && !o.request_expired && o.request_deadline) next = *o.request_deadline;
  if (!o.claims.empty() && o.drain_started) {
    const auto grace = later(*o.drain_started, o.timeout.value());
    next = next ? std::min(*next, grace) : grace;
  }
  return next;
}

std::optional<time_point> retirement::end_of_grace(const owner_state& o) {
  if (!o.drain_started || o.claims.empty()) return std::nullopt;
  return later(*o.drain_started, o.timeout.value());
}

void retirement::rearm(owner_id id, owner_state& o) {
  if (const auto grace = end_of_grace(o); grace != o.grace) {
    if (o.grace) graces_.erase({*o.grace, id});
    if (grace) graces_.insert({*grace, id});
    o.grace = grace;
  }
  const auto next = boundary(o);
  if (next == o.armed) return;
  if (o.armed) deadlines_.erase({*o.armed, id});
  if (next) deadlines_.insert({*next, id});
  o.armed = next;
}

void retirement::start_drain(time_point at, owner_id id, owner_state& o, const std::string& reason) {
  if (o.drain_started && !mutated(mutation::drain_restarts)) return;
  o.drain_started = at;
  o.reason = reason;
  events_.push_back(drain_started{id, at, reason});
}

void retirement::check(time_point now, owner_id id, owner_state& o) {
  if (fatal_ && !mutated(mutation::fatal_repeats)) return;
  const bool complete = o.pieces_complete && (o.claims.empty() || mutated(mutation::complete_hides_claims));
  if (!complete && !o.request_expired && o.request_deadline && reached(now, *o.request_deadline)) {
    o.request_expired = true;
    events_.push_back(request_expired{id});
    start_drain(mutated(mutation::drain_from_notice) ? now : *o.request_deadline, id, o, "transfer timeout");
    return;  // its grace comes in its turn: other owners' deadlines may lie between
  }
  if (!o.claims.empty() && o.drain_started) {
    const auto grace = later(*o.drain_started, o.timeout.value());
    if (reached(now, grace)) {
      fatal_ = fatal_record{id, o.request, o.way, o.reason, *o.drain_started, grace, now};
      events_.push_back(*fatal_);
    }
  }
}

void retirement::advance(time_point now) {
  while (!deadlines_.empty() && (!fatal_ || mutated(mutation::fatal_repeats))) {
    const auto [due, id] = *deadlines_.begin();
    if (!reached(now, due)) return;
    auto& o = owners_.at(id);
    check(now, id, o);
    rearm(id, o);
  }
  if (fatal_ && !mutated(mutation::fatal_repeats)) deadlines_.clear();
}

result<owner_id> retirement::create_owner(time_point now, request_id request, direction way,
                                          transfer_timeout timeout) {
  advance(now);
  if (fatal_ && !mutated(mutation::fatal_admits))
    return fail(errc::state, "admission is closed: fatal, " + fatal_->reason);
  if (closed_ && !mutated(mutation::shutdown_admits))
    return fail(errc::state, stopped_ ? "admission is closed: stopped" : "admission is closed: shutdown");
  const auto id = owners_drawn_.next();
  owners_.emplace(id, owner_state{.request = request, .way = way, .timeout = timeout});
  return id;
}

bool retirement::expose(time_point now, owner_id owner, const std::vector<claim_id>& claims) {
  advance(now);
  auto* o = find(owner);
  if (o == nullptr) return false;
  if (!mutated(mutation::expose_always) && (fatal_ || o->pieces_complete || o->drain_started)) return false;
  if ((!o->request_deadline && !mutated(mutation::expose_without_clock)) ||
      mutated(mutation::expose_moves_clock))
    o->request_deadline = later(now, o->timeout.value());
  if (!mutated(mutation::expose_without_claim)) o->claims.insert(claims.begin(), claims.end());
  rearm(owner, *o);
  return true;
}

void retirement::complete_pieces(time_point now, owner_id owner) {
  if (!mutated(mutation::skip_elapsed)) advance(now);
  if (auto* o = find(owner); o != nullptr && !mutated(mutation::complete_keeps_clock)) {
    o->pieces_complete = true;
    rearm(owner, *o);
  }
}

bool retirement::is_complete(time_point now, owner_id owner) {
  advance(now);
  const auto* o = find(owner);
  return o != nullptr && o->pieces_complete && o->claims.empty() && !o->drain_started && !fatal_;
}

void retirement::request_drain(time_point now, owner_id owner, const std::string& reason) {
  if (!mutated(mutation::skip_elapsed)) advance(now);
  if (auto* o = find(owner); o != nullptr) {
    start_drain(now, owner, *o, reason);
    rearm(owner, *o);
  }
}

bool retirement::settle(time_point now, owner_id owner, claim_id claim) {
  if (!mutated(mutation::skip_elapsed)) advance(now);
  const bool mine = !mutated(mutation::fatal_of_one_owner) || (fatal_ && fatal_->owner == owner);
  if (fatal_ && mine && !mutated(mutation::settle_after_fatal)) return false;
  if (auto* o = find(owner); o != nullptr) {
    o->claims.erase(claim);
    rearm(owner, *o);
  }
  return true;
}

void retirement::retain_unproven(time_point now, owner_id owner, claim_id claim, const std::string& reason) {
  advance(now);
  auto* o = find(owner);
  if (o == nullptr) return;
  if (!mutated(mutation::dispute_without_clock)) start_drain(now, owner, *o, reason);
  o->claims.insert(claim);
  rearm(owner, *o);
  advance(now);
}

bool retirement::can_retire(time_point now, owner_id owner) {
  advance(now);
  const auto* o = find(owner);
  return !fatal_ && (o == nullptr || o->claims.empty());
}

bool retirement::close(time_point now, owner_id owner) {
  advance(now);
  auto* o = find(owner);
  if (fatal_) return false;
  if (o == nullptr) return true;  // closed before: an owner leaves the table in no other way
  if (!o->claims.empty()) return false;
  if (o->armed) deadlines_.erase({*o->armed, owner});
  if (o->grace) graces_.erase({*o->grace, owner});
  owners_.erase(owner);
  return true;
}

void retirement::request_shutdown(time_point now) {
  advance(now);
  closed_ = true;
  for (const auto& v : owners()) {
    auto& o = owners_.at(v.owner);
    if (!mutated(mutation::shutdown_without_drain)) start_drain(now, v.owner, o, "shutdown");
    rearm(v.owner, o);
  }
}

result<void> retirement::stop(time_point now) {
  advance(now);
  if (!mutated(mutation::stop_with_owners) && (fatal_ || !owners_.empty())) {
    std::string text = fmt::format("stop refused: {} retained owners", owners_.size());
    if (fatal_) text += ", fatal: " + fatal_->reason;
    for (const auto& o : owners())
      text += fmt::format("; owner {} ({}, {} claims{})", to_string(o.owner),
                          o.request ? fmt::format("{} of request {}", to_string(o.way), to_string(o.request))
                                    : "the registrations",
                          o.claims, o.reason.empty() ? "" : ", " + o.reason);
    return fail(errc::state, std::move(text));
  }
  closed_ = stopped_ = true;
  return {};
}

std::vector<retirement_event> retirement::take_events() { return std::exchange(events_, {}); }

std::optional<time_point> retirement::next_deadline() const {
  if (deadlines_.empty() || mutated(mutation::deadlines_wait_for_calls)) return std::nullopt;
  return deadlines_.begin()->first;
}

retirement::owner_view retirement::view_of(owner_id owner, const owner_state& o) const {
  return {owner,           o.request,       o.way,    o.request_deadline,
          o.drain_started, end_of_grace(o), o.reason, o.claims.size()};
}

std::optional<retirement::owner_view> retirement::first_grace() const {
  if (graces_.empty() || fatal_) return std::nullopt;
  return view(graces_.begin()->second);
}

std::optional<retirement::owner_view> retirement::view(owner_id owner) const {
  const auto it = owners_.find(owner);
  if (it == owners_.end()) return std::nullopt;
  return view_of(owner, it->second);
}

std::vector<retirement::owner_view> retirement::owners() const { return owners({}, owners_.size()); }

std::vector<retirement::owner_view> retirement::owners(owner_id after, std::size_t most) const {
  std::vector<owner_view> some;
  for (auto it = owners_.upper_bound(after); it != owners_.end() && some.size() < most; ++it)
    some.push_back(view_of(it->first, it->second));
  return some;
}

}  // namespace kvlease
