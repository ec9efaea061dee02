#include "src/ownership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace kvlease {

std::string_view to_string(send_state s) noexcept {
  constexpr std::string_view names[] = {"admitted",  "not_submitted", "submitting",
                                        "submitted", "in_doubt",      "backend_done"};
  return names[static_cast<std::size_t>(s)];
}

// ---- send_owner

send_owner::~send_owner() {
  static std::mutex mutex;
  static auto* graveyard = new std::vector<op>;  // never destroyed: a backend may still use what it roots
  const std::lock_guard lock{mutex};
  for (auto& [who, o] : ops_)
    if (o.at != send_state::admitted && o.at != send_state::not_submitted && o.at != send_state::backend_done)
      graveyard->push_back(std::move(o));
}

send_owner::op* send_owner::find(participant who) {
  const auto it = ops_.find(who);
  return it == ops_.end() ? nullptr : &it->second;
}

bool send_owner::begin(participant who, claim_id claim) {
  return ops_.try_emplace(who, op{.claim = claim, .root = nullptr, .done = nullptr}).second;
}

result<void> send_owner::submit(time_point now, participant who, std::shared_ptr<void> root) {
  auto* o = find(who);
  if (o == nullptr) return fail(errc::unknown, fmt::format("participant {} was not admitted", who));
  if (o->at != send_state::admitted)
    return fail(errc::state, fmt::format("participant {} is {}, must be admitted", who, to_string(o->at)));
  if (!clocks_.expose(now, owner_, {o->claim})) {
    o->at = send_state::not_submitted;
    return fail(errc::state, fmt::format("participant {}: admission is closed", who));
  }
  o->root = std::move(root);
  o->at = send_state::submitting;
  return {};
}

result<void> send_owner::submitted(participant who, completion_query done) {
  auto* o = find(who);
  if (o == nullptr) return fail(errc::unknown, fmt::format("participant {} was not admitted", who));
  if (o->at != send_state::submitting)
    return fail(errc::state, fmt::format("participant {} is {}, must be submitting", who, to_string(o->at)));
  o->done = std::move(done);
  o->at = send_state::submitted;
  return {};
}

void send_owner::in_doubt(time_point now, participant who) {
  auto* o = find(who);
  if (o == nullptr) return;
  if (o->at != send_state::submitting && o->at != send_state::submitted && o->at != send_state::in_doubt)
    return;
  o->at = send_state::in_doubt;
  clocks_.retain_unproven(now, owner_, o->claim, "backend quiescence unproven");
}

result<void> send_owner::retire_unsubmitted(participant who) {
  auto* o = find(who);
  if (o == nullptr) return fail(errc::unknown, fmt::format("participant {} was not admitted", who));
  if (o->at != send_state::admitted && o->at != send_state::not_submitted)
    return fail(errc::state, fmt::format("participant {} is {}: it was submitted", who, to_string(o->at)));
  o->at = send_state::not_submitted;
  return {};
}

bool send_owner::finish(time_point now, op& o) {
  if (!clocks_.settle(now, owner_, o.claim)) return false;
  o.at = send_state::backend_done;
  o.root = nullptr;
  o.done = nullptr;
  return true;
}

bool send_owner::retire_done(time_point now, participant who) {
  auto* o = find(who);
  if (o == nullptr) return false;
  if (o->at == send_state::backend_done) return true;
  if (o->at != send_state::submitted) return false;
  if (finish(now, *o)) return true;
  o->at = send_state::in_doubt;
  return false;
}

std::optional<send_owner::completion_query> send_owner::ask(participant who) const {
  const auto it = ops_.find(who);
  if (it == ops_.end() || it->second.at != send_state::in_doubt || !it->second.done) return std::nullopt;
  return it->second.done;
}

bool send_owner::answered(time_point now, participant who, bool done) {
  auto* o = find(who);
  return done && o != nullptr && o->at == send_state::in_doubt && finish(now, *o);
}

bool send_owner::poll_in_doubt(time_point now, participant who) {
  const auto asked = ask(who);  // a copy: the query may come back into this object and drop the original
  if (!asked) return false;
  bool done = false;
  try {
    done = (*asked)();
  } catch (...) {
    return false;
  }
  return answered(now, who, done);
}

bool send_owner::drained(time_point now) {
  return clocks_.can_retire(now, owner_) && std::ranges::all_of(ops_, [](const auto& entry) {
           const auto at = entry.second.at;
           return at == send_state::not_submitted || at == send_state::backend_done;
         });
}

std::optional<send_state> send_owner::state(participant who) const {
  const auto it = ops_.find(who);
  if (it == ops_.end()) return std::nullopt;
  return it->second.at;
}

// ---- receive_owner

bool receive_owner::begin_publication(time_point now) {
  receive_owner* const alone[] = {this};
  return begin_publication(now, alone);
}

bool receive_owner::begin_publication(time_point now, std::span<receive_owner* const> together) {
  if (together.empty()) return false;
  const auto& first = *together.front();
  std::vector<claim_id> claims;
  for (const auto* r : together) {
    if (r->exposed_ || r->unpublished_) return false;
    if (&r->clocks_ != &first.clocks_ || r->owner_ != first.owner_) return false;
    claims.push_back(r->claim_);
  }
  if (!first.clocks_.expose(now, first.owner_, claims)) return false;
  for (auto* r : together) r->exposed_ = r->publishing_ = r->claimed_ = true;
  return true;
}

