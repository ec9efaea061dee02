#include "actors/guard.hpp"

#ifdef KVLEASE_MUTANTS

#include <atomic>

namespace kvlease {

namespace {
std::atomic<actor_mutation> active{actor_mutation::none};
}

bool mutated(actor_mutation m) noexcept { return active.load(std::memory_order_relaxed) == m; }
void mutate(actor_mutation m) noexcept { active.store(m, std::memory_order_relaxed); }

}  // namespace kvlease

#endif
