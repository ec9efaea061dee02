// Scenarios 7.G: what a receive session owes the deadline. Clock at 10, T = 5. A publication or a reservation
// that blocks is the time between two calls here.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "src/session.hpp"
#include "tests/seconds.hpp"
#include "tests/src/refused.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

constexpr request_id request{7};
const session_outcome done_well{transferred{}};
const session_outcome timed_out{failed{"transfer timeout"}};
const session_outcome given_up{cancelled{cancelled_by::local}};

using kvlease::test::at;

/// A worker with one receive session. Writers 7 and 8 fill kv, 7 alone fills aux.
struct bench {
  retirement clocks{incarnation{1}};
  std::unique_ptr<session_table> table = *session_table::make(&clocks, 5s, incarnation{1});
  std::vector<session_event> log;
  std::uint32_t taken = 0;
  std::shared_ptr<receive_session> s = *table->open_receive(at(10), setup());
  piece_id kv, aux;

  session_table::setup setup() {
    return {.request = request,
            .take_slot = [this]() -> result<aux_slot> { return aux_slot{taken++}; },
            .enroll = nullptr};
  }
  void prepare_kv(double now = 10, last_piece last = last_piece::yes) {
    kv = *s->prepare(at(now), piece_kind::kv, last, {2, {7, 8}, {7, 8}});
  }
  void prepare_aux(double now = 10) {
    aux = *s->prepare(at(now), piece_kind::aux, last_piece::no, {1, {7}, {7, 8}});
  }
  void publish(double now = 10) {
    REQUIRE(s->begin_publication(at(now)));
    s->published(at(now));
  }
  void publish_both() {
    prepare_kv();
    prepare_aux();
    publish();
  }
  void result_of(piece_id piece, std::set<peer_rank> writers, double now, bool succeeded = true) {
    for (const auto who : writers) REQUIRE(s->writer_result(at(now), piece, who, succeeded, false));
  }
  template <class Event>
  int count(double now) {
    table->advance(at(now));
    for (auto& e : table->take_events()) log.push_back(std::move(e));
    return static_cast<int>(
        std::ranges::count_if(log, [](const auto& e) { return std::holds_alternative<Event>(e); }));
  }
  std::size_t claims() const { return clocks.view(s->id())->claims; }
  std::optional<time_point> drain() const { return clocks.view(s->id())->drain_started; }
  /// Nothing that is fatal gives anything back, whatever is said later.
  void check_retained(double now) {
    CHECK_FALSE(s->close(at(now)));
    CHECK_FALSE(table->shutdown(at(now)).has_value());
    CHECK(count<slot_freed>(now) == 0);
    CHECK(count<may_deregister>(now) == 0);
  }
};

}  // namespace

TEST_CASE("RD-14 an idle gap between destinations keeps the request deadline: receive") {
  for (const bool second_is_aux : {false, true})
    for (const double when : {14.999, 15.0, 15.001}) {
      CAPTURE(second_is_aux);
      CAPTURE(when);
      bench b;
      b.prepare_kv(10, second_is_aux ? last_piece::yes : last_piece::no);
      const auto first = b.kv;
      if (!second_is_aux) {  // its aux is there early
        b.prepare_aux();
        b.publish();
        b.result_of(b.aux, {7}, 11);
      } else {
        b.publish();
      }
      b.result_of(first, {7, 8}, 11);
      CHECK(b.claims() == 0);
      if (second_is_aux)
        b.prepare_aux(14);
      else
        b.prepare_kv(14);
      const bool granted = b.s->begin_publication(at(when));
      CHECK(granted == (when < 15));
      if (granted) {
        b.s->published(at(when));
        b.result_of(second_is_aux ? b.aux : b.kv,
                    second_is_aux ? std::set<peer_rank>{7} : std::set<peer_rank>{7, 8}, when);
        CHECK(b.s->outcome() == done_well);
      } else {
        CHECK(b.s->outcome() == timed_out);
        CHECK(b.claims() == 0);
        CHECK(b.drain() == at(15));
      }
      CHECK(b.count<fatal_record>(100) == 0);
      CHECK(b.s->close(at(100)));
    }
}

