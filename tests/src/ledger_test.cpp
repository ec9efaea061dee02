#include "src/ledger.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "src/arbitration.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

constexpr lease_id lease{11}, other_lease{12};
constexpr operation_id op{21}, other_op{22};
constexpr request_id request{31};
constexpr registration_id handle{41};

std::shared_ptr<const region_view> empty_view() {
  return std::make_shared<const region_view>(*region_view::make({}));
}
std::shared_ptr<const cache_extent> empty_extent() {
  return std::make_shared<const cache_extent>(*cache_extent::make("e", {}, end_of_sequence::yes));
}

/// The authority to erase `of`, from the only one who makes it.
settle_token token_for(operation_id of) {
  arbitration arbiter{incarnation{1}};
  const time_point now{1s};
  arbiter.expose(now,
                 {.operation = of, .owner = {}, .request = request, .timeout = *transfer_timeout::make(5s)});
  arbiter.settle(now, of);
  for (const auto& e : arbiter.take_effects())
    if (const auto* yes = std::get_if<arbitration_effects::authorised>(&e)) return yes->token;
  FAIL("not authorised");
  std::abort();
}

struct noted final : attempt, registration, memory_block {
  explicit noted(bool& g) : gone{g} {}
  ~noted() override { gone = true; }
  std::optional<outcome> poll() override { return std::nullopt; }
  void close() override {}
  std::uintptr_t address() const noexcept override { return 4096; }
  std::size_t size() const noexcept override { return 64; }
  bool& gone;
};

struct rooted {
  rooted() { roots->root_lease(lease, direction::fetch, request, empty_view()); }
  void claim() {
    REQUIRE(roots->claim_lease(lease, op, direction::fetch, request).has_value());
    roots->root_operation(op, lease, empty_extent());
  }
  std::shared_ptr<ledger> roots = std::make_shared<ledger>();
};

TEST_CASE("ledger: a lease is claimed once, by the right direction and request") {
  rooted l;
  const auto code = [](const auto& r) { return r ? errc{} : r.error().code; };
  CHECK(code(l.roots->claim_lease(other_lease, op, direction::fetch, request)) == errc::invalid);
  CHECK(code(l.roots->claim_lease(lease, op, direction::publish, request)) == errc::invalid);
  CHECK(code(l.roots->claim_lease(lease, op, direction::fetch, request_id{32})) == errc::invalid);
  REQUIRE(l.roots->claim_lease(lease, op, direction::fetch, request).has_value());
  CHECK(code(l.roots->claim_lease(lease, other_op, direction::fetch, request)) == errc::state);
  CHECK(code(l.roots->withdraw_lease(lease)) == errc::state);
  l.roots->unclaim_lease(lease, other_op);  // not its owner
  CHECK(code(l.roots->claim_lease(lease, other_op, direction::fetch, request)) == errc::state);
  l.roots->unclaim_lease(lease, op);
  CHECK(l.roots->withdraw_lease(lease).has_value());
  CHECK(code(l.roots->withdraw_lease(lease)) == errc::unknown);
  CHECK(l.roots->rest().empty());
}

const broken_by guards_ignored{mutation::ignore_read_guards, "1.4 ledger*"};

TEST_CASE("1.4 ledger: read guards are counted, none is given once the lease is finishing") {
  rooted l;
  std::vector<lease_id> told;
  l.roots->on_guards_gone([&](lease_id id) { told.push_back(id); });
  CHECK(l.roots->guard(other_lease).error().code == errc::unknown);
  auto first = l.roots->guard(lease);
  auto second = l.roots->guard(lease);
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  CHECK(first->view().num_rows() == 0);
  CHECK(l.roots->withdraw_lease(lease).error().code == errc::state);
  first->drop();
  first->drop();  // drops its own only
  CHECK(told.empty());
  l.claim();
  CHECK(l.roots->begin_finish(lease) == 1);
  CHECK(l.roots->begin_finish(other_lease) == 0);
  CHECK(l.roots->guard(lease).error().code == errc::state);
  read_guard moved{std::move(*second)};
  second->drop();
  CHECK(told.empty());
  moved = read_guard{};
  CHECK(told == std::vector<lease_id>{lease});
  CHECK_FALSE(static_cast<bool>(moved));
}

