// What a runtime lets be seen without asking an actor: the journal, a meter of each actor, and gauges. Actors
// write, anyone reads, nobody waits; so what is stuck can be seen too.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "messages/inspection.hpp"
#include "messages/report.hpp"
#include "messages/retirement.hpp"
#include "messages/staging.hpp"
#include "src/journal.hpp"

namespace kvlease {

inline constexpr std::size_t actor_kind_count = 9;

/// An actor's messages. `arrive` runs on senders' threads, `begin` and `end` on the actor's.
class actor_meter {
 public:
  void arrive(time_point now) noexcept {
    const auto n = arrived_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (marked_.load(std::memory_order_relaxed) > handled_.load(std::memory_order_relaxed)) return;
    marked_since_.store(ns(now), std::memory_order_relaxed);
    marked_.store(n, std::memory_order_release);
  }
  void begin(time_point now) noexcept { inside_since_.store(ns(now), std::memory_order_relaxed); }
  void end(time_point began, time_point now) noexcept {
    busy_.fetch_add(ns(now) - ns(began), std::memory_order_relaxed);
    handled_.fetch_add(1, std::memory_order_relaxed);
    inside_since_.store(0, std::memory_order_relaxed);
  }

  std::int64_t handled() const noexcept { return load(handled_); }
  std::int64_t waiting() const noexcept { return std::max<std::int64_t>(load(arrived_) - load(handled_), 0); }
  std::chrono::nanoseconds busy() const noexcept { return std::chrono::nanoseconds{load(busy_)}; }
  /// Since when it has been in one message; empty between messages.
  std::optional<time_point> inside_since() const noexcept { return at(load(inside_since_)); }
  /// Since when some message has been waiting for its end; at most one message younger than the oldest.
  std::optional<time_point> oldest() const noexcept {
    if (load(marked_) > load(handled_)) return at(load(marked_since_));
    return inside_since();
  }

 private:
  using number = std::atomic<std::int64_t>;
  static std::int64_t ns(time_point t) noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
  }
  static std::optional<time_point> at(std::int64_t t) noexcept {
    if (t == 0) return std::nullopt;
    return time_point{std::chrono::duration_cast<duration>(std::chrono::nanoseconds{t})};
  }
  static std::int64_t load(const number& n) noexcept { return n.load(std::memory_order_relaxed); }
  number arrived_{0}, handled_{0}, busy_{0}, inside_since_{0};
  number marked_{0}, marked_since_{0};
};

/// Buckets from 10 us to 100 s, as Prometheus has them.
class time_histogram {
 public:
  static constexpr std::array<double, 15> bounds{1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05,
                                                 0.1,  0.5,  1,    5,    10,   50,   100};
  void add(duration d) noexcept;
  histogram read() const;

 private:
  std::array<std::atomic<std::uint64_t>, bounds.size() + 1> counts_{};
  std::atomic<std::int64_t> sum_ns_{0};
};

/// Slots of one part by state.
struct pool_gauge {
  std::atomic<std::int64_t> total{0}, free{0}, lent{0}, awaiting_proof{0}, quarantined{0};
};

/// Each is written by one actor.
struct gauges {
  // ---- the arbiter's
  std::array<std::array<std::atomic<std::uint64_t>, 5>, 2> operations{};  ///< by direction, outcome_detail
  time_histogram outcome_to_proof, proof_to_release;
  std::atomic<bool> fatal{false}, draining{false};
  // ---- the adapter's: bytes of leases whose operation
  std::atomic<std::int64_t> backend_running{0};   ///< may be touched by the backend still
  std::atomic<std::int64_t> backend_unproven{0};  ///< has disputed evidence
  std::atomic<std::int64_t> registered{0};        ///< bytes of parts that are registered
  std::atomic<std::int64_t> oldest_held{0};       ///< ns: when the oldest unreleased outcome was; 0 none
  std::atomic<std::int64_t> held{0};              ///< operations with an outcome, not released
  // ---- the lender's: bytes of leases that are
  std::atomic<std::int64_t> ready{0}, copying{0}, reading{0}, quarantined{0};
  std::vector<pool_gauge> pools;  ///< one a part
  // ---- each actor's own
  std::array<std::atomic<std::uint64_t>, actor_kind_count> rejected{};
  std::atomic<std::uint32_t> down{0};  ///< the supervisor's: a bit an actor_kind
};

class observation {
 public:
  /// `log` may be null: there is no journal then.
  observation(std::shared_ptr<journal> log, const std::vector<part>& parts);

  const std::shared_ptr<journal>& log() const noexcept { return log_; }
  gauges& numbers() noexcept { return numbers_; }
  const gauges& numbers() const noexcept { return numbers_; }
  const std::vector<part>& parts() const noexcept { return parts_; }
  void meet(actor_kind kind, std::shared_ptr<const actor_meter> meter);
  std::shared_ptr<const actor_meter> meter(actor_kind kind) const;

  /// All of it from what is kept here: complete, whatever is stuck. `exposure_bytes` is left to the caller.
  inspection_metrics metrics() const;
  /// `budget`: how long memory may be held beyond its outcome.
  health state(time_point now, std::chrono::nanoseconds budget) const;
  std::vector<pool_line> pools() const;

 private:
  std::shared_ptr<journal> log_;
  std::vector<part> parts_;
  gauges numbers_;
  mutable std::mutex mutex_;
  std::array<std::shared_ptr<const actor_meter>, actor_kind_count> meters_;
};

std::string_view to_string(outcome_detail d) noexcept;
outcome_detail detail_of(const outcome& o) noexcept;

}  // namespace kvlease
