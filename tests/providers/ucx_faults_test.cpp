// F6, F9, F19 over UCX: peers in other processes that are stopped and killed in the middle of a transfer.
// After each positive proof the slots are painted, and stay painted.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "tests/providers/ucx_fixture.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("ucx peer" * doctest::skip()) {
  const char* how = std::getenv("KVLEASE_UCX_PEER");
  if (how == nullptr) return;
  std::istringstream in{how};
  std::size_t units = 0, size = 0;
  in >> units >> size;
  ucx_bench b{"ucx://127.0.0.1:0", static_cast<std::int64_t>(units), size};
  b.publish(units);
  std::printf("serving at %s\n", b.address().c_str());
  std::fflush(stdout);
  for (;;) std::this_thread::sleep_for(1h);
}

constexpr std::size_t unit_bytes = std::size_t{4} << 20;
constexpr std::size_t units = 8;

/// A fetch that is under way: some bytes have landed, not all.
std::shared_ptr<attempt> under_way(ucx_bench& b, const std::string& address) {
  const auto along = b.fetching().open_route(address);
  REQUIRE(along);
  const auto before = b.touches->touched_bytes();
  const auto a = b.fetching().fetch(b.extent(units), along->get());
  eventually([&] { return a->poll() || b.touches->touched_bytes() > before; });
  return a;
}

/// Proven: what is painted now stays so, whatever the peer does next.
void check_left_alone(
    ucx_bench& b, const std::function<void()>& then = [] {}) {
  b.paint();
  then();
  // Nothing to wait for: what must not come. Progress is asked for meanwhile.
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(1ms);
    if (!b.painted()) break;
  }
  CHECK(b.painted());
}

int kills() {
  const char* n = std::getenv("KVLEASE_KILLS");
  return n != nullptr ? std::atoi(n) : 20;
}

TEST_CASE(
    "F19 ucx: a peer killed in the middle fails what it was to send, promptly, each proven by its callback") {
  KVLEASE_NEEDS_UCX();
  ucx_bench b{"ucx://127.0.0.1:0", units, unit_bytes};
  const int rounds = kills();
  int in_the_middle = 0, wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    ucx_peer peer{units, unit_bytes};
    const auto a = under_way(b, peer.address);
    if (round % 2 == 1) std::this_thread::sleep_for(std::chrono::microseconds{(round * 613) % 9000});
    peer.process.kill();
    REQUIRE(eventually([&] { return a->poll().has_value() && b.ended(*a); }, 20s));
    CHECK(b.access(*a).source == proof_source::terminal_status);
    if (std::holds_alternative<delivered>(*a->poll())) {
      for (std::size_t i = 0; i < units; ++i) wrong += is_for(std::to_string(i), b.slot(i)) ? 0 : 1;
    } else {
      CHECK(failure_of(*a).find(peer.address) != std::string::npos);
      ++in_the_middle;
    }
    check_left_alone(b);
  }
  MESSAGE(in_the_middle << " of " << rounds << " kills struck in the middle");
  CHECK(in_the_middle > 0);
  CHECK(wrong == 0);
  CHECK(b.touches->exposure_bytes() == 0);
}

/// A fetch whose peer has been stopped in the middle of it.
struct stopped_peer {
  explicit stopped_peer(ucx_bench& b) {
    for (int tries = 0; tries < 20; ++tries) {
      peer = std::make_unique<ucx_peer>(units, unit_bytes);
      a = under_way(b, peer->address);
      peer->process.stop();
      std::this_thread::sleep_for(100ms);  // what was in the socket lands
      if (!a->poll()) return;
      b.paint();
    }
    FAIL("no peer was stopped in the middle of a fetch");
  }
  std::unique_ptr<ucx_peer> peer;
  std::shared_ptr<attempt> a;
};

TEST_CASE("F19 ucx: peer stopped, deadline, peer continued: nothing is proven before the callback") {
  KVLEASE_NEEDS_UCX();
  ucx_bench b{"ucx://127.0.0.1:0", units, unit_bytes};
  stopped_peer s{b};
  CHECK(request_cancel(*s.a) == cancel_disposition::requested);  // what the runtime does at the deadline
  b.fetching().settle({&s.a, 1});
  CHECK(std::holds_alternative<cancelled>(*s.a->poll()));
  for (int i = 0; i < 50; ++i) {  // a cancel proves nothing, and time neither
    CHECK(b.access(*s.a).state == access_state::running);
    std::this_thread::sleep_for(1ms);
  }
  s.peer->process.resume();
  REQUIRE(eventually([&] { return b.ended(*s.a); }));
  CHECK(b.access(*s.a).source == proof_source::terminal_status);
  check_left_alone(b);
  CHECK(b.touches->exposure_bytes() == 0);
}

