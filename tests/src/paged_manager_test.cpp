// src/paged_manager.hpp: geometry, reuse by content, growth, eviction, pins (semantics 6.1, 6.4).
// The random walk against a model of page ownership is in paged_manager_walk_test.cpp.
#include "src/paged_manager.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>

#include "tests/src/paged_manager_fixture.hpp"

namespace kvlease {
namespace {

using namespace paged_fixture;

constexpr request_id r1{1};
constexpr request_id r2{2};
constexpr request_id r3{3};
constexpr pin_id p1{1};

TEST_CASE("paged manager: impossible geometry is refused by name, value and rule") {
  const auto why = [](const auto& change) {
    paged_manager_options o = two_pools();
    auto pools = memory_for(o);
    change(o, pools);
    const auto made = paged_manager::make(o, pools);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == errc::invalid);
    return made.error().text;
  };
  CHECK(why([](auto& o, auto&) { o.tokens_per_block = 0; }) == "tokens_per_block is 0, must be 1 or more");
  CHECK(why([](auto& o, auto&) { o.pool_groups.clear(); }) == "pool_groups is empty, must be 1 or more");
  CHECK(why([](auto&, auto& p) { p.pop_back(); }) == "1 pools for 2 pool groups, must be one each");
  CHECK(why([](auto& o, auto&) { o.layer_groups.clear(); }) == "layer_groups is empty, must be 1 or more");
  CHECK(why([](auto& o, auto&) { o.layer_groups[1].pool_group = 2; }) ==
        "layer group 1: pool_group is 2, must be below 2");
  CHECK(why([](auto& o, auto&) { o.layer_groups[0].pool_group = -1; }) ==
        "layer group 0: pool_group is -1, must be below 2");
  CHECK(why([](auto& o, auto&) {
          o.layer_groups[1].layers = {5, 0};
        }) == "layer group 1: layer 0 is in layer group 0 already, must be in one");
  CHECK(why([](auto& o, auto&) { o.layer_groups[1].pool_group = 0, o.layer_groups[2].pool_group = 0; }) ==
        "pool group 1: no layer group uses it, must be 1 or more");
  CHECK(why([](auto& o, auto&) { o.pool_groups[1].pages = 1; }) ==
        "pool group 1: 1 pages, must be 2 or more: one for each of its layer groups");
  CHECK(why([](auto& o, auto&) { o.pool_groups[0].pages = 0; }) ==
        "pool group 0: pages is 0, must be 1 or more");
  CHECK(why([](auto& o, auto&) { o.pool_groups[0].page_bytes = -4; }) ==
        "pool group 0: page_bytes is -4, must be 1 or more");
  CHECK(why([](auto& o, auto&) { o.pool_groups[0].pages = std::numeric_limits<std::int64_t>::max(); }) ==
        "pool group 0: 9223372036854775807 pages of 64 bytes, must be fewer than 2^63 bytes");
  CHECK(why([](auto& o, auto&) { o.tokens_per_block = std::numeric_limits<std::int64_t>::max(); }) ==
        "pool group 0: 8 pages of 9223372036854775807 tokens, must be fewer than 2^63 tokens");
  CHECK(why([](auto&, auto& p) { p[0] = nullptr; }) == "pool group 0: no memory given");
  CHECK(why([](auto&, auto& p) { p[1] = p[0]; }) ==
        "pool group 1: memory of 512 bytes, must be 2048 or more");
  CHECK(why([](auto& o, auto&) {
          o.layer_groups[0].share = shard{2, 2};
        }) == "layer group 0: shard 2 of 2, must be 0 <= index < count");
}

TEST_CASE("paged manager: the derived layout id follows content, not numbering or counts") {
  const auto id = [](const auto& change) {
    paged_manager_options o = two_pools();
    change(o);
    return make_manager(o)->layout().layout_id;
  };
  const auto base = id([](auto&) {});
  CHECK(base.size() == 32);
  CHECK(id([](auto& o) { std::swap(o.layer_groups[0], o.layer_groups[2]); }) == base);
  CHECK(id([](auto& o) { o.pool_groups[0].pages = 9; }) == base);
  CHECK(id([](auto& o) { o.layer_groups[0].share = shard{2, 1}; }) == base);
  CHECK(id([](auto& o) {
          std::swap(o.pool_groups[0], o.pool_groups[1]);
          for (auto& g : o.layer_groups) g.pool_group = 1 - g.pool_group;
        }) == base);
  CHECK(id([](auto& o) { o.tokens_per_block = 8; }) != base);
  CHECK(id([](auto& o) { o.pool_groups[0].page_bytes = 32; }) != base);
  CHECK(id([](auto& o) { std::swap(o.layer_groups[0].layers, o.layer_groups[1].layers); }) != base);
  CHECK(id([](auto& o) { o.layout_id = {std::byte{9}}; }) == std::vector{std::byte{9}});
}

TEST_CASE("paged manager: a request's rows, group by group, at their addresses") {
  const auto m = make_manager(two_pools());
  REQUIRE(m->admit(r1, spec(run(0, 12))));
  const auto grown = m->grow(r1, 9);
  REQUIRE(grown);
  CHECK(*grown == request_info{r1, 12, 0, 0, 12});
  const auto rows = m->rows(r1, {4, 12});
  REQUIRE(rows);
  REQUIRE(rows->size() == 6);
  const std::int64_t groups[] = {0, 0, 1, 1, 2, 2};
  for (std::size_t i = 0; i < 6; ++i) {
    const page_row& r = (*rows)[i];
    CHECK(r.layer_group == groups[i]);
    CHECK(r.ordinal == 1 + static_cast<std::int64_t>(i % 2));
    CHECK(r.nbytes == (groups[i] == 0 ? 64U : 128U));
    CHECK(r.address == fake_base(groups[i] == 0 ? 0 : 1) + static_cast<std::uintptr_t>(r.page) * r.nbytes);
  }
  CHECK(m->rows(r1, {0, 0})->empty());
  CHECK(m->rows(r1, {4, 6}).error().text == "token range [4, 6) is not whole blocks of 4 tokens");
  CHECK(m->rows(r1, {8, 4}).error().text == "bad token range [8, 4): must be 0 <= start <= end");
  CHECK(m->rows(r1, {-4, 4}).error().code == errc::invalid);
  CHECK(m->rows(r1, {0, 16}).error().text == "token range [0, 16): past the capacity of 12 tokens");
  CHECK(m->rows(r1, {0, std::int64_t{1} << 50U}).error().code == errc::invalid);
}

TEST_CASE("paged manager: ids are known once and never again") {
  paged_manager_options o = one_pool(8);
  o.runtime = incarnation{0};
  const auto m = make_manager(o);
  const request_id foreign{(std::uint64_t{3} << id_sequence_bits) + 1};
  CHECK(m->admit(request_id{}, spec(run(0, 4))).error().text == "request 0.0: zero is no id");
  CHECK(m->admit(foreign, spec(run(0, 4))).error().text == "request 3.1: of another runtime, must be of 0");
  CHECK(m->admit(r1, spec({})).error().text == "request 0.1: empty prompt");
  CHECK(m->admit(r1, spec(run(token_id_limit - 3, 4))).error().code == errc::invalid);
  CHECK(m->admit(r1, spec({{1, 2, 3}, {{3, {}}}})).error().code == errc::invalid);
  REQUIRE(m->admit(r2, spec(run(0, 4))));
  REQUIRE(m->admit(r1, spec(run(0, 4))));
  CHECK(m->admit(r1, spec(run(0, 4))).error().text == "request 0.1: this id was used before");
  REQUIRE(m->free(r1));
  CHECK(m->admit(r1, spec(run(0, 4))).error().code == errc::invalid);
  REQUIRE(m->admit(request_id{5}, spec(run(0, 4))));
  REQUIRE(m->admit(request_id{4}, spec(run(0, 4))));
  REQUIRE(m->admit(r3, spec(run(0, 4))));
  for (std::uint64_t i = 1; i <= 5; ++i)
    CHECK(m->admit(request_id{i}, spec(run(0, 4))).error().code == errc::invalid);
  CHECK(m->free(r1).error().code == errc::unknown);
  CHECK(m->describe(r1).error().code == errc::unknown);
  CHECK(m->grow(r1, 4).error().code == errc::unknown);
  CHECK(m->commit(r1, 0).error().code == errc::unknown);
  CHECK(m->rows(r1, {0, 0}).error().code == errc::unknown);
  CHECK(m->block_keys(r1, {0, 0}).error().code == errc::unknown);
}

TEST_CASE("paged manager: content committed by one request is used by the next, page for page") {
  const auto m = make_manager(two_pools());
  compute(*m, r1, spec(run(0, 12)));
  const auto first = *m->rows(r1, {0, 8});
  const auto info = m->admit(r2, spec(run(0, 12)));
  REQUIRE(info);
  CHECK(*info == request_info{r2, 12, 8, 8, 8});  // the third block holds the last prompt token
  CHECK(*m->rows(r2, {0, 8}) == first);
  CHECK(*m->block_keys(r2, {0, 12}) == *m->block_keys(r1, {0, 12}));
  REQUIRE(m->free(r1));
  REQUIRE(m->free(r2));
  CHECK(m->counts().cached == 9);
  // A prompt that forks in its second block shares the first alone.
  auto fork = run(0, 12);
  fork.ids[5] = 999;
  CHECK(m->admit(r3, spec(fork))->committed_tokens == 4);
  whole(*m);
}

TEST_CASE("paged manager: reuse ends before the last prompt token") {
  const auto m = make_manager(one_pool(8));
  compute(*m, r1, spec(run(0, 16)));
  std::uint64_t next = 10;
  const auto reused = [&](std::int64_t tokens) {
    return m->admit(request_id{next++}, spec(run(0, tokens)))->committed_tokens;
  };
  CHECK(reused(1) == 0);
  CHECK(reused(4) == 0);
  CHECK(reused(5) == 4);
  CHECK(reused(8) == 4);
  CHECK(reused(9) == 8);
  CHECK(reused(16) == 12);
  CHECK(reused(17) == 16);
  whole(*m);
}

TEST_CASE("paged manager: scopes never share") {
  const auto m = make_manager(one_pool(32));
  std::uint64_t next = 1;
  for (const reuse_scope& scope : scopes()) {
    const request_id id{next++};
    compute(*m, id, {run(0, 9), scope});
    CHECK(m->describe(id)->committed_tokens == 8);
  }
  for (const reuse_scope& scope : scopes()) {
    const request_id id{next++};
    CHECK(m->admit(id, {run(0, 9), scope})->committed_tokens == 8);
  }
  CHECK(m->counts().held == 3 * static_cast<std::int64_t>(scopes().size()));
  whole(*m);
}

TEST_CASE("paged manager: digests in a prompt are content too") {
  const auto m = make_manager(one_pool(16));
  const auto with = [](std::uint8_t content) {
    token_list prompt = run(0, 17);
    prompt.digests = {{5, sha256({reinterpret_cast<const std::byte*>(&content), 1})}};
    return spec(prompt);
  };
  compute(*m, r1, with(1));
  CHECK(m->admit(r2, with(1))->committed_tokens == 16);
  CHECK(m->admit(r3, with(2))->committed_tokens == 4);
  CHECK(m->admit(request_id{4}, spec(run(0, 17)))->committed_tokens == 4);
  whole(*m);
}

TEST_CASE("paged manager: keys are those that names are made of, and a prompt's own") {
  const auto m = make_manager(one_pool(64));
  const token_list prompt = run(3, 100);
  for (const auto id : {r1, r2}) {
    if (id == r1) compute(*m, id, {prompt, {7, 11}});
    if (id == r2) REQUIRE(m->admit(id, {prompt, {7, 11}}));
    CHECK(*m->block_keys(id, {0, 100}) == *kvlease::block_keys(root_key({7, 11}), prompt, 4));
  }
}

TEST_CASE("paged manager: without reuse nothing is cached") {
  paged_manager_options o = one_pool(8);
  o.reuse = false;
  const auto m = make_manager(o);
  compute(*m, r1, spec(run(0, 12)));
  CHECK(m->admit(r2, spec(run(0, 12)))->committed_tokens == 0);
  CHECK(m->block_keys(r2, {0, 12})->size() == 3);
  REQUIRE(m->free(r1));
  CHECK(m->counts() == page_counts{8, 8, 0, 0, 0});
  whole(*m);
}

TEST_CASE("paged manager: commit takes whole blocks, forward, within prompt and capacity") {
  const auto m = make_manager(one_pool(8));
  REQUIRE(m->admit(r1, spec(run(0, 10))));
  REQUIRE(m->grow(r1, 16));
  CHECK(m->commit(r1, 6).error().text == "commit of request 0.1: end is 6, must be whole blocks of 4 tokens");
  CHECK(m->commit(r1, -4).error().code == errc::invalid);
  CHECK(m->commit(r1, 12).error().text == "commit of request 0.1: end is 12, past the prompt of 10 tokens");
  REQUIRE(m->commit(r1, 8));
  CHECK(m->commit(r1, 8)->committed_tokens == 8);
  CHECK(m->commit(r1, 4).error().text == "commit of request 0.1: end is 4, below the 8 committed tokens");
  REQUIRE(m->admit(r2, spec(run(50, 16))));
  REQUIRE(m->grow(r2, 3));
  CHECK(m->commit(r2, 8).error().text == "commit of request 0.2: end is 8, past the capacity of 4 tokens");
  CHECK(m->block_keys(r1, {0, 12}).error().text ==
        "token range [0, 12): past the whole blocks of a prompt of 10 tokens");
  CHECK(m->block_keys(r1, {4, 8})->front() == m->block_keys(r1, {0, 8})->back());
  whole(*m);
}

TEST_CASE("paged manager: a block whose key is resident stays private and is freed with its request") {
  const auto m = make_manager(one_pool(8));
  REQUIRE(m->admit(r1, spec(run(0, 9))));
  REQUIRE(m->admit(r2, spec(run(0, 9))));
  for (const auto id : {r1, r2}) {
    REQUIRE(m->grow(id, 8));
    REQUIRE(m->commit(id, 8));
  }
  CHECK(m->rows(r1, {0, 8})->front().page != m->rows(r2, {0, 8})->front().page);
  REQUIRE(m->free(r2));
  CHECK(m->counts() == page_counts{8, 6, 2, 0, 0});
  whole(*m);
}

TEST_CASE("paged manager: private blocks whose key has gone become resident with a block behind them") {
  const auto m = make_manager(one_pool(8));
  REQUIRE(m->admit(r1, spec(run(0, 13))));
  REQUIRE(m->admit(r2, spec(run(0, 13))));
  for (const auto id : {r1, r2}) {
    REQUIRE(m->grow(id, 8));
    REQUIRE(m->commit(id, 8));
  }
  REQUIRE(m->free(r1));
  REQUIRE(m->admit(r3, spec(run(70, 24))));
  REQUIRE(m->grow(r3, 20));  // five pages: evicts one block of r1, the second
  whole(*m);
  REQUIRE(m->grow(r3, 24));  // and the first
  CHECK(m->counts() == page_counts{8, 0, 8, 0, 0});
  REQUIRE(m->free(r3));
  REQUIRE(m->grow(r2, 12));
  REQUIRE(m->commit(r2, 12));
  whole(*m);
  REQUIRE(m->free(r2));
  CHECK(m->counts().cached == 3);
  CHECK(m->admit(request_id{4}, spec(run(0, 13)))->committed_tokens == 12);
}

TEST_CASE("paged manager: evicts what was unreferenced longest, from the leaves") {
  const auto m = make_manager(one_pool(6));
  compute(*m, r1, spec(run(0, 12)));
  compute(*m, r2, spec(run(50, 12)));
  REQUIRE(m->free(r1));
  REQUIRE(m->free(r2));
  std::uint64_t next = 10;
  const auto cached = [&](std::uint32_t first) {
    const request_id id{next++};
    const auto got = m->admit(id, spec(run(first, 13)))->committed_tokens;
    REQUIRE(m->free(id));
    return got;
  };
  REQUIRE(m->admit(r3, spec(run(100, 40))));
  REQUIRE(m->grow(r3, 4));
  CHECK(cached(0) == 8);  // r1's last block went; asking made the rest of r1 the youngest
  CHECK(cached(50) == 12);
  REQUIRE(m->grow(r3, 12));
  CHECK(cached(50) == 12);
  CHECK(cached(0) == 0);
  REQUIRE(m->grow(r3, 20));
  CHECK(cached(50) == 4);
  whole(*m);
}

TEST_CASE("paged manager: no pages leaves everything as it was, over all pool groups") {
  paged_manager_options o = two_pools();
  o.pool_groups[1].pages = 8;  // two pages a block: half of what pool group 0 could carry
  const auto m = make_manager(o);
  compute(*m, r1, spec(run(0, 8)));
  REQUIRE(m->free(r1));
  REQUIRE(m->admit(r2, spec(run(50, 400))));
  REQUIRE(m->grow(r2, 8));
  REQUIRE(m->admit(r3, spec(run(0, 9))));  // references both cached blocks
  const auto before = m->counts();
  const auto rows = *m->rows(r2, {0, 8});
  const auto refused = m->grow(r2, 16);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() ==
        error{errc::no_memory,
              "no free pages: request 0.2 needs 4 pages of pool group 1, 0 of 8 are available"});
  CHECK(m->grow(r2, std::numeric_limits<std::int64_t>::max()).error().code == errc::no_memory);
  CHECK(m->grow(r2, -1).error().code == errc::invalid);
  CHECK(m->counts() == before);
  CHECK(m->describe(r2)->capacity_tokens == 8);
  CHECK(*m->rows(r2, {0, 8}) == rows);
  REQUIRE(m->free(r3));
  CHECK(m->grow(r2, 20).error().text ==
        "no free pages: request 0.2 needs 6 pages of pool group 1, 4 of 8 are available");
  CHECK(m->counts().cached == 6);
  REQUIRE(m->grow(r2, 16));
  whole(*m);
}

