// Semantics 7.5-7.7, 7.9 and 7.10. Real threads stand in rules_7c_test.cpp.
#include <doctest/doctest.h>

#include <set>

#include "actors/guard.hpp"
#include "src/providers/fault_provider.hpp"
#include "src/providers/memory_provider.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using enum actor_kind;

template <class T>
void check_capacity(const result<T>& refused, const std::string& number_and_bound) {
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::capacity);
  CHECK_MESSAGE(contains(refused.error().text, number_and_bound), refused.error().text);
}

// ---- 7.5

const broken_by early_word{mutation::retained_before_outcome, "7.5 *"};

TEST_CASE("7.5 the host hears all of one operation from the arbiter alone: outcome once, then the memory") {
  world w;
  one_fetch f{w};
  SUBCASE("evidence before the outcome is told after it") {
    f.at->access = access_state::unproven;
    w.advance(a_while);
    CHECK(f.host().events.empty());
    f.at->deliver_all();
    w.advance(a_while);
    CHECK(f.host().events ==
          strings{"outcome delivered(2)", "retained: backend access end unproven: the provider can't tell"});
    f.at->end_access();
    REQUIRE(w.retry_proof(f.op).has_value());
    w.advance(a_while);
    CHECK(f.host().events.size() == 3);
    CHECK(f.host().events.back() == "released");
  }
  SUBCASE("the memory comes back before the outcome is known: both at once, in order") {
    f.at->end_access();
    w.advance(a_while);
    CHECK(f.host().events.empty());
    f.at->fail("no");
    w.advance(a_while);
    CHECK(f.host().events == strings{"outcome failed(no)", "released"});
  }
  SUBCASE("late outcomes, a late cancel and a deadline add nothing") {
    REQUIRE(w.cancel(f.op).has_value());
    f.at->deliver_all();
    w.advance(6s);
    REQUIRE(f.host().final);  // the grace after the cancel is over
    f.at->end_access();
    w.advance(6s);
    CHECK(f.host().outcomes == 1);
    CHECK(f.host().events.front() == "outcome cancelled(local)");
    CHECK(f.host().releases == 0);
  }
  SUBCASE("in every interleaving, and from no other actor") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      world v;
      one_fetch g{v};
      v.in().options.step_by_hand = true;
      const auto arbiter = caf::actor_cast<caf::strong_actor_ptr>(v.in().parts.actors->deadline_arbiter);
      g.at->deliver_all();
      g.at->access = access_state::unproven;
      v.in().send(v.in().parts.actors->adapter, cancel_operation{g.op});
      std::size_t told = 0;
      const auto see = [&](const std::string& actor, const caf::mailbox_element& m) {
        if (actor != "host") return;
        CHECK(m.sender == arbiter);
        ++told;
      };
      step_until(
          v, seed, [&] { return g.host().retentions > 0; }, see);
      g.at->end_access();
      v.in().send(v.in().parts.actors->adapter, retry_proof{g.op});
      step_until(
          v, seed, [&] { return g.host().releases > 0; }, see);
      const auto& events = g.host().events;
      CHECK(told == events.size());
      REQUIRE(events.size() == 3);
      CHECK(events[0].starts_with("outcome "));
      CHECK(events[1].starts_with("retained: "));
      CHECK(events[2] == "released");
    }
  }
}

// ---- 7.6

const broken_by unnumbered{mutation::stale_proof_counts, "7.6 *"};

TEST_CASE("7.6 between submit and released there are only one-way messages with id and generation") {
  world w;
  one_fetch f{w};
  w.in().options.step_by_hand = true;
  SUBCASE("no request and no response, whatever the interleaving") {
    f.at->deliver_all();
    f.at->end_access();
    std::set<std::string> took_part;
    step_until(
        w, 3, [&] { return f.host().releases > 0; },
        [&](const std::string& actor, const caf::mailbox_element& m) {
          CHECK_FALSE(m.mid.is_request());
          CHECK_FALSE(m.mid.is_response());
          took_part.insert(actor);
        });
    for (const auto* name :
         {"adapter", "backend", "cuda", "deadline_arbiter", "lender", "manager", "proof_collector"})
      CHECK(took_part.contains(std::string{"kvlease."} + name));
  }
  SUBCASE("an answer under another generation is nobody's") {
    const auto& a = *w.in().parts.actors;
    f.at->deliver_all();
    w.advance(a_while);
    w.in().send(a.adapter, access_ended{f.op, proof_id{(std::uint64_t{1} << id_sequence_bits) + 77},
                                        proof_source::terminal_status});
    w.advance(a_while);
    CHECK(fact(w, f.op, "access") == "running");
    CHECK(w.slots() == slot_counts{8, 6, 0, 2, 0});
    CHECK(w.roots->operations() == 1);
  }
}

