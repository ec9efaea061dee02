// Scenarios 7.F: the adapter on real device pages. Each row runs on the host stand-in, whose pages are host
// memory behind the same stream and events, and on a GPU where there is one. 32 tokens a block, a prompt of
// 97, staging of exactly one fetch, T = 120 s, a backend that resolves real staging addresses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/cuda/gpu.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

constexpr std::int64_t tpb = 32, page_bytes = 256;

using bench_pointer = std::shared_ptr<device_bench>;
bench_pointer host() { return device_bench::host(); }

world_options one_fetch(bench_pointer bench) {
  world_options o;
  o.bench = std::move(bench);
  o.tokens_per_block = tpb;
  o.page_bytes = page_bytes;
  o.slots = 3;
  o.pages = 6;
  o.timeout = std::chrono::seconds{120};
  return o;
}

std::vector<std::byte> block_of(std::byte fill) { return std::vector<std::byte>(page_bytes, fill); }
constexpr std::byte sentinel{0xee};
std::byte source(std::size_t row) { return static_cast<std::byte>(0x10 + row); }

struct fetch_bench {
  explicit fetch_bench(world_options o) : w{o} {
    target = w.admit(97);
    REQUIRE(w.grow(target, 96));
    const auto pages = *w.manager->rows(target, {0, 96});
    for (const auto& row : pages) w.bench->fill(row.address, sentinel, row.nbytes);
    lease = *w.lend(direction::fetch, target, {0, 96});
    view = w.of(lease).view;
    REQUIRE(view != nullptr);
    op = *w.submit(direction::fetch, lease, target);
  }
  /// The backend writes these rows into staging.
  void land(const std::vector<std::size_t>& rows) {
    for (const auto i : rows)
      std::memset(reinterpret_cast<void*>(view->runs()[0].where()->addresses[i]),
                  std::to_integer<int>(source(i)), page_bytes);
  }
  void deliver(const std::vector<std::size_t>& rows) {
    land(rows);
    w.provider->last().deliver(rows);
    w.advance(200ms);
  }
  void end_access() {
    w.provider->last().end_access();
    w.advance(200ms);
  }
  void check_pages(const std::vector<std::size_t>& arrived) {
    for (std::size_t i = 0; i < 3; ++i) {
      const bool there = std::ranges::find(arrived, i) != arrived.end();
      CHECK(w.page(target, static_cast<std::int64_t>(i)) == block_of(there ? source(i) : sentinel));
    }
  }
  std::int64_t copied() { return w.figure(actor_kind::cuda, "bytes"); }
  void close() {
    const auto report = w.stop();
    CAPTURE((report.retained.empty() ? std::string{} : report.retained.front()));
    CHECK(report.stopped);
    CHECK(w.provider->log == std::vector<std::string>{"register", "deregister"});
    CHECK(w.exposure_bytes() == 0);
  }

  world w;
  request_id target;
  lease_id lease;
  std::shared_ptr<const region_view> view;
  operation_id op;
};

/// GA-01..04: these rows are delivered; then access ends.
void delivers(const bench_pointer& on, const std::vector<std::size_t>& rows, std::int64_t usable) {
  fetch_bench b{one_fetch(on)};
  const auto copied = b.copied();
  b.deliver(rows);
  CHECK(b.w.of(b.op).outcomes == 1);
  CHECK(b.w.of(b.op).releases == 0);
  CHECK_FALSE(b.w.ready_from(b.target)->has_value());
  CHECK(b.copied() == copied);
  b.end_access();
  CHECK(b.w.of(b.op).releases == 1);
  CHECK(b.copied() == copied + static_cast<std::int64_t>(rows.size()) * page_bytes);
  CHECK(b.w.ready_from(b.target)->value() == readiness{usable, 0});
  b.check_pages(rows);
  b.close();
}

}  // namespace

TEST_CASE("GA-01 complete: three rows land in the pages") { delivers(host(), {0, 1, 2}, 96); }
TEST_CASE("GA-02 prefix: two rows, the third page keeps its bytes") { delivers(host(), {0, 1}, 64); }
TEST_CASE("GA-03 gap: the row behind the hole lands and does not count") { delivers(host(), {0, 2}, 32); }
TEST_CASE("GA-04 miss: nothing lands, and the fetch settles") { delivers(host(), {}, 0); }