TEST_CASE("1.4 ledger: a guard may outlive everything else, and be dropped anywhere") {
  read_guard guard;
  {
    rooted l;
    guard = *l.roots->guard(lease);
    CHECK(l.roots->rest() == std::vector<std::string>{"lease 0.11 (fetch, 1 read guards)"});
  }
  CHECK(guard.view().num_rows() == 0);
  std::thread{[g = std::move(guard)]() mutable { g.drop(); }}.join();
}

TEST_CASE("7.3 ledger: an operation's roots go against its token alone, and outside the lock") {
  rooted l;
  bool gone = false;
  CHECK(l.roots->extent(op) == nullptr);
  CHECK(l.roots->token(op) == nullptr);
  l.roots->root_attempt(op, std::make_shared<noted>(gone));  // of no operation: not kept
  CHECK(gone);
  gone = false;
  l.claim();
  l.roots->root_attempt(op, std::make_shared<noted>(gone));
  CHECK(l.roots->attempt_of(op) != nullptr);
  CHECK(l.roots->extent(op)->name() == "e");
  CHECK(l.roots->operations() == 1);
  CHECK_FALSE(l.roots->erase(token_for(other_op)));
  CHECK_FALSE(gone);
  CHECK(l.roots->erase(token_for(op)));
  CHECK(gone);
  CHECK_FALSE(l.roots->erase(token_for(op)));
  CHECK(l.roots->operations() == 0);
  CHECK(l.roots->withdraw_lease(lease).error().code == errc::unknown);  // the lease went with it
  CHECK(l.roots->rest().empty());
}

TEST_CASE("5.3 ledger: of entering and withdrawing a submission exactly one wins") {
  submission_token first, second;
  CHECK(first.enter());
  CHECK_FALSE(first.withdraw());
  CHECK_FALSE(first.enter());
  CHECK(second.withdraw());
  CHECK_FALSE(second.enter());
  for (int i = 0; i < 200; ++i) {
    submission_token contested;
    bool entered = false;
    std::thread worker{[&] { entered = contested.enter(); }};
    const bool withdrawn = contested.withdraw();
    worker.join();
    CHECK(entered != withdrawn);
  }
}

const broken_by rootless{mutation::free_with_roots, "7.3 ledger: memory*"};

TEST_CASE("7.3 ledger: memory goes when nothing is rooted any more, and whoever may touch it stays as long") {
  bool memory_gone = false, handle_gone = false, service_gone = false;
  {
    rooted l;
    l.roots->root_memory(std::make_shared<noted>(memory_gone));
    l.roots->root_keepalive(std::make_shared<noted>(service_gone));
    l.roots->root_registration(handle, std::make_shared<noted>(handle_gone));
    CHECK(l.roots->registration_of(handle) != nullptr);
    const auto refused = l.roots->release_memory();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error() ==
          error{errc::state, "staging memory is kept for 2 roots, first: lease 0.11 (fetch, 0 read guards)"});
    REQUIRE(l.roots->withdraw_lease(lease).has_value());
    CHECK_FALSE(l.roots->release_memory());
    CHECK(l.roots->rest() == std::vector<std::string>{"registration 0.41"});
    l.roots->registration_closed(registration_id{42});
    CHECK_FALSE(handle_gone);
    l.roots->registration_closed(handle);
    CHECK(handle_gone);
    CHECK(l.roots->registration_of(handle) == nullptr);
    CHECK_FALSE(memory_gone);
    CHECK(l.roots->release_memory().has_value());
    CHECK_FALSE(memory_gone);  // an actor said so, and its thread must not wait for a device
    l.roots->free_memory();
    CHECK(memory_gone);
    CHECK_FALSE(service_gone);
    CHECK(l.roots->release_memory().has_value());
  }
  CHECK(service_gone);
}

TEST_CASE("6.7 ledger: what is left mapped is never destroyed") {
  bool gone = false;
  bool* flag = new bool{false};  // lives as long as what is left
  std::size_t before = 0;
  {
    rooted l;
    before = leave_mapped(std::make_shared<ledger>());
    l.roots->root_memory(std::make_shared<noted>(*flag));
    CHECK(leave_mapped(l.roots) == before + 1);
  }
  gone = *flag;
  CHECK_FALSE(gone);
}

}  // namespace
}  // namespace kvlease::test
