// Scenarios 7.D: owners that several writers share. Clock at 10, T = 5.
#include "src/ownership.hpp"

#include <doctest/doctest.h>

#include "tests/seconds.hpp"

using namespace kvlease;

namespace {

using kvlease::test::at;

struct binding_bench {
  retirement clocks{incarnation{1}};
  id_source<operation_id> claims{incarnation{1}};
  time_point now = at(10);
  owner_id owner = *clocks.create_owner(now, request_id{7}, direction::fetch,
                                        *transfer_timeout::make(std::chrono::seconds{5}));
};

}  // namespace

TEST_CASE("LB-01 one set of classes: the six send states") {
  constexpr send_state all[] = {send_state::admitted,  send_state::not_submitted, send_state::submitting,
                                send_state::submitted, send_state::in_doubt,      send_state::backend_done};
  std::set<std::string_view> names;
  for (const auto s : all) names.insert(to_string(s));
  CHECK(names.size() == 6);
}

TEST_CASE("LB-02 several owners and a local completion") {
  binding_bench b;
  const auto kv_claim = b.claims.next(), aux_claim = b.claims.next(), hold = b.claims.next();
  receive_owner kv{b.clocks, b.owner, kv_claim}, aux{b.clocks, b.owner, aux_claim};
  REQUIRE(kv.begin_publication(b.now));
  REQUIRE(aux.begin_publication(b.now));
  REQUIRE(b.clocks.expose(b.now, b.owner, {hold}));
  REQUIRE(kv.seal(2, {7, 8}, {7, 8}));
  REQUIRE(aux.seal(1, {7}, {7, 8}));
  CHECK(kv.seal(2, {7, 8}, {7, 8}).has_value());  // alike: nothing new
  CHECK(kv.seal(1, {7}, {7}).error().code == errc::state);
  kv.finish_publication(b.now);
  aux.finish_publication(b.now);
  CHECK(*kv.writer_result(b.now, 7, true, false) == receive_owner::reported{true, false});
  CHECK(*kv.writer_result(b.now, 7, true, false) == receive_owner::reported{false, false});
  CHECK(*kv.writer_result(b.now, 8, true, true) == receive_owner::reported{true, true});
  CHECK(kv.local_completion_pending());
  CHECK_FALSE(kv.drained());
  CHECK(*aux.writer_result(b.now, 7, true, false) == receive_owner::reported{true, true});
  CHECK_FALSE(aux.claim_held());
  b.clocks.complete_pieces(b.now, b.owner);
  kv.finish_local_completion(b.now);
  kv.finish_local_completion(b.now);
  CHECK(kv.drained());
  CHECK_FALSE(kv.claim_held());
  CHECK_FALSE(b.clocks.is_complete(b.now, b.owner));
  CHECK(b.clocks.settle(b.now, b.owner, hold));
  CHECK(b.clocks.is_complete(b.now, b.owner));
  CHECK(b.clocks.close(b.now, b.owner));
  CHECK(b.clocks.close(b.now, b.owner));
  CHECK(b.clocks.stop(b.now).has_value());
}

TEST_CASE("LB-03 never submitted") {
  binding_bench b;
  send_owner s{b.clocks, b.owner};
  CHECK(s.begin(1, b.claims.next()));
  CHECK_FALSE(s.begin(1, b.claims.next()));
  CHECK_FALSE(s.drained(b.now));
  CHECK(s.retire_unsubmitted(1));
  CHECK(s.retire_unsubmitted(1));
  CHECK(s.state(1) == send_state::not_submitted);
  CHECK(s.drained(b.now));
  CHECK(b.clocks.view(b.owner)->claims == 0);
  CHECK(b.clocks.close(b.now, b.owner));
}

TEST_CASE("LB-04 admission is closed at the submission") {
  binding_bench b;
  send_owner s{b.clocks, b.owner};
  REQUIRE(s.begin(1, b.claims.next()));
  b.clocks.request_drain(b.now, b.owner, "cancelled");
  const auto refused = s.submit(b.now, 1, std::make_shared<int>(1));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().text.find("admission is closed") != std::string::npos);
  CHECK(s.retire_unsubmitted(1));
  CHECK(s.retire_unsubmitted(1));
  CHECK(s.drained(b.now));
  CHECK(b.clocks.close(b.now, b.owner));
}

