#include "src/arbitration.hpp"

#include <algorithm>
#include <utility>

#include "src/guard.hpp"

namespace kvlease {

namespace fx = arbitration_effects;

arbitration::operation_state* arbitration::find(operation_id operation) {
  const auto it = operations_.find(operation);
  if (it != operations_.end()) return &it->second;
  ++rejected_;
  return nullptr;
}

result<owner_id> arbitration::create_owner(time_point now, request_id request, direction way,
                                           transfer_timeout timeout) {
  auto owner = clocks_.create_owner(now, request, way, timeout);
  absorb(now);
  return owner;
}

bool arbitration::close_owner(time_point now, owner_id owner) {
  advance(now);
  return !by_owner_.contains(owner) && clocks_.view(owner) && clocks_.close(now, owner);
}

void arbitration::expose(time_point now, const exposure& e) {
  if (operations_.contains(e.operation)) return void(++rejected_);  // a duplicate starts nothing (7.1)
  std::string why = "admission is closed";
  std::optional<owner_id> owner = e.owner;
  if (!owner) {
    auto made = clocks_.create_owner(now, e.request, e.way, e.timeout);
    if (made)
      owner = *made;
    else
      why = made.error().text;
  } else if (by_owner_.contains(*owner)) {
    owner.reset();
    why = "the retirement owner is in use";
  }
  const bool open = owner && clocks_.expose(now, *owner, {e.operation});
  absorb(now);
  operation_state o{.owner = owner.value_or(owner_id{}), .request = e.request, .way = e.way};
  o.submitted = e.submitted;
  auto& stored = operations_.emplace(e.operation, std::move(o)).first->second;
  if (owner) by_owner_.emplace(*owner, e.operation);
  if (open) {
    effects_.push_back(fx::granted{e.operation});
    return;
  }
  effects_.push_back(
      fx::refused{e.operation, owner ? "the retirement owner is closed, draining or fatal" : why});
  decide(now, e.operation, stored, cancelled{cancelled_by::local});
  if (clocks_.fatal()) tell_retained(e.operation, stored, true);
}

result<owner_id> arbitration::track(time_point now, operation_id registrations, transfer_timeout timeout) {
  auto owner = clocks_.create_owner(now, request_id{}, direction::fetch, timeout);
  absorb(now);
  if (!owner) return owner;
  operations_.emplace(registrations,
                      operation_state{.owner = *owner, .request = request_id{}, .registrations = true});
  by_owner_.emplace(*owner, registrations);
  return owner;
}

void arbitration::decide(time_point now, operation_id operation, operation_state& o, outcome value) {
  if (o.value && !mutated(mutation::last_outcome_wins)) return;
  o.value = value;
  o.decided_at = now;
  if (!o.registrations && !mutated(mutation::outcome_waits_for_release))
    effects_.push_back(fx::decided{operation, std::move(value), o.way});
  if (o.retained) tell_retained(operation, o, false);
}

void arbitration::tell_retained(operation_id operation, operation_state& o, bool final) {
  if (o.registrations || o.final_told) return;
  if (!o.value && !mutated(mutation::retained_before_outcome)) return;  // after the outcome (7.5)
  o.final_told = final;
  effects_.push_back(operation_retained{
      operation, o.retained.value_or(clocks_.fatal() ? clocks_.fatal()->reason : std::string{}), final});
}

void arbitration::commit(time_point now, operation_id operation, outcome value) {
  if (!mutated(mutation::commit_skips_elapsed)) advance(now);
  auto* o = find(operation);
  if (o == nullptr) return;
  if (o->value && !mutated(mutation::last_outcome_wins)) {
    ++rejected_;
    return;
  }
  const bool success = std::holds_alternative<delivered>(value);
  decide(now, operation, *o, std::move(value));
  if (success)
    clocks_.complete_pieces(now, o->owner);
  else if (!mutated(mutation::failure_without_drain))
    clocks_.request_drain(now, o->owner, "delivery failed or cancelled");
  absorb(now);
}

void arbitration::retain_unproven(time_point now, operation_id operation, const std::string& reason) {
  advance(now);
  auto* o = find(operation);
  if (o == nullptr) return;
  o->retained = reason;
  o->settled = false;
  clocks_.retain_unproven(now, o->owner, operation, reason);
  tell_retained(operation, *o, false);
  absorb(now);
}

void arbitration::settle(time_point now, operation_id operation) {
  if (!mutated(mutation::skip_elapsed)) advance(now);
  auto* o = find(operation);
  if (o == nullptr) return;
  const bool may = clocks_.settle(now, o->owner, operation);
  absorb(now);
  o->settled = may;
  if (may)
    effects_.push_back(fx::authorised{settle_token{operation}});
  else
    effects_.push_back(fx::not_authorised{operation});
}

void arbitration::retired(time_point now, operation_id operation, operation_times times) {
  advance(now);
  auto* o = find(operation);
  if (o == nullptr) return;
  times.submitted = o->submitted;
  times.outcome = o->decided_at;
  times.released = now;
  if (o->value && mutated(mutation::outcome_waits_for_release))
    effects_.push_back(fx::decided{operation, *o->value, o->way});
  if (!o->registrations) effects_.push_back(operation_released{operation, times});
  clocks_.close(now, o->owner);
  by_owner_.erase(o->owner);
  operations_.erase(operation);
}

void arbitration::adapter_down(time_point now) {
  advance(now);
  for (const auto id : sorted_operations()) {
    auto& o = operations_.at(id);
    if (!o.registrations) decide(now, id, o, failed{"adapter is down"});
    o.retained = "adapter is down";
    o.settled = false;
    clocks_.retain_unproven(now, o.owner, id, "adapter is down");
    tell_retained(id, o, false);
  }
  absorb(now);
}

void arbitration::advance(time_point now) {
  clocks_.advance(now);
  absorb(now);
}

void arbitration::request_shutdown(time_point now) {
  clocks_.request_shutdown(now);
  absorb(now);
}

result<void> arbitration::stop(time_point now) {
  advance(now);
  return clocks_.stop(now);
}

void arbitration::absorb(time_point now) {
  for (auto& event : clocks_.take_events()) {
    if (const auto* expired = std::get_if<request_expired>(&event)) {
      const auto it = by_owner_.find(expired->owner);
      if (it == by_owner_.end() || mutated(mutation::timeout_without_outcome)) continue;
      decide(now, it->second, operations_.at(it->second), failed{"transfer timeout"});
    } else if (auto* drain = std::get_if<drain_started>(&event)) {
      effects_.push_back(std::move(*drain));
    } else {
      latch_fatal(now, std::get<fatal_record>(event));
    }
  }
}

void arbitration::latch_fatal(time_point now, const fatal_record& f) {
  // Nothing will be settled any more, so nobody need wait for an answer (docs/decisions.md).
  for (const auto id : sorted_operations()) {
    auto& o = operations_.at(id);
    if (o.settled) continue;
    if (!o.registrations) decide(now, id, o, failed{"fatal: " + f.reason});
    if (!o.retained) o.retained = "fatal: " + f.reason;
    tell_retained(id, o, true);
  }
  effects_.push_back(f);
}

std::vector<operation_id> arbitration::sorted_operations() const {
  std::vector<operation_id> ids;
  ids.reserve(operations_.size());
  for (const auto& [id, o] : operations_) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

operation_id arbitration::operation_of(owner_id owner) const {
  const auto it = by_owner_.find(owner);
  return it == by_owner_.end() ? operation_id{} : it->second;
}

std::optional<owner_id> arbitration::owner_of(operation_id operation) const {
  const auto it = operations_.find(operation);
  if (it == operations_.end()) return std::nullopt;
  return it->second.owner;
}

std::vector<arbitration_effect> arbitration::take_effects() { return std::exchange(effects_, {}); }

}  // namespace kvlease
