// Field scenarios that need messages which no well-behaved peer would send.
#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "src/mix.hpp"
#include "tests/inject.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

constexpr actor_kind every_kind[] = {
    actor_kind::manager,         actor_kind::lender,           actor_kind::adapter, actor_kind::backend,
    actor_kind::proof_collector, actor_kind::deadline_arbiter, actor_kind::cuda,    actor_kind::supervisor};

void check_all_answer(world& w) {
  const auto s = w.look();
  REQUIRE(s.has_value());
  CHECK(s->down.empty());
  for (const auto kind : every_kind) {
    CAPTURE(to_string(kind));
    const auto it = std::ranges::find(s->actors, kind, &snapshot_entry::kind);
    REQUIRE(it != s->actors.end());
    CHECK(it->answered);
  }
}

}  // namespace

TEST_CASE("F5 duplicate, late and foreign completions after the slot is lent again") {
  world w{{.slots = 2}};
  w.skip_journal_check();  // it sends what no actor would
  const auto& to = *w.in().parts.actors;
  const auto first = w.admit(9), second = w.admit(9, 500);
  const auto old_lease = *w.lend(direction::fetch, first, {0, 8});
  const auto old_op = *w.submit(direction::fetch, old_lease, first);
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(200ms);
  REQUIRE(w.of(old_op).releases == 1);
  const auto lease = *w.lend(direction::fetch, second, {0, 8});
  const auto op = *w.submit(direction::fetch, lease, second);
  const auto before = w.slots();
  const auto rejected = w.figure(actor_kind::adapter, "rejected") + w.figure(actor_kind::lender, "rejected") +
                        w.figure(actor_kind::deadline_arbiter, "rejected") +
                        w.figure(actor_kind::proof_collector, "rejected") +
                        w.figure(actor_kind::manager, "rejected");
  // The proof of the new operation is number 2; 1 was the old one's, 99 is nobody's.
  constexpr std::uint64_t base = std::uint64_t{1} << id_sequence_bits;
  int sent = 0;
  for (const auto subject : {old_op, op, operation_id{op.value + 50}, operation_id{op.value ^ (base << 1)}})
    for (const auto proof : {proof_id{base + 1}, proof_id{base + 99}}) {
      w.in().send(to.adapter, access_ended{subject, proof});
      w.in().send(to.adapter, access_unproven{subject, proof, "late"});
      sent += 2;
    }
  for (const auto subject : {old_op, operation_id{op.value + 50}}) {
    w.in().send(to.adapter, exposure_granted{subject});
    w.in().send(to.adapter, submission_accepted{subject, std::nullopt});
    w.in().send(to.adapter, submission_refused{subject, "late"});
    w.in().send(to.adapter, submission_withdrawn{subject});  // no news: ignored, not counted
    w.in().send(to.adapter, submission_escaped{subject, "late"});
    w.in().send(to.adapter, outcome_reported{subject, failed{"late"}});
    w.in().send(to.adapter, outcome_committed{subject, failed{"late"}});
    w.in().send(to.adapter, claim_refused{subject});
    w.in().send(to.deadline_arbiter, commit_outcome{subject, failed{"late"}});
    w.in().send(to.deadline_arbiter, retain_claim{subject, "late"});
    w.in().send(to.deadline_arbiter, settle_claim{subject});
    w.in().send(to.deadline_arbiter, claim_retired{subject, {}});
    sent += 11;
  }
  for (const auto subject : {old_lease, lease_id{lease.value + 50}}) {
    w.in().send(to.adapter, copies_ended{subject});
    w.in().send(to.adapter, copies_lost{subject, "late"});
    w.in().send(to.lender, finish_lease{subject, {}});
    w.in().send(to.lender, return_lease{subject});
    w.in().send(to.lender, guards_gone{subject});
    w.in().send(to.lender, rows_pinned{subject, pin_id{base + 1}, {0, 1}});
    sent += 6;
  }
  w.in().send(to.lender, copy_complete{copy_id{base + 1}});
  w.in().send(to.lender, copy_unproven{copy_id{base + 1}, "late"});
  w.in().send(to.manager, copy_complete{copy_id{base + 1}});
  sent += 3;
  CHECK(w.figure(actor_kind::adapter, "rejected") + w.figure(actor_kind::lender, "rejected") +
            w.figure(actor_kind::deadline_arbiter, "rejected") +
            w.figure(actor_kind::proof_collector, "rejected") + w.figure(actor_kind::manager, "rejected") ==
        rejected + sent);
  CHECK(w.slots() == before);
  CHECK(w.of(op).events.empty());
  CHECK(w.of(old_op).events.size() == 2);
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(200ms);
  CHECK(w.of(op).events == std::vector<std::string>{"outcome delivered(2)", "released"});
  CHECK(w.exposure_bytes() == 0);
}