TEST_CASE("RD-15 kv is there and aux never comes") {
  for (const bool prepared : {false, true}) {
    CAPTURE(prepared);
    bench b;
    b.prepare_kv();
    b.publish();
    b.result_of(b.kv, {7, 8}, 11);
    if (prepared) b.prepare_aux(11);
    CHECK(b.count<fatal_record>(100) == 0);
    CHECK(b.s->outcome() == timed_out);
    CHECK(b.drain() == at(15));
    CHECK(b.s->close(at(100)));
    CHECK(b.count<slot_freed>(100) == 1);
  }
}

TEST_CASE("RD-16 a receive session that has all pieces has no clock any more") {
  bench b;
  b.publish_both();
  b.result_of(b.kv, {7, 8}, 11);
  CHECK_FALSE(b.s->outcome().has_value());
  b.result_of(b.aux, {7}, 12);
  CHECK(b.count<drain_started>(100) == 0);
  CHECK(b.s->outcome() == done_well);
  CHECK(b.clocks.is_complete(at(100), b.s->id()));
  CHECK_FALSE(b.clocks.expose(at(100), b.s->id(), {piece_id{99}}));
  CHECK(b.s->close(at(100)));
  CHECK(b.s->close(at(100)));
  CHECK(b.count<slot_freed>(100) == 1);
}

TEST_CASE("RD-17 what a host does with the news of completion changes nothing: receive") {
  bench b;
  b.publish_both();
  b.result_of(b.aux, {7}, 11);
  b.result_of(b.kv, {7, 8}, 11);
  const auto log_slowly = [&] {
    for (const auto& e : b.table->take_events())
      if (std::holds_alternative<session_decided>(e)) throw std::runtime_error{"the log is full"};
  };
  CHECK_THROWS_AS(log_slowly(), std::runtime_error);
  CHECK(b.count<drain_started>(100) == 0);
  CHECK(b.count<fatal_record>(100) == 0);
  CHECK(b.s->outcome() == done_well);
}

TEST_CASE("RD-19 a piece that is not the last completes nothing: receive") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    bench b;
    b.prepare_kv(10, last_piece::no);
    b.prepare_aux();
    b.publish();
    b.result_of(b.aux, {7}, 11);
    b.result_of(b.kv, {7, 8}, 11);
    CHECK_FALSE(b.clocks.is_complete(at(11), b.s->id()));
    // A host that waits looks at the deadlines on its way; one that polls looks when it likes.
    for (auto now = at(11); waits && now < at(15);) {
      CHECK_FALSE(b.s->outcome().has_value());
      REQUIRE(b.clocks.next_deadline().has_value());
      now = *b.clocks.next_deadline();
      b.table->advance(now);
    }
    if (!waits) {
      b.table->advance(at(14.999));
      CHECK_FALSE(b.s->outcome().has_value());
      b.table->advance(at(15));
    }
    CHECK(b.s->outcome() == timed_out);
    CHECK(b.count<fatal_record>(15) == 0);
    CHECK(b.s->close(at(15)));
  }
}

TEST_CASE("RD-22 a second destination after the expiry is not published") {
  for (const bool with_exposed_aux : {false, true}) {
    CAPTURE(with_exposed_aux);
    bench b;
    b.prepare_kv(10, last_piece::no);
    if (with_exposed_aux) b.prepare_aux();
    b.publish();
    b.result_of(b.kv, {7, 8}, 11);
    b.prepare_kv(14);
    CHECK_FALSE(b.s->begin_publication(at(15)));
    CHECK_FALSE(b.s->destination_of(b.kv)->begun());
    CHECK(b.s->outcome() == timed_out);
    CHECK(b.claims() == (with_exposed_aux ? 1 : 0));
    CHECK(b.s->close(at(15)) == !with_exposed_aux);
    CHECK(b.count<fatal_record>(19.999) == 0);
    CHECK(b.count<fatal_record>(20) == (with_exposed_aux ? 1 : 0));
    CHECK(b.count<slot_freed>(20) == (with_exposed_aux ? 0 : 1));
  }
}

