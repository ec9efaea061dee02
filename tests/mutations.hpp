// Which test case must fail when a mutation (src/guard.hpp) has removed its guard.
#pragma once

namespace kvlease {

/// Runs each mutation's cases twice, in this process: as they are, when they must pass, and mutated, when at
/// least one must fail. Answers 0 when all is so. Prints a line a mutation.
int check_mutations();

}  // namespace kvlease
