// Semantics 8: the two detectors of exposure, on whole runtimes. The table and the paint by themselves are
// tested in tests/src/exposure_test.cpp.
#include <doctest/doctest.h>

#include <cstring>

#include "actors/guard.hpp"
#include "src/providers/fault_provider.hpp"
#include "src/providers/memory_provider.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using enum actor_kind;

enum class detector : std::uint8_t { both, paint_alone };

/// What a run through a real provider came to.
struct findings {
  std::uint64_t touch = 0, paint = 0;
  std::uint64_t struck = 0;
  int released = 0;
};

/// A publish and then a fetch of the same content, each struck by `kind`, until nothing moves any more.
/// `paint_alone`: the provider passes no touch check, as a real one.
findings one_run(fault_kind kind, std::uint64_t seed, detector which, bool publish_late = true) {
  const auto store = std::make_shared<memory_store>(1 << 20);
  fault_plan plan{.seed = seed};
  plan.probability[static_cast<std::size_t>(kind)] = 1;
  std::shared_ptr<fault_provider> faults;
  std::shared_ptr<memory_provider> inner;
  const auto options = [&](bool struck) {
    return world_options{.open_provider = [&, struck](const provider_context& given) {
      auto c = given;
      if (which == detector::paint_alone) c.touches = nullptr;
      inner = std::make_shared<memory_provider>(store, c);
      faults = std::make_shared<fault_provider>(inner, struck ? plan : fault_plan{}, c);
      return faults;
    }};
  };
  findings found;
  {
    world w{options(publish_late)};
    const auto op = w.publish(w.admit(13));
    w.advance(1s);
    found.touch += w.touch_exposure();
    found.paint += w.paint_exposure();
    found.released += w.of(op).releases;
    found.struck += faults->struck()[static_cast<std::size_t>(kind)];
  }
  world w{options(true)};
  const auto op = w.fetch(w.admit(13));
  w.advance(1s);
  found.touch += w.touch_exposure();
  found.paint += w.paint_exposure();
  found.released += w.of(op).releases;
  found.struck += faults->struck()[static_cast<std::size_t>(kind)];
  return found;
}

constexpr std::uint64_t seeds = 12;  // each shape of a late fault comes up

findings many_runs(fault_kind kind, detector which, bool publish_late = true) {
  findings sum;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto one = one_run(kind, seed, which, publish_late);
    sum.touch += one.touch;
    sum.paint += one.paint;
    sum.struck += one.struck;
    sum.released += one.released;
  }
  return sum;
}

/// Removes a guard for one scope.
struct without_guard {
  explicit without_guard(mutation m) { mutate(m); }
  ~without_guard() { mutate(mutation::none); }
  without_guard(const without_guard&) = delete;
  without_guard& operator=(const without_guard&) = delete;
};

std::span<std::byte> slot(const world& w, std::int64_t n = 0) {
  const auto& p = w.parts().at(0);
  return {reinterpret_cast<std::byte*>(p.address + static_cast<std::uintptr_t>(n * p.slot_bytes)),
          static_cast<std::size_t>(p.slot_bytes)};
}

/// A fetch that is over; its provider claimed the rights to the slots of the lease when it was submitted.
struct over {
  explicit over(world& w) {
    w.provider->on_submit = [&w, this](const cache_extent&) { right = w.in().parts.touches->claim(slot(w)); };
    one_fetch f{w};
    lease = f.lease;
    REQUIRE(right.holder == lease.value);
    CHECK(w.in().parts.touches->touch(right, slot(w), touch_kind::write));
    f.at->deliver_all();
    f.at->end_access();
    w.advance(a_while);
    REQUIRE(f.host().releases == 1);
    REQUIRE(w.exposure_bytes() == 0);
  }
  lease_id lease;
  touch_right right;
};

// ---- 8.1

const broken_by early_release{mutation::release_at_outcome, "8.1 *"};
const broken_by blind_table{mutation::touch_uncounted, "8.1 *"};
const broken_by right_kept{actor_mutation::freed_slot_keeps_right, "8.1 *"};
const broken_by publish_writes{actor_mutation::publish_may_write, "8.1 *"};