TEST_CASE("RD-23 contradiction or doubt about what was settled") {
  for (const bool closed : {false, true})
    for (const bool of_aux : {false, true})
      for (const bool contradiction : {false, true}) {
        CAPTURE(closed);
        CAPTURE(of_aux);
        CAPTURE(contradiction);
        bench b;
        b.publish_both();
        b.s->cancel(at(10), cancelled_by::local);
        b.result_of(b.kv, {7, 8}, 10);
        b.result_of(b.aux, {7}, 10);
        REQUIRE(b.claims() == 0);
        if (closed) REQUIRE(b.s->close(at(10)));
        const auto piece = of_aux ? b.aux : b.kv;
        if (contradiction) {
          const auto said = b.s->writer_result(at(11), piece, 7, false, false);
          CHECK(said.has_value() == closed);
          if (closed)
            CHECK(*said == receive_owner::reported{});
          else
            CHECK(said.error().code == errc::state);
        } else {
          b.s->writer_in_doubt(at(11), piece, 7);
        }
        CHECK(b.s->outcome() == given_up);
        if (closed) {
          CHECK(b.s->destination_of(piece)->drained());
          CHECK_FALSE(b.s->destination_of(piece)->claim_held());
          CHECK(b.s->close(at(14)));
        } else {
          CHECK(b.claims() == 1);
          CHECK(b.s->destination_of(piece)->claim_held());
          CHECK(b.drain() == at(10));
          CHECK_FALSE(b.s->close(at(14)));
        }
        CHECK(b.count<fatal_record>(14) == 0);
        CHECK(b.count<fatal_record>(15) == (closed ? 0 : 1));
        CHECK(b.count<slot_freed>(15) == (closed ? 1 : 0));
        CHECK(b.s->outcome() == given_up);
      }
}

TEST_CASE("RD-24 a claim that came back is settled in time") {
  bench b;
  b.publish_both();
  b.result_of(b.aux, {7}, 10);
  b.result_of(b.kv, {8}, 10);
  b.s->writer_in_doubt(at(11), b.kv, 7);
  CHECK(b.claims() == 1);
  CHECK_FALSE(b.s->close(at(11)));
  CHECK(b.s->writer_settled(at(14), b.kv, 7));
  CHECK(b.s->outcome() == session_outcome{failed{"writer 7 was in doubt"}});
  CHECK(b.s->close(at(14)));
  CHECK(b.s->close(at(14)));
  CHECK(b.count<slot_freed>(100) == 1);
  CHECK(b.count<fatal_record>(100) == 0);
}

TEST_CASE("RD-25 doubt after success has a grace of its own") {
  bench b;
  b.publish_both();
  b.result_of(b.kv, {7, 8}, 11);
  b.result_of(b.aux, {7}, 11);
  b.s->writer_in_doubt(at(30), b.kv, 8);
  CHECK(b.count<fatal_record>(34.999) == 0);
  CHECK(b.count<fatal_record>(35) == 1);
  CHECK(b.clocks.fatal()->started == at(30));
  CHECK(b.clocks.fatal()->deadline == at(35));
  CHECK(b.s->outcome() == done_well);
  b.check_retained(35);
}

TEST_CASE("RD-26 kv and aux are reserved together: a cancel is before both or after both") {
  {
    bench b;
    b.prepare_kv();
    b.prepare_aux();
    b.s->cancel(at(10), cancelled_by::local);
    CHECK_FALSE(b.s->begin_publication(at(10)));
    CHECK(b.claims() == 0);
    CHECK(b.s->close(at(10)));
  }
  for (const bool kv_first : {true, false}) {
    CAPTURE(kv_first);
    bench b;
    b.prepare_kv();
    CHECK(b.claims() == 0);
    b.prepare_aux();
    CHECK(b.claims() == 0);
    REQUIRE(b.s->begin_publication(at(10)));
    CHECK(b.claims() == 2);
    b.s->cancel(at(11), cancelled_by::local);
    b.s->published(at(12));
    CHECK(b.s->outcome() == given_up);
    CHECK(b.claims() == 2);
    const std::set<peer_rank> both{7, 8}, one{7};
    b.result_of(kv_first ? b.kv : b.aux, kv_first ? both : one, 13);
    CHECK(b.claims() == 1);
    CHECK_FALSE(b.s->close(at(13)));
    b.result_of(kv_first ? b.aux : b.kv, kv_first ? one : both, 14);
    CHECK(b.s->close(at(14)));
    CHECK(b.count<fatal_record>(100) == 0);
  }
}

