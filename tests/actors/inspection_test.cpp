// The inspector and the journal on the whole runtime under virtual time: what is shown, and how fast.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "src/facts.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/world.hpp"
#include "tools/bench/statistics.hpp"

namespace kvlease::test {
namespace {

using wall = std::chrono::steady_clock;

const actor_line& line_of(const inspection_snapshot& s, actor_kind k) {
  const auto it = std::ranges::find(s.actors, k, &actor_line::kind);
  REQUIRE(it != s.actors.end());
  return *it;
}

TEST_CASE("inspection: a snapshot shows every actor, operation, lease, pool, owner and registration") {
  world w;
  w.advance(1s);
  one_fetch f{w};
  one_fetch unsubmitted{w, false};
  w.advance(1s);
  const auto s = w.inspect();
  CHECK(s.runtime == incarnation{1});
  CHECK(s.uptime == 2s);
  REQUIRE(s.actors.size() == 9);
  for (const auto& a : s.actors) {
    CAPTURE(to_string(a.kind));
    CHECK(a.answered);
    CHECK(a.state == "up");
    CHECK(a.handled > 0);
    CHECK(a.mailbox == 0);
  }
  REQUIRE(s.operations.size() == 1);
  const auto& o = s.operations[0];
  CHECK(o.id == f.op);
  CHECK(o.lease == f.lease);
  CHECK(o.request == f.request);
  CHECK(o.outcome.empty());
  CHECK(o.access == "running");
  CHECK(o.copies == "not started");
  CHECK(o.age == 1s);
  CHECK(o.deadline_in == 4s);
  CHECK(o.reasons == std::vector{held_reason::backend_access_running});
  REQUIRE(s.leases.size() == 2);
  CHECK(s.leases[1].id == unsubmitted.lease);
  CHECK(s.leases[1].reasons == std::vector{held_reason::lent_not_submitted});
  CHECK(s.leases[1].rows == 2);
  CHECK(s.leases[1].bytes == 128);
  REQUIRE(s.pools.size() == 1);
  CHECK(s.pools[0].map == "LLLL....");
  CHECK(s.pools[0].free + s.pools[0].lent + s.pools[0].awaiting_proof + s.pools[0].quarantined ==
        s.pools[0].total);
  REQUIRE(s.registrations.size() == 1);
  CHECK(s.registrations[0].state == "registered");
  CHECK(s.owners.size() == 2);
  REQUIRE(s.providers.size() == 1);
  CHECK(s.providers[0].uri == "scripted");
  CHECK(s.providers[0].attempts == 1);
  CHECK(s.devices.size() == 1);
  CHECK(s.holds.size() == 1);
  CHECK(s.operations_total == 1);
  CHECK(s.leases_total == 2);
  CHECK_FALSE(s.draining);
  CHECK_FALSE(s.fatal.has_value());
}

TEST_CASE("inspection: at most as many as asked for, the oldest first, and all are counted") {
  world w{{.pages = 256, .slots = 128}};
  w.advance(1s);
  std::vector<operation_id> ops;
  for (int i = 0; i < 100; ++i) ops.push_back(w.fetch(w.admit(5), 1));
  const auto s = w.inspect(30);
  REQUIRE(s.operations.size() == 30);
  for (std::size_t i = 0; i < 30; ++i) CHECK(s.operations[i].id == ops[i]);
  CHECK(s.operations_total == 100);
  CHECK(s.leases_total == 100);
  CHECK(w.inspect(1).operations.size() == 1);
  CHECK(w.inspect(100).operations.size() == 100);
}

TEST_CASE("7.2 inspection: an actor that has ended is shown as down, the others as they are") {
  world w;
  w.advance(1s);
  one_fetch f{w};
  static_cast<void>(w.inspect());
  w.kill(actor_kind::lender);
  w.advance(1s);
  const auto s = w.inspect();
  CHECK(line_of(s, actor_kind::lender).state == "down");
  CHECK_FALSE(line_of(s, actor_kind::lender).answered);
  CHECK(line_of(s, actor_kind::lender).age == 1s);
  CHECK(line_of(s, actor_kind::adapter).state == "up");
  CHECK(s.leases.size() == 1);  // as it was last seen
  CHECK(w.state() == health::held);
}

TEST_CASE("7.10 inspection: held bytes by reason and pools follow an operation to its end") {
  world w;
  w.advance(1s);
  one_fetch f{w};
  const auto held = [&w](held_reason r) { return w.metrics().held_bytes.at(r); };
  CHECK(held(held_reason::backend_access_running) == 128);
  w.provider->last().deliver_all();
  w.advance(200ms);
  CHECK(w.metrics().pools[0].awaiting_proof == 2);
  CHECK(w.state() == health::held);
  w.provider->last().access = access_state::ended;
  w.advance(200ms);
  CHECK(w.of(f.op).releases == 1);
  const auto m = w.metrics();
  for (const auto r : all_held_reasons)
    if (r != held_reason::registered_by_backend) CHECK(m.held_bytes.at(r) == 0);
  CHECK(m.pools[0].free == 8);
  CHECK(m.operations_total.at("fetch/delivered") == 1);
  CHECK(m.outcome_to_proof.counts.size() == m.outcome_to_proof.upper_seconds.size() + 1);
  std::uint64_t proofs = 0;
  for (const auto n : m.outcome_to_proof.counts) proofs += n;
  CHECK(proofs == 1);
  CHECK(m.outcome_to_proof.sum_seconds > 0.05);
  CHECK(m.journal_records == w.records().size());
  CHECK(m.journal_lost == 0);
  CHECK(w.state() == health::healthy);
}

TEST_CASE("journal: without one nothing else changes") {
  world w{{.journal_records = 0}};
  w.advance(1s);
  one_fetch f{w};
  CHECK(w.records().empty());
  CHECK(w.why(subject_kind::operation, to_string(f.op)).found);
  CHECK(w.metrics().journal_records == 0);
}

TEST_CASE("journal: interleavings and faults keep every rule, and what happens is in it") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    world w{{.slots = 4, .step_by_hand = false}};
    w.provider->on_attempt = [](scripted_attempt& a) {
      a.deliver_all();
      a.access = access_state::ended;
    };
    w.advance(1s);
    for (int i = 0; i < 4; ++i) {
      w.fetch(w.admit(13, static_cast<std::uint32_t>(100 * i)));
      w.publish(w.admit(13, static_cast<std::uint32_t>(100 * i)));
      w.run_random(seed * 7 + static_cast<std::uint64_t>(i), 300ms);
    }
    w.advance(1s);
    CHECK(w.stop(1s).stopped);
    const auto v = w.verdict();
    CHECK_FALSE(v.broken.has_value());
    CHECK(v.whole);
    CHECK(v.operations_open == 0);
    CHECK(v.leases_open == 0);
    std::set<journal_kind> kinds;
    for (const auto& r : w.records()) kinds.insert(r.kind);
    for (const auto k :
         {journal_kind::slots_lent, journal_kind::exposed, journal_kind::submission_entered,
          journal_kind::outcome_committed, journal_kind::access_ended, journal_kind::copy_completed,
          journal_kind::claim_settled, journal_kind::operation_released, journal_kind::slots_freed,
          journal_kind::registration_closed, journal_kind::hold_released, journal_kind::stop_ended})
      CHECK(kinds.contains(k));
  }
}

