// `why`: each reason of the closed list, on the whole runtime under virtual time.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "src/include/kvlease/inspection.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

bool has(const explanation& e, held_reason r) {
  return std::ranges::any_of(e.holders, [r](const holder& h) { return h.reason == r; });
}
const holder& of(const explanation& e, held_reason r) {
  const auto it = std::ranges::find(e.holders, r, &holder::reason);
  REQUIRE(it != e.holders.end());
  return *it;
}
std::string fact_of(const explanation& e, const std::string& name) {
  for (const auto& [key, value] : e.facts)
    if (key == name) return value;
  return {};
}
std::string id_of(const auto& x) { return to_string(x); }

/// At time zero a time point means "never".
struct later_world : world {
  explicit later_world(world_options o = {}) : world{std::move(o)} { advance(1s); }
};

}  // namespace

TEST_CASE("why: there is nothing with the id 0, and nothing is said of it") {
  world w;
  const auto op = w.fetch(w.admit(13));
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(200ms);
  REQUIRE(w.of(op).releases == 1);
  for (const auto kind : {subject_kind::lease, subject_kind::operation}) {
    const auto e = w.why(kind, "0");
    CHECK_FALSE(e.found);
    CHECK(e.outcome.empty());
  }
}

TEST_CASE("why: a lease that nobody submitted") {
  later_world w;
  one_fetch f{w, false};
  w.advance(2s);
  const auto e = w.why(subject_kind::lease, id_of(f.lease));
  CHECK(e.found);
  CHECK(e.state == "held");
  REQUIRE(e.holders.size() == 1);
  const auto& h = of(e, held_reason::lent_not_submitted);
  CHECK(h.from == "host");
  CHECK(h.evidence == "its submission, or its withdrawal");
  CHECK(h.age == 2s);
  CHECK_FALSE(h.next_in.has_value());
  CHECK(w.metrics().held_bytes.at(held_reason::lent_not_submitted) == 128);
  CHECK(w.why(subject_kind::slot, "0").state == "lent");
  CHECK(has(w.why(subject_kind::slot, "0"), held_reason::lent_not_submitted));
}

TEST_CASE("1.2 why: the backend may touch it still") {
  later_world w;
  one_fetch f{w};
  w.advance(1s);
  for (const auto& e :
       {w.why(subject_kind::operation, id_of(f.op)), w.why(subject_kind::lease, id_of(f.lease)),
        w.why(subject_kind::request, id_of(f.request))}) {
    REQUIRE(e.found);
    CHECK(e.outcome.empty());
    REQUIRE(e.holders.size() == 1);
    const auto& h = of(e, held_reason::backend_access_running);
    CHECK(contains(h.evidence, "access end of operation " + id_of(f.op)));
    CHECK(contains(h.from, "provider scripted"));
    CHECK(h.last_evidence == "poll_access: running");
    REQUIRE(h.last_evidence_age.has_value());
    CHECK(*h.last_evidence_age <= 100ms);
    CHECK(h.age == 1s);
    CHECK(contains(h.next, "deadline"));
    CHECK(h.next_in == 4s);
    CHECK(e.unknown.empty());
    CHECK_FALSE(e.safe.empty());
  }
  CHECK(w.metrics().held_bytes.at(held_reason::backend_access_running) == 128);
  CHECK(w.metrics().held_bytes.at(held_reason::lent_not_submitted) == 0);
  CHECK(w.state() == health::healthy);

  SUBCASE("past its deadline") {
    w.advance(5s);
    const auto e = w.why(subject_kind::operation, id_of(f.op));
    CHECK(e.outcome == "failed(transfer timeout)");
    CHECK(e.outcome_age == 1s);
    CHECK(of(e, held_reason::backend_access_running).next == "fatal expiry of the grace");
    CHECK(of(e, held_reason::backend_access_running).next_in == 4s);
    CHECK(w.state() == health::held);
    CHECK(w.state(500ms) == health::unproven);
    CHECK(w.why(subject_kind::slot, "0").state == "awaiting proof");
  }
  SUBCASE("past its grace") {
    w.advance(10s);
    REQUIRE(w.fatal().has_value());
    const auto e = w.why(subject_kind::operation, id_of(f.op));
    CHECK(contains(of(e, held_reason::backend_access_running).next, "the runtime is fatal"));
    CHECK(w.state() == health::unproven);
    CHECK(w.metrics().fatal);
  }
}

