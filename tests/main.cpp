// The tests' main: doctest, and the check that each named mutation breaks the case that is meant to see it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <string_view>

#include "tests/mutations.hpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view{argv[i]} == "--mutation-check")
      return kvlease::check_mutations(i + 1 < argc ? argv[i + 1] : "");
  doctest::Context context{argc, argv};
  return context.run();
}