// ---- 7.7

const broken_by unbounded{mutation::unbounded_admission, "7.7 *"};
const broken_by any_number_open{actor_mutation::operations_unbounded, "7.7 *"};
const broken_by any_number_queued{actor_mutation::submissions_unbounded, "7.7 *"};

TEST_CASE("7.7 admission is bounded at the call, before any clock starts") {
  SUBCASE("max_operations") {
    world w{{.max_operations = 1}};
    one_fetch one{w}, two{w, false};
    const auto owners = w.figure(deadline_arbiter, "owners");
    check_capacity(w.submit(direction::fetch, two.lease, two.request),
                   "1 operations are open, max_operations is 1");
    CHECK(w.figure(deadline_arbiter, "owners") == owners);
    CHECK(w.provider->submissions == 1);
    one.at->deliver_all();
    one.at->end_access();
    w.advance(a_while);
    two.submit();  // the lease was left with its holder
    CHECK(w.provider->submissions == 2);
  }
  SUBCASE("max_queued_submissions") {
    world w{{.max_queued_submissions = 1}};
    one_fetch one{w, false}, two{w, false};
    w.hold_workers(true, false);
    one.submit();
    const auto owners = w.figure(deadline_arbiter, "owners");
    check_capacity(w.submit(direction::fetch, two.lease, two.request),
                   "1 submissions are queued, max_queued_submissions is 1");
    CHECK(w.figure(deadline_arbiter, "owners") == owners);
    REQUIRE(w.run_one_submit_job());  // the provider has taken the first in
    two.submit();
  }
  SUBCASE("max_waiting_leases, and only what waits is counted") {
    world w{{.max_waiting_leases = 2}};
    std::vector<lease_id> leases;
    for (int i = 0; i < 4; ++i) {
      const auto got = w.lend(direction::fetch, w.admit(17), {0, 16});
      REQUIRE(got.has_value());
      leases.push_back(*got);
      CHECK((w.of(*got).view != nullptr) == (i < 2));
    }
    const auto late = w.admit(17);
    check_capacity(w.lend(direction::fetch, late, {0, 16}), "2 leases wait already, max_waiting_leases is 2");
    CHECK(w.describe(late)->capacity_tokens == 0);  // refused before the cache grew
    CHECK(w.figure(lender, "leases_open") == 4);
    REQUIRE(w.withdraw(leases[0]).has_value());
    CHECK(w.of(leases[2]).view != nullptr);
    CHECK(w.lend(direction::fetch, late, {0, 16}).has_value());
  }
  SUBCASE("a waiting lease can be cancelled") {
    world w;
    const auto holder = w.lend(direction::fetch, w.admit(33), {0, 32});
    const auto waiting = w.lend(direction::fetch, w.admit(33), {0, 32});
    REQUIRE(w.withdraw(*waiting).has_value());
    CHECK(w.of(*waiting).failure->text == "released while waiting");
    CHECK(w.figure(lender, "leases_open") == 1);
    REQUIRE(w.withdraw(*holder).has_value());
    CHECK(w.of(*waiting).view == nullptr);
    CHECK(w.slots().free == 8);
  }
  SUBCASE("and may have a deadline, which ends with the wait") {
    world w;
    const auto holder = w.lend(direction::fetch, w.admit(33), {0, 32}, 50ms);
    const auto waiting = w.lend(direction::fetch, w.admit(33), {0, 32}, 50ms);
    w.advance(50ms - 1ns);
    CHECK_FALSE(w.of(*waiting).failure.has_value());
    w.advance(1ns);
    CHECK(w.of(*waiting).failure->text == "its time to wait has run out");
    CHECK_FALSE(w.of(*holder).failure.has_value());
    CHECK(w.slots() == slot_counts{8, 0, 8, 0, 0});
  }
  SUBCASE("also one that the manager has not answered by then") {
    world w;
    const auto holder = w.lend(direction::fetch, w.admit(33), {0, 32});
    const auto request = w.admit(33);
    w.in().options.step_by_hand = true;
    w.in().send(w.in().parts.actors->lender, lend{direction::fetch, request, {0, 32}, w.in().host, 0ms});
    while (w.ready() > 0) w.step(w.ready() - 1);
    w.in().options.step_by_hand = false;
    w.advance(1ms);
    const auto& leases = w.in().leases;
    REQUIRE(leases.size() == 2);
    CHECK(leases.rbegin()->second.failure->text == "its time to wait has run out");
    CHECK(w.figure(lender, "leases_open") == 1);
  }
}

