#include "src/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/guard.hpp"

namespace kvlease {

read_guard& read_guard::operator=(read_guard&& o) noexcept {
  if (this != &o) {
    drop();
    of_ = std::move(o.of_);
    lease_ = o.lease_;
    view_ = std::move(o.view_);
  }
  return *this;
}

void read_guard::drop() {
  if (auto of = std::exchange(of_, nullptr)) of->drop_guard(lease_);
}

void ledger::root_lease(lease_id lease, direction way, request_id request,
                        std::shared_ptr<const region_view> view) {
  const std::lock_guard lock{mutex_};
  leases_.emplace(lease, lease_entry{.way = way, .request = request, .view = std::move(view), .owner = {}});
}

result<std::shared_ptr<const region_view>> ledger::claim_lease(lease_id lease, operation_id by, direction way,
                                                               request_id request) {
  const std::lock_guard lock{mutex_};
  const auto it = leases_.find(lease);
  if (it == leases_.end())
    return fail(errc::invalid, "lease " + to_string(lease) + " is not ready, or not of this runtime");
  auto& l = it->second;
  if (l.owner && !mutated(mutation::lease_submitted_twice))
    return fail(errc::state, fmt::format("lease {} is already owned by operation {}", to_string(lease),
                                         to_string(l.owner)));
  if (l.way != way)
    return fail(errc::invalid, fmt::format("lease {} is for a {}, not for a {}", to_string(lease),
                                           to_string(l.way), to_string(way)));
  if (l.request != request)
    return fail(errc::invalid, fmt::format("lease {} is request {}'s, not request {}'s", to_string(lease),
                                           to_string(l.request), to_string(request)));
  l.owner = by;
  return l.view;
}

void ledger::unclaim_lease(lease_id lease, operation_id by) {
  const std::lock_guard lock{mutex_};
  const auto it = leases_.find(lease);
  if (it != leases_.end() && it->second.owner == by) it->second.owner = operation_id{};
}

result<void> ledger::withdraw_lease(lease_id lease) {
  const std::lock_guard lock{mutex_};
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return fail(errc::unknown, "lease " + to_string(lease) + " is not ready here");
  if (it->second.owner)
    return fail(errc::state, fmt::format("lease {} is owned by operation {}: cancel that", to_string(lease),
                                         to_string(it->second.owner)));
  if (it->second.guards > 0)
    return fail(errc::state,
                fmt::format("lease {} has {} open read guards", to_string(lease), it->second.guards));
  leases_.erase(it);
  return {};
}

result<read_guard> ledger::guard(lease_id lease) {
  const std::lock_guard lock{mutex_};
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return fail(errc::unknown, "lease " + to_string(lease) + " is not ready here");
  if (it->second.finishing)
    return fail(errc::state, "lease " + to_string(lease) + " is finishing: no new read guard");
  ++it->second.guards;
  return read_guard{shared_from_this(), lease, it->second.view};
}

std::size_t ledger::guards(lease_id lease) const {
  const std::lock_guard lock{mutex_};
  const auto it = leases_.find(lease);
  return it == leases_.end() ? 0 : it->second.guards;
}

std::size_t ledger::begin_finish(lease_id lease) {
  const std::lock_guard lock{mutex_};
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return 0;
  it->second.finishing = true;
  return mutated(mutation::ignore_read_guards) ? 0 : it->second.guards;
}

void ledger::on_guards_gone(std::function<void(lease_id)> gone) {
  const std::lock_guard lock{mutex_};
  guards_gone_ = std::move(gone);
}

void ledger::drop_guard(lease_id lease) {
  std::function<void(lease_id)> tell_them;
  {
    const std::lock_guard lock{mutex_};
    const auto it = leases_.find(lease);
    if (it == leases_.end() || it->second.guards == 0) return;
    if (--it->second.guards == 0 && it->second.finishing) tell_them = guards_gone_;
  }
  if (tell_them) tell_them(lease);
}

void ledger::root_operation(operation_id op, lease_id lease, std::shared_ptr<const cache_extent> extent) {
  const std::lock_guard lock{mutex_};
  operations_.emplace(
      op, operation_entry{lease, std::move(extent), std::make_shared<submission_token>(), nullptr});
}

std::shared_ptr<const cache_extent> ledger::extent(operation_id op) const {
  const std::lock_guard lock{mutex_};
  const auto it = operations_.find(op);
  return it == operations_.end() ? nullptr : it->second.extent;
}

std::shared_ptr<submission_token> ledger::token(operation_id op) const {
  const std::lock_guard lock{mutex_};
  const auto it = operations_.find(op);
  return it == operations_.end() ? nullptr : it->second.token;
}

void ledger::root_attempt(operation_id op, std::shared_ptr<attempt> a) {
  const std::lock_guard lock{mutex_};
  const auto it = operations_.find(op);
  if (it != operations_.end()) it->second.handle.swap(a);
}

std::shared_ptr<attempt> ledger::attempt_of(operation_id op) const {
  const std::lock_guard lock{mutex_};
  const auto it = operations_.find(op);
  return it == operations_.end() ? nullptr : it->second.handle;
}

std::vector<operation_id> ledger::operations_of(const std::vector<std::shared_ptr<attempt>>& attempts) const {
  std::vector<operation_id> found;
  const std::lock_guard lock{mutex_};
  for (const auto& [op, entry] : operations_)
    if (entry.handle != nullptr && std::ranges::find(attempts, entry.handle) != attempts.end())
      found.push_back(op);
  std::ranges::sort(found);
  return found;
}

bool ledger::erase(const settle_token& token) {
  operation_entry gone;  // its handles are destroyed outside the lock
  const std::lock_guard lock{mutex_};
  const auto it = operations_.find(token.operation());
  if (it == operations_.end()) return false;
  gone = std::move(it->second);
  operations_.erase(it);
  leases_.erase(gone.lease);
  return true;
}

void ledger::root_route(route_id id, std::shared_ptr<route> r) {
  const std::lock_guard lock{mutex_};
  routes_.emplace(id, std::move(r));
}

std::shared_ptr<route> ledger::route_of(route_id id) const {
  const std::lock_guard lock{mutex_};
  const auto it = routes_.find(id);
  return it == routes_.end() ? nullptr : it->second;
}

void ledger::route_closed(route_id id) {
  std::shared_ptr<route> gone;  // destroyed outside the lock
  const std::lock_guard lock{mutex_};
  const auto it = routes_.find(id);
  if (it == routes_.end()) return;
  gone = std::move(it->second);
  routes_.erase(it);
}

void ledger::root_registration(registration_id id, std::shared_ptr<registration> handle) {
  const std::lock_guard lock{mutex_};
  registrations_.emplace(id, std::move(handle));
}

std::shared_ptr<registration> ledger::registration_of(registration_id id) const {
  const std::lock_guard lock{mutex_};
  const auto it = registrations_.find(id);
  return it == registrations_.end() ? nullptr : it->second;
}

void ledger::registration_closed(registration_id id) {
  std::shared_ptr<registration> gone;  // the provider's handle is destroyed outside the lock
  const std::lock_guard lock{mutex_};
  if (auto found = registrations_.extract(id)) gone = std::move(found.mapped());
}

void ledger::root_memory(std::shared_ptr<memory_block> block) {
  const std::lock_guard lock{mutex_};
  memory_.push_back(std::move(block));
}

void ledger::root_keepalive(std::shared_ptr<void> thing) {
  const std::lock_guard lock{mutex_};
  keepalive_.push_back(std::move(thing));
}

std::vector<std::string> ledger::rest_locked() const {
  std::vector<std::string> lines;
  for (const auto& [id, op] : operations_)
    lines.push_back("operation " + to_string(id) + " on lease " + to_string(op.lease));
  for (const auto& [id, l] : leases_)
    if (!l.owner || l.guards > 0)
      lines.push_back(
          fmt::format("lease {} ({}, {} read guards)", to_string(id), to_string(l.way), l.guards));
  for (const auto& [id, r] : registrations_) lines.push_back("registration " + to_string(id));
  std::ranges::sort(lines);
  return lines;
}

result<void> ledger::release_memory() {
  const std::lock_guard lock{mutex_};
  const auto rest = rest_locked();
  if (!rest.empty() && !mutated(mutation::free_with_roots))
    return fail(errc::state,
                fmt::format("staging memory is kept for {} roots, first: {}", rest.size(), rest[0]));
  for (auto& block : std::exchange(memory_, {})) released_.push_back(std::move(block));
  return {};
}

void ledger::free_memory() {
  std::vector<std::shared_ptr<memory_block>> gone;  // destroyed outside the lock
  const std::lock_guard lock{mutex_};
  gone.swap(released_);
}

std::vector<std::string> ledger::rest() const {
  const std::lock_guard lock{mutex_};
  return rest_locked();
}

std::size_t ledger::operations() const {
  const std::lock_guard lock{mutex_};
  return operations_.size();
}

std::size_t leave_mapped(std::shared_ptr<ledger> kept) {
  // Never destroyed on purpose: what it roots may still be written by a backend until the process ends.
  static std::mutex mutex;
  static auto* graveyard = new std::vector<std::shared_ptr<ledger>>;
  const std::lock_guard lock{mutex};
  graveyard->push_back(std::move(kept));
  return graveyard->size();
}

}  // namespace kvlease
