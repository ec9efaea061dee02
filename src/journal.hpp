// The journal: every transition of a runtime as a record of fixed size, in a bounded ring. Writers are the
// actors and their workers; they never wait, for each other or for a reader. What a reader was too slow for
// is overwritten, and counted. A file is written by a reader (src/journal_file.hpp), never by a writer.
//
// Order: records are numbered from 1 in the order in which writers came. A writer that notes before it sends
// is numbered before whoever notes what came of it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "messages/ids.hpp"
#include "messages/report.hpp"

namespace kvlease {

// clang-format off
/// name, then what `subject.other` and `value` hold where they hold anything. The order is part of the file
/// format: append only.
#define KVLEASE_FOR_EACH_JOURNAL_KIND(X) \
  /* any actor */ \
  X(actor_up)               /* value: actor_kind */ \
  X(actor_down)             /* value: actor_kind */ \
  /* the manager */ \
  X(request_admitted) \
  X(request_freed) \
  X(rows_pinned)            /* other: pin; value: rows */ \
  X(rows_unpinned)          /* other: pin */ \
  X(rows_kept_pinned)       /* other: pin: for good, its copy is unproven */ \
  /* the lender */ \
  X(lease_opened)           /* detail: direction */ \
  X(lease_granted)          /* value: slots */ \
  X(slots_lent)             /* extra: part; other: first slot; value: count */ \
  X(slots_freed)            /* likewise; without a lease: the pool as it begins */ \
  X(slots_quarantined)      /* likewise */ \
  X(lease_ready) \
  X(lease_failed) \
  X(lease_withdrawn) \
  X(lease_awaiting) \
  X(lease_finishing)        /* value: open read guards */ \
  X(guards_gone) \
  X(copy_started)           /* other: copy; value: rows; detail: copy_kind */ \
  X(copy_completed)         /* other: copy */ \
  X(copy_lost)              /* other: copy */ \
  X(lease_unpinned)         /* other: pin */ \
  X(lease_returned) \
  X(hold_taken)             /* other: hold */ \
  X(hold_released)          /* other: hold */ \
  X(lender_shut) \
  /* the adapter and the backend's workers */ \
  X(operation_admitted)     /* detail: direction */ \
  X(submission_queued) \
  X(submission_entered)     /* a worker calls the provider now */ \
  X(submission_accepted) \
  X(submission_rejected) \
  X(submission_withdrawn) \
  X(submission_escaped) \
  X(outcome_reported)       /* detail: outcome; value: units served */ \
  X(cancel_asked) \
  X(proof_started)          /* other: proof */ \
  X(access_ended)           /* other: proof, 0: nothing was submitted; detail: proof_source */ \
  X(access_disputed)        /* other: proof */ \
  X(lease_finish_asked)     /* value: rows to mark */ \
  X(copies_ended) \
  X(copies_disputed) \
  X(operation_released) \
  X(registration_started)   /* other: registration */ \
  X(registration_made)      /* other: registration */ \
  X(registration_failed)    /* other: registration */ \
  X(registration_closing)   /* other: registration */ \
  X(registration_closed)    /* other: registration */ \
  X(registration_kept)      /* other: registration: its close has failed */ \
  /* the arbiter */ \
  X(owner_created)          /* other: owner; value: T in ns */ \
  X(exposed)                /* other: owner; value: T in ns: the request clock ends at + T */ \
  X(exposure_refused)       /* other: owner, or 0 */ \
  X(registrations_tracked)  /* other: owner; value: T in ns */ \
  X(outcome_committed)      /* other: owner; detail: outcome; value: units served */ \
  X(drain_started)          /* other: owner; value: when, in ns since the start; detail: drain_cause */ \
  X(claim_retained)         /* other: owner */ \
  X(claim_settled)          /* other: owner */ \
  X(claim_refused)          /* other: owner */ \
  X(claim_retired)          /* other: owner */ \
  X(owner_closed)           /* other: owner */ \
  X(fatal_latched)          /* other: owner; value: the grace's end, in ns since the start */ \
  X(admission_closed) \
  X(arbiter_stopped) \
  /* the supervisor */ \
  X(stop_asked)             /* value: its bound in ns */ \
  X(stop_ended)             /* value: 1 stopped, 0 refused */ \
  /* the adapter: the proof ladder */ \
  X(rung_climbed)           /* other: proof; detail: proof_source */ \
  X(operation_taken_down)   /* by a rung climbed for another; other: that one's proof */
// clang-format on

enum class journal_kind : std::uint16_t {
#define KVLEASE_JOURNAL_NAME(name) name,
  KVLEASE_FOR_EACH_JOURNAL_KIND(KVLEASE_JOURNAL_NAME)
#undef KVLEASE_JOURNAL_NAME
};
inline constexpr std::size_t journal_kind_count =
#define KVLEASE_JOURNAL_ONE(name) +1
    0 KVLEASE_FOR_EACH_JOURNAL_KIND(KVLEASE_JOURNAL_ONE);
#undef KVLEASE_JOURNAL_ONE

/// "claim_settled"; "unknown" for a number that is none. Lives for ever.
std::string_view to_string(journal_kind k) noexcept;

/// `detail` of outcomes.
enum class outcome_detail : std::uint8_t { delivered, failed, timed_out, cancelled, cancelled_by_peer };
/// `detail` of drain_started.
enum class drain_cause : std::uint8_t { unsuccessful, timeout, disputed, shutdown };

/// One transition: 64 bytes, in memory and on file.
struct journal_record {
  std::uint64_t sequence = 0;  ///< from 1
  std::int64_t at = 0;         ///< ns since the runtime's start
  journal_kind kind = journal_kind::actor_up;
  actor_kind from = actor_kind::manager;
  std::uint8_t detail = 0;  ///< by kind
  std::uint32_t extra = 0;  ///< by kind
  std::uint64_t operation = 0;
  std::uint64_t lease = 0;
  std::uint64_t request = 0;
  std::uint64_t other = 0;  ///< an id by kind
  std::uint64_t value = 0;  ///< by kind
  friend bool operator==(const journal_record&, const journal_record&) = default;
};
static_assert(sizeof(journal_record) == 64);

class journal {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// `capacity` records, rounded up to a power of two, at least 64. `start` is time zero of the records.
  journal(incarnation of, std::size_t capacity, time_point start);

