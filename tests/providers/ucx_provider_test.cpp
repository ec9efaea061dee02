// The UCX provider with peers in this process: which peer is asked, routes, bounds, what the port's calls do
// when a peer is gone. Faults of peers in other processes: ucx_faults_test.cpp.
#include <dirent.h>

#include <atomic>
#include <thread>

#include "src/providers/fault_provider.hpp"
#include "tests/providers/ucx_fixture.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

std::size_t entries(const char* directory) {
  std::size_t n = 0;
  auto* d = ::opendir(directory);
  REQUIRE(d != nullptr);
  while (::readdir(d) != nullptr) ++n;
  ::closedir(d);
  return n;
}

std::set<bytes> served(ucx_bench& b, const std::shared_ptr<attempt>& a) {
  b.fetching().settle({&a, 1});
  REQUIRE(b.fetching().quiesce({&a, 1}));
  const auto o = a->poll();
  REQUIRE_MESSAGE(std::holds_alternative<delivered>(*o), failure_of(*a));
  return std::get<delivered>(*o).served();
}

TEST_CASE(
    "ucx: units of every size come over the wire, whole, small ones eager and large ones by rendezvous") {
  KVLEASE_NEEDS_UCX();
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{8192}, std::size_t{16 * 1024},
                                 std::size_t{65'537}, std::size_t{4} << 20}) {
    CAPTURE(size);
    ucx_bench source{"ucx://127.0.0.1:0", 4, size};
    source.publish(4);
    ucx_bench b{"ucx://127.0.0.1:0?peers=" + source.address(), 4, size};
    CHECK(served(b, b.fetching().fetch(b.extent(4))).size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(is_for(std::to_string(i), b.slot(i)));
    CHECK(b.touches->exposure_bytes() == 0);
  }
}

TEST_CASE("ucx: a fetch without a route asks the own pool, then the peers in their order") {
  KVLEASE_NEEDS_UCX();
  ucx_bench first{"ucx://127.0.0.1:0"}, second{"ucx://127.0.0.1:0"};
  first.publish(2, 2);   // 2 and 3
  second.publish(4, 2);  // 2 to 5
  ucx_bench b{"ucx://127.0.0.1:0?peers=" + first.address() + "," + second.address()};
  b.publish(3);  // 0 to 2
  CHECK(served(b, b.fetching().fetch(b.extent(8))) == std::set<bytes>{"0", "1", "2", "3", "4", "5"});
  for (std::size_t i = 0; i < 6; ++i) CHECK(is_for(std::to_string(i), b.slot(i)));
  CHECK(first.subject->counters().hits == 2);  // its own publish; what it serves is no operation of its
  CHECK(b.fetching().probe("extent", {"0", "3", "5", "7"}) == std::set<bytes>{"0", "3", "5"});
}

TEST_CASE("2.7 ucx: a route's fetch asks its peer alone; a closed or foreign route is rejected") {
  KVLEASE_NEEDS_UCX();
  ucx_bench source{"ucx://127.0.0.1:0"}, other{"ucx://127.0.0.1:0"};
  source.publish(2);
  ucx_bench b{"ucx://127.0.0.1:0"};
  CHECK(served(b, b.fetching().fetch(b.extent(2))).empty());
  auto along = b.fetching().open_route(source.address());
  REQUIRE(along);
  CHECK(served(b, b.fetching().fetch(b.extent(3), along->get())) == std::set<bytes>{"0", "1"});
  CHECK(is_for("1", b.slot(1)));
  CHECK_THROWS_AS(other.fetching().fetch(other.extent(1), along->get()), submission_rejected);
  (*along)->close();
  (*along)->close();
  CHECK_THROWS_AS(b.fetching().fetch(b.extent(1), along->get()), submission_rejected);
  auto again = b.fetching().open_route(source.address());
  CHECK(served(b, b.fetching().fetch(b.extent(2), again->get())).size() == 2);
}

TEST_CASE("2.7 ucx: a bad hint is named") {
  KVLEASE_NEEDS_UCX();
  ucx_bench b{"ucx://127.0.0.1:0"};
  for (const auto* hint : {"", "nowhere", "host:0", "host:x", ":1", "no-such-host.invalid:1", "a b:1"}) {
    CAPTURE(hint);
    const auto got = b.fetching().open_route(hint);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == errc::invalid);
    CHECK(got.error().text.find(hint) != std::string::npos);
  }
}

TEST_CASE("1.5 ucx: a peer that can't be reached is a failure with its name, never a miss") {
  KVLEASE_NEEDS_UCX();
  const auto nobody = "127.0.0.1:" + std::to_string(free_port());
  ucx_bench source{"ucx://127.0.0.1:0"};
  source.publish(1);
  ucx_bench b{"ucx://127.0.0.1:0?peers=" + nobody + "," + source.address()};
  CHECK(served(b, b.fetching().fetch(b.extent(1))) == std::set<bytes>{"0"});  // the other one had it
  const auto a = b.fetching().fetch(b.extent(2));
  b.fetching().settle({&a, 1});
  CHECK(failure_of(*a).find(nobody) != std::string::npos);
  CHECK(b.fetching().quiesce({&a, 1}));
  CHECK_THROWS(b.fetching().probe("extent", {"1"}));
}