TEST_CASE("F19 ucx: peer stopped, its endpoint closed by force: proven, with that as the source") {
  KVLEASE_NEEDS_UCX();
  ucx_bench b{"ucx://127.0.0.1:0?force_close=on", units, unit_bytes};
  stopped_peer s{b};
  // Another fetch over the same endpoint; nothing of it can have begun to land.
  const auto along = b.fetching().open_route(s.peer->address);
  const auto other = b.fetching().fetch(b.extent(1), along->get());
  request_cancel(*s.a);
  b.fetching().settle({&s.a, 1});
  CHECK(b.access(*s.a).state == access_state::running);
  const auto down = b.subject->as_proof_rungs()->climb(*s.a, proof_source::endpoint_closed);
  REQUIRE(down.size() == 1);
  CHECK(down.front() == other);
  CHECK(failure_of(*other).find("closed by force") != std::string::npos);
  REQUIRE(eventually([&] { return b.ended(*s.a) && b.ended(*other); }, 20s));
  CHECK(b.access(*s.a).source == proof_source::endpoint_closed);
  CHECK(b.access(*other).source == proof_source::terminal_status);
  check_left_alone(b, [&] { s.peer->process.resume(); });
  CHECK(b.subject->as_proof_rungs()->climb(*s.a, proof_source::endpoint_closed).empty());
  CHECK(b.subject->as_proof_rungs()->climb(*s.a, proof_source::flush).empty());
  // The peer is as good as new.
  CHECK(eventually([&] {
    const auto a = b.fetching().fetch(b.extent(units), along->get());
    b.fetching().settle({&a, 1});
    return std::holds_alternative<delivered>(*a->poll());
  }));
  CHECK(b.touches->exposure_bytes() == 0);
}

TEST_CASE("F6 ucx: while a peer is stopped every call of the port returns") {
  KVLEASE_NEEDS_UCX();
  ucx_peer peer{units, unit_bytes};
  ucx_bench b{"ucx://127.0.0.1:0?probe_timeout=50&peers=" + peer.address, units, unit_bytes};
  peer.process.stop();
  const auto a = b.fetching().fetch(b.extent(units));
  CHECK_FALSE(a->poll());
  CHECK_THROWS(b.fetching().probe("extent", {"0"}));
  CHECK(b.fetching().open_route(peer.address).has_value());
  const auto publish = b.subject->as_publishes()->publish(b.extent(1, 100));
  CHECK(b.ended(*publish));
  CHECK_FALSE(b.ended(*a));
  CHECK_FALSE(b.subject->describe().empty());
  b.subject->as_registers_pools()->register_pool(8, 8)->close();
  request_cancel(*a);
  // No byte had begun to land, so nothing can any more.
  b.fetching().settle({&a, 1});
  REQUIRE(b.fetching().quiesce({&a, 1}));
  check_left_alone(b, [&] { peer.process.resume(); });
}

TEST_CASE(
    "F9 ucx: a provider with eight fetches in flight, from a stopped peer, is destroyed in bounded time") {
  KVLEASE_NEEDS_UCX();
  std::vector<std::shared_ptr<attempt>> in_flight;
  std::unique_ptr<stopped_peer> s;
  std::vector<std::byte> moved;
  ucx_bench b{"ucx://127.0.0.1:0", units, unit_bytes};
  s = std::make_unique<stopped_peer>(b);
  const auto along = b.fetching().open_route(s->peer->address);
  for (int i = 0; i < 7; ++i) in_flight.push_back(b.fetching().fetch(b.extent(1), along->get()));
  const auto began = std::chrono::steady_clock::now();
  const auto outcome_of_first = s->a->poll();
  CHECK_FALSE(outcome_of_first);
  b.subject.reset();
  CHECK(std::chrono::steady_clock::now() - began < 10s);
  for (const auto& a : in_flight) CHECK(failure_of(*a) != "(not failed)");
  CHECK(failure_of(*s->a) != "(not failed)");
  check_left_alone(b, [&] { s->peer->process.resume(); });
}

}  // namespace
}  // namespace kvlease::test