TEST_CASE("8.1 reads and writes of the providers pass a check against who may touch which span now") {
  SUBCASE("a provider that touches what was taken back is seen, by the byte") {
    world w;
    const over f{w};
    auto& touches = *w.in().parts.touches;
    CHECK_FALSE(touches.touch(f.right, slot(w).first(5), touch_kind::write));
    CHECK(w.touch_exposure() == 5);
    CHECK_FALSE(touches.touch(f.right, slot(w).first(7), touch_kind::read));
    CHECK(w.touch_exposure() == 12);
    CHECK(w.paint_exposure() == 0);  // no byte has changed
    CHECK(w.exposure_bytes() == 12);
    // Also when the slot is the next lease's: the right was another lease's.
    const one_fetch next{w, false};
    CHECK_FALSE(touches.touch(f.right, slot(w).first(3), touch_kind::write));
    CHECK(w.touch_exposure() == 15);
  }
  SUBCASE("a publish gives no right to write") {
    world w;
    const auto op = w.publish(w.admit(13));
    auto& touches = *w.in().parts.touches;
    const auto right = touches.claim(slot(w));
    CHECK(touches.touch(right, slot(w), touch_kind::read));
    CHECK(w.touch_exposure() == 0);
    CHECK_FALSE(touches.touch(right, slot(w), touch_kind::write));
    CHECK(w.touch_exposure() == 64);
    CHECK(w.of(op).outcomes == 0);
  }
  SUBCASE("the memory provider and the fault decorator pass each byte through it") {
    for (const auto kind : {fault_kind::late, fault_kind::fail, fault_kind::partial, fault_kind::stubborn}) {
      CAPTURE(to_string(kind));
      const auto store = std::make_shared<memory_store>(1 << 20);
      fault_plan plan{.seed = 3};
      world_options o{.open_provider = [&](const provider_context& c) {
        return std::make_shared<fault_provider>(std::make_shared<memory_provider>(store, c), plan, c);
      }};
      {
        world w{o};
        static_cast<void>(w.publish(w.admit(13)));
        w.advance(1s);
        CHECK(w.in().parts.touches->touched_bytes() == 2 * 64);  // two sources were read
      }
      plan.probability[static_cast<std::size_t>(kind)] = 1;
      world w{o};
      static_cast<void>(w.fetch(w.admit(13)));
      w.advance(1s);
      CHECK(w.in().parts.touches->touched_bytes() >= 64);
      CHECK(w.touch_exposure() == 0);
    }
  }
  SUBCASE("late bytes are no exposure while release waits for the end of access") {
    for (const auto kind : {fault_kind::late, fault_kind::stubborn, fault_kind::unproven}) {
      CAPTURE(to_string(kind));
      const auto f = many_runs(kind, detector::both);
      CHECK(f.struck == 2 * seeds);  // a run in which the fault struck no time is not a pass (8.3)
      CHECK(f.touch == 0);
    }
  }
}

// ---- 8.2

const broken_by early_release_painted{mutation::release_at_outcome, "8.2 *"};
const broken_by blind_paint{mutation::paint_unchecked, "8.2 *"};
const broken_by unpainted{actor_mutation::freed_slot_unpainted, "8.2 *"};
const broken_by unchecked{actor_mutation::granted_slot_unchecked, "8.2 *"};