TEST_CASE("F12 a thousand deadlines behind one that is renewed every tick") {
  world w;
  w.skip_journal_check();  // it sends what no actor would
  const auto& arbiter = w.in().parts.actors->deadline_arbiter;
  constexpr std::uint64_t base = (std::uint64_t{1} << id_sequence_bits) + 1'000'000;
  const auto began = w.now();
  const auto expose = [&](operation_id op, std::chrono::milliseconds timeout) {
    w.in().send(arbiter, expose_operation{exposure{op, std::nullopt, request_id{1}, direction::fetch,
                                                   *transfer_timeout::make(timeout), w.now()},
                                          w.in().host});
  };
  std::vector<std::chrono::milliseconds> due(1000);
  for (std::size_t i = 0; i < due.size(); ++i) {
    due[i] = std::chrono::milliseconds{500 + mix64(7, i, 0) % 5000};
    expose(operation_id{base + i}, due[i]);
  }
  // The renewed one: settled and exposed anew, always with the earliest deadline of all.
  std::uint64_t renewals = 0;
  std::size_t heard = 0;
  for (auto t = 0ms; t <= 5600ms; t += 10ms) {
    const operation_id renewed{base + 100'000 + renewals++};
    expose(renewed, 15ms);
    w.advance(10ms);
    w.in().send(arbiter, settle_claim{renewed});
    w.in().send(arbiter, claim_retired{renewed, {}});
    const auto now = w.now() - began;
    std::size_t should = 0;
    for (std::size_t i = 0; i < due.size(); ++i) {
      const bool told = w.of(operation_id{base + i}).outcomes > 0;
      should += due[i] <= now ? 1 : 0;
      REQUIRE(told == (due[i] <= now));
    }
    heard = should;
    // Their access ends in time, so that nothing becomes fatal.
    for (std::size_t i = 0; i < due.size(); ++i)
      if (due[i] <= now && w.of(operation_id{base + i}).releases == 0) {
        w.in().send(arbiter, settle_claim{operation_id{base + i}});
        w.in().send(arbiter, claim_retired{operation_id{base + i}, {}});
      }
  }
  CHECK(heard == 1000);
  for (std::size_t i = 0; i < due.size(); ++i) CHECK(w.of(operation_id{base + i}).outcomes == 1);
  CHECK_FALSE(w.fatal().has_value());
}

TEST_CASE("F13 malformed messages: a typed rejection, and no actor dies") {
  world w{{.check_journal = false}};
  const auto& to = *w.in().parts.actors;
  const auto r = w.admit(9);
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  SUBCASE("ranges and ids of a lend") {
    for (const auto range : {token_range{0, most}, token_range{least, 4}, token_range{8, 4},
                             token_range{-4, 4}, token_range{1, 5}, token_range{most - 3, most},
                             token_range{0, (most / 4) * 4}, token_range{0, std::int64_t{1} << 50}})
      for (const auto way : {direction::fetch, direction::publish}) {
        const auto lease = w.lend(way, r, range);
        REQUIRE_FALSE(lease.has_value());
        CHECK(lease.error().code == errc::invalid);
      }
    CHECK(w.lend(direction::fetch, request_id{0}, {0, 4}).error().code == errc::unknown);
    CHECK(w.lend(direction::publish, request_id{~std::uint64_t{0}}, {0, 4}).error().code == errc::unknown);
  }
  SUBCASE("a submit that names what it must not") {
    const auto lease = *w.lend(direction::fetch, r, {0, 8});
    CHECK_FALSE(w.submit(direction::fetch, lease_id{0}, r).has_value());
    CHECK(w.submit(direction::publish, lease, r).error().code == errc::invalid);
    CHECK(w.submit(direction::fetch, lease, request_id{r.value + 9}).error().code == errc::invalid);
    CHECK_FALSE(
        w.submit(direction::fetch, lease, r, std::nullopt, std::chrono::duration<double>{-1}).has_value());
    CHECK(w.submit(direction::fetch, lease, r).has_value());  // nothing was lost by it
  }
  SUBCASE("marks of another shape, rows out of range") {
    const auto lease = *w.lend(direction::fetch, r, {0, 8});
    w.in().send(to.lender, finish_lease{lease, row_masks(1000, std::vector<bool>(1000, true))});
    w.in().send(to.lender,
                rows_pinned{lease, pin_id{1}, {0, 1, 2, 3, std::numeric_limits<std::size_t>::max()}});
    w.in().send(to.lender, rows_pinned{lease_id{3}, pin_id{1}, {}});
  }
  SUBCASE("pages of nobody") {
    CHECK(w.grow(r, most).error().code != errc::io);
    CHECK_FALSE(w.grow(r, most).has_value());
    CHECK_FALSE(w.grow(r, -1).has_value());
    w.in().send(to.manager,
                pin_rows{lease_id{1}, r, std::vector<page_row>(3, page_row{99, most, most, 1, 1})});
    w.in().send(to.manager, unpin_rows{pin_id{12345}});
    w.in().send(to.manager, page_lease{lease_id{1}, r, {least, most}, direction::fetch, true});
  }
  SUBCASE("served names that nobody asked for") {
    const auto op = w.fetch(r, 2);
    w.provider->last().value = delivered{{"nonsense", std::string(100000, 'x')}};
    w.advance(200ms);
    REQUIRE(w.of(op).value.has_value());
    CHECK(std::holds_alternative<failed>(*w.of(op).value));
    w.provider->last().end_access();
    w.advance(200ms);
    CHECK(w.of(op).releases == 1);
  }
  SUBCASE("copies without rows or a client") {
    w.in().send(to.cuda, copy_rows{copy_id{1}, std::make_shared<const copy_batch>(), copy_client{}});
    w.in().send(to.cuda, copy_rows{copy_id{2}, nullptr, copy_client{}});
    auto bad = std::make_shared<copy_batch>();
    bad->rows.push_back({0, 0, 64});
    w.in().send(to.cuda, copy_rows{copy_id{3}, bad, copy_client{}});
  }
  w.advance(1s);
  check_all_answer(w);
  CHECK(w.slots().conserved());
}
