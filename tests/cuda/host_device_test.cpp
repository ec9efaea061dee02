// cuda/host_device.hpp: the stream's order, its events, and each fault, in each mode.
#include "cuda/host_device.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kvlease {
namespace {

constexpr host_stream all_modes[] = {host_stream::threaded, host_stream::inline_, host_stream::manual};

std::byte* at(const std::shared_ptr<memory_block>& m) { return reinterpret_cast<std::byte*>(m->address()); }

/// A device with a few rows of 64 bytes on either side; host row i is filled with i + 1.
struct rig {
  static constexpr std::size_t rows = 8;
  static constexpr std::size_t row_bytes = 64;
  explicit rig(host_stream mode) : device{mode} {
    REQUIRE(device.bind_thread());
    for (std::size_t i = 0; i < rows; ++i)
      std::memset(at(host) + i * row_bytes, static_cast<int>(i + 1), row_bytes);
  }

  /// The memory goes before the device does.
  ~rig() { device.hold(); }

  std::shared_ptr<const copy_batch> batch(
      const std::vector<std::pair<std::size_t, std::size_t>>& to_from) const {
    auto b = std::make_shared<copy_batch>();
    for (const auto& [to, from] : to_from)
      b->rows.push_back({pages->address() + to * row_bytes, host->address() + from * row_bytes, row_bytes});
    return b;
  }
  int page(std::size_t i) const { return std::to_integer<int>(at(pages)[i * row_bytes + row_bytes - 1]); }
  device_event record() {
    const auto e = device.record(copy_kind::host_to_device);
    REQUIRE(e);
    return *e;
  }
  event_state state(device_event e) {
    const auto s = device.query(e);
    REQUIRE(s);
    return *s;
  }
  /// Waits for the worker; the other modes have run by now.
  void wait(device_event e) {
    const auto start = std::chrono::steady_clock::now();
    while (state(e) == event_state::pending) {
      REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds{20});
      std::this_thread::yield();
    }
  }

  host_device device;
  std::shared_ptr<memory_block> pages = *device.allocate_device(rows * row_bytes);
  std::shared_ptr<memory_block> host = *device.allocate_staging(rows * row_bytes);
};