  /// Any thread. Numbers and stores the record; `sequence` and `at` are set here. Never waits: where the ring
  /// has been lapped during another's write, the record is dropped and its number counts as lost.
  void write(time_point now, journal_record r) noexcept;

  /// Records behind number `after`, in order, at most `limit`; adds to `lost` those before the last of them
  /// that were overwritten or dropped. Stops before one that is being written. Any thread.
  std::vector<journal_record> read(std::uint64_t after, std::size_t limit, std::uint64_t& lost) const;

  /// Of the newest record; how many there were.
  std::uint64_t last() const noexcept { return head_.load(std::memory_order_acquire); }
  std::size_t capacity() const noexcept { return mask_ + 1; }
  incarnation runtime() const noexcept { return runtime_; }
  time_point start() const noexcept { return start_; }
  /// Records that the file's writer missed.
  void count_lost(std::uint64_t n) noexcept { lost_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t words = sizeof(journal_record) / sizeof(std::uint64_t);
  /// The first word is the record's number: 0 never written, `busy` being written.
  struct alignas(64) cell {
    std::array<std::atomic<std::uint64_t>, words> word{};
  };
  static constexpr std::uint64_t busy = ~std::uint64_t{0};
  enum class found : std::uint8_t { yes, not_yet, gone };
  found load(std::uint64_t sequence, journal_record& into) const noexcept;

  incarnation runtime_;
  time_point start_;
  std::size_t mask_;
  std::unique_ptr<cell[]> cells_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> lost_{0};
};

}  // namespace kvlease