// ---- 7.9

const broken_by wall_clock{mutation::clock_decides, "7.9 *"};

std::string text_of(const snapshot& s) {
  std::string text;
  for (const auto& entry : s.actors) {
    text += to_string(entry.kind);
    for (const auto& [name, value] : entry.report.figures) text += " " + name + "=" + std::to_string(value);
    for (const auto& row : entry.report.rows) {
      text += "\n  " + row.kind + " " + row.id;
      for (const auto& [name, value] : row.facts) text += " " + name + "=" + value;
    }
    text += "\n";
  }
  return text;
}

struct run_record {
  strings trace;
  strings heard;
  std::string end;
  std::array<std::uint64_t, fault_kind_count> struck{};
  friend bool operator==(const run_record&, const run_record&) = default;
};

/// Four publishes, then eight fetches that contend for slots, some of them cancelled or orphaned, through a
/// provider with every fault: all that is sent is interleaved by the seed.
run_record one_run(std::uint64_t seed) {
  const auto store = std::make_shared<memory_store>(1 << 20);
  std::shared_ptr<fault_provider> faults;
  const auto plan = *parse_faults(
      "miss=0.1,partial=0.1,fail=0.1,reject=0.1,escape=0.05,hang=0.05,late=0.15,unproven=0.1,stubborn=0.1",
      seed);
  world w{{.slots = 6, .open_provider = [&](const provider_context& c) {
             faults = std::make_shared<fault_provider>(std::make_shared<memory_provider>(store, c), plan, c);
             return faults;
           }}};
  const auto& a = *w.in().parts.actors;
  std::vector<request_id> requests;
  for (std::uint32_t i = 0; i < 8; ++i) requests.push_back(w.admit(13, i % 4 * 100));
  for (std::size_t i = 0; i < 4; ++i) w.compute(requests[i], 2, std::byte(i + 1));
  w.in().options.step_by_hand = true;
  const auto timeout = *transfer_timeout::make(1s);
  std::set<lease_id> submitted;
  const auto submit_ready = [&](direction way) {
    for (const auto& [id, l] : w.in().leases)
      if (l.view != nullptr && submitted.insert(id).second)
        for (const auto r : requests)  // the wrong ones are refused
          w.in().send(a.adapter,
                      submit{id, way, r, timeout, w.in().host, std::nullopt, end_of_sequence::yes});
  };
  for (std::size_t i = 0; i < 4; ++i)
    w.in().send(a.lender, lend{direction::publish, requests[i], {0, 8}, w.in().host, std::nullopt});
  for (std::uint64_t round = 0; round < 3; ++round) {
    w.run_random(seed + round, 150ms);
    submit_ready(direction::publish);
  }
  for (std::size_t i = 0; i < 8; ++i)
    w.in().send(a.lender, lend{direction::fetch, requests[i], {i < 4 ? 8 : 0, 12}, w.in().host, 400ms});
  for (std::uint64_t round = 0; round < 4; ++round) {
    w.run_random(seed + round, 150ms);
    submit_ready(direction::fetch);
    for (const auto& [op, h] : w.in().operations)
      if (op.value % 3 == round) w.in().send(a.adapter, cancel_operation{op});
    w.in().send(a.manager, free_request{requests[round]});
  }
  w.run_random(seed, 3s);
  run_record r{w.trace(), {}, {}, faults->struck()};
  for (const auto& [op, h] : w.in().operations)
    for (const auto& event : h.events) r.heard.push_back(to_string(op) + ": " + event);
  for (const auto& [id, l] : w.in().leases)
    r.heard.push_back(to_string(id) + ": " +
                      (l.failure ? to_string(*l.failure)
                       : l.view  ? "ready"
                                 : "waiting"));
  CHECK(w.exposure_bytes() == 0);
  CHECK(w.slots().conserved());
  r.end = text_of(*w.look());
  return r;
}

