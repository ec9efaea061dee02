// src/page_pool.hpp: who has a page, and that a page counts once.
#include "src/page_pool.hpp"

#include <doctest/doctest.h>

#include <chrono>

namespace kvlease {
namespace {

void require_whole(const page_pool& p) {
  const auto ok = p.check_invariants();
  INFO((ok ? "" : ok.error().text));
  REQUIRE(ok.has_value());
  const page_counts c = p.counts();
  REQUIRE(c.free + c.held + c.cached + c.pinned == c.total);
}

TEST_CASE("page pool: hands out each page once, from 0 up") {
  page_pool p{3};
  CHECK(p.take() == 0);
  CHECK(p.take() == 1);
  CHECK(p.take() == 2);
  CHECK(p.free() == 0);
  CHECK(p.counts().held == 3);
  require_whole(p);
}

TEST_CASE("page pool: the last freed page is taken first") {
  page_pool p{3};
  const auto a = p.take();
  const auto b = p.take();
  p.drop_user(a);
  p.drop_user(b);
  CHECK(p.take() == b);
  CHECK(p.take() == a);
  require_whole(p);
}

TEST_CASE("page pool: held comes before pinned, pinned before cached, cached before free") {
  page_pool p{1};
  const auto page = p.take();
  p.cache(page, cached_block{7});
  p.add_pin(page);
  p.add_user(page);
  CHECK(p.state(page) == page_state::held);
  p.drop_user(page);
  CHECK(p.state(page) == page_state::held);
  p.drop_user(page);
  CHECK(p.state(page) == page_state::pinned);
  require_whole(p);
  p.drop_pin(page);
  CHECK(p.state(page) == page_state::cached);
  CHECK(p.block(page) == cached_block{7});
  require_whole(p);
  p.uncache(page);
  CHECK(p.state(page) == page_state::free);
  CHECK(p.free() == 1);
  require_whole(p);
}

TEST_CASE("page pool: a pinned page that its user dropped is on no free list until the last pin ends") {
  page_pool p{2};
  const auto page = p.take();
  p.add_pin(page);
  p.add_pin(page);
  p.drop_user(page);
  CHECK(p.counts().pinned == 1);
  CHECK(p.take() != page);
  CHECK(p.free() == 0);
  p.drop_pin(page);
  CHECK(p.free() == 0);
  p.drop_pin(page);
  CHECK(p.take() == page);
  require_whole(p);
}

TEST_CASE("page pool: a million takes and drops cost no search") {
  page_pool p{100'000};
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 100'000; ++i) p.take();
    for (int i = 0; i < 100'000; ++i) p.drop_user(i);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{10});
  require_whole(p);
}

}  // namespace
}  // namespace kvlease