namespace {
/// GA-05, GA-06: no delivery; a second request waits for the slots.
void retains(const bench_pointer& on, const std::function<void(fetch_bench&)>& end_logically,
             const std::string& heard_first) {
  fetch_bench b{one_fetch(on)};
  const auto second = b.w.admit(97, 1000);
  const auto waiting = *b.w.lend(direction::fetch, second, {0, 96});
  end_logically(b);
  b.w.advance(200ms);
  CHECK(b.w.of(b.op).events == std::vector<std::string>{heard_first});
  CHECK(b.w.of(waiting).view == nullptr);
  CHECK(b.w.slots().awaiting_proof == 3);
  CHECK_FALSE(b.w.close_adapter().first);
  CHECK(b.w.provider->log == std::vector<std::string>{"register"});
  b.land({0, 1, 2});  // late bytes
  b.end_access();
  CHECK(b.w.of(b.op).releases == 1);
  CHECK(b.w.ready_from(b.target)->value() == readiness{0, 0});
  b.check_pages({});
  CHECK(b.w.of(waiting).view != nullptr);
  REQUIRE(b.w.withdraw(waiting));
  b.close();
}
void failed_retains(const bench_pointer& on) {
  retains(
      on, [](fetch_bench& b) { b.w.provider->last().fail("backend broke"); },
      "outcome failed(backend broke)");
}
void cancelled_retains(const bench_pointer& on) {
  retains(
      on, [](fetch_bench& b) { REQUIRE(b.w.cancel(b.op)); }, "outcome cancelled(local)");
}

void delayed_copy(const bench_pointer& on) {
  fetch_bench b{one_fetch(on)};
  on->hold();
  const auto second = b.w.admit(97, 1000);
  const auto waiting = *b.w.lend(direction::fetch, second, {0, 96});
  b.deliver({0, 1, 2});
  b.end_access();
  CHECK(b.w.figure(actor_kind::cuda, "pending") == 1);  // queued, its event recorded and asked in vain
  CHECK(b.w.figure(actor_kind::cuda, "queries") > 0);
  CHECK(b.w.of(b.op).releases == 0);
  CHECK_FALSE(b.w.ready_from(b.target)->has_value());
  CHECK(b.w.of(waiting).view == nullptr);
  CHECK_FALSE(b.w.close_adapter().first);
  on->open();
  b.w.advance(200ms);
  CHECK(b.w.of(b.op).releases == 1);
  CHECK(b.w.ready_from(b.target)->value() == readiness{96, 0});
  b.check_pages({0, 1, 2});
  CHECK(b.w.of(waiting).view != nullptr);
  REQUIRE(b.w.withdraw(waiting));
  b.close();
}

void request_exit(const bench_pointer& on) {
  auto o = one_fetch(on);
  o.pages = 3;  // the next request must take these very pages
  fetch_bench b{o};
  REQUIRE(b.w.free(b.target));
  const auto next = b.w.admit(97, 5000);
  b.w.compute(next, 3, std::byte{0x77});
  b.deliver({0, 1, 2});
  CHECK(b.w.of(b.op).events == std::vector<std::string>{"outcome delivered(3)"});
  b.end_access();
  CHECK(b.w.of(b.op).releases == 1);
  for (std::int64_t i = 0; i < 3; ++i) CHECK(b.w.page(next, i) == block_of(std::byte{0x77}));
  b.close();
}

void publish_over_exit(const bench_pointer& on) {
  auto o = one_fetch(on);
  o.pages = 3;
  world w{o};
  const auto from = w.admit(97);
  const auto op = w.publish(from, 3, std::byte{0x5a});
  const auto copied = w.figure(actor_kind::cuda, "bytes");
  w.provider->last().deliver_all();
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome delivered(3)"});
  REQUIRE(w.free(from));
  const auto next = w.admit(97, 5000);
  w.compute(next, 3, std::byte{0x77});  // every page is overwritten
  CHECK_FALSE(w.close_adapter().first);
  // The overwriting alone: a publish records no copy of its own.
  CHECK(w.figure(actor_kind::cuda, "bytes") == copied + 3 * page_bytes);
  const auto* staged = reinterpret_cast<const std::byte*>(w.parts()[0].address);
  CHECK(std::vector<std::byte>(staged, staged + 3 * page_bytes) ==
        std::vector<std::byte>(3 * page_bytes, std::byte{0x5a}));
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).releases == 1);
  CHECK(w.stop().stopped);
}

}  // namespace