TEST_CASE("host device: memory is zero, 4 KiB aligned, and refused by size") {
  host_device d{host_stream::inline_};
  for (const bool staging : {false, true}) {
    const auto m = staging ? d.allocate_staging(10'000) : d.allocate_device(10'000);
    REQUIRE(m);
    CHECK((*m)->size() == 10'000);
    CHECK((*m)->address() % 4096 == 0);
    for (std::size_t i = 0; i < 10'000; ++i) REQUIRE(at(*m)[i] == std::byte{0});
  }
  constexpr auto huge = std::numeric_limits<std::size_t>::max() / 4;
  const auto refused = d.allocate_device(huge);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::no_memory);
  CHECK(refused.error().text.find(std::to_string(huge)) != std::string::npos);
  CHECK(d.allocate_staging(0).error() ==
        error{errc::invalid, "staging memory of 0 bytes, must be 1 or more"});
  CHECK(d.describe() == "host stand-in, stream inline");
}

TEST_CASE("host device: copies run in the order in which they were queued, rows too") {
  for (const auto mode : all_modes) {
    rig r{mode};
    REQUIRE(r.device.enqueue(r.batch({{0, 1}, {0, 2}, {1, 3}})));
    REQUIRE(r.device.enqueue(r.batch({{1, 4}})));
    const auto e = r.record();
    r.device.open();
    r.wait(e);
    CHECK(r.page(0) == 3);
    CHECK(r.page(1) == 5);
    CHECK(r.page(2) == 0);
    CHECK(r.device.rows_copied() == 4);
  }
}

TEST_CASE("host device: both ways") {
  rig r{host_stream::threaded};
  REQUIRE(r.device.enqueue(r.batch({{0, 6}})));
  auto back = std::make_shared<copy_batch>();
  back->kind = copy_kind::device_to_host;
  back->rows = {{r.host->address(), r.pages->address(), rig::row_bytes}};
  REQUIRE(r.device.enqueue(back));
  r.wait(r.record());
  CHECK(at(r.host)[0] == std::byte{7});
}

TEST_CASE("host device: an event completes once all before it has run, and not before") {
  rig r{host_stream::manual};
  const auto first = r.record();
  REQUIRE(r.device.enqueue(r.batch({{0, 1}})));
  const auto second = r.record();
  CHECK(r.device.queued() == 3);
  CHECK(r.state(first) == event_state::pending);
  CHECK(r.device.run(1) == 1);
  CHECK(r.state(first) == event_state::complete);
  CHECK(r.page(0) == 0);
  CHECK(r.device.run(1) == 1);
  CHECK(r.page(0) == 2);
  CHECK(r.state(second) == event_state::pending);
  CHECK(r.device.run(5) == 1);
  CHECK(r.state(second) == event_state::complete);
  CHECK(r.device.queued() == 0);
}

TEST_CASE("host device: held work waits for open in every mode, and the batch is kept until then") {
  for (const auto mode : all_modes) {
    rig r{mode};
    r.device.hold();
    auto batch = r.batch({{0, 1}});
    const std::weak_ptr<const copy_batch> watch = batch;
    REQUIRE(r.device.enqueue(std::move(batch)));
    const auto e = r.record();
    // A worker that does not heed the hold has all the time that it needs.
    if (mode == host_stream::threaded) std::this_thread::sleep_for(std::chrono::milliseconds{50});
    CHECK(r.state(e) == event_state::pending);
    CHECK(r.page(0) == 0);
    CHECK(r.device.queued() == 2);
    CHECK_FALSE(watch.expired());
    r.device.open();
    r.wait(e);
    CHECK(r.page(0) == 2);
    CHECK(watch.expired());
    // Open is for good, until the next hold.
    REQUIRE(r.device.enqueue(r.batch({{0, 2}})));
    r.wait(r.record());
    CHECK(r.page(0) == 3);
  }
}

TEST_CASE("host device: recycled events are no longer known; only complete ones are taken back") {
  rig r{host_stream::manual};
  const auto e = r.record();
  r.device.recycle(e);
  CHECK(r.device.bad_recycles() == 1);
  CHECK(r.device.live_events() == 1);
  r.device.run(1);
  r.device.recycle(e);  // complete, but nobody has seen it
  CHECK(r.device.bad_recycles() == 2);
  CHECK(r.state(e) == event_state::complete);
  r.device.recycle(e);
  CHECK(r.device.live_events() == 0);
  CHECK(r.device.bad_recycles() == 2);
  CHECK(r.device.query(e).error().code == errc::unknown);
  CHECK(r.device.query(device_event{77}).error() ==
        error{errc::unknown, "event 77: not recorded on this device, or recycled"});
  CHECK(r.device.query(device_event{}).error().code == errc::unknown);
}

TEST_CASE("host device: bad batches queue nothing") {
  rig r{host_stream::manual};
  CHECK(r.device.enqueue(nullptr).error().code == errc::invalid);
  auto b = std::make_shared<copy_batch>();
  b->rows = {{r.pages->address(), r.host->address(), 1}, {r.pages->address(), 0, 1}};
  CHECK(r.device.enqueue(b).error() == error{errc::invalid, "copy batch: row 1 has a null address"});
  CHECK(r.device.queued() == 0);
  b->rows = {{0, 0, 0}};
  CHECK(r.device.enqueue(b));
}

TEST_CASE("host device: a failing enqueue copies the rows before it, in order, once") {
  for (const auto mode : all_modes) {
    rig r{mode};
    REQUIRE(r.device.enqueue(r.batch({{0, 1}})));
    r.device.fail_next_enqueue(2);
    const auto failed = r.device.enqueue(r.batch({{0, 2}, {1, 2}, {2, 2}}));
    REQUIRE_FALSE(failed);
    CHECK(failed.error() == error{errc::device, "copy batch: failed after 2 of 3 rows (injected)"});
    CHECK(r.device.faults_struck() == 1);
    REQUIRE(r.device.enqueue(r.batch({{3, 3}})));
    const auto e = r.record();
    r.device.open();
    r.wait(e);
    CHECK(r.page(0) == 3);
    CHECK(r.page(1) == 3);
    CHECK(r.page(2) == 0);
    CHECK(r.page(3) == 4);
    r.device.fail_next_enqueue(9);
    CHECK_FALSE(r.device.enqueue(r.batch({{4, 4}})));
    r.wait(r.record());
    CHECK(r.page(4) == 5);
  }
}

TEST_CASE("host device: a failing record records nothing, once") {
  for (const auto mode : all_modes) {
    rig r{mode};
    r.device.fail_next_record();
    CHECK(r.device.faults_struck() == 0);
    CHECK(r.device.record(copy_kind::host_to_device).error().code == errc::device);
    CHECK(r.device.faults_struck() == 1);
    CHECK(r.device.live_events() == 0);
    r.device.open();
    r.wait(r.record());
  }
}

TEST_CASE("host device: an event whose query failed stays in error; others do not") {
  for (const auto mode : all_modes) {
    rig r{mode};
    const auto a = r.record();
    const auto b = r.record();
    r.device.open();
    r.device.fail_next_query();
    CHECK(r.device.query(a).error() == error{errc::device, "event 1: query failed (injected)"});
    r.wait(b);
    CHECK(r.device.query(a).error().code == errc::device);
    r.device.recycle(a);
    CHECK(r.device.bad_recycles() == 1);
    CHECK(r.device.query(a).error().code == errc::device);
    CHECK(r.device.faults_struck() == 1);
  }
}

TEST_CASE("host device: enqueue does not wait for the worker") {
  rig r{host_stream::threaded};
  r.device.hold();
  std::vector<device_event> events;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(r.device.enqueue(r.batch({{0, static_cast<std::size_t>(i % 8)}})));
    events.push_back(r.record());
  }
  CHECK(r.device.queued() == 200);
  CHECK(r.device.run(2) == 2);
  CHECK(r.state(events[0]) == event_state::complete);
  CHECK(r.state(events[1]) == event_state::pending);
  r.device.open();
  r.wait(events.back());
  for (const auto e : events) CHECK(r.state(e) == event_state::complete);
}