TEST_CASE("7.9 the same seed gives the same run, another seed another one") {
  constexpr std::uint64_t seeds = 40;
  std::set<strings> traces;
  std::array<std::uint64_t, fault_kind_count> struck{};
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto run = one_run(seed);
    const auto again = one_run(seed);
    CAPTURE(seed);
    CHECK(run.trace == again.trace);
    CHECK(run.heard == again.heard);
    CHECK(run.end == again.end);
    CHECK(run.struck == again.struck);
    CHECK(run.trace.size() > 150);
    CHECK(run.heard.size() > 12);
    traces.insert(run.trace);
    for (std::size_t k = 0; k < fault_kind_count; ++k) struck[k] += run.struck[k];
  }
  CHECK(traces.size() == seeds);
  for (std::size_t k = 0; k < fault_kind_count; ++k) {
    CAPTURE(to_string(fault_kind(k)));
    CHECK(struck[k] > 0);
  }
}

// ---- 7.10

const broken_by lost_copies{mutation::lost_copy_frees, "7.10 *"};
const broken_by counted_twice{mutation::quarantine_counts_twice, "7.10 *"};

TEST_CASE("7.10 quarantine is by lease and slot, and the states of a pool always add up to its size") {
  world w{{.hold_stream = true}};
  SUBCASE("one lost copy costs the slots of its lease, and no others") {
    one_fetch lost{w}, fine{w};
    for (auto* f : {&lost, &fine}) {
      f->at->deliver_all();
      f->at->end_access();
    }
    w.device->fail_next_query();  // asked for the older of the two
    w.advance(a_while);
    CHECK(w.slots() == slot_counts{8, 4, 0, 2, 2});
    CHECK(w.figure(lender, "slots_quarantined") == 2);
    w.device->open();
    w.advance(a_while);
    CHECK(lost.host().events.back().starts_with("retained: local copy evidence unavailable"));
    CHECK(fine.host().events.back() == "released");
    CHECK(w.slots() == slot_counts{8, 6, 0, 0, 2});
    // The pool goes on with what is left: six slots in a row, and never one of those two.
    const auto quarantined = w.of(lost.lease).view->runs().at(0).where()->addresses;
    const auto rest = w.lend(direction::fetch, w.admit(25), {0, 24});
    REQUIRE(rest.has_value());
    REQUIRE(w.of(*rest).view != nullptr);
    for (const auto slot : w.of(*rest).view->runs().at(0).where()->addresses)
      CHECK(std::ranges::find(quarantined, slot) == quarantined.end());
    CHECK(w.slots() == slot_counts{8, 0, 6, 0, 2});
    CHECK_FALSE(w.stop().stopped);  // what can't be proven is kept, and reported
  }
  SUBCASE("through every state of a lease") {
    std::set<std::string> seen;
    const auto look = [&] {
      const auto c = w.slots();
      CHECK(c.conserved());
      CHECK(c.total == 8);
      if (c.lent > 0) seen.insert("lent");
      if (c.awaiting_proof > 0) seen.insert("awaiting_proof");
      if (c.quarantined > 0) seen.insert("quarantined");
    };
    const auto op = w.fetch(w.admit(13), 3);
    look();
    w.provider->last().deliver_all();
    w.advance(a_while);
    look();
    w.provider->last().end_access();
    w.advance(a_while);
    look();
    CHECK(w.of(op).releases == 0);
    w.device->open();
    w.advance(a_while);
    look();
    CHECK(w.of(op).releases == 1);
    const auto request = w.admit(13, 100);
    w.compute(request, 2, std::byte{1});
    w.device->hold();
    const auto reading = w.lend(direction::publish, request, {0, 8});
    REQUIRE(reading.has_value());
    look();
    CHECK(w.slots() == slot_counts{8, 6, 2, 0, 0});
    REQUIRE(w.withdraw(*reading).has_value());  // its holder is gone, its copy is not
    look();
    CHECK(w.slots() == slot_counts{8, 6, 0, 2, 0});
    w.kill(cuda);
    look();
    CHECK(w.slots() == slot_counts{8, 6, 0, 0, 2});
    CHECK(seen.size() == 3);
  }
}

}  // namespace
}  // namespace kvlease::test