TEST_CASE("paged manager: a pin takes only what the request holds in that very place") {
  const auto m = make_manager(two_pools());
  REQUIRE(m->admit(r1, spec(run(0, 8))));
  REQUIRE(m->grow(r1, 8));
  auto wanted = *m->rows(r1, {0, 8});
  REQUIRE(wanted.size() == 6);
  wanted[1].page += 1;
  wanted[2].ordinal = 2;
  wanted[3].layer_group = 3;
  wanted[4].address += 64;
  CHECK(m->pin(p1, r1, wanted) == std::vector<std::size_t>{0, 5});
  CHECK(m->pin(p1, r1, wanted).empty());  // an id in use
  CHECK(m->pin(pin_id{2}, r2, wanted).empty());
  CHECK_FALSE(m->unpin(pin_id{2}));
  whole(*m);
  REQUIRE(m->free(r1));
  CHECK(m->counts().pinned == 2);
  CHECK(m->pin(pin_id{3}, r1, wanted).empty());
  CHECK(m->unpin(p1));
  CHECK_FALSE(m->unpin(p1));
  CHECK(m->counts().free == m->counts().total);
  whole(*m);
}

TEST_CASE("paged manager: a freed page is given to nobody while a copy may touch it") {
  const auto m = make_manager(one_pool(4));
  REQUIRE(m->admit(r1, spec(run(0, 16))));
  REQUIRE(m->grow(r1, 16));
  const auto pinned = *m->rows(r1, {4, 8});
  REQUIRE(m->pin(p1, r1, pinned).size() == 1);
  REQUIRE(m->pin(pin_id{2}, r1, pinned).size() == 1);
  REQUIRE(m->free(r1));
  CHECK(m->counts() == page_counts{4, 3, 0, 0, 1});
  REQUIRE(m->admit(r2, spec(run(0, 16))));
  CHECK(m->grow(r2, 16).error().code == errc::no_memory);
  REQUIRE(m->grow(r2, 12));
  const auto others = *m->rows(r2, {0, 12});
  for (const auto& row : others) CHECK(row.page != pinned[0].page);
  REQUIRE(m->unpin(p1));
  CHECK(m->grow(r2, 16).error().code == errc::no_memory);
  REQUIRE(m->unpin(pin_id{2}));
  REQUIRE(m->grow(r2, 16));
  CHECK(m->rows(r2, {12, 16})->front().page == pinned[0].page);
  whole(*m);
}

