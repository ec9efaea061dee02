// Which test case must fail when a mutation (src/guard.hpp, actors/guard.hpp) has removed its guard. Written
// beside the case:
//   static const kvlease::broken_by guard{kvlease::mutation::exclusive_boundary, "4.2 *"};
#pragma once

#include <string_view>

#include "src/guard.hpp"

namespace kvlease {

enum class actor_mutation : std::uint8_t;  // actors/guard.hpp

/// Registers that the cases that match `pattern` (doctest's --test-case, no commas) fail under the mutation.
struct broken_by {
  broken_by(mutation m, const char* pattern);
  broken_by(actor_mutation m, const char* pattern);
};

/// Runs the cases of each mutation twice, each time in a process of its own: as they are, when all must pass,
/// and mutated, to the first failure, when one must fail by an assertion. Every mutation must be registered.
/// The actors' are left out where the build has none of them. `only`: those whose name begins so.
/// Answers 0 when all is so. Prints a line a mutation.
int check_mutations(std::string_view only = {});

}  // namespace kvlease
