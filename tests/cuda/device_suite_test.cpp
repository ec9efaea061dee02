// The suite of tests/cuda/device_suite.hpp on the host stand-in.
#include "tests/cuda/device_suite.hpp"

#include <doctest/doctest.h>

namespace kvlease::test {
namespace {

std::shared_ptr<device_bench> stand_in() { return device_bench::host(host_stream::threaded); }

TEST_CASE("device suite, host: rows land where they belong") {
  rows_land_where_they_belong(*stand_in(), 1, 6);
}
TEST_CASE("device suite, host: odd sizes and alignments") { odd_sizes(*stand_in()); }
TEST_CASE("device suite, host: bad batches queue nothing") { bad_batches_queue_nothing(*stand_in()); }
TEST_CASE("device suite, host: events complete in order") { events_complete_in_order(*stand_in()); }
TEST_CASE("device suite, host: copies wait for the manager's work") {
  copies_wait_for_the_stream(*stand_in(), 50);
}
TEST_CASE("device suite, host: the manager's work waits for copies") {
  the_stream_waits_for_copies(*stand_in());
}
TEST_CASE("device suite, host: no call waits") { no_call_waits(*stand_in()); }
TEST_CASE("device suite, host: the host's own memory") { registered_memory_is_staging(*stand_in()); }
TEST_CASE("device suite, host: both directions") { both_directions_at_once(*stand_in()); }

}  // namespace
}  // namespace kvlease::test