TEST_CASE("host device: complete, and held, mean that the last byte of a long copy is there") {
  constexpr std::size_t size = 64 << 20;
  host_device d;
  const auto from = *d.allocate_staging(size);
  std::memset(at(from), 0x5a, size);
  for (const bool by_hold : {false, true}) {
    const auto to = *d.allocate_device(size);
    auto b = std::make_shared<copy_batch>();
    b->rows = {{to->address(), from->address(), size}};
    REQUIRE(d.enqueue(b));
    const auto e = *d.record(copy_kind::host_to_device);
    if (by_hold) {
      while (d.queued() == 2) std::this_thread::yield();
      d.hold();
    } else {
      while (*d.query(e) == event_state::pending) std::this_thread::yield();
    }
    CHECK(at(to)[size - 1] == std::byte{0x5a});
    d.open();
    while (*d.query(e) == event_state::pending) std::this_thread::yield();
  }
}

TEST_CASE("host device: destroying it ends the worker and drops what is queued") {
  std::shared_ptr<memory_block> pages;
  std::weak_ptr<const copy_batch> watch;
  const auto start = std::chrono::steady_clock::now();
  {
    rig r{host_stream::threaded};
    pages = r.pages;
    r.device.hold();
    auto b = r.batch({{0, 1}});
    watch = b;
    REQUIRE(r.device.enqueue(std::move(b)));
  }
  CHECK(watch.expired());
  CHECK(at(pages)[0] == std::byte{0});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{5});
}

TEST_CASE("host device: destroying it stops a long batch between rows") {
  constexpr std::size_t size = 1 << 20;
  host_device memory{host_stream::inline_};
  const auto to = *memory.allocate_device(size);
  const auto from = *memory.allocate_staging(size);
  const auto start = std::chrono::steady_clock::now();
  {
    host_device d;
    auto b = std::make_shared<copy_batch>();
    b->rows.assign(1'000'000, {to->address(), from->address(), size});  // a minute or more of copying
    REQUIRE(d.enqueue(b));
    while (d.rows_copied() == 0) std::this_thread::yield();
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{10});
}

TEST_CASE("host device: one thread is bound for good when threaded") {
  const auto bind_elsewhere = [](host_device& d) {
    bool ok = false;
    std::thread{[&] { ok = d.bind_thread().has_value(); }}.join();
    return ok;
  };
  host_device threaded;
  REQUIRE(threaded.bind_thread());
  CHECK(threaded.bind_thread());
  CHECK_FALSE(bind_elsewhere(threaded));
  host_device in_line{host_stream::inline_};
  REQUIRE(in_line.bind_thread());
  CHECK(bind_elsewhere(in_line));
}

TEST_CASE("host device: held, opened and read by one thread while another uses the stream") {
  rig r{host_stream::threaded};
  std::atomic<bool> stop{false};
  std::thread switcher{[&] {
    while (!stop) {
      r.device.hold();
      r.device.run(1);
      (void)r.device.queued();
      (void)r.device.faults_struck();
      r.device.open();
    }
  }};
  bool ordered = true;
  for (int i = 0; i < 500; ++i) {
    const auto from = static_cast<std::size_t>(i) % rig::rows;
    REQUIRE(r.device.enqueue(r.batch({{0, (from + 1) % rig::rows}, {0, from}})));
    const auto e = r.record();
    r.wait(e);
    ordered = ordered && r.page(0) == static_cast<int>(from) + 1;  // safe to read: the event is complete
    r.device.recycle(e);
  }
  stop = true;
  switcher.join();
  CHECK(ordered);
  CHECK(r.device.live_events() == 0);
  CHECK(r.device.bad_recycles() == 0);
}

}  // namespace
}  // namespace kvlease
