#include "tests/mutations.hpp"

namespace kvlease {
int check_mutations() { return 0; }
}  // namespace kvlease