result<void> receive_owner::seal(std::int64_t count, std::set<rank> members, std::set<rank> candidates) {
  if (count < 0) return fail(errc::invalid, fmt::format("cohort count is {}, must be 0 or more", count));
  if (static_cast<std::size_t>(count) != members.size())
    return fail(errc::invalid, fmt::format("cohort has {} members, its count is {}", members.size(), count));
  if (candidates.size() < members.size() || !std::ranges::includes(candidates, members))
    return fail(errc::invalid,
                fmt::format("{} candidates do not cover the cohort of {}", candidates.size(), count));
  if (sealed_) {
    if (members == members_ && candidates == candidates_) return {};
    return fail(errc::state, "the cohort is sealed, and otherwise");
  }
  sealed_ = true;
  members_ = std::move(members);
  candidates_ = std::move(candidates);
  for (const auto& [who, succeeded] : results_) {
    if (members_.contains(who)) continue;
    valid_ = false;  // and not drained: the claim that publication took stays
    return fail(errc::state, fmt::format("rank {} has reported, and is outside the cohort", who));
  }
  if (local_wanted_ && all_reported_success()) local_pending_ = true;
  return {};
}

void receive_owner::finish_publication(time_point now) {
  if (!publishing_) return;
  publishing_ = false;
  published_ = true;
  settle_when_drained(now);
}

void receive_owner::abort_publication(time_point now, const std::set<rank>& reached) {
  if (!publishing_) return;
  publishing_ = false;
  published_ = true;
  sealed_ = true;
  members_ = reached;
  candidates_.insert(reached.begin(), reached.end());
  settle_when_drained(now);
}

void receive_owner::cancel_unpublished(time_point now) {
  if (exposed_) return;
  unpublished_ = sealed_ = true;
  members_.clear();
  settle_when_drained(now);
}

void receive_owner::retain(time_point now, const std::string& reason) {
  clocks_.retain_unproven(now, owner_, claim_, reason);
  claimed_ = true;
}

error receive_owner::invalidate(time_point now, const std::string& what) {
  valid_ = false;
  retain(now, "writer evidence is invalid");
  return {errc::state, what};
}

result<receive_owner::reported> receive_owner::writer_result(time_point now, rank who, bool succeeded,
                                                             bool wait_for_local_copy) {
  if (!tracked()) return reported{};
  if (!exposed_)
    return tl::unexpected{invalidate(now, fmt::format("rank {} reports before publication", who))};
  if (sealed_ && !members_.contains(who))
    return tl::unexpected{invalidate(now, fmt::format("rank {} is outside the cohort", who))};
  if (doubted_.contains(who)) {
    if (!succeeded) return reported{};  // it says nothing about the access in doubt
    return tl::unexpected{invalidate(now, fmt::format("rank {} succeeds after it was in doubt", who))};
  }
  const auto [it, fresh] = results_.try_emplace(who, succeeded);
  if (!fresh) {
    if (it->second == succeeded) return reported{};
    return tl::unexpected{invalidate(now, fmt::format("rank {} contradicts its own result", who))};
  }
  local_wanted_ = local_wanted_ || wait_for_local_copy;
  const bool all = sealed_ && all_reported_success();
  if (all && local_wanted_) local_pending_ = true;
  settle_when_drained(now);
  return reported{true, all};
}

bool receive_owner::writer_in_doubt(time_point now, rank who) {
  if (!tracked()) return false;
  const bool first = doubted_.insert(who).second;
  retain(now, "backend quiescence unproven");
  return first;
}

bool receive_owner::writer_settled(time_point now, rank who) {
  if (doubted_.erase(who) == 0) return false;
  results_[who] = false;
  settle_when_drained(now);
  return true;
}

result<void> receive_owner::session_quiesced(time_point now, rank who) {
  if (!tracked() || (!exposed_ && knows(who))) return {};
  if (members_.contains(who)) {
    quiesced_.insert(who);
    settle_when_drained(now);
    return {};
  }
  if (candidates_.contains(who)) return {};  // it was never told of the destination
  return tl::unexpected{invalidate(now, fmt::format("rank {} is unknown here", who))};
}

void receive_owner::finish_local_completion(time_point now) {
  local_pending_ = false;
  settle_when_drained(now);
}

bool receive_owner::drained() const {
  if (!sealed_ || publishing_ || local_pending_ || !doubted_.empty() || !valid_) return false;
  return std::ranges::all_of(members_, [&](rank r) { return results_.contains(r) || quiesced_.contains(r); });
}

bool receive_owner::all_reported_success() const {
  return std::ranges::all_of(members_, [&](rank r) {
    const auto found = results_.find(r);
    return found != results_.end() && found->second;
  });
}

bool receive_owner::all_succeeded() const {
  return published_ && sealed_ && valid_ && doubted_.empty() && all_reported_success();
}

void receive_owner::settle_when_drained(time_point now) {
  if (claimed_ && drained()) claimed_ = !clocks_.settle(now, owner_, claim_);
}

}  // namespace kvlease