TEST_CASE(
    "8.2 free slots are painted by slot and generation, and looked at before the next grant and at the end") {
  SUBCASE("from the start, and after each release, no two slots and no two generations alike") {
    world w;
    const auto bytes_of = [&](std::int64_t n) {
      const auto s = slot(w, n);
      return std::vector<std::byte>{s.begin(), s.end()};
    };
    CHECK(bytes_of(0) != bytes_of(1));
    const auto before = bytes_of(0);
    const over f{w};
    CHECK(bytes_of(0) != before);
    CHECK(bytes_of(0) != std::vector<std::byte>(64, std::byte{0x11}));  // what the lease had left there
    CHECK(w.paint_exposure() == 0);
  }
  SUBCASE("a late write is found at the next grant") {
    world w;
    const over f{w};
    slot(w)[3] ^= std::byte{1};
    CHECK(w.figure(lender, "paint_exposure_bytes") == 0);  // nobody has looked yet
    const one_fetch next{w, false};
    CHECK(w.figure(lender, "paint_exposure_bytes") == 1);
    CHECK(w.touch_exposure() == 0);
    CHECK(w.exposure_bytes() == 1);
  }
  SUBCASE("or at the end, and counts once") {
    world w;
    const over f{w};
    std::memset(slot(w, 7).data(), 0, 64);  // never lent, and nobody's
    CHECK(w.stop().stopped);
    CHECK(w.in().parts.paint_exposure->load() >= 60);
    CHECK(w.in().parts.paint_exposure->load() <= 64);
  }
  SUBCASE("it sees no reads; and for a provider that passes no touch check, it alone counts") {
    for (const auto kind : {fault_kind::late, fault_kind::stubborn}) {
      CAPTURE(to_string(kind));
      const auto f = many_runs(kind, detector::paint_alone);
      CHECK(f.struck == 2 * seeds);
      CHECK(f.touch == 0);
      CHECK(f.paint == 0);
      CHECK(f.released == 2 * static_cast<int>(seeds));
    }
  }
}

// ---- 8.3

const broken_by early_release_counted{mutation::release_at_outcome, "8.3 both detectors *"};
const broken_by blind_total{mutation::touch_uncounted, "8.3 both detectors *"};
const broken_by blind_total_paint{mutation::paint_unchecked, "8.3 both detectors *"};

TEST_CASE("8.3 both detectors count into exposure_bytes") {
  SUBCASE("each adds what it found, and no more") {
    world w;
    const over f{w};
    CHECK_FALSE(w.in().parts.touches->touch(f.right, slot(w).first(5), touch_kind::write));
    CHECK(w.exposure_bytes() == 5);
    slot(w)[0] ^= std::byte{1};
    CHECK(w.exposure_bytes() == 6);
    CHECK(w.exposure_bytes() == 6);
    CHECK(w.in().parts.exposure_bytes() == 6);
  }
  SUBCASE("they stay at zero under every fault") {
    for (std::size_t k = 0; k < fault_kind_count; ++k) {
      const auto kind = fault_kind(k);
      CAPTURE(to_string(kind));
      const auto f = one_run(kind, 5, detector::both);
      CHECK(f.struck == 2);
      CHECK(f.touch == 0);
      CHECK(f.paint == 0);
    }
    const auto late = many_runs(fault_kind::late, detector::both);
    CHECK(late.struck == 2 * seeds);
    CHECK(late.touch + late.paint == 0);
    CHECK(late.released == 2 * static_cast<int>(seeds));
  }
}

TEST_CASE("8.3 a mutation that releases early makes each of the detectors positive by itself") {
  const without_guard early{mutation::release_at_outcome};
  SUBCASE("where the provider passes the touch check, both see it") {
    const auto f = many_runs(fault_kind::late, detector::both, false);
    CHECK(f.struck == seeds);
    CHECK(f.touch > 0);
    CHECK(f.paint > 0);
  }
  SUBCASE("where it passes none, the paint does") {
    const auto f = many_runs(fault_kind::late, detector::paint_alone, false);
    CHECK(f.struck == seeds);
    CHECK(f.touch == 0);
    CHECK(f.paint > 0);
  }
  SUBCASE("a late read of a source changes no byte: the touch check alone sees it") {
    std::uint64_t touch = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      fault_plan plan{.seed = seed};
      plan.probability[static_cast<std::size_t>(fault_kind::late)] = 1;
      const auto store = std::make_shared<memory_store>(1 << 20);
      world w{{.open_provider = [&](const provider_context& c) {
        return std::make_shared<fault_provider>(std::make_shared<memory_provider>(store, c), plan, c);
      }}};
      const auto op = w.publish(w.admit(13));
      w.advance(1s);
      CHECK(w.of(op).releases == 1);
      CHECK(w.paint_exposure() == 0);
      touch += w.touch_exposure();
    }
    CHECK(touch > 0);
  }
}

}  // namespace
}  // namespace kvlease::test
