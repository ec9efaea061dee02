// The CUDA actor on the host stand-in, under the deterministic scheduler: what it asks, when, and what it
// tells. Its copies here are the test's own; the lender's are in tests/actors.
#include <doctest/doctest.h>

#include <caf/typed_event_based_actor.hpp>

#include "messages/cuda.hpp"
#include "tests/inject.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

struct heard_copies {
  std::vector<copy_id> complete;
  std::vector<std::pair<copy_id, std::string>> unproven;
};

struct rig {
  explicit rig(std::shared_ptr<device_bench> on = device_bench::host()) : w{options(std::move(on))} {
    page = (*w.bench->port()->allocate_device(4096));
    slot = (*w.bench->port()->allocate_staging(4096));
    client = w.in().system->spawn([this](copy_client::pointer) -> copy_client::behavior_type {
      return {[this](const copy_complete& c) { heard.complete.push_back(c.copy); },
              [this](const copy_unproven& u) { heard.unproven.emplace_back(u.copy, u.reason); }};
    });
  }
  ~rig() {
    w.bench->open();
    caf::anon_send_exit(client, caf::exit_reason::kill);
    client = nullptr;
  }
  static world_options options(std::shared_ptr<device_bench> on) {
    world_options o;
    o.bench = std::move(on);
    return o;
  }

  copy_id send(copy_kind kind = copy_kind::host_to_device) {
    auto b = std::make_shared<copy_batch>();
    b->kind = kind;
    b->rows = {kind == copy_kind::host_to_device ? copy_row{page->address(), slot->address(), 64}
                                                 : copy_row{slot->address(), page->address(), 64}};
    const copy_id id{++drawn};
    w.in().send(w.in().parts.actors->cuda, copy_rows{id, b, client});
    return id;
  }
  std::int64_t figure(const char* name) { return w.figure(actor_kind::cuda, name); }

  world w;
  std::shared_ptr<memory_block> page, slot;
  copy_client client;
  heard_copies heard;
  std::uint64_t drawn = 0;
};

}  // namespace

TEST_CASE("CUDA actor: with nothing pending it asks nothing and arms no timer") {
  rig r;
  r.w.advance(1s);
  CHECK(r.figure("queries") == 0);
  r.send();
  CHECK(r.heard.complete.size() == 1);
  const auto asked = r.figure("queries");
  const auto before = r.w.now();
  r.w.advance(100s);
  CHECK(r.figure("queries") == asked);
  CHECK(r.w.now() - before == 100s);
}

TEST_CASE("CUDA actor: of many pending copies it asks the oldest of each direction alone") {
  rig r;
  r.w.bench->hold();
  for (int i = 0; i < 50; ++i) {
    r.send(copy_kind::host_to_device);
    r.send(copy_kind::device_to_host);
  }
  r.w.advance(100ms);
  const auto before = r.figure("queries");
  r.w.advance(100ms);
  const auto asked = r.figure("queries") - before;
  // At most one a millisecond and direction, however many are pending.
  CHECK(asked >= 2 * 90);
  CHECK(asked <= 2 * 110);
  CHECK(r.figure("pending") == 100);
  r.w.bench->open();
  r.w.advance(5ms);
  CHECK(r.heard.complete.size() == 100);
  CHECK(r.figure("pending") == 0);
}

TEST_CASE("CUDA actor: copies beyond the depth of the queue wait, in their order, and lose nothing") {
  rig r;
  r.w.bench->hold();
  std::vector<copy_id> sent;
  for (int i = 0; i < 700; ++i) sent.push_back(r.send());
  CHECK(r.figure("pending") == 700);
  CHECK(r.figure("waiting") == 700 - 512);  // cuda_config::most_queued
  r.w.bench->open();
  r.w.advance(10ms);
  CHECK(r.heard.complete == sent);
  CHECK(r.heard.unproven.empty());
  CHECK(r.figure("waiting") == 0);
}

TEST_CASE("CUDA actor: a device without room is asked again once a copy has ended") {
  rig r;
  r.w.bench->hold();
  r.w.bench->host_port()->set_room(4);
  std::vector<copy_id> sent;
  for (int i = 0; i < 30; ++i) sent.push_back(r.send());
  CHECK(r.figure("waiting") > 0);
  CHECK(r.heard.unproven.empty());
  r.w.bench->open();
  r.w.advance(50ms);
  CHECK(r.heard.complete == sent);
}

TEST_CASE("CUDA actor: no room with nothing queued is no reason to wait") {
  rig r;
  r.w.bench->host_port()->set_room(0);
  const auto id = r.send();
  r.w.advance(1s);
  REQUIRE(r.heard.unproven.size() == 1);
  CHECK(r.heard.unproven[0].first == id);
  CHECK(r.heard.unproven[0].second.find("the bound is 0") != std::string::npos);
}

