#include "src/exposure.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "tests/providers/provider_fixture.hpp"

namespace kvlease::test {
namespace {

TEST_CASE("8.1 a touch under the right that is held counts no exposure") {
  staging_fixture f;
  const auto span = f.slot(0, 2);
  const touch_right right = f.touches->claim(span);
  CHECK(right.holder == 1);
  CHECK(f.touches->touch(right, span, touch_kind::write));
  CHECK(f.touches->touch(right, span.subspan(10, 20), touch_kind::read));
  CHECK(f.touches->touched_bytes() == 276);
  CHECK(f.touches->exposure_bytes() == 0);
}

TEST_CASE("8.1 a touch after the right ended counts each byte of the slot") {
  staging_fixture f;
  const auto span = f.slot(1, 2);
  const touch_right right = f.touches->claim(span);
  f.touches->revoke(1, 2);
  CHECK_FALSE(f.touches->touch(right, span, touch_kind::read));
  CHECK(f.touches->exposure_bytes() == 1000);
  SUBCASE("the next holder's right is another one") {
    f.touches->grant(1, 2, lease_id{2}, true);
    CHECK_FALSE(f.touches->touch(right, span, touch_kind::write));
    CHECK(f.touches->exposure_bytes() == 2000);
    CHECK(f.touches->touch(f.touches->claim(span), span, touch_kind::write));
  }
  SUBCASE("a right of nobody allows nothing, also on a free slot") {
    const touch_right none = f.touches->claim(span);
    CHECK(none.holder == 0);
    CHECK_FALSE(f.touches->touch(none, span, touch_kind::read));
  }
}

TEST_CASE("8.1 a publish may read and not write") {
  staging_fixture f;
  const auto span = f.slot(0, 0);
  f.touches->grant(0, 0, lease_id{4}, false);
  const touch_right right = f.touches->claim(span);
  CHECK(f.touches->touch(right, span, touch_kind::read));
  CHECK_FALSE(f.touches->touch(right, span, touch_kind::write));
  CHECK(f.touches->exposure_bytes() == 256);
}

TEST_CASE("8.1 of a span over several slots only the lost ones count") {
  staging_fixture f;
  const std::span<std::byte> all{f.memory_0};
  const touch_right right = f.touches->claim(all.first(3 * 256));
  CHECK(right.holder == 1);
  f.touches->grant(0, 1, lease_id{9}, true);
  CHECK_FALSE(f.touches->touch(right, all.subspan(128, 2 * 256), touch_kind::write));
  CHECK(f.touches->exposure_bytes() == 256);
  CHECK(f.touches->claim(all.first(3 * 256)).holder == 0);
}

TEST_CASE("8.1 bytes outside every slot are exposed") {
  staging_fixture f;
  const std::span<std::byte> all{f.memory_1};
  const touch_right right = f.touches->claim(all.first(1000));
  SUBCASE("behind the last slot of a part") {
    CHECK_FALSE(f.touches->touch(right, all.subspan(5900, 124), touch_kind::write));
    CHECK(f.touches->exposure_bytes() == 24);
  }
  SUBCASE("outside the parts") {
    const std::vector<std::byte> other(64);
    CHECK(f.touches->claim(other).holder == 0);
    CHECK_FALSE(f.touches->touch(right, other, touch_kind::read));
    CHECK(f.touches->exposure_bytes() == 64);
  }
  SUBCASE("no parts at all") {
    touch_table none{{}};
    CHECK_FALSE(none.touch(right, all.first(8), touch_kind::read));
    CHECK(none.exposure_bytes() == 8);
  }
}

TEST_CASE("8.1 parts in any order are found by address") {
  std::vector<std::byte> memory(4096);
  const auto base = reinterpret_cast<std::uintptr_t>(memory.data());
  touch_table t{{{.name = "high", .address = base + 2048, .nbytes = 1024, .slot_bytes = 512, .slots = 2},
                 {.name = "low", .address = base, .nbytes = 1024, .slot_bytes = 256, .slots = 4},
                 {.name = "middle", .address = base + 1024, .nbytes = 1024, .slot_bytes = 1024, .slots = 1}}};
  t.grant(0, 1, lease_id{10}, true);
  t.grant(1, 3, lease_id{20}, true);
  t.grant(2, 0, lease_id{30}, true);
  const std::span<std::byte> all{memory};
  CHECK(t.claim(all.subspan(2560, 512)).holder == 10);
  CHECK(t.claim(all.subspan(768, 256)).holder == 20);
  CHECK(t.claim(all.subspan(1024, 1024)).holder == 30);
  CHECK(t.claim(all.subspan(3072, 1)).holder == 0);
}

TEST_CASE("8.1 counts are exact under many threads") {
  staging_fixture f;
  std::vector<std::thread> threads;
  threads.reserve(4);
  const touch_right held = f.touches->claim(f.slot(0, 0));
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 2000; ++n) {
        f.touches->touch(i % 2 == 0 ? held : touch_right{99}, f.slot(0, i), touch_kind::write);
        f.touches->grant(1, i, lease_id{static_cast<std::uint64_t>(n) + 1}, n % 2 == 0);
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(f.touches->touched_bytes() == 4u * 2000 * 256);
  CHECK(f.touches->exposure_bytes() == 2u * 2000 * 256);
}

TEST_CASE("8.1 a right never meets the permission of the next holder") {
  staging_fixture f;
  std::atomic<std::uint64_t> reader{0};
  std::atomic<bool> done{false};
  std::thread lender{[&] {
    for (std::uint64_t n = 3; n < 40000; n += 2) {
      f.touches->grant(0, 0, lease_id{n}, false);
      reader = n;
      f.touches->grant(0, 0, lease_id{n + 1}, true);
    }
    done = true;
  }};
  bool wrote = false;
  while (!done) wrote |= f.touches->touch({reader}, f.slot(0, 0).first(1), touch_kind::write);
  lender.join();
  CHECK_FALSE(wrote);
}

struct painted {
  std::vector<std::byte> memory = std::vector<std::byte>(3 * 10000 + 5);
  std::vector<part> parts{{.name = "p",
                           .address = reinterpret_cast<std::uintptr_t>(memory.data()),
                           .nbytes = static_cast<std::int64_t>(memory.size()),
                           .slot_bytes = 10000,
                           .slots = 3}};
};

TEST_CASE("8.2 paint that nobody touched has no damage, painting stays in its slot") {
  painted p;
  std::ranges::fill(p.memory, untouched);
  for (const paint_mode mode : {paint_mode::off, paint_mode::edges, paint_mode::full}) {
    slot_paint paint{p.parts, mode};
    paint.paint(0, 1);
    CHECK(paint.check_all() == 0);
    CHECK(paint.check(0, 1) == 0);
    CHECK(paint.exposure_bytes() == 0);
    const std::span<std::byte> all{p.memory};
    CHECK(std::ranges::count(all.first(10000), untouched) == 10000);
    CHECK(std::ranges::count(all.subspan(20000), untouched) == 10005);
  }
}

TEST_CASE("8.2 full paint finds each changed byte, at any place") {
  painted p;
  slot_paint paint{p.parts, paint_mode::full};
  for (const std::size_t at : {0u, 1u, 63u, 64u, 4095u, 4096u, 5000u, 8191u, 9999u}) {
    paint.paint(0, 2);
    p.memory[20000 + at] ^= std::byte{1};
    CHECK(paint.check(0, 2) == 1);
  }
  CHECK(paint.exposure_bytes() == 9);
}

TEST_CASE("8.2 edge paint finds writes over a page's edges, and a whole late unit") {
  painted p;
  slot_paint paint{p.parts, paint_mode::edges};
  paint.paint(0, 0);
  for (const std::size_t at : {0u, 63u, 4032u, 4095u, 4096u, 8192u, 9999u}) p.memory[at] ^= std::byte{1};
  p.memory[2000] ^= std::byte{1};  // between the edges: not seen
  CHECK(paint.check(0, 0) == 7);
  paint.paint(0, 0);
  std::fill_n(p.memory.begin(), 10000, std::byte{7});
  CHECK(paint.check(0, 0) > 300);
}

TEST_CASE("8.2 checks end the paint at a grant and count damage once") {
  painted p;
  slot_paint paint{p.parts, paint_mode::full};
  CHECK(paint.check(0, 0) == 0);  // never painted
  paint.paint(0, 0);
  paint.paint(0, 1);
  p.memory[5] ^= std::byte{1};
  CHECK(paint.check_all() == 1);
  CHECK(paint.check_all() == 1);
  CHECK(paint.exposure_bytes() == 1);
  p.memory[6] ^= std::byte{1};
  CHECK(paint.check(0, 0) == 2);
  CHECK(paint.exposure_bytes() == 2);
  p.memory[7] ^= std::byte{1};
  CHECK(paint.check(0, 0) == 0);  // granted: its holder may write
  CHECK(paint.check_all() == 0);
  CHECK(paint.exposure_bytes() == 2);
}

TEST_CASE("8.2 the pattern names slot and generation") {
  painted p;
  slot_paint paint{p.parts, paint_mode::full};
  const auto slot = [&](std::size_t s) {
    return std::vector<std::byte>(p.memory.begin() + static_cast<std::ptrdiff_t>(s * 10000),
                                  p.memory.begin() + static_cast<std::ptrdiff_t>((s + 1) * 10000));
  };
  paint.paint(0, 0);
  paint.paint(0, 1);
  const auto first = slot(0);
  CHECK(first != slot(1));
  paint.paint(0, 0);
  CHECK(first != slot(0));
  // What an old generation looked like is damage now.
  std::ranges::copy(first, p.memory.begin());
  CHECK(paint.check(0, 0) > 9000);
}

}  // namespace
}  // namespace kvlease::test