TEST_CASE("GA-05 failed retains the slots until access has ended") { failed_retains(host()); }
TEST_CASE("GA-06 cancelled retains the slots until access has ended") { cancelled_retains(host()); }
TEST_CASE("GA-07 a copy that is held back holds back the release") { delayed_copy(host()); }
TEST_CASE("GA-08 the request exits, its pages are another's, then the delivery comes") {
  request_exit(host());
}
TEST_CASE("GA-09 a publish keeps its bytes over the exit of its request") { publish_over_exit(host()); }

TEST_SUITE_BEGIN("gpu");
TEST_CASE("gpu: GA-01 complete") {
  KVLEASE_ON_GPU(on);
  delivers(on, {0, 1, 2}, 96);
}
TEST_CASE("gpu: GA-02 prefix") {
  KVLEASE_ON_GPU(on);
  delivers(on, {0, 1}, 64);
}
TEST_CASE("gpu: GA-03 gap") {
  KVLEASE_ON_GPU(on);
  delivers(on, {0, 2}, 32);
}
TEST_CASE("gpu: GA-04 miss") {
  KVLEASE_ON_GPU(on);
  delivers(on, {}, 0);
}
TEST_CASE("gpu: GA-05 failed retains") {
  KVLEASE_ON_GPU(on);
  failed_retains(on);
}
TEST_CASE("gpu: GA-06 cancelled retains") {
  KVLEASE_ON_GPU(on);
  cancelled_retains(on);
}
TEST_CASE("gpu: GA-07 delayed copy") {
  KVLEASE_ON_GPU(on);
  delayed_copy(on);
}
TEST_CASE("gpu: GA-08 request exit and page reuse") {
  KVLEASE_ON_GPU(on);
  request_exit(on);
}
TEST_CASE("gpu: GA-09 publish source over request exit") {
  KVLEASE_ON_GPU(on);
  publish_over_exit(on);
}
TEST_SUITE_END();

TEST_SUITE_BEGIN("gpu-sanitize");
TEST_CASE("gpu: one full fetch and publish under a sanitizer") {
  KVLEASE_ON_GPU(in);
  delivers(in, {0, 1, 2}, 96);
  KVLEASE_ON_GPU(out);
  publish_over_exit(out);
}
TEST_SUITE_END();

// ---- F24: compute still writes a page when it is lent for reading.

namespace {

void lent_while_written(const bench_pointer& on, int rounds) {
  auto o = one_fetch(on);
  o.pages = 3;
  world w{o};
  const auto request = w.admit(97);
  REQUIRE(w.grow(request, 96));
  const auto pages = *w.manager->rows(request, {0, 96});
  REQUIRE(w.commit(request, 96));
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto value = static_cast<std::byte>(i % 250 + 1);
    for (const auto& row : pages) on->compute(row.address, value, row.nbytes);
    // In turn: by the order of the manager's stream, and by the host's event behind its work.
    REQUIRE(w.commit(request, 96, i % 2 == 0 ? event_handle{0} : on->mark()));
    const auto lease = *w.lend(direction::publish, request, {0, 96});
    w.advance(5ms);
    REQUIRE(w.of(lease).view != nullptr);
    for (const auto at : w.of(lease).view->runs()[0].where()->addresses)
      for (const auto byte : {std::size_t{0}, static_cast<std::size_t>(page_bytes) - 1})
        if (reinterpret_cast<const std::byte*>(at)[byte] != value) ++wrong;
    REQUIRE(w.withdraw(lease));
  }
  CHECK(wrong == 0);
  CHECK(w.stop().stopped);
}

}  // namespace

TEST_CASE("F24 a page that is still being written is read behind that work, 1,000 runs") {
  lent_while_written(device_bench::host(), 1000);
}
TEST_SUITE_BEGIN("gpu");
TEST_CASE("gpu: F24 a page that is still being written is read behind that work, 1,000 runs") {
  KVLEASE_ON_GPU(on);
  lent_while_written(on, 1000);
}
TEST_SUITE_END();