namespace {
/// LB-05..07: in doubt, an answer that proves nothing, then true at 14.999.
void ambiguous_then_done(const std::function<bool()>& first_answer) {
  binding_bench b;
  send_owner s{b.clocks, b.owner};
  auto root = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = root;
  int queries = 0;
  bool done = false;
  REQUIRE(s.begin(1, b.claims.next()));
  REQUIRE(s.submit(b.now, 1, std::move(root)));
  REQUIRE(s.submitted(1, [&] {
    ++queries;
    return done ? true : first_answer();
  }));
  s.in_doubt(b.now, 1);
  s.in_doubt(b.now, 1);
  CHECK_FALSE(s.poll_in_doubt(b.now, 1));
  CHECK_FALSE(alive.expired());
  CHECK(s.state(1) == send_state::in_doubt);
  done = true;
  const auto late = at(14.999);
  CHECK(s.poll_in_doubt(late, 1));
  CHECK(s.state(1) == send_state::backend_done);
  CHECK(s.drained(late));
  CHECK(alive.expired());
  CHECK(queries == 2);
  CHECK_FALSE(s.poll_in_doubt(late, 1));
  CHECK(queries == 2);
  CHECK(b.clocks.close(late, b.owner));
}
}  // namespace

TEST_CASE("LB-05 ambiguous evidence: the query answers false, then true") {
  ambiguous_then_done([] { return false; });
}

// C++ has no truthy 1 to take for true: a completion_query answers bool and nothing that converts by
// accident.
TEST_CASE("LB-06 ambiguous evidence: nothing but true is a proof") {
  static_assert(std::is_same_v<send_owner::completion_query::result_type, bool>);
  ambiguous_then_done([] { return !true; });
}

TEST_CASE("LB-07 ambiguous evidence: the query throws, then answers true") {
  ambiguous_then_done([]() -> bool { throw std::runtime_error{"query broke"}; });
}

namespace {
void exact_expiry(bool with_handle) {
  binding_bench b;
  send_owner s{b.clocks, b.owner};
  auto root = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = root;
  const auto claim = b.claims.next();
  REQUIRE(s.begin(1, claim));
  REQUIRE(s.submit(b.now, 1, std::move(root)));
  if (with_handle) REQUIRE(s.submitted(1, [] { return true; }));
  s.in_doubt(b.now, 1);
  s.in_doubt(at(14), 1);
  CHECK_FALSE(b.clocks.fatal().has_value());
  const auto due = at(15);
  CHECK_FALSE(s.poll_in_doubt(due, 1));
  b.clocks.advance(due);
  REQUIRE(b.clocks.fatal().has_value());
  CHECK(b.clocks.fatal()->started == at(10));
  CHECK(b.clocks.fatal()->deadline == due);
  CHECK(b.clocks.fatal()->noticed == due);
  CHECK(b.clocks.fatal()->reason == "backend quiescence unproven");
  b.clocks.advance(due);
  int notified = 0;
  for (const auto& e : b.clocks.take_events()) notified += std::holds_alternative<fatal_record>(e) ? 1 : 0;
  CHECK(notified == 1);
  CHECK_FALSE(b.clocks.settle(due, b.owner, claim));
  CHECK_FALSE(b.clocks.close(due, b.owner));
  CHECK(b.clocks
            .create_owner(due, request_id{8}, direction::fetch,
                          *transfer_timeout::make(std::chrono::seconds{1}))
            .error()
            .text.find("admission is closed") != std::string::npos);
  CHECK_FALSE(b.clocks.stop(due).has_value());
  CHECK_FALSE(s.drained(due));
  CHECK_FALSE(alive.expired());
}
}  // namespace

TEST_CASE("LB-08 exact expiry without a handle") { exact_expiry(false); }
TEST_CASE("LB-09 exact expiry with a handle that says done at the deadline") { exact_expiry(true); }