TEST_CASE("2.4 why: the end of access is disputed") {
  later_world w;
  one_fetch f{w};
  w.provider->last().access = access_state::unproven;
  w.advance(1s);
  auto e = w.why(subject_kind::operation, id_of(f.op));
  const auto& h = of(e, held_reason::backend_end_unproven);
  CHECK(contains(h.evidence, "a new proof of the access end"));
  CHECK(contains(h.from, "provider scripted"));
  CHECK(h.last_evidence == "proof: the provider can't tell");
  CHECK(h.next == "fatal expiry of the grace");
  CHECK(std::ranges::find(e.safe, "retry the proof of the operation") != e.safe.end());
  CHECK(fact_of(e, "drain") == "backend access end unproven: the provider can't tell");
  CHECK(w.metrics().held_bytes.at(held_reason::backend_end_unproven) == 128);
}

TEST_CASE("4.5 why: what happens next is the first of all, another operation's fatal expiry too") {
  later_world w;
  one_fetch f{w};
  w.provider->last().access = access_state::unproven;
  w.advance(500ms);
  const auto due = w.why(subject_kind::operation, id_of(f.op)).holders.at(0).next_in;
  REQUIRE(due.has_value());
  one_fetch g{w}, kept{w, false};
  w.advance(500ms);
  const auto grace = "the runtime's fatal expiry, by the grace of operation " + id_of(f.op);
  const auto& part = w.parts().front();
  for (const auto& [kind, id, reason] :
       {std::tuple{subject_kind::operation, id_of(g.op), held_reason::backend_access_running},
        {subject_kind::lease, id_of(g.lease), held_reason::backend_access_running},
        {subject_kind::lease, id_of(kept.lease), held_reason::lent_not_submitted},
        {subject_kind::slot, "2", held_reason::backend_access_running},
        {subject_kind::registration, part.name, held_reason::registered_by_backend}}) {
    CAPTURE(to_string(kind));
    const auto e = w.why(kind, id);
    const auto& h = of(e, reason);
    CHECK(contains(h.next, grace));
    CHECK(contains(h.next, "backend access end unproven"));
    CHECK(h.next_in == *due - 500ms);
  }
  CHECK(of(w.why(subject_kind::slot, "0"), held_reason::backend_end_unproven).next ==
        "fatal expiry of the grace");
  // Its own comes first for the one whose grace it is, and once that is over, each has its own again.
  CHECK(of(w.why(subject_kind::operation, id_of(f.op)), held_reason::backend_end_unproven).next ==
        "fatal expiry of the grace");
  w.provider->attempts.front()->deliver_all();
  w.provider->attempts.front()->access = access_state::ended;
  REQUIRE(w.retry_proof(f.op).has_value());
  w.advance(500ms);
  CHECK(contains(of(w.why(subject_kind::operation, id_of(g.op)), held_reason::backend_access_running).next,
                 "the request's deadline"));
  const auto said = w.why(subject_kind::slot, "2");
  const auto& slot = of(said, held_reason::backend_access_running);
  CHECK(contains(slot.next, "the request's deadline"));
  CHECK(contains(slot.evidence, "(proof "));
  CHECK_FALSE(
      of(w.why(subject_kind::lease, id_of(kept.lease)), held_reason::lent_not_submitted).next_in.has_value());
}

