// Pool groups of several memory pools, staging of the host's own, and a device of the host's choice: a
// publish by one runtime, a fetch by another, through the façade. On the host stand-in, and on a GPU.
#include <doctest/doctest.h>

#include <cstring>
#include <future>

#include "cuda/host_device.hpp"
#include "src/include/kvlease/runtime.hpp"
#include "src/paged_manager.hpp"
#include "src/providers/memory_provider.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/noting_device.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t tpb = 16, pages = 40, blocks = 12;
constexpr std::size_t slots = 36;

template <class T>
T must(result<T> r) {
  INFO((r ? std::string{} : to_string(r.error())));
  REQUIRE(r.has_value());
  return *std::move(r);
}

/// Two pool groups: one page in one piece, one page spread over three pools.
paged_manager_options geometry() {
  paged_manager_options o;
  o.tokens_per_block = tpb;
  o.pool_groups = {{4096, pages, {}}, {6144 + 7, 2 * pages, {4096, 2048, 7}}};
  o.layer_groups = {{.pool_group = 0, .layers = {0, 1}},
                    {.pool_group = 1, .layers = {2}},
                    {.pool_group = 1, .layers = {3}}};
  return o;
}

struct host {
  host(const std::shared_ptr<device_port>& device, const std::shared_ptr<memory_store>& store,
       bool own_staging) {
    const auto o = geometry();
    std::vector<std::shared_ptr<memory_block>> pools;
    for (const auto& g : o.pool_groups)
      for (const auto width : g.pool_bytes.empty() ? std::vector{g.page_bytes} : g.pool_bytes)
        pools.push_back(must(device->allocate_device(static_cast<std::size_t>(width * g.pages))));
    runtime_options r;
    r.profile = supported_profile("pools-1");
    r.device = device;
    r.manager = must(paged_manager::make(o, pools));
    r.open_provider = [store](const provider_context& c) {
      return std::make_shared<memory_provider>(store, c);
    };
    r.staging_slots = {static_cast<std::int64_t>(slots), static_cast<std::int64_t>(2 * slots)};
    r.page_access_bytes = 20'000;
    if (own_staging) {
      memory.resize(slots * 4096 + 2 * slots * 6151 + 3 * 4096);
      const auto at = (reinterpret_cast<std::uintptr_t>(memory.data()) + 4095) / 4096 * 4096;
      r.staging_memory = {{at, slots * 4096}, {at + slots * 4096, 2 * slots * 6151}};
    }
    lender = must(runtime::start(std::move(r)));
    request_spec spec;
    for (std::uint32_t i = 1; i <= blocks * tpb + 1; ++i) spec.prompt.push_back(i);
    request = must(lender->admit(spec).get()).request;
    must(lender->grow(request, blocks * tpb).get());
  }

  outcome transfer(direction way, token_range range) {
    std::promise<void> ready;
    const auto lease = must(lender
                                ->lend(way, request, range,
                                       {.ready = [&](lease_id, const auto&) { ready.set_value(); },
                                        .failed = [](lease_id, const error& e) { FAIL(to_string(e)); }})
                                .get());
    ready.get_future().wait();
    std::promise<outcome> answered;
    std::promise<void> released;
    must(lender
             ->submit(way, lease, request, must(transfer_timeout::make(10s)),
                      {.outcome = [&](const operation_outcome& o) { answered.set_value(o.value); },
                       .released = [&](const operation_released&) { released.set_value(); }})
             .get());
    released.get_future().wait();
    return answered.get_future().get();
  }

  std::vector<std::byte> memory;  // outlives the runtime
  std::unique_ptr<runtime> lender;
  request_id request;
};

void publish_and_fetch(const std::shared_ptr<device_port>& one, const std::shared_ptr<device_port>& other,
                       bool own_staging) {
  const auto store = std::make_shared<memory_store>(std::size_t{8} << 20);
  host first{one, store, own_staging}, second{other, store, own_staging};
  constexpr token_range whole{0, blocks * tpb};
  const auto cache = std::make_shared<std::vector<std::byte>>(blocks * (4096 + 2 * 6151));
  for (std::size_t i = 0; i < cache->size(); ++i) (*cache)[i] = static_cast<std::byte>(i * 31 % 253);
  REQUIRE(first.lender->write_pages(first.request, whole, cache).get());
  must(first.lender->commit(first.request, whole.end).get());
  const auto published = first.transfer(direction::publish, whole);
  CHECK(to_string(published) == "delivered(36)");
  CHECK(to_string(second.transfer(direction::fetch, whole)) == "delivered(36)");
  CHECK(must(second.lender->ready_from(second.request).get())->usable_until == whole.end);
  const auto got = std::make_shared<std::vector<std::byte>>(cache->size());
  REQUIRE(second.lender->read_pages(second.request, whole, got).get());
  CHECK(*got == *cache);
  for (auto* h : {&first, &second}) {
    CHECK(h->lender->check_exposure().get().value() == 0);
    const auto report = h->lender->stop(2s);
    CAPTURE((report.retained.empty() ? std::string{} : report.retained.front()));
    CHECK(report.stopped);
  }
}

}  // namespace

