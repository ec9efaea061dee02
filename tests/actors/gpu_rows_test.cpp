// Scenarios 7.F: the adapter on real device pages. Here on the host stand-in, whose pages are host memory
// behind the same stream and events; cuda/ runs the same rows on a GPU. 32 tokens a block, a prompt of 97,
// staging of exactly one fetch, T = 120 s, a backend that resolves real staging addresses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

constexpr std::int64_t tpb = 32, page_bytes = 256;

world_options one_fetch() {
  world_options o;
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
  explicit fetch_bench(world_options o = one_fetch()) : w{o} {
    target = w.admit(97);
    REQUIRE(w.grow(target, 96));
    const auto pages = *w.manager->rows(target, {0, 96});
    for (const auto& row : pages)
      std::memset(reinterpret_cast<void*>(row.address), std::to_integer<int>(sentinel), row.nbytes);
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
void delivers(const std::vector<std::size_t>& rows, std::int64_t usable) {
  fetch_bench b;
  const auto copied = b.w.device->rows_copied();
  b.deliver(rows);
  CHECK(b.w.of(b.op).outcomes == 1);
  CHECK(b.w.of(b.op).releases == 0);
  CHECK_FALSE(b.w.ready_from(b.target)->has_value());
  CHECK(b.w.device->rows_copied() == copied);
  b.end_access();
  CHECK(b.w.of(b.op).releases == 1);
  CHECK(b.w.device->rows_copied() == copied + rows.size());
  CHECK(b.w.ready_from(b.target)->value() == readiness{usable, 0});
  b.check_pages(rows);
  b.close();
}

}  // namespace

TEST_CASE("GA-01 complete: three rows land in the pages") { delivers({0, 1, 2}, 96); }
TEST_CASE("GA-02 prefix: two rows, the third page keeps its bytes") { delivers({0, 1}, 64); }
TEST_CASE("GA-03 gap: the row behind the hole lands and does not count") { delivers({0, 2}, 32); }
TEST_CASE("GA-04 miss: nothing lands, and the fetch settles") { delivers({}, 0); }

namespace {
/// GA-05, GA-06: no delivery; a second request waits for the slots.
void retains(const std::function<void(fetch_bench&)>& end_logically, const std::string& heard_first) {
  fetch_bench b;
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
}  // namespace

TEST_CASE("GA-05 failed retains the slots until access has ended") {
  retains([](fetch_bench& b) { b.w.provider->last().fail("backend broke"); },
          "outcome failed(backend broke)");
}
TEST_CASE("GA-06 cancelled retains the slots until access has ended") {
  retains([](fetch_bench& b) { REQUIRE(b.w.cancel(b.op)); }, "outcome cancelled(local)");
}

TEST_CASE("GA-07 a copy that is held back holds back the release") {
  auto o = one_fetch();
  o.hold_stream = true;
  fetch_bench b{o};
  const auto second = b.w.admit(97, 1000);
  const auto waiting = *b.w.lend(direction::fetch, second, {0, 96});
  b.deliver({0, 1, 2});
  b.end_access();
  CHECK(b.w.device->queued() > 0);  // the copy is queued and its event recorded
  CHECK(b.w.of(b.op).releases == 0);
  CHECK_FALSE(b.w.ready_from(b.target)->has_value());
  CHECK(b.w.of(waiting).view == nullptr);
  CHECK_FALSE(b.w.close_adapter().first);
  b.w.device->open();
  b.w.advance(200ms);
  CHECK(b.w.of(b.op).releases == 1);
  CHECK(b.w.ready_from(b.target)->value() == readiness{96, 0});
  b.check_pages({0, 1, 2});
  CHECK(b.w.of(waiting).view != nullptr);
  REQUIRE(b.w.withdraw(waiting));
  b.close();
}

TEST_CASE("GA-08 the request exits, its pages are another's, then the delivery comes") {
  auto o = one_fetch();
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

TEST_CASE("GA-09 a publish keeps its bytes over the exit of its request") {
  auto o = one_fetch();
  o.pages = 3;
  world w{o};
  const auto from = w.admit(97);
  const auto op = w.publish(from, 3, std::byte{0x5a});
  const auto copied = w.device->rows_copied();
  w.provider->last().deliver_all();
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome delivered(3)"});
  REQUIRE(w.free(from));
  const auto next = w.admit(97, 5000);
  w.compute(next, 3, std::byte{0x77});  // every page is overwritten
  CHECK_FALSE(w.close_adapter().first);
  CHECK(w.device->rows_copied() ==
        copied + 3);  // the overwriting alone: a publish records no copy of its own
  const auto* staged = reinterpret_cast<const std::byte*>(w.parts()[0].address);
  CHECK(std::vector<std::byte>(staged, staged + 3 * page_bytes) ==
        std::vector<std::byte>(3 * page_bytes, std::byte{0x5a}));
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).releases == 1);
  CHECK(w.stop().stopped);
}
