// On a GPU: the suite of every device, path by path, and what only a GPU has. `tools/gpu-check` runs these;
// elsewhere they say that they skip.
#include "tests/cuda/gpu.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/device_suite.hpp"

namespace kvlease::test {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// Each path forced, through small bounce buffers so that they are used again, and the choice by table.
std::vector<cuda_options> every_path() {
  std::vector<cuda_options> all;
  for (const auto path : all_copy_paths) {
    cuda_options o;
    o.bounce_bytes = 4 * mib;
    o.chunk_bytes = mib;
    o.always = path;
    all.push_back(o);
  }
  all.emplace_back();
  return all;
}

template <class Body>
void on_every_path(Body body) {
  for (const auto& options : every_path()) {
    CAPTURE((options.always ? to_string(*options.always) : "chosen"));
    KVLEASE_ON_GPU(bench, options);
    body(*bench);
  }
}

}  // namespace

TEST_SUITE_BEGIN("gpu");

TEST_CASE("gpu: rows land where they belong, by every path") {
  on_every_path([](device_bench& b) { rows_land_where_they_belong(b, 11, 12); });
}
TEST_CASE("gpu: odd sizes and alignments, by every path") { on_every_path(odd_sizes); }
TEST_CASE("gpu: bad batches queue nothing") { on_every_path(bad_batches_queue_nothing); }
TEST_CASE("gpu: events complete in order, by every path") { on_every_path(events_complete_in_order); }
TEST_CASE("gpu: F24 copies wait for the manager's work, 1,000 runs by every path") {
  on_every_path([](device_bench& b) { copies_wait_for_the_stream(b, 1000); });
}
TEST_CASE("gpu: the manager's work waits for copies, by every path") {
  for (const auto& options : every_path()) {
    CAPTURE((options.always ? to_string(*options.always) : "chosen"));
    KVLEASE_ON_GPU(bench, options);
    the_stream_waits_for_copies(*bench);
  }
}
TEST_CASE("gpu: no call of the port waits, by every path") { on_every_path(no_call_waits); }
TEST_CASE("gpu: the host's own memory") { on_every_path(registered_memory_is_staging); }
TEST_CASE("gpu: both directions, by every path") { on_every_path(both_directions_at_once); }

TEST_CASE("gpu: a batch with an event of its own does not wait for the stream") {
  KVLEASE_ON_GPU(bench);
  auto& d = *bench->port();
  REQUIRE(d.bind_thread());
  const auto pages = *d.allocate_device(mib), staging = *d.allocate_staging(mib);
  std::memset(reinterpret_cast<void*>(staging->address()), 0x5a, mib);
  const auto after = bench->mark();
  bench->hold();
  auto b = std::make_shared<copy_batch>();
  b->rows = {{pages->address(), staging->address(), mib}};
  b->after = after;
  REQUIRE(d.enqueue(b));
  const auto e = d.record(copy_kind::host_to_device);
  REQUIRE(e);
  CHECK(wait_for(*bench, *e));  // though the stream is held
  CHECK(bench->read(pages->address(), 1) == std::vector{std::byte{0x5a}});
  bench->open();
}

TEST_CASE(
    "gpu: while the host captures the manager's stream, copies that need its order are refused, and others "
    "go on") {
  KVLEASE_ON_GPU(bench);
  auto& d = *bench->port();
  REQUIRE(d.bind_thread());
  const auto pages = *d.allocate_device(4096), staging = *d.allocate_staging(4096);
  auto b = std::make_shared<copy_batch>();
  b->rows = {{pages->address(), staging->address(), 4096}};
  const auto after = bench->mark();
  bench->capture();
  const auto refused = d.enqueue(b);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::state);
  CHECK(refused.error().text.find("captured") != std::string::npos);
  auto own = std::make_shared<copy_batch>(*b);
  own->after = after;
  REQUIRE(d.enqueue(own));
  const auto e = d.record(copy_kind::host_to_device);
  REQUIRE(e);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  auto state = d.query(*e);
  while (state == event_state::pending && std::chrono::steady_clock::now() < until) state = d.query(*e);
  CHECK(state == event_state::complete);
  CHECK(bench->end_capture());  // the capture is whole: nothing of ours has broken it
  CHECK_FALSE(d.lost());
  REQUIRE(d.enqueue(b));
  const auto later = d.record(copy_kind::host_to_device);
  REQUIRE(later);
  CHECK(wait_for(*bench, *later));
}