TEST_CASE("ucx: a peer that comes back is connected again") {
  KVLEASE_NEEDS_UCX();
  const auto port = std::to_string(free_port());
  ucx_bench b{"ucx://127.0.0.1:0?peers=127.0.0.1:" + port};
  for (int life = 0; life < 2; ++life) {
    ucx_bench source{"ucx://127.0.0.1:" + port};
    source.publish(2);
    CHECK(eventually([&] {
      const auto a = b.fetching().fetch(b.extent(2));
      b.fetching().settle({&a, 1});
      return std::holds_alternative<delivered>(*a->poll()) && is_for("1", b.slot(1));
    }));
  }
}

TEST_CASE("ucx: an export pool that is full of pinned or too large units fails a publish, and says so") {
  KVLEASE_NEEDS_UCX();
  ucx_bench b{"ucx://127.0.0.1:0?bytes=100K"};
  const auto a = b.subject->as_publishes()->publish(b.extent(2));  // 64 KiB each: the second evicts the first
  CHECK(std::holds_alternative<delivered>(*a->poll()));
  ucx_bench small{"ucx://127.0.0.1:0?bytes=1K"};
  const auto full = small.subject->as_publishes()->publish(small.extent(1));
  CHECK(failure_of(*full).find("export pool is full") != std::string::npos);
  CHECK(small.ended(*full));
}

TEST_CASE("ucx: fetches of several threads at once, each with its own bytes") {
  KVLEASE_NEEDS_UCX();
  ucx_bench source{"ucx://127.0.0.1:0", 32, 48 * 1024};
  source.publish(32);
  ucx_bench b{"ucx://127.0.0.1:0?window=3&peers=" + source.address(), 32, 48 * 1024};
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        std::vector<unit> units;
        for (std::size_t i = 0; i < 8; ++i)
          units.push_back(
              *unit::make({.name = std::to_string((8 * t + i + static_cast<std::size_t>(round)) % 32),
                           .local_group = 0,
                           .local = static_cast<std::int64_t>(8 * t + i)}));
        const auto a = b.fetching().fetch(*cache_extent::make("extent", units, end_of_sequence::no));
        b.fetching().settle({&a, 1});
        for (const auto& u : units)
          if (!std::holds_alternative<delivered>(*a->poll()) ||
              !is_for(u.name(), b.slot(static_cast<std::size_t>(u.local()))))
            ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(b.touches->exposure_bytes() == 0);
}

TEST_CASE("ucx: proof rungs are offered only where force_close is on, through the fault decorator too") {
  KVLEASE_NEEDS_UCX();
  ucx_bench off{"ucx://127.0.0.1:0"}, on{"ucx://127.0.0.1:0?force_close=on"};
  CHECK(off.subject->as_proof_rungs() == nullptr);
  REQUIRE(on.subject->as_proof_rungs() != nullptr);
  CHECK(on.subject->as_proof_rungs()->rungs() == std::vector{proof_source::endpoint_closed});
  fault_provider decorated{on.subject, fault_plan{.seed = 1}, on.context()};
  CHECK(decorated.as_proof_rungs() != nullptr);
  CHECK(decorated.rungs() == on.subject->as_proof_rungs()->rungs());
  const auto a = on.fetching().fetch(on.extent(1));
  on.fetching().settle({&a, 1});
  CHECK(decorated.climb(*a, proof_source::endpoint_closed).empty());  // its access has ended
  CHECK(on.access(*a).source == proof_source::terminal_status);
  CHECK(off.ended(*off.fetching().fetch(off.extent(1))));
}

TEST_CASE("F10 ucx: 100 times made and destroyed, threads and file descriptors are as before") {
  KVLEASE_NEEDS_UCX();
  const auto once = [] {
    ucx_bench source{"ucx://127.0.0.1:0", 2, 64 * 1024};
    source.publish(2);
    ucx_bench b{"ucx://127.0.0.1:0?peers=" + source.address(), 2, 64 * 1024};
    CHECK(served(b, b.fetching().fetch(b.extent(2))).size() == 2);
  };
  once();  // what UCX keeps for the process
  const auto threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
  for (int i = 0; i < 100; ++i) once();
  CHECK(eventually([&] { return entries("/proc/self/task") <= threads && entries("/proc/self/fd") <= files; },
                   5s));
  CHECK(entries("/proc/self/task") <= threads);
  CHECK(entries("/proc/self/fd") <= files);
}

}  // namespace
}  // namespace kvlease::test
