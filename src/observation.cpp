#include "src/observation.hpp"

#include <string>

namespace kvlease {

std::string_view to_string(outcome_detail d) noexcept {
  constexpr std::array<std::string_view, 5> names{"delivered", "failed", "timeout", "cancelled",
                                                  "cancelled_by_peer"};
  return names[static_cast<std::size_t>(d)];
}

outcome_detail detail_of(const outcome& o) noexcept {
  if (const auto* f = std::get_if<failed>(&o))
    return f->reason() == "transfer timeout" ? outcome_detail::timed_out : outcome_detail::failed;
  if (const auto* c = std::get_if<cancelled>(&o))
    return c->by_peer() ? outcome_detail::cancelled_by_peer : outcome_detail::cancelled;
  return outcome_detail::delivered;
}

void time_histogram::add(duration d) noexcept {
  const auto ns = std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count(), 0);
  const auto seconds = static_cast<double>(ns) / 1e9;
  std::size_t i = 0;
  while (i < bounds.size() && seconds > bounds[i]) ++i;
  counts_[i].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
}

histogram time_histogram::read() const {
  histogram h;
  h.upper_seconds.assign(bounds.begin(), bounds.end());
  for (const auto& n : counts_) h.counts.push_back(n.load(std::memory_order_relaxed));
  h.sum_seconds = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) / 1e9;
  return h;
}

observation::observation(std::shared_ptr<journal> log, const std::vector<part>& parts)
    : log_{std::move(log)}, parts_{parts} {
  numbers_.pools = std::vector<pool_gauge>(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    numbers_.pools[p].total = parts[p].slots;
    numbers_.pools[p].free = parts[p].slots;
  }
}

void observation::meet(actor_kind kind, std::shared_ptr<const actor_meter> meter) {
  const std::lock_guard lock{mutex_};
  meters_[static_cast<std::size_t>(kind)] = std::move(meter);
}

std::shared_ptr<const actor_meter> observation::meter(actor_kind kind) const {
  const std::lock_guard lock{mutex_};
  return meters_[static_cast<std::size_t>(kind)];
}

std::vector<pool_line> observation::pools() const {
  std::vector<pool_line> lines;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto& g = numbers_.pools[p];
    pool_line l{.name = parts_[p].name, .slot_bytes = parts_[p].slot_bytes, .map = {}};
    l.total = g.total;
    l.lent = g.lent;
    l.awaiting_proof = g.awaiting_proof;
    l.quarantined = g.quarantined;
    l.free = l.total - l.lent - l.awaiting_proof - l.quarantined;  // read one by one: they must add up
    lines.push_back(std::move(l));
  }
  return lines;
}

inspection_metrics observation::metrics() const {
  inspection_metrics m;
  const auto& g = numbers_;
  for (const auto way : {direction::fetch, direction::publish})
    for (std::uint8_t d = 0; d < 5; ++d)
      m.operations_total[std::string{to_string(way)} + "/" +
                         std::string{to_string(static_cast<outcome_detail>(d))}] =
          g.operations[static_cast<std::size_t>(way)][d];
  const auto some = [](std::int64_t n) { return static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0)); };
  const std::int64_t running = g.backend_running, unproven = g.backend_unproven;
  const bool draining = g.draining;
  m.held_bytes[held_reason::lent_not_submitted] = some(g.ready - running - unproven);
  m.held_bytes[held_reason::backend_access_running] = some(running);
  m.held_bytes[held_reason::backend_end_unproven] = some(unproven);
  m.held_bytes[held_reason::local_copy_pending] = some(g.copying);
  m.held_bytes[held_reason::consumer_reading] = some(g.reading);
  m.held_bytes[held_reason::quarantined] = some(g.quarantined);
  m.held_bytes[held_reason::registered_by_backend] = some(g.registered);
  m.held_bytes[held_reason::shutdown_drain] = draining ? some(g.ready + g.copying + g.reading) : 0;
  m.pools = pools();
  m.fatal = g.fatal;
  m.outcome_to_proof = g.outcome_to_proof.read();
  m.proof_to_release = g.proof_to_release.read();
  if (log_ != nullptr) {
    m.journal_records = log_->last();
    m.journal_lost = log_->lost();
  }
  for (std::size_t k = 0; k < actor_kind_count; ++k)
    m.messages_rejected[std::string{to_string(static_cast<actor_kind>(k))}] = g.rejected[k];
  return m;
}

health observation::state(time_point now, std::chrono::nanoseconds budget) const {
  const auto& g = numbers_;
  if (g.fatal) return health::unproven;
  const std::int64_t oldest = g.oldest_held;
  const auto age =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count() - oldest;
  if (oldest != 0 && age > budget.count()) return health::unproven;
  const bool lost = std::ranges::any_of(g.pools, [](const auto& p) { return p.quarantined > 0; });
  if (lost || g.held > 0 || g.backend_unproven > 0 || g.down != 0) return health::held;
  // Going, and something is there still: it waits for evidence.
  const bool something = g.ready > 0 || g.copying > 0 || g.reading > 0 || g.registered > 0;
  if (g.draining && something) return health::held;
  return health::healthy;
}

}  // namespace kvlease