TEST_CASE("gpu: pageable memory is refused by its row, and nothing is queued") {
  KVLEASE_ON_GPU(bench);
  auto& d = *bench->port();
  REQUIRE(d.bind_thread());
  const auto pages = *d.allocate_device(4096), staging = *d.allocate_staging(4096);
  std::vector<std::byte> pageable(4096);
  const auto at = reinterpret_cast<std::uintptr_t>(pageable.data());
  CHECK_FALSE(d.reaches(at, 4096));
  CHECK_FALSE(d.reaches(staging->address(), 4097));
  CHECK(d.reaches(staging->address() + 1, 4095));
  auto b = std::make_shared<copy_batch>();
  b->rows = {{pages->address(), staging->address(), 64}, {pages->address() + 64, at, 64}};
  const auto refused = d.enqueue(b);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid);
  CHECK(refused.error().text.find("row 1") != std::string::npos);
  CHECK(refused.error().text.find("page-locked") != std::string::npos);
  CHECK_FALSE(d.lost());
}

TEST_CASE("gpu: tables that are used up answer capacity until an event was recycled") {
  cuda_options o;
  o.always = copy_path::kernel;
  KVLEASE_ON_GPU(bench, o);
  auto& d = *bench->port();
  REQUIRE(d.bind_thread());
  constexpr std::size_t rows = 100'000;
  const auto pages = *d.allocate_device(rows * 32), staging = *d.allocate_staging(rows * 16);
  std::memset(reinterpret_cast<void*>(staging->address()), 0x21, rows * 16);
  auto b = std::make_shared<copy_batch>();
  for (std::size_t i = 0; i < rows; ++i)
    b->rows.push_back({pages->address() + i * 32, staging->address() + i * 16, 16});
  bench->hold();
  const auto start = std::chrono::steady_clock::now();
  std::vector<device_event> events;
  result<std::size_t> queued = std::size_t{0};
  for (int i = 0; i < 10 && queued; ++i) {
    queued = d.enqueue(b);
    if (!queued) break;
    const auto e = d.record(copy_kind::host_to_device);
    REQUIRE(e);
    events.push_back(*e);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{2});
  REQUIRE_FALSE(queued);
  CHECK(queued.error().code == errc::capacity);
  REQUIRE(events.size() >= 1);
  bench->open();
  for (const auto e : events) {
    REQUIRE(wait_for(*bench, e));
    d.recycle(e);
  }
  REQUIRE(d.enqueue(b));
  const auto e = d.record(copy_kind::host_to_device);
  REQUIRE(e);
  CHECK(wait_for(*bench, *e));
  CHECK(bench->read(pages->address() + (rows - 1) * 32, 1) == std::vector{std::byte{0x21}});
}

TEST_CASE("gpu: staging of neighbouring spans, and a row across them") {
  for (const auto& options : every_path()) {
    CAPTURE((options.always ? to_string(*options.always) : "chosen"));
    KVLEASE_ON_GPU(bench, options);
    auto& d = *bench->port();
    REQUIRE(d.bind_thread());
    constexpr std::size_t row = 4096, rows = 512;  // more than are looked at before the first goes
    std::vector<std::byte> own((rows + 2) * row);
    const auto at = (reinterpret_cast<std::uintptr_t>(own.data()) + row - 1) / row * row;
    const auto first = d.register_staging(at, rows / 2 * row);
    const auto second = d.register_staging(at + rows / 2 * row, rows / 2 * row);
    REQUIRE(first);
    REQUIRE(second);
    const auto pages = *d.allocate_device(2 * rows * row);
    auto b = std::make_shared<copy_batch>();
    for (std::size_t i = 0; i < rows; ++i) {
      std::memset(reinterpret_cast<void*>(at + i * row), static_cast<int>(i % 250 + 1), row);
      b->rows.push_back({pages->address() + 2 * i * row, at + i * row, row});
    }
    REQUIRE(d.enqueue(b));
    const auto e = d.record(copy_kind::host_to_device);
    REQUIRE(e);
    REQUIRE(wait_for(*bench, *e));
    d.recycle(*e);
    for (std::size_t i = 0; i < rows; i += 37)
      CHECK(bench->read(pages->address() + 2 * i * row, 1)[0] == static_cast<std::byte>(i % 250 + 1));
  }
}