TEST_CASE("LB-10 receive ambiguity") {
  binding_bench b;
  const auto claim = b.claims.next(), hold = b.claims.next();
  receive_owner r{b.clocks, b.owner, claim};
  REQUIRE(r.begin_publication(b.now));
  CHECK_FALSE(r.begin_publication(b.now));
  REQUIRE(b.clocks.expose(b.now, b.owner, {hold}));
  REQUIRE(r.seal(1, {3}, {3}));
  r.finish_publication(b.now);
  CHECK(r.writer_in_doubt(b.now, 3));
  CHECK_FALSE(r.writer_in_doubt(b.now, 3));
  CHECK(*r.writer_result(b.now, 3, false, false) == receive_owner::reported{false, false});
  CHECK_FALSE(r.drained());
  CHECK(r.writer_settled(b.now, 3));
  CHECK_FALSE(r.writer_settled(b.now, 3));
  CHECK(r.drained());
  CHECK_FALSE(r.claim_held());
  CHECK(b.clocks.view(b.owner)->claims == 1);
  CHECK(b.clocks.settle(b.now, b.owner, hold));
  CHECK(b.clocks.close(b.now, b.owner));
}

TEST_CASE("scenarios 3.5 a receive owner's cohort: refusals and invalid evidence") {
  binding_bench b;
  receive_owner r{b.clocks, b.owner, b.claims.next()};
  CHECK(r.seal(-1, {}, {}).error().code == errc::invalid);
  CHECK(r.seal(2, {1}, {1}).error().code == errc::invalid);
  CHECK(r.seal(2, {1, 2}, {1}).error().code == errc::invalid);
  CHECK(r.seal(1, {1}, {2}).error().code == errc::invalid);
  SUBCASE("a report before publication") { CHECK_FALSE(r.writer_result(b.now, 1, true, false).has_value()); }
  SUBCASE("a rank outside the cohort") {
    REQUIRE(r.begin_publication(b.now));
    REQUIRE(r.seal(1, {1}, {1, 2}));
    CHECK_FALSE(r.writer_result(b.now, 2, true, false).has_value());
  }
  SUBCASE("a contradiction") {
    REQUIRE(r.begin_publication(b.now));
    REQUIRE(r.seal(2, {1, 2}, {1, 2}));
    REQUIRE(r.writer_result(b.now, 1, true, false));
    CHECK_FALSE(r.writer_result(b.now, 1, false, false).has_value());
  }
  SUBCASE("a success after doubt") {
    REQUIRE(r.begin_publication(b.now));
    REQUIRE(r.seal(1, {1}, {1}));
    r.writer_in_doubt(b.now, 1);
    CHECK_FALSE(r.writer_result(b.now, 1, true, false).has_value());
  }
  SUBCASE("an unknown rank quiesces") {
    REQUIRE(r.begin_publication(b.now));
    REQUIRE(r.seal(1, {1}, {1, 2}));
    CHECK(r.session_quiesced(b.now, 2).has_value());  // a candidate that was not chosen: ignored
    CHECK(r.evidence_valid());
    CHECK_FALSE(r.session_quiesced(b.now, 9).has_value());
  }
  CHECK_FALSE(r.evidence_valid());
  CHECK_FALSE(r.drained());
  CHECK(b.clocks.view(b.owner)->drain_started.has_value());
}

TEST_CASE("scenarios 3.5 a receive owner drains by results, by quiescence, by abort or unpublished") {
  binding_bench b;
  receive_owner r{b.clocks, b.owner, b.claims.next()};
  REQUIRE(r.seal(2, {1, 2}, {1, 2, 3}));
  SUBCASE("one reports, one quiesces") {
    REQUIRE(r.begin_publication(b.now));
    r.finish_publication(b.now);
    REQUIRE(r.writer_result(b.now, 1, false, false));
    CHECK_FALSE(r.drained());
    REQUIRE(r.session_quiesced(b.now, 2));
  }
  SUBCASE("the publication stopped at the first writer") {
    REQUIRE(r.begin_publication(b.now));
    r.abort_publication(b.now, {1});
    CHECK_FALSE(r.drained());
    REQUIRE(r.session_quiesced(b.now, 1));
  }
  SUBCASE("nobody was told") { r.cancel_unpublished(b.now); }
  CHECK(r.drained());
  CHECK_FALSE(r.claim_held());
  CHECK(b.clocks.close(b.now, b.owner));
}