TEST_CASE("inspection: ten thousand operations in a snapshot, and no actor held up") {
  world w{{.pages = 10'200,
           .slots = 10'200,
           .max_operations = 20'000,
           .max_queued_submissions = 20'000,
           .journal_records = 1 << 18}};
  w.advance(1s);
  w.hold_workers(true, true);
  for (int i = 0; i < 10'000; ++i) w.fetch(w.admit(5), 1);
  auto best = wall::duration::max();
  for (int i = 0; i < 5; ++i) {
    const auto began = wall::now();
    const auto s = w.inspect();
    best = std::min(best, wall::now() - began);
    REQUIRE(s.operations.size() == 10'000);
    CHECK(s.pools[0].lent == 10'000);
  }
  MESSAGE("a snapshot takes " << std::chrono::duration<double, std::milli>(best).count() << " ms");
  CHECK(best < 100ms);
  // The slices that an actor answers one by one, other messages in between: the longest of all, each the
  // least of three, in time of the processor, since the machine is not ours alone.
  const auto& a = *w.in().parts.actors;
  const auto all = w.inspect();
  const auto longest = [&w](const auto& whom, const auto& lines) {
    double most = 0;
    for (std::size_t first = 0; first == 0 || first < lines.size(); first += 256) {
      const std::uint64_t after = first == 0 ? 0 : lines[first - 1].id.value;
      double least = 1;
      for (int i = 0; i < 3; ++i) {
        const auto began = bench::thread_cpu_seconds();
        REQUIRE(ask<facts_answer>(w.in(), whom, ask_slice{after, 256, first == 0}).has_value());
        least = std::min(least, bench::thread_cpu_seconds() - began);
      }
      most = std::max(most, least);
    }
    return most;
  };
  const std::vector<operation_line> none;
  for (const auto& [who, took] : {std::pair{"adapter", longest(a.adapter, all.operations)},
                                  {"lender", longest(a.lender, all.leases)},
                                  {"arbiter", longest(a.deadline_arbiter, none)},
                                  {"backend", longest(a.backend, none)},
                                  {"proof collector", longest(a.proof_collector, none)},
                                  {"cuda", longest(a.cuda, none)},
                                  {"manager", longest(a.manager, none)}}) {
    CAPTURE(who);
    CHECK(took < 1e-3);
  }
}

TEST_CASE("inspection: why at a hundred thousand operations") {
  world w{{.pages = 100'200, .slots = 100'200, .max_operations = 200'000, .max_queued_submissions = 200'000}};
  w.advance(1s);
  w.hold_workers(true, true);
  operation_id op;
  for (int i = 0; i < 100'000; ++i) op = w.fetch(w.admit(5), 1);
  for (const auto& [kind, text] :
       {std::pair{subject_kind::operation, to_string(op)}, {subject_kind::slot, std::string{"77777"}}}) {
    auto best = wall::duration::max();
    for (int i = 0; i < 5; ++i) {
      const auto told = w.records().size();  // the ring is read by whoever asked: not in the figure
      const auto began = wall::now();
      const auto e = w.why(kind, text);
      best = std::min(best, wall::now() - began);
      CHECK(e.found);
      CHECK(told > 0);
    }
    MESSAGE(to_string(kind) << " is explained in " << std::chrono::duration<double, std::milli>(best).count()
                            << " ms");
    CHECK(best < 50ms);
  }
}

}  // namespace
}  // namespace kvlease::test
