// What every device has to do, whether the host stand-in or a GPU. cuda/device_suite_test.cpp runs it on the
// stand-in, cuda/gpu_test.cpp on a GPU, by each path.
#pragma once

#include <memory>

#include "tests/device_bench.hpp"

namespace kvlease::test {

void rows_land_where_they_belong(device_bench& bench, std::uint32_t seed, int rounds);
void bad_batches_queue_nothing(device_bench& bench);
void events_complete_in_order(device_bench& bench);
/// Ordering against the manager's stream, both ways.
void copies_wait_for_the_stream(device_bench& bench, int rounds);
void the_stream_waits_for_copies(device_bench& bench);
/// With the stream held no call waits; the batch is kept; all comes once it is opened.
void no_call_waits(device_bench& bench);
void registered_memory_is_staging(device_bench& bench);
void both_directions_at_once(device_bench& bench);
/// One row of `nbytes`, in and out.
void odd_sizes(device_bench& bench);

}  // namespace kvlease::test
