// Which test case must fail when a mutation (src/guard.hpp) has removed its guard. Written beside the case:
//   static const kvlease::broken_by guard{kvlease::mutation::exclusive_boundary, "4.2 *"};
#pragma once

#include "src/guard.hpp"

namespace kvlease {

/// Registers that the cases that match `pattern` (doctest's --test-case, no commas) fail under `m`.
struct broken_by {
  broken_by(mutation m, const char* pattern);
};

/// Runs the cases of each mutation twice, each time in a process of its own: as they are, when all must pass,
/// and mutated, when at least one must fail by an assertion. Every mutation must be registered.
/// Answers 0 when all is so. Prints a line a mutation.
int check_mutations();

}  // namespace kvlease