TEST_CASE(
    "paged manager: a pinned cached block is neither evicted nor reused, also if pinned before its commit") {
  for (const bool pin_first : {true, false}) {
    const auto m = make_manager(two_pools());
    REQUIRE(m->admit(r1, spec(run(0, 13))));
    REQUIRE(m->grow(r1, 12));
    if (!pin_first) REQUIRE(m->commit(r1, 12));
    const std::vector<page_row> one{m->rows(r1, {4, 8})->back()};
    REQUIRE(m->pin(p1, r1, one).size() == 1);
    if (pin_first) REQUIRE(m->commit(r1, 12));
    REQUIRE(m->free(r1));
    CHECK(m->counts().pinned == 1);
    CHECK(m->counts().cached == 8);
    CHECK(m->admit(r2, spec(run(0, 13)))->committed_tokens == 4);
    REQUIRE(m->free(r2));
    REQUIRE(m->admit(r3, spec(run(50, 40))));
    CHECK(m->grow(r3, 28).error().code == errc::no_memory);
    REQUIRE(m->grow(r3, 24));  // six of eight blocks; the pinned one and its parent stay
    whole(*m);
    REQUIRE(m->unpin(p1));
    REQUIRE(m->free(r3));
    CHECK(m->admit(request_id{4}, spec(run(0, 13)))->committed_tokens == 8);
    whole(*m);
  }
}

