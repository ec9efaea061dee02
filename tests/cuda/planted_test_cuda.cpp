// Not part of any run but those of tools/gpu-check, under compute-sanitizer: it has to report each of these.
#include <doctest/doctest.h>

#include "tests/cuda/planted.hpp"

using kvlease::test::planted;
using kvlease::test::run_planted;

TEST_SUITE_BEGIN("gpu-planted");
TEST_CASE("planted out-of-bounds write" * doctest::skip()) {
  MESSAGE("quiet: " << run_planted(planted::out_of_bounds_write));
}
TEST_CASE("planted uninitialized read" * doctest::skip()) {
  MESSAGE("quiet: " << run_planted(planted::uninitialized_read));
}
TEST_CASE("planted race" * doctest::skip()) { MESSAGE("quiet: " << run_planted(planted::race)); }
TEST_SUITE_END();
