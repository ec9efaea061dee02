// Field scenarios through a whole runtime, for every provider that a URI can name.
// F9: shutdown with eight operations in flight, one of which never ends. The report names it, its memory
// stays mapped, and the rest is torn down in order. F10: runtimes that come and go leave nothing behind.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "cuda/host_device.hpp"
#include "src/include/kvlease/runtime.hpp"
#include "src/paged_manager.hpp"
#include "tests/child_process.hpp"
#include "tests/providers/provider_contract.hpp"

using namespace kvlease;
using namespace kvlease::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t tokens_per_block = 16, page_bytes = 4096, operations = 8;

template <class T>
T must(result<T> r) {
  INFO((r ? std::string{} : to_string(r.error())));
  REQUIRE(r.has_value());
  return *std::move(r);
}

/// Never has an outcome, and its access never ends.
struct endless final : attempt {
  std::optional<outcome> poll() override { return std::nullopt; }
};

/// Its first fetch never ends; all else is the provider behind.
class one_never_ends final : public provider,
                             public fetches,
                             public publishes,
                             public registers_pools,
                             public pollable,
                             public notifies {
 public:
  one_never_ends(std::shared_ptr<provider> to, std::atomic<int>& fetched)
      : to_{std::move(to)}, fetched_{fetched} {}
  std::string describe() const override { return to_->describe(); }
  unit_counters counters() const override { return to_->counters(); }
  fetches* as_fetches() override { return this; }
  publishes* as_publishes() override { return this; }
  kvlease::registers_pools* as_registers_pools() override { return this; }
  kvlease::pollable* as_pollable() override { return this; }
  kvlease::notifies* as_notifies() override { return this; }

  std::shared_ptr<attempt> fetch(const cache_extent& e, route* along) override {
    if (++fetched_ == 1) return std::make_shared<endless>();
    return to_->as_fetches()->fetch(e, along);
  }
  std::shared_ptr<attempt> publish(const cache_extent& e) override { return to_->as_publishes()->publish(e); }
  std::optional<std::set<bytes>> probe(const bytes& e, const std::set<bytes>& n) override {
    return to_->as_fetches()->probe(e, n);
  }
  result<std::unique_ptr<route>> open_route(const std::string& h) override {
    return to_->as_fetches()->open_route(h);
  }
  bool quiesce(attempt_list list) override { return to_->as_fetches()->quiesce(list); }
  void settle(attempt_list list) override { to_->as_fetches()->settle(list); }
  std::unique_ptr<registration> register_pool(std::uintptr_t at, std::size_t size) override {
    return to_->as_registers_pools()->register_pool(at, size);
  }
  access_answer poll_access(attempt& a) override {
    if (dynamic_cast<endless*>(&a) != nullptr) return {access_state::running, proof_source::terminal_status};
    return to_->as_pollable()->poll_access(a);
  }
  void on_progress(std::function<void()> wake) override { to_->as_notifies()->on_progress(std::move(wake)); }

 private:
  const std::shared_ptr<provider> to_;
  std::atomic<int>& fetched_;
};

std::unique_ptr<runtime> start(const std::string& uri, std::atomic<int>* fetched = nullptr) {
  auto device = std::make_shared<host_device>();
  paged_manager_options m;
  m.tokens_per_block = tokens_per_block;
  m.pool_groups = {{page_bytes, 64, {}}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  runtime_options o;
  o.profile = supported_profile("f9-1");
  o.manager = must(paged_manager::make(m, {must(device->allocate_device(page_bytes * 64))}));
  o.device = device;
  o.open_provider = [uri, fetched](const provider_context& c) -> std::shared_ptr<provider> {
    if (fetched == nullptr) return open_for_suite(uri, c);
    return std::make_shared<one_never_ends>(open_for_suite(uri, c), *fetched);
  };
  o.staging_slots = {32};
  o.on_fatal = [](const fatal_record&) {};
  return must(runtime::start(std::move(o)));
}

struct holdings {
  std::size_t threads = 0, descriptors = 0, locked_kib = 0;
};
std::size_t entries(const char* directory) {
  return static_cast<std::size_t>(std::ranges::distance(std::filesystem::directory_iterator{directory},
                                                        std::filesystem::directory_iterator{}));
}
holdings held_now() {
  holdings h{entries("/proc/self/task"), entries("/proc/self/fd"), 0};
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmLck:") || line.starts_with("VmPin:"))
      h.locked_kib += std::stoul(line.substr(line.find_first_of("0123456789")));
  return h;
}

}  // namespace

TEST_CASE(
    "F10 runtimes that come and go, 100 times in one process, leave no thread, descriptor or locked page") {
  for (const auto& [scheme, uris] : contract_uris()) {
    if (uris.empty()) continue;
    CAPTURE(uris.front());
    const int rounds = scheme == "memory" ? 100 : 10;  // each provider by itself does 100, in its own tests
    holdings first;
    for (int i = 0; i < rounds + 3; ++i) {
      {
        const auto lender = start(uris.front());
        CHECK(lender->stop(5s).stopped);
      }
      if (i == 2) first = held_now();  // what is made once in a process has been made
    }
    CHECK(eventually([&] { return held_now().threads <= first.threads; }, 10s));
    CHECK(eventually([&] { return held_now().descriptors <= first.descriptors; }, 10s));
    CHECK(held_now().locked_kib <= first.locked_kib);
  }
}

TEST_CASE("F9 shutdown with eight operations in flight, one of which never ends: the report names it alone") {
  for (const auto& [scheme, uris] : contract_uris()) {
    if (uris.empty()) continue;
    CAPTURE(uris.front());
    static std::atomic<int> fetched;  // what is left mapped may still count
    fetched = 0;
    const auto lender = start(uris.front(), &fetched);
    std::atomic<int> outcomes{0}, releases{0};
    std::vector<operation_id> ops;
    for (std::int64_t i = 0; i < operations; ++i) {
      request_spec prompt;
      for (std::uint32_t t = 0; t < 3 * tokens_per_block; ++t)
        prompt.prompt.push_back(static_cast<std::uint32_t>(i) * 1000 + t);
      const auto request = must(lender->admit(prompt).get()).request;
      must(lender->grow(request, 2 * tokens_per_block).get());
      std::promise<result<void>> ready;
      const auto lease =
          must(lender
                   ->lend(direction::fetch, request, {0, 2 * tokens_per_block},
                          {.ready = [&](lease_id, const auto&) { ready.set_value({}); },
                           .failed = [&](lease_id, const error& e) { ready.set_value(tl::unexpected{e}); }})
                   .get());
      REQUIRE(ready.get_future().get());
      ops.push_back(must(lender
                             ->submit(direction::fetch, lease, request, must(transfer_timeout::make(60s)),
                                      {.outcome = [&](const operation_outcome&) { ++outcomes; },
                                       .released = [&](const operation_released&) { ++releases; },
                                       .retained = {}})
                             .get()));
      REQUIRE(eventually([&] { return fetched > i; }));
    }
    const auto report = lender->stop(2s);
    CHECK_FALSE(report.stopped);
    CHECK(outcomes == operations);  // shutdown cancels what has none
    CHECK(releases == operations - 1);
    std::string lines;
    for (const auto& line : report.retained) lines += line + "\n";
    CAPTURE(lines);
    for (std::size_t i = 0; i < ops.size(); ++i)
      CHECK((lines.find("operation " + to_string(ops[i]) + " ") != std::string::npos) == (i == 0));
    CHECK(must(lender->check_exposure().get()) == 0);
  }
}
