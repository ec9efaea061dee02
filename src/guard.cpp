#include "src/guard.hpp"

#ifdef KVLEASE_MUTANTS

#include <atomic>

namespace kvlease {

namespace {
std::atomic<mutation> active{mutation::none};
}

bool mutated(mutation m) noexcept { return active.load(std::memory_order_relaxed) == m; }
void mutate(mutation m) noexcept { active.store(m, std::memory_order_relaxed); }

}  // namespace kvlease

#endif
