// Named mutations of the core (docs/testing.md): each removes one guard of one safety rule, so that the tests
// can be seen to fail without it. Only the target kvlease_core_mutable is built with them, and only the tests
// link it; in the library that users get, `mutated` is a constant false and no switch exists.
// Those of the actors stand in actors/guard.hpp. Beside its test stands which case each must break
// (tests/mutations.hpp).
#pragma once

#include <cstdint>
#include <string_view>

// clang-format off
#define KVLEASE_FOR_EACH_MUTATION(X) \
  X(adapter_ignores_fatal) \
  X(call_after_outcome) \
  X(call_when_refused) \
  X(cancel_before_commit) \
  X(cancel_repeats) \
  X(clock_decides) \
  X(close_keeps_admission) \
  X(commit_skips_elapsed) \
  X(complete_hides_claims) \
  X(complete_keeps_clock) \
  X(contain_inline) \
  X(contain_repeats) \
  X(contain_thread_late) \
  X(copy_error_is_done) \
  X(deadlines_wait_for_calls) \
  X(deaf_to_down) \
  X(deregister_early) \
  X(dispute_is_proof) \
  X(dispute_retries_itself) \
  X(dispute_without_clock) \
  X(drain_from_notice) \
  X(drain_restarts) \
  X(error_as_miss) \
  X(escape_is_rejection) \
  X(exclusive_boundary) \
  X(expose_always) \
  X(expose_moves_clock) \
  X(expose_without_claim) \
  X(expose_without_clock) \
  X(failed_close_counts) \
  X(failed_registration_admits) \
  X(failure_without_drain) \
  X(fatal_admits) \
  X(fatal_of_one_owner) \
  X(fatal_repeats) \
  X(fifo_broken) \
  X(finish_repeats) \
  X(free_with_roots) \
  X(hold_released_early) \
  X(ignore_read_guards) \
  X(jobs_run_inline) \
  X(last_outcome_wins) \
  X(lease_submitted_twice) \
  X(lend_unregistered) \
  X(lost_answer_is_rejection) \
  X(lost_copy_frees) \
  X(mark_undelivered) \
  X(mask_widened) \
  X(miss_as_error) \
  X(outcome_waits_for_release) \
  X(paint_unchecked) \
  X(patience_ignored) \
  X(profile_unchecked) \
  X(publish_before_copy) \
  X(quarantine_counts_twice) \
  X(register_before_hold) \
  X(release_at_outcome) \
  X(release_unsettled) \
  X(retained_before_outcome) \
  X(settle_after_fatal) \
  X(settle_before_copies) \
  X(shutdown_admits) \
  X(shutdown_without_drain) \
  X(skip_elapsed) \
  X(stale_proof_counts) \
  X(stop_with_owners) \
  X(submit_unregistered) \
  X(teardown_after_fatal) \
  X(timeout_without_outcome) \
  X(touch_uncounted) \
  X(two_proofs) \
  X(unbounded_admission) \
  X(unknown_served) \
  X(withdrawal_skipped)
// clang-format on

namespace kvlease {

#define KVLEASE_MUTATION_NAME(name) name,
enum class mutation : std::uint8_t { none, KVLEASE_FOR_EACH_MUTATION(KVLEASE_MUTATION_NAME) };
#undef KVLEASE_MUTATION_NAME

#ifdef KVLEASE_MUTANTS
bool mutated(mutation m) noexcept;
/// Switches the guard of `m` off, and every other on. mutation::none: all on.
void mutate(mutation m) noexcept;
#else
consteval bool mutated(mutation) noexcept { return false; }
#endif

}  // namespace kvlease