TEST_CASE("paged manager: memory stays mapped after the manager only if a pin was left") {
  for (const bool left : {false, true}) {
    auto o = one_pool(4);
    auto pools = memory_for(o);
    const std::weak_ptr<memory_block> watch = pools[0];
    auto m = std::move(*paged_manager::make(o, std::move(pools)));
    pools.clear();
    REQUIRE(m->admit(r1, spec(run(0, 4))));
    REQUIRE(m->grow(r1, 4));
    REQUIRE(m->pin(p1, r1, *m->rows(r1, {0, 4})).size() == 1);
    if (!left) REQUIRE(m->unpin(p1));
    m.reset();
    CHECK(watch.expired() == !left);
  }
}

TEST_CASE("paged manager: 10^5 blocks cost no search") {
  constexpr std::int64_t blocks = 100'000;
  paged_manager_options o = one_pool(blocks);
  o.tokens_per_block = 1;
  const auto m = make_manager(o);
  const auto start = std::chrono::steady_clock::now();
  const auto prompt = run(0, blocks + 1);
  REQUIRE(m->admit(r1, spec(prompt)));
  for (std::int64_t end = 1; end <= blocks; ++end) {
    REQUIRE(m->grow(r1, end));
    REQUIRE(m->commit(r1, end));
  }
  REQUIRE(m->free(r1));
  CHECK(m->admit(r2, spec(prompt))->committed_tokens == blocks);
  REQUIRE(m->free(r2));
  REQUIRE(m->admit(r3, spec(run(7, 1))));
  for (std::int64_t end = 1; end <= blocks; ++end) REQUIRE(m->grow(r3, end));
  CHECK(m->counts() == page_counts{blocks, 0, blocks, 0, 0});
  whole(*m);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{20});
}

}  // namespace
}  // namespace kvlease