TEST_CASE("why: registrations and slots say since when") {
  world w;
  w.advance(3s);
  const auto& part = w.parts().front();
  CHECK(of(w.why(subject_kind::registration, part.name), held_reason::registered_by_backend).age > 2s);
  CHECK(w.inspect().registrations.at(0).age > 2s);
  CHECK(contains(fact_of(w.why(subject_kind::slot, "0"), "since"), "it was never lent"));
  const auto op = w.fetch(w.admit(13));
  w.advance(1s);
  CHECK(fact_of(w.why(subject_kind::slot, "0"), "since_seconds") == "1.000000");
  w.provider->last().deliver_all();
  w.provider->last().end_access();
  w.advance(2s);
  REQUIRE(w.of(op).releases == 1);
  const auto free = w.why(subject_kind::slot, "0");
  CHECK(free.state == "free");
  CHECK(free.outcome.empty());
  CHECK(std::stod(fact_of(free, "since_seconds")) > 1.5);
  // What released it is told afterwards, too.
  CHECK(fact_of(w.why(subject_kind::operation, id_of(op)), "proof") == "terminal_status");
  CHECK(w.inspect().providers.at(0).proofs == std::vector<std::string>{"terminal_status"});
}

TEST_CASE("5.3 why: a submission that escaped") {
  later_world w;
  w.provider->on_submit = [](const cache_extent&) { throw std::runtime_error{"cable cut"}; };
  one_fetch f{w};
  const auto e = w.why(subject_kind::operation, id_of(f.op));
  const auto& h = of(e, held_reason::backend_end_unproven);
  CHECK(contains(h.evidence, "none can come"));
  CHECK(contains(h.last_evidence, "cable cut"));
  CHECK(e.outcome == "failed(cable cut)");
}

TEST_CASE("5.6 why: our own copy is under way") {
  later_world w{{.hold_stream = true}};
  one_fetch f{w};
  w.provider->last().deliver_all();
  w.provider->last().access = access_state::ended;
  w.advance(1s);
  const auto e = w.why(subject_kind::operation, id_of(f.op));
  const auto& h = of(e, held_reason::local_copy_pending);
  CHECK(contains(h.evidence, "event of copy"));
  CHECK(contains(h.from, "CUDA actor"));
  CHECK(h.last_evidence == "event query: pending");
  CHECK(e.outcome == "delivered(2)");
  CHECK(fact_of(e, "proof") == "terminal_status");
  CHECK(w.metrics().held_bytes.at(held_reason::local_copy_pending) == 128);
}

TEST_CASE("1.4 why: the host reads") {
  later_world w;
  one_fetch f{w};
  auto guard = w.roots->guard(f.lease);
  REQUIRE(guard.has_value());
  w.provider->last().deliver_all();
  w.provider->last().access = access_state::ended;
  w.advance(1s);
  const auto e = w.why(subject_kind::operation, id_of(f.op));
  REQUIRE(e.holders.size() == 1);
  const auto& h = of(e, held_reason::consumer_reading);
  CHECK(h.what == "read guard of lease " + id_of(f.lease));
  CHECK(h.evidence == "the end of 1 read guard of lease " + id_of(f.lease));
  CHECK(h.from == "host");
  CHECK(w.metrics().held_bytes.at(held_reason::consumer_reading) == 128);
  guard->drop();
  w.run();
  const auto after = w.why(subject_kind::operation, id_of(f.op));
  CHECK(after.found);
  CHECK(after.state == "released");
  CHECK(after.outcome == "delivered");
  CHECK(after.holders.empty());
  CHECK(w.why(subject_kind::slot, "0").state == "free");
}

TEST_CASE("2.9 why: the backend has it registered") {
  later_world w;
  const auto& part = w.parts().front();
  for (const auto& e : {w.why(subject_kind::registration, part.name),
                        w.why(subject_kind::address, std::to_string(part.address + 70))}) {
    CHECK(e.found);
    const auto& h = of(e, held_reason::registered_by_backend);
    CHECK(h.what == "registration " + part.name);
    CHECK(contains(h.evidence, "close of registration 1."));
    CHECK(contains(h.from, "provider scripted"));
    CHECK(contains(h.next, "until the runtime stops"));
  }
  CHECK(w.why(subject_kind::address, std::to_string(part.address + 70)).state == "free");
  CHECK(fact_of(w.why(subject_kind::address, std::to_string(part.address + 70)), "slot") == "1");
  CHECK(w.metrics().held_bytes.at(held_reason::registered_by_backend) == 512);
}

