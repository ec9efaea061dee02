// Named mutations of the actors (docs/testing.md): each removes one guard that an actor holds, so that the
// tests can be seen to fail without it. Only the build with KVLEASE_MUTANTS=ON (preset "mutants", tests
// alone) has them; in every other `mutated` is a constant false, and no name and no switch exists.
// Those of the core stand in src/guard.hpp. Beside its test stands which case each must break
// (tests/mutations.hpp).
#pragma once

#include <cstdint>

// clang-format off
#define KVLEASE_FOR_EACH_ACTOR_MUTATION(X) \
  /* adapter */ \
  X(adapter_believes_foreign_down) \
  X(backend_death_ignored) \
  X(collector_death_ignored) \
  X(lender_death_ignored) \
  X(arbiter_death_ignored) \
  X(submit_to_dead_backend) \
  X(prove_at_dead_collector) \
  X(finish_at_dead_lender) \
  X(dead_peer_admits) \
  X(fatal_admits_operations) \
  X(operations_unbounded) \
  X(submissions_unbounded) \
  X(foreign_owner_admitted) \
  X(owner_used_twice) \
  X(bad_extent_keeps_lease) \
  X(route_of_publish_ignored) \
  X(started_twice) \
  X(close_keeps_operations) \
  X(unknown_cancel_answered) \
  /* backend */ \
  X(withdrawn_is_called) \
  X(closed_route_is_none) \
  X(rejected_is_escaped) \
  X(escaped_is_rejected) \
  X(attempt_not_rooted) \
  X(broken_poll_is_pending) \
  X(cancel_error_lost) \
  X(failed_registration_is_done) \
  X(broken_close_is_done) \
  X(broken_route_close_is_done) \
  X(unposted_submission_is_silent) \
  X(probe_error_is_miss) \
  /* proof collector */ \
  X(broken_proof_is_end) \
  X(false_proof_is_end) \
  X(unproven_is_end) \
  X(running_is_end) \
  X(missing_attempt_is_end) \
  X(one_answer_for_all) \
  X(stale_answer_counts) \
  X(unposted_proof_is_silent) \
  X(climbs_for_proven) \
  X(ladder_climbed_unasked) \
  /* lender */ \
  X(lender_believes_foreign_down) \
  X(cuda_death_ignored) \
  X(manager_death_ignored) \
  X(owned_lease_withdrawn) \
  X(guards_unasked) \
  X(freed_slot_keeps_right) \
  X(freed_slot_unpainted) \
  X(granted_slot_unchecked) \
  X(publish_may_write) \
  /* manager */ \
  X(manager_believes_foreign_down) \
  X(move_unpinned_early) \
  X(lost_move_unpinned) \
  X(move_at_dead_cuda) \
  X(moves_unanswered) \
  /* deadline arbiter */ \
  X(arbiter_believes_foreign_down) \
  X(adapter_death_ignored) \
  X(cancel_past_adapter) \
  X(timer_not_advanced) \
  X(fatal_uncontained) \
  X(fatal_untold) \
  X(late_watcher_untold) \
  /* supervisor */ \
  X(death_untold) \
  X(arbiter_death_uncontained) \
  X(stop_skips_admission) \
  X(stop_skips_adapter) \
  X(stop_skips_lender) \
  X(stop_skips_arbiter) \
  /* CUDA actor */ \
  X(device_used_unbound) \
  X(failed_enqueue_goes_on) \
  X(failed_record_is_complete) \
  X(failed_query_is_complete) \
  X(pending_is_complete) \
  X(event_recycled_early) \
  X(stale_poll_counts) \
  X(lost_device_spares_others) \
  X(queue_unbounded)
// clang-format on

namespace kvlease {

#define KVLEASE_MUTATION_NAME(name) name,
enum class actor_mutation : std::uint8_t { none, KVLEASE_FOR_EACH_ACTOR_MUTATION(KVLEASE_MUTATION_NAME) };
#undef KVLEASE_MUTATION_NAME

#ifdef KVLEASE_MUTANTS
bool mutated(actor_mutation m) noexcept;
/// Switches the guard of `m` off, and every other of the actors on. actor_mutation::none: all on.
void mutate(actor_mutation m) noexcept;
#else
consteval bool mutated(actor_mutation) noexcept { return false; }
#endif

}  // namespace kvlease