TEST_CASE("RD-27 a reservation that is rejected exposes nothing, and what is unpublished retires") {
  for (const bool draining : {false, true}) {
    CAPTURE(draining);
    bench b;
    b.prepare_kv();
    if (draining) {
      b.prepare_aux();
      b.clocks.request_drain(at(10), b.s->id(), "peer lost");
    } else {
      test::check_refused(b.s->prepare(at(10), piece_kind::aux, last_piece::no, {2, {7}, {7, 8}}),
                          errc::invalid, "count");
    }
    CHECK_FALSE(b.s->begin_publication(at(10)));
    CHECK_FALSE(b.s->destination_of(b.kv)->begun());
    CHECK(b.claims() == 0);
    REQUIRE(b.s->outcome().has_value());
    CHECK(std::holds_alternative<failed>(*b.s->outcome()));
    CHECK(b.s->drained(at(10)));
    CHECK(b.s->close(at(10)));
    CHECK(b.count<slot_freed>(100) == 1);
    CHECK(b.count<fatal_record>(100) == 0);
  }
}

TEST_CASE("RD-28 shutdown retires a session that was never published") {
  for (const bool prepared : {false, true})
    for (const bool had_failed : {false, true}) {
      CAPTURE(prepared);
      CAPTURE(had_failed);
      bench b;
      if (prepared) b.prepare_kv();
      if (had_failed) b.s->fail(at(10), "broke");
      CHECK_FALSE(b.s->close(at(10)));
      CHECK(b.count<slot_freed>(10) == 0);
      CHECK(b.table->shutdown(at(11)).has_value());
      CHECK(b.s->closed());
      CHECK(b.s->close(at(11)));
      CHECK(b.s->outcome() == (had_failed ? session_outcome{failed{"broke"}} : given_up));
      CHECK(b.count<slot_freed>(100) == 1);
      CHECK(b.count<fatal_record>(100) == 0);
    }
}

TEST_CASE("RD-29 a receiver's fatal retains everything") {
  for (const std::string how : {"cancel", "failure", "shutdown", "timeout"}) {
    CAPTURE(how);
    bench b;
    b.publish_both();
    if (how == "cancel") b.s->cancel(at(10), cancelled_by::local);
    if (how == "failure") b.s->fail(at(10), "broke");
    if (how == "shutdown") CHECK_FALSE(b.table->shutdown(at(10)).has_value());
    const double end = how == "timeout" ? 20 : 15;
    CHECK(b.count<fatal_record>(end - 0.001) == 0);
    CHECK(b.count<fatal_record>(end) == 1);
    CHECK(b.clocks.fatal()->deadline == at(end));
    b.result_of(b.kv, {7, 8}, end);
    b.result_of(b.aux, {7}, end);
    CHECK(b.s->quiesced(at(end), 7).has_value());
    CHECK(b.claims() == 2);
    b.check_retained(end);
    test::check_refused(b.table->open_receive(at(end), b.setup()), errc::state, "admission is closed");
    CHECK(b.table->sessions().size() == 1);
  }
}

TEST_CASE("RD-30 a publication that blocks delays no expiry, and is not drained") {
  bench b;
  b.prepare_kv();
  b.prepare_aux();
  REQUIRE(b.s->begin_publication(at(10)));
  b.s->cancel(at(10), cancelled_by::local);
  CHECK_FALSE(b.s->drained(at(10)));  // who was told of it, nobody knows
  CHECK(b.claims() == 2);
  CHECK(b.count<fatal_record>(14.999) == 0);
  CHECK(b.count<fatal_record>(15) == 1);
  CHECK_FALSE(b.s->drained(at(15)));
  b.s->publication_aborted(at(16), {});
  CHECK(b.claims() == 2);
  b.check_retained(16);
}

TEST_CASE("RD-31 opening a receive session fails: nothing of it is left") {
  for (const bool taken : {false, true}) {
    CAPTURE(taken);
    bench b;
    auto setup = b.setup();
    if (taken)
      setup.enroll = [](aux_slot) -> result<void> { return fail(errc::provider, "registration failed"); };
    else
      setup.take_slot = []() -> result<aux_slot> { return fail(errc::no_memory, "no slot"); };
    test::check_refused(b.table->open_receive(at(10), setup), taken ? errc::provider : errc::no_memory,
                        taken ? "registration failed" : "no slot");
    CHECK(b.clocks.tracked() == 1);
    CHECK(b.table->sessions() == std::vector<std::shared_ptr<session>>{b.s});
    CHECK(b.count<slot_freed>(10) == (taken ? 1 : 0));
    b.publish_both();
    b.result_of(b.kv, {7, 8}, 11);
    b.result_of(b.aux, {7}, 11);
    CHECK(b.s->outcome() == done_well);
  }
}