TEST_CASE("4.10 why: the runtime is going") {
  later_world w;
  one_fetch f{w};
  CHECK_FALSE(w.stop(1s).stopped);
  const auto e = w.why(subject_kind::operation, id_of(f.op));
  CHECK(has(e, held_reason::backend_access_running));
  const auto& h = of(e, held_reason::shutdown_drain);
  CHECK(h.what == "shutdown of the runtime");
  CHECK(h.next == "fatal expiry of the grace");
  CHECK(e.outcome == "cancelled(local)");
  const auto r = w.why(subject_kind::registration, w.parts().front().name);
  CHECK(has(r, held_reason::registered_by_backend));
  CHECK(has(r, held_reason::shutdown_drain));
  CHECK(w.inspect().draining);
  CHECK(w.state() == health::held);
  for (const auto& holding : r.holders) CHECK(holding.age > 0s);
}

TEST_CASE("4.10 health: a drain within its deadline is held, and one that is over is not") {
  later_world w;
  one_fetch f{w, false};
  CHECK(w.state() == health::healthy);
  CHECK_FALSE(w.stop(1s).stopped);
  CHECK(w.state() == health::held);
  REQUIRE(w.withdraw(f.lease).has_value());
  CHECK(w.stop(1s).stopped);
  CHECK(w.state() == health::healthy);
}

TEST_CASE("4.8 what fatal expiry has won over has a name") {
  CHECK(
      subject_of({.owner = owner_id{9}, .request = request_id{(std::uint64_t{1} << id_sequence_bits) + 3}}) ==
      "fetch of request 1.3");
  CHECK(subject_of({.owner = owner_id{9}}) == "the registrations");
  CHECK(subject_of({}) == "the runtime");
}

TEST_CASE("6.5 why: a copy that can't be proven") {
  later_world w{{.hold_stream = true}};
  one_fetch f{w};
  w.provider->last().deliver_all();
  w.provider->last().access = access_state::ended;
  w.advance(10ms);
  w.kill(actor_kind::cuda);
  w.run();
  const auto e = w.why(subject_kind::operation, id_of(f.op));
  const auto& h = of(e, held_reason::quarantined);
  CHECK(contains(h.evidence, "none can come: a local copy can't be proven complete"));
  CHECK(contains(h.next, "until the process ends"));
  CHECK(contains(e.unknown.at(0), "the cuda is down"));
  CHECK(w.why(subject_kind::slot, "0").state == "quarantined");
  CHECK(w.inspect().pools.at(0).map.substr(0, 2) == "QQ");
  CHECK(w.metrics().held_bytes.at(held_reason::quarantined) == 128);
  CHECK(w.state() == health::held);
}

TEST_CASE("why: what nobody knows") {
  later_world w;
  CHECK_FALSE(w.why(subject_kind::operation, "1.99").found);
  CHECK_FALSE(w.why(subject_kind::lease, "1.99").found);
  CHECK_FALSE(w.why(subject_kind::request, "1.99").found);
  for (const auto kind : all_subject_kinds)
    for (const auto* text : {"", "zebra", "1.", ".", "99999999999999999999", "-1", "1.2.3", "a/b"}) {
      const auto e = w.why(kind, text);
      CHECK_FALSE(e.found);
      CHECK(e.holders.empty());
    }
}

TEST_CASE("7.2 why: an actor that is down is named, and the rest is told") {
  later_world w;
  one_fetch f{w};
  w.kill(actor_kind::proof_collector);
  w.run();
  const auto e = w.why(subject_kind::operation, id_of(f.op));
  CHECK(e.found);
  CHECK(has(e, held_reason::backend_end_unproven));
  REQUIRE(e.unknown.size() == 1);
  CHECK(contains(e.unknown[0], "proof_collector is down"));
}