TEST_CASE("pools: a page over several memory pools travels whole, in and out") {
  publish_and_fetch(std::make_shared<host_device>(), std::make_shared<host_device>(), false);
}
TEST_CASE("pools: staging can be the host's own memory") {
  publish_and_fetch(std::make_shared<host_device>(), std::make_shared<host_device>(), true);
}
TEST_CASE("pools: buffers that the device does not reach") {
  const auto one = std::make_shared<host_device>(), other = std::make_shared<host_device>();
  one->reach_nothing();
  other->reach_nothing();
  publish_and_fetch(one, other, false);
}

TEST_CASE(
    "5.6 memory of the device is given back on the host's thread alone: an actor must not wait for a "
    "device") {
  const auto noted = [] {
    const auto plain = std::make_shared<host_device>();
    plain->reach_nothing();  // so that the manager has page access memory too
    return std::make_shared<test::noting_device>(plain);
  };
  const auto one = noted(), other = noted();
  publish_and_fetch(one, other, false);
  for (const auto& device : {one, other}) {
    const auto freed = device->freed_on();
    CHECK(freed.size() == 4 + 2 + 1);  // pools of pages, staging, page access
    for (const auto thread : freed) CHECK(thread == std::this_thread::get_id());
  }
}

TEST_CASE("F24 a commit without an event does not wait for the event of an earlier one") {
  const auto plain = std::make_shared<host_device>();
  const auto device = std::make_shared<test::noting_device>(plain);
  host h{device, std::make_shared<memory_store>(std::size_t{8} << 20), false};
  const auto event = plain->mark();
  must(h.lender->commit(h.request, 4 * tpb, event).get());
  h.transfer(direction::publish, {0, 4 * tpb});
  must(h.lender->commit(h.request, 8 * tpb).get());
  h.transfer(direction::publish, {4 * tpb, 8 * tpb});
  CHECK(device->read_behind() == std::vector<std::uintptr_t>{event, 0});
  CHECK(h.lender->stop(2s).stopped);
}

TEST_CASE("pools: staging memory that is too small or not one a pool group is refused by its numbers") {
  const auto device = std::make_shared<host_device>();
  paged_manager_options m;
  m.tokens_per_block = 4;
  m.pool_groups = {{64, 16}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  std::vector<std::byte> memory(512);
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto refused = [&](std::vector<host_span> spans) {
    runtime_options o;
    o.profile = supported_profile("pools-1");
    o.device = device;
    o.manager = must(paged_manager::make(m, {must(device->allocate_device(64 * 16))}));
    o.open_provider = [](const provider_context& c) {
      return std::make_shared<memory_provider>(std::make_shared<memory_store>(std::size_t{1} << 20), c);
    };
    o.staging_slots = {8};
    o.staging_memory = std::move(spans);
    const auto made = runtime::start(std::move(o));
    REQUIRE_FALSE(made);
    CHECK(made.error().code == errc::invalid);
    return made.error().text;
  };
  CHECK(refused({{at, 511}}) == "staging_memory of pool group 0 has 511 bytes, its slots need 512");
  CHECK(refused({{at, 512}, {at, 512}}) ==
        "staging_memory has 2 spans for 1 pool groups, must be none or one each");
  CHECK(refused({{0, 512}}) == "staging memory at a null address can't be registered");
}

TEST_CASE("pools: widths that do not make up the page, and memory of the wrong number, are refused") {
  const auto device = std::make_shared<host_device>();
  const auto refused = [&](std::vector<std::int64_t> widths, std::size_t memories) {
    paged_manager_options m;
    m.tokens_per_block = 4;
    m.pool_groups = {{64, 16, std::move(widths)}};
    m.layer_groups = {{.pool_group = 0, .layers = {0}}};
    std::vector<std::shared_ptr<memory_block>> pools;
    for (std::size_t i = 0; i < memories; ++i) pools.push_back(must(device->allocate_device(48 * 16)));
    return paged_manager::make(m, pools).error().text;
  };
  CHECK(refused({48, 15}, 2) == "pool group 0: pool_bytes sum to 63, must be page_bytes, 64");
  CHECK(refused({48, 17}, 2) == "pool group 0: pool_bytes sum to more than page_bytes, 64");
  CHECK(refused({48, 0}, 2).find("pool 1: pool_bytes is 0") != std::string::npos);
  CHECK(refused({48, 16}, 1) == "1 pools for 1 pool groups, must be 2");
  CHECK(refused({16, 48}, 3) == "3 pools for 1 pool groups, must be 2");
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("gpu: publish and fetch through the façade, pages over several pools") {
  const auto bench = test::gpu();
  if (bench == nullptr) return;
  for (const bool own : {false, true})
    publish_and_fetch(must(cuda_device::open()), must(cuda_device::open()), own);
}

TEST_CASE("gpu: publish from a GPU, fetch without one") {
  const auto bench = test::gpu();
  if (bench == nullptr) return;
  publish_and_fetch(must(cuda_device::open()), std::make_shared<host_device>(), false);
}

TEST_SUITE_END();