TEST_CASE("5.6 a device that is lost makes every copy of it unproven at once, queued, waiting and to come") {
  rig r;
  r.w.bench->hold();
  for (int i = 0; i < 600; ++i) r.send(i % 2 == 0 ? copy_kind::host_to_device : copy_kind::device_to_host);
  CHECK(r.heard.unproven.empty());
  r.w.bench->host_port()->lose();
  r.w.advance(2ms);
  CHECK(r.heard.unproven.size() == 600);
  CHECK(r.heard.complete.empty());
  for (const auto& [id, reason] : r.heard.unproven) CHECK(reason == "the device is lost (injected)");
  const auto late = r.send();
  CHECK(r.heard.unproven.back().first == late);
  r.w.bench->open();
  const auto asked = r.figure("queries");
  r.w.advance(10s);
  CHECK(r.figure("queries") == asked);
  CHECK(r.heard.complete.empty());  // late evidence changes nothing
}

TEST_CASE("5.6 one copy whose query fails is unproven, the others are not") {
  rig r;
  r.w.bench->hold();
  const auto bad = r.send(), good = r.send();
  r.w.bench->host_port()->fail_next_query();
  r.w.bench->open();
  r.w.advance(5ms);
  REQUIRE(r.heard.unproven.size() == 1);
  CHECK(r.heard.unproven[0].first == bad);
  CHECK(r.heard.complete == std::vector<copy_id>{good});
}

// ---- the engine's own page access where the device does not reach its buffers (src/page_moves.hpp)

namespace {

world_options pageable() {
  world_options o;
  o.bench = device_bench::host();
  o.bench->host_port()->reach_nothing();
  o.pages = 200;
  o.slots = 100;
  return o;
}

result<done> move(world& w, request_id r, token_range range, copy_kind kind,
                  std::shared_ptr<std::vector<std::byte>> buffer) {
  return ask<done>(w.in(), w.in().parts.actors->manager, move_pages{r, range, kind, std::move(buffer)});
}

}  // namespace

TEST_CASE("page access: a buffer that the device does not reach goes through staging, part by part") {
  world w{pageable()};  // 4,096 bytes of staging, pages of 64
  const auto r = w.admit(801);
  REQUIRE(w.grow(r, 800));
  auto out = std::make_shared<std::vector<std::byte>>(200 * 64);
  for (std::size_t i = 0; i < out->size(); ++i) (*out)[i] = static_cast<std::byte>(i * 7 % 251);
  REQUIRE(move(w, r, {0, 800}, copy_kind::host_to_device, out));
  CHECK(w.figure(actor_kind::cuda, "copies") == 4);  // 12,800 bytes by 4,096
  auto back = std::make_shared<std::vector<std::byte>>(200 * 64);
  REQUIRE(move(w, r, {0, 800}, copy_kind::device_to_host, back));
  CHECK(*back == *out);
  CHECK(w.figure(actor_kind::manager, "moves_open") == 0);
  CHECK(w.figure(actor_kind::manager, "pages_pinned") == 0);
  CHECK(w.stop().stopped);
}

TEST_CASE("page access: moves through staging wait for each other, and a lost copy ends them all") {
  world w{pageable()};
  const auto r = w.admit(401);
  REQUIRE(w.grow(r, 400));
  w.bench->hold();
  const auto buffer = std::make_shared<std::vector<std::byte>>(100 * 64, std::byte{1});
  CHECK_FALSE(move(w, r, {0, 400}, copy_kind::host_to_device, buffer));  // no answer yet
  CHECK_FALSE(move(w, r, {0, 400}, copy_kind::host_to_device, buffer));
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
  CHECK(w.figure(actor_kind::manager, "moves_open") == 2);
  w.bench->host_port()->fail_next_query();
  w.bench->open();
  w.advance(10ms);
  CHECK(w.figure(actor_kind::manager, "moves_open") == 0);
  CHECK(w.figure(actor_kind::manager, "pinned_for_good") == 2);
  const auto refused = move(w, r, {0, 400}, copy_kind::host_to_device, buffer);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::device);
  CHECK(refused.error().text.find("unproven") != std::string::npos);
}

TEST_CASE("page access: where the device reaches the buffer, one copy is enough") {
  world w;
  const auto r = w.admit(201);
  REQUIRE(w.grow(r, 200));
  REQUIRE(move(w, r, {0, 200}, copy_kind::host_to_device,
               std::make_shared<std::vector<std::byte>>(50 * 64, std::byte{1})));
  CHECK(w.figure(actor_kind::cuda, "copies") == 1);
}
