// A host that embeds kvlease: an engine with one request, fetching what another request has published.
// Built and run by the tests (ctest: example_embed).
#include <cstdio>
#include <cstdlib>
#include <future>

#include "cuda/host_device.hpp"
#include "kvlease/runtime.hpp"
#include "src/paged_manager.hpp"
#include "src/providers/memory_provider.hpp"

using namespace kvlease;

// An example may give up at the first error; a service would not.
template <class T>
T must(result<T> r) {
  if (r) return *std::move(r);
  std::fprintf(stderr, "%s\n", to_string(r.error()).c_str());
  std::exit(1);
}

constexpr std::int64_t tokens_per_block = 16, page_bytes = 4096, pages = 64;

// 1. A runtime: the engine's manager, a device, a provider, and staging slots to lend.
std::unique_ptr<runtime> start(const std::shared_ptr<memory_store>& store) {
  auto device = std::make_shared<host_device>();  // with a GPU: the CUDA device
  paged_manager_options m;
  m.tokens_per_block = tokens_per_block;
  m.pool_groups = {{page_bytes, pages}};
  m.layer_groups = {{.pool_group = 0, .layers = {0, 1, 2, 3}}};
  runtime_options o;
  o.profile = supported_profile("example-1");
  o.manager = must(paged_manager::make(m, {must(device->allocate_device(page_bytes * pages))}));
  o.device = device;
  o.open_provider = [store](const provider_context& c) {
    return std::make_shared<memory_provider>(store, c);
  };
  o.staging_slots = {32};
  o.scope = "example model v1";  // instances that share content share the scope
  return must(runtime::start(std::move(o)));
}

// 2. Lend, submit, and hear of it twice: the outcome at once, the release on proof.
outcome transfer(runtime& r, direction way, request_id request, token_range range) {
  std::promise<void> ready;
  const auto lease = must(r.lend(way, request, range,
                                 {.ready = [&](lease_id, auto) { ready.set_value(); },
                                  .failed = [](lease_id, const error& e) { must<int>(tl::unexpected{e}); }})
                              .get());
  ready.get_future().wait();
  std::promise<outcome> answered;
  std::promise<void> released;
  must(r.submit(way, lease, request, must(transfer_timeout::make(std::chrono::seconds{5})),
                {.outcome = [&](const operation_outcome& o) { answered.set_value(o.value); },
                 .released = [&](const operation_released&) { released.set_value(); }})
           .get());
  const auto value = answered.get_future().get();  // the request can go on with this answer,
  released.get_future().wait();                    // but the slots are lent anew only after this
  return value;
}

int main() {
  const auto store = std::make_shared<memory_store>(std::size_t{1} << 20);
  const auto one = start(store), other = start(store);
  request_spec prompt;
  for (std::uint32_t i = 0; i < 100; ++i) prompt.prompt.push_back(i);
  constexpr token_range whole{0, 96};  // six whole blocks

  // One instance computes and publishes.
  const auto first = must(one->admit(prompt).get()).request;
  must(one->grow(first, whole.end).get());
  const auto cache = std::make_shared<std::vector<std::byte>>(6 * page_bytes, std::byte{42});
  one->write_pages(first, whole, cache).get();
  must(one->commit(first, whole.end).get());
  std::printf("publish: %s\n", to_string(transfer(*one, direction::publish, first, whole)).c_str());

  // The other fetches instead of computing.
  const auto second = must(other->admit(prompt).get()).request;
  std::printf("fetch:   %s\n", to_string(transfer(*other, direction::fetch, second, whole)).c_str());
  const auto from = must(other->ready_from(second).get());
  std::printf("ready:   may resume anywhere in [%ld, %ld]\n", static_cast<long>(from->restart_floor),
              static_cast<long>(from->usable_until));
  const auto got = std::make_shared<std::vector<std::byte>>(6 * page_bytes);
  other->read_pages(second, whole, got).get();
  std::printf("bytes:   %s\n", *got == *cache ? "as published" : "WRONG");
  return *got == *cache && one->stop(std::chrono::seconds{1}).stopped &&
                 other->stop(std::chrono::seconds{1}).stopped
             ? 0
             : 1;
}