TEST_CASE("gpu: options out of range are refused by name") {
  KVLEASE_ON_GPU(bench);
  const auto text = [](auto change) {
    cuda_options o;
    change(o);
    const auto opened = cuda_device::open(o);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code == errc::invalid);
    return opened.error().text;
  };
  CHECK(text([](auto& o) { o.device = 99; }).find("device is 99") == 0);
  CHECK(text([](auto& o) { o.bounce_bytes = 5; }).find("bounce_bytes is 5") == 0);
  CHECK(text([](auto& o) { o.chunk_bytes = o.bounce_bytes; }).find("chunk_bytes is ") == 0);
  CHECK(text([](auto& o) { o.sm_budget = 0; }).find("sm_budget is 0") == 0);
}

TEST_CASE("gpu: two devices of one process, each with its own streams") {
  KVLEASE_ON_GPU(first);
  const auto devices = cuda_devices();
  REQUIRE(devices);
  cuda_options o;
  o.device = static_cast<int>(devices->size()) - 1;  // the same one again, where there is no other
  KVLEASE_ON_GPU(second, o);
  MESSAGE(devices->size() << " GPU(s)");
  rows_land_where_they_belong(*second, 3, 2);
  rows_land_where_they_belong(*first, 4, 2);
  // The stream of one holds up nothing of the other.
  for (auto* b : {first.get(), second.get()}) REQUIRE(b->port()->bind_thread());
  const auto pages = *second->port()->allocate_device(4096),
             staging = *second->port()->allocate_staging(4096);
  auto b = std::make_shared<copy_batch>();
  b->rows = {{pages->address(), staging->address(), 4096}};
  first->hold();
  REQUIRE(second->port()->bind_thread());
  REQUIRE(second->port()->enqueue(b));
  const auto e = second->port()->record(copy_kind::host_to_device);
  REQUIRE(e);
  CHECK(wait_for(*second, *e));
  first->open();
}

TEST_CASE("gpu: an illegal access loses the device: every copy of it is unproven at once") {
  KVLEASE_ON_GPU(bench);
  constexpr const char* in_child = "KVLEASE_GPU_CHILD";
  if (std::getenv(in_child) == nullptr) {
    // It ends CUDA for the whole process, so another one has to.
    const std::string through = "exe=$(readlink -f /proc/" + std::to_string(::getpid()) + "/exe); " +
                                std::string{in_child} +
                                "=1 \"$exe\" --test-case='gpu: an illegal access loses*'";
    CHECK(std::system(through.c_str()) == 0);
    return;
  }
  cuda_options o;
  o.always = copy_path::kernel;
  const auto broken = device_bench::cuda(o);
  REQUIRE(broken);
  auto& d = *(*broken)->port();
  REQUIRE(d.bind_thread());
  const auto pages = *d.allocate_device(4096), staging = *d.allocate_staging(4096);
  auto bad = std::make_shared<copy_batch>();
  bad->rows = {{std::uintptr_t{1} << 60, staging->address(), 64}};
  const auto queue = [&](const std::shared_ptr<copy_batch>& b) {
    const auto queued = d.enqueue(b);
    return queued ? d.record(copy_kind::host_to_device)
                  : result<device_event>{tl::unexpected{queued.error()}};
  };
  const auto e = queue(bad);
  // The error may show in any call from now on; from then on the device is lost.
  result<event_state> state = event_state::pending;
  while (e && state && *state == event_state::pending) state = d.query(*e);
  REQUIRE_FALSE((e && state));
  REQUIRE(d.lost());
  CHECK(d.lost()->code == errc::device);
  CHECK(d.lost()->text.find("cudaError") != std::string::npos);
  auto good = std::make_shared<copy_batch>();
  good->rows = {{pages->address(), staging->address(), 64}};
  CHECK_FALSE(queue(good));
  std::_Exit(0);  // what CUDA's clean-up does on a lost device is not our test
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("gpu-sanitize");

TEST_CASE("gpu: kernels under a sanitizer") {
  cuda_options o;
  o.bounce_bytes = 4 * mib;
  o.chunk_bytes = mib;
  for (const auto path : {copy_path::kernel, copy_path::bulk}) {
    o.always = path;
    KVLEASE_ON_GPU(bench, o);
    rows_land_where_they_belong(*bench, 5, 2);
  }
}

TEST_SUITE_END();
}  // namespace kvlease::test