TEST_CASE("receive session: a publication that stops half way is fenced to those it reached") {
  bench b;
  b.prepare_kv();
  b.prepare_aux();
  REQUIRE(b.s->begin_publication(at(10)));
  b.s->publication_aborted(at(10), {8});  // kv alone has 8 for a writer
  CHECK(b.s->outcome() == session_outcome{failed{"the publication was aborted"}});
  CHECK(b.claims() == 1);
  CHECK(b.s->quiesced(at(11), 7).has_value());
  CHECK(b.claims() == 1);
  CHECK(b.s->quiesced(at(12), 8).has_value());
  CHECK(b.s->close(at(12)));
}

TEST_CASE("scenarios 3.5 a receive owner: evidence that comes too early or too little") {
  retirement clocks{incarnation{1}};
  const auto owner = *clocks.create_owner(at(10), request, direction::fetch, *transfer_timeout::make(5s));
  receive_owner r{clocks, owner, piece_id{5}};
  SUBCASE("a rank that quiesced before publication may write after it") {
    REQUIRE(r.seal(1, {7}, {7}));
    CHECK(r.session_quiesced(at(10), 7).has_value());
    REQUIRE(r.begin_publication(at(10)));
    r.finish_publication(at(10));
    CHECK_FALSE(r.drained());
    CHECK(r.claim_held());
  }
  SUBCASE("a reserved publication can't be taken back") {
    REQUIRE(r.seal(1, {7}, {7}));
    REQUIRE(r.begin_publication(at(10)));
    r.cancel_unpublished(at(10));
    CHECK_FALSE(r.drained());
    CHECK(r.claim_held());
  }
  SUBCASE("a local copy that the first of two writers asked for") {
    REQUIRE(r.seal(2, {7, 8}, {7, 8}));
    REQUIRE(r.begin_publication(at(10)));
    r.finish_publication(at(10));
    REQUIRE(r.writer_result(at(11), 7, true, true));
    REQUIRE(r.writer_result(at(11), 8, true, false));
    CHECK(r.local_completion_pending());
    CHECK_FALSE(r.drained());
  }
  SUBCASE("a cohort that leaves out who has reported") {
    REQUIRE(r.begin_publication(at(10)));
    r.finish_publication(at(10));
    REQUIRE(r.writer_result(at(11), 9, true, false));
    test::check_refused(r.seal(1, {7}, {7}), errc::state, "outside the cohort");
    CHECK_FALSE(r.evidence_valid());
    CHECK_FALSE(r.drained());
  }
  SUBCASE("two destinations of different owners are not published together") {
    const auto other = *clocks.create_owner(at(10), request, direction::fetch, *transfer_timeout::make(5s));
    receive_owner q{clocks, other, piece_id{6}};
    receive_owner* const both[] = {&r, &q};
    CHECK_FALSE(receive_owner::begin_publication(at(10), both));
    CHECK_FALSE(receive_owner::begin_publication(at(10), {}));
    CHECK(clocks.view(owner)->claims == 0);
  }
}

TEST_CASE("scenarios 3.5 a send owner: a query that comes back into the owner") {
  retirement clocks{incarnation{1}};
  const auto owner = *clocks.create_owner(at(10), request, direction::publish, *transfer_timeout::make(5s));
  send_owner s{clocks, owner};
  bool inner = false, asked = false;
  REQUIRE(s.begin(1, piece_id{5}));
  REQUIRE(s.submit(at(10), 1, nullptr));
  REQUIRE(s.submitted(1, [&, text = std::string(100, 'x')] {
    if (!std::exchange(asked, true)) inner = s.poll_in_doubt(at(11), 1);  // which drops the stored query
    return text.size() == 100;
  }));
  s.in_doubt(at(10), 1);
  CHECK_FALSE(s.poll_in_doubt(at(11), 1));  // the operation has changed since the question
  CHECK(inner);
  CHECK(s.state(1) == send_state::backend_done);
}
