// Scenarios 7.H: peer loss, shutdown of receive sessions, and cancel acknowledgments. Clock at 10, T = 1.
#include "src/acknowledgment.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/seconds.hpp"
#include "tests/src/refused.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

constexpr request_id request{7};
constexpr cancel_asker asker{3, owner_id{77}};
const session_outcome given_up{cancelled{cancelled_by::local}};
const session_outcome by_peer{cancelled{cancelled_by::peer}};
using kind = notice::kind;

using kvlease::test::at;

/// A worker, its fences and what it sends. Sender's peer is 3; writers 7 and 8 fill a receiver's kv, 7 its
/// aux.
struct bench {
  explicit bench(fence_mode mode = fence_mode::lasting) : fences{*table, mode} {}

  retirement clocks{incarnation{1}};
  std::unique_ptr<session_table> table = *session_table::make(&clocks, 1s, incarnation{1});
  cancel_registry fences;
  std::vector<session_event> log;
  std::uint32_t taken = 0;

  session_table::setup setup() {
    return {.request = request,
            .take_slot = [this]() -> result<aux_slot> { return aux_slot{taken++}; },
            .enroll = nullptr};
  }
  std::shared_ptr<send_session> open_send(double now = 10) {
    return *fences.open_send(at(now), setup(), {3});
  }
  std::shared_ptr<receive_session> open_receive(double now = 10) {
    return *fences.open_receive(at(now), setup());
  }
  /// Queued and taken by a worker.
  piece_id take(send_session& s, piece_kind k = piece_kind::kv, double now = 10) {
    REQUIRE(s.queue(at(now), 3, k, last_piece::yes));
    return *s.next(at(now));
  }
  piece_id submit(send_session& s, std::shared_ptr<void> root = nullptr) {
    const auto piece = take(s);
    REQUIRE(s.submit(at(10), piece, std::move(root)));
    REQUIRE(s.submitted(at(10), piece, [] { return true; }));
    return piece;
  }
  template <class Event>
  int count(double now) {
    fences.advance(at(now));
    for (auto& e : fences.take_events()) log.push_back(std::move(e));
    return static_cast<int>(std::count_if(log.begin(), log.end(),
                                          [](const auto& e) { return std::holds_alternative<Event>(e); }));
  }
  /// What is sent now; the first `failing` tries fail.
  std::vector<kind> send(double now, int failing = 0, std::vector<notice>* all = nullptr) {
    fences.advance(at(now));
    std::vector<kind> tried;
    while (const auto n = fences.next()) {
      tried.push_back(n->what);
      if (all != nullptr) all->push_back(*n);
      fences.sent(failing-- <= 0);
    }
    return tried;
  }
  std::size_t claims(const session& s) const { return clocks.view(s.id())->claims; }
};

using kinds = std::vector<kind>;
const kinds nothing, one_acknowledgment{kind::acknowledgment};

/// A cancelled receive session, published to 7 and 8, and its round with the candidates 7, 8 and 9.
struct receiver : bench {
  std::shared_ptr<receive_session> s = open_receive();
  piece_id kv = *s->prepare(at(10), piece_kind::kv, last_piece::yes, {2, {7, 8}, {7, 8, 9}});
  piece_id aux = *s->prepare(at(10), piece_kind::aux, last_piece::no, {1, {7}, {7, 8, 9}});
  cancel_round round{s, {7, 8, 9}};

  void reserve_and_cancel() {
    REQUIRE(s->begin_publication(at(10)));
    s->cancel(at(10), cancelled_by::local);
  }
  void publish() {
    reserve_and_cancel();
    s->published(at(10));
  }
  result<void> heard(peer_rank who, double now = 10.5) {
    return round.acknowledged(at(now), {s->id(), request, who});
  }
};

}  // namespace

TEST_CASE("RC-07 the loss of a peer is fatal only for what stays unresolved") {
  for (const std::string how : {"never exposed", "settled in grace", "unresolved"}) {
    CAPTURE(how);
    bench b, unrelated;
    const auto s = b.open_send();
    std::optional<piece_id> piece;
    if (how != "never exposed") piece = b.submit(*s);
    s->peer_lost(at(10));
    CHECK(s->outcome() == session_outcome{failed{"peer lost"}});
    if (how == "settled in grace") CHECK(s->backend_done(at(10.5), *piece));
    const bool fatal = how == "unresolved";
    CHECK(b.count<fatal_record>(11) == (fatal ? 1 : 0));
    CHECK(s->close(at(11)) == !fatal);
    CHECK(s->close(at(11)) == !fatal);
    CHECK(b.fences.open_send(at(11), b.setup(), {3}).has_value() == !fatal);
    if (fatal) CHECK(b.clocks.fatal()->reason == "peer lost");
    unrelated.fences.advance(at(11));
    CHECK(unrelated.open_send(11)->close(at(11)) == false);  // it is alive: undecided
    CHECK_FALSE(unrelated.clocks.fatal().has_value());
  }
}

TEST_CASE("RC-08 a write that failed is in doubt, and nothing is submitted after it") {
  bench b;
  const auto s = b.open_send();
  auto root = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = root;
  const auto piece = b.submit(*s, std::move(root));
  const auto taken = b.take(*s, piece_kind::aux);
  s->backend_failed(at(10), piece, "write failed");
  CHECK(s->outcome() == session_outcome{failed{"write failed"}});
  CHECK(s->state(piece) == send_state::in_doubt);
  test::check_refused(s->submit(at(10.5), taken, nullptr), errc::state, "admission is closed");
  test::check_refused(s->queue(at(10.5), 3, piece_kind::kv, last_piece::no), errc::state, "decided");
  s->backend_failed(at(10.5), piece, "write failed again");
  CHECK(b.count<piece_in_doubt>(10.5) == 1);
  CHECK(b.clocks.view(s->id())->drain_started == at(10));
  CHECK(b.count<fatal_record>(10.999) == 0);
  CHECK(b.count<fatal_record>(11) == 1);
  CHECK(*b.clocks.fatal() == fatal_record{s->id(), request, direction::publish, "backend quiescence unproven",
                                          at(10), at(11), at(11)});
  CHECK_FALSE(alive.expired());
}

TEST_CASE("RC-11 shutdown of a receive that was never published") {
  for (const std::string how : {"fresh", "prepared", "prepared and failed"}) {
    CAPTURE(how);
    bench b;
    const auto s = b.open_receive();
    if (how != "fresh") REQUIRE(s->prepare(at(10), piece_kind::kv, last_piece::yes, {1, {7}, {7}}));
    if (how == "prepared and failed") s->fail(at(10), "broke");
    for (int i = 0; i < 2; ++i) {
      CHECK(b.table->shutdown(at(10)).has_value());
      CHECK(s->closed());
      CHECK(s->outcome() == (how == "prepared and failed" ? session_outcome{failed{"broke"}} : given_up));
      CHECK(b.count<slot_freed>(10) == 1);
      CHECK(b.count<may_deregister>(10) == 1);
    }
  }
}

TEST_CASE("RC-12 shutdown while a publication is blocked keeps the session until there is evidence") {
  receiver r;
  REQUIRE(r.s->begin_publication(at(10)));
  test::check_refused(r.table->shutdown(at(10)), errc::state, "not drained");
  CHECK(r.table->sessions().size() == 1);
  CHECK(r.count<may_deregister>(10) == 0);
  r.s->publication_aborted(at(10.5), {7});
  CHECK_FALSE(r.table->shutdown(at(10.5)).has_value());
  CHECK(r.s->quiesced(at(10.6), 7).has_value());
  CHECK(r.table->shutdown(at(10.6)).has_value());
  CHECK(r.s->outcome() == given_up);
  CHECK(r.count<slot_freed>(10.6) == 1);
  CHECK(r.count<may_deregister>(10.6) == 1);
}

TEST_CASE("RC-16 a cancel before any session is acknowledged at once, and fences the later one") {
  for (const bool data_first : {false, true}) {
    CAPTURE(data_first);
    bench b;
    if (data_first) b.fences.request_data(at(10), request);
    b.fences.cancel(at(10), request, asker);
    if (!data_first) b.fences.request_data(at(10), request);
    b.fences.cancel(at(10), request, asker);  // asked twice, answered once
    std::vector<notice> sent;
    CHECK(b.send(10, 0, &sent) == one_acknowledgment);
    CHECK(sent.front() ==
          notice{.what = kind::acknowledgment, .request = request, .to = 3, .session = owner_id{77}});
    CHECK(b.fences.has_data(request));
    const auto s = b.open_send();
    CHECK_FALSE(b.fences.has_data(request));
    CHECK(s->outcome() == by_peer);
    CHECK_FALSE(s->queue(at(10), 3, piece_kind::kv, last_piece::yes).has_value());
    CHECK(s->close(at(10)));
    CHECK(b.send(100) == nothing);
    CHECK(b.count<fatal_record>(100) == 0);
  }
}

TEST_CASE("RC-17 sweeping stale request data takes no acknowledgment and no fence away") {
  for (const bool swept_first : {true, false}) {
    CAPTURE(swept_first);
    bench b;
    b.fences.request_data(at(10), request);
    if (!swept_first) b.fences.cancel(at(10.5), request, asker);
    b.fences.sweep(at(10));
    CHECK(b.fences.has_data(request));  // it is no older than that
    b.fences.sweep(at(11));
    CHECK_FALSE(b.fences.has_data(request));
    if (swept_first) b.fences.cancel(at(11), request, asker);
    CHECK(b.send(11) == one_acknowledgment);
    CHECK(b.fences.fenced(request));
    CHECK(b.open_send(11)->outcome() == by_peer);
  }
}

TEST_CASE("RC-18 results go before the acknowledgment, which is tried again once") {
  for (const bool doubted : {false, true})
    for (const bool fails : {false, true}) {
      CAPTURE(doubted);
      CAPTURE(fails);
      bench b;
      const auto s = b.open_send();
      const auto piece = b.submit(*s);
      kinds expected{doubted ? kind::settlement : kind::result, kind::acknowledgment};
      if (doubted) {
        s->backend_failed(at(10), piece, "broke");
        CHECK(b.send(10) == kinds{kind::in_doubt});
        REQUIRE(s->ask(piece).has_value());
        CHECK(s->answered(at(10.2), piece, true));  // queued with the cancel, not before it
      } else {
        CHECK(s->backend_done(at(10.2), piece));
      }
      b.fences.cancel(at(10.2), request, asker);
      if (!fails) {
        CHECK(b.send(10.2) == expected);
      } else {
        REQUIRE(b.fences.next()->what == expected[0]);
        b.fences.sent(true);
        expected = {kind::acknowledgment, kind::acknowledgment};
        CHECK(b.send(10.2, 1) == expected);
      }
      CHECK(b.fences.given_up() == 0);
      CHECK(b.send(100) == nothing);
    }
  SUBCASE("a second failure gives it up, and the fence stays") {
    bench b;
    b.fences.cancel(at(10), request, asker);
    CHECK(b.send(10, 2) == kinds{kind::acknowledgment, kind::acknowledgment});
    CHECK(b.fences.given_up() == 1);
    CHECK(b.send(11) == nothing);
    CHECK(b.fences.fenced(request));
    b.fences.sent(true);  // of nothing
  }
}

TEST_CASE("RC-19 the fence outlives the session") {
  for (const bool of_peer : {false, true})
    for (const bool sends : {false, true}) {
      CAPTURE(of_peer);
      CAPTURE(sends);
      bench b;
      const auto open = [&]() -> std::shared_ptr<session> {
        if (sends) return b.open_send();
        return b.open_receive();
      };
      const auto first = open();
      b.fences.cancel(at(10), request, of_peer ? std::optional{asker} : std::nullopt);
      b.fences.cancel(at(10), request,
                      of_peer ? std::nullopt : std::optional{asker});  // whose it was first, stays
      for (const auto& s : {first, open(), open()}) {
        CHECK(s->outcome() == (of_peer ? by_peer : given_up));
        CHECK(s->close(at(10)));
      }
      CHECK(b.send(10) == one_acknowledgment);
      b.fences.forget(request);
      CHECK_FALSE(open()->outcome().has_value());
    }
}

TEST_CASE("RC-19 in the older mode the first session consumes the fence") {
  bench b{fence_mode::consumed_once};
  b.fences.cancel(at(10), request, asker);
  CHECK(b.fences.fenced(request));
  CHECK(b.open_send()->outcome() == by_peer);
  CHECK_FALSE(b.fences.fenced(request));
  CHECK_FALSE(b.open_send()->outcome().has_value());
  CHECK(b.send(10) == one_acknowledgment);
  SUBCASE("what it owes is not consumed") {
    bench c{fence_mode::consumed_once};
    const auto s = c.open_send();
    const auto piece = c.submit(*s);
    c.fences.cancel(at(10), request, asker);
    CHECK(c.open_send()->outcome() == by_peer);
    CHECK(c.send(10) == nothing);
    CHECK(s->backend_done(at(10.5), piece));
    CHECK(c.send(10.5) == kinds{kind::result, kind::acknowledgment});
  }
  SUBCASE("a cancel that comes after it fences anew") {
    bench c{fence_mode::consumed_once};
    const auto s = c.open_send();
    const auto piece = c.submit(*s);
    c.fences.cancel(at(10), request, asker);
    CHECK(c.open_send()->outcome() == by_peer);
    c.fences.cancel(at(10), request, asker);  // while the first one's acknowledgment is owed
    CHECK(c.open_send()->outcome() == by_peer);
    CHECK(s->backend_done(at(10.5), piece));
    CHECK(c.send(10.5) == kinds{kind::result, kind::acknowledgment});
  }
}

TEST_CASE("RC-20 no acknowledgment while an operation is unproven") {
  SUBCASE("in doubt") {
    bench b;
    const auto s = b.open_send();
    const auto piece = b.submit(*s);
    s->backend_failed(at(10), piece, "broke");
    b.fences.cancel(at(10), request, asker);
    CHECK(b.send(10.5) == kinds{kind::in_doubt});
    REQUIRE(s->ask(piece).has_value());
    CHECK_FALSE(s->answered(at(10.6), piece, false));
    CHECK(b.send(10.6) == nothing);
    CHECK(s->answered(at(10.7), piece, true));
    CHECK(b.send(10.7) == kinds{kind::settlement, kind::acknowledgment});
    CHECK(b.send(100) == nothing);
  }
  SUBCASE("admitted or submitting, kv or aux") {
    for (const auto k : {piece_kind::kv, piece_kind::aux})
      for (const bool submitting : {false, true}) {
        CAPTURE(static_cast<int>(k));
        CAPTURE(submitting);
        bench b;
        const auto s = b.open_send();
        const auto piece = b.take(*s, k);
        if (submitting) REQUIRE(s->submit(at(10), piece, nullptr));
        b.fences.cancel(at(10), request, asker);
        CHECK(b.send(10.5) == nothing);
        if (submitting) {
          REQUIRE(s->submitted(at(10.5), piece, nullptr));
          CHECK(b.send(10.5) == nothing);
          CHECK(s->backend_done(at(10.6), piece));
        } else {
          CHECK(s->unsubmitted(at(10.6), piece));
        }
        CHECK(b.send(10.6) == kinds{kind::result, kind::acknowledgment});
        CHECK(b.send(100) == nothing);
        CHECK(s->close(at(100)));
      }
  }
  SUBCASE("and none after a fatal") {
    bench b;
    const auto s = b.open_send();
    const auto piece = b.submit(*s);
    b.fences.cancel(at(10), request, asker);
    CHECK_FALSE(s->backend_done(at(11), piece));
    CHECK(b.send(100) == nothing);
  }
}

TEST_CASE("RC-21 a cancel that comes while a session is being opened") {
  bench b;
  auto setup = b.setup();
  setup.enroll = [&](aux_slot) -> result<void> {
    b.fences.cancel(at(10), request, asker);
    return {};
  };
  const auto s = b.fences.open_send(at(10), setup, {3});
  REQUIRE(s.has_value());
  CHECK((*s)->outcome() == by_peer);
  CHECK_FALSE((*s)->queue(at(10), 3, piece_kind::kv, last_piece::yes).has_value());
  CHECK(b.send(10) == one_acknowledgment);
  CHECK((*s)->close(at(10)));
  CHECK(b.send(100) == nothing);
}

TEST_CASE("RC-22 an acknowledgment is evidence of its own writer alone") {
  receiver r;
  bool proven = false;
  SUBCASE("of a candidate that was not chosen") {
    r.publish();
    CHECK(r.heard(9).has_value());
    CHECK(r.claims(*r.s) == 2);
  }
  SUBCASE("of the chosen ones, in turn: aux has 7 alone") {
    r.publish();
    CHECK(r.heard(7).has_value());
    CHECK(r.heard(7).has_value());
    CHECK(r.claims(*r.s) == 1);
    CHECK(r.heard(8).has_value());
    proven = true;
  }
  SUBCASE("of a stranger: the evidence is invalid, and nothing makes it good") {
    r.publish();
    test::check_refused(r.heard(42), errc::state, "unknown");
    CHECK_FALSE(r.s->destination_of(r.kv)->evidence_valid());
    for (const peer_rank who : {7, 8, 9}) CHECK(r.heard(who).has_value());
  }
  SUBCASE("of an earlier session: counted, and no more") {
    r.publish();
    test::check_refused(r.round.acknowledged(at(10.5), {owner_id{1}, request, 7}), errc::unknown, "session");
    CHECK(r.round.rejected() == 1);
    CHECK(r.s->destination_of(r.kv)->evidence_valid());
  }
  SUBCASE("of another request") {
    r.publish();
    test::check_refused(r.round.acknowledged(at(10.5), {r.s->id(), request_id{8}, 7}), errc::unknown,
                        "request");
    CHECK(r.round.rejected() == 1);
  }
  SUBCASE("before the publication has ended") {
    r.reserve_and_cancel();
    for (const peer_rank who : {7, 8, 9}) CHECK(r.heard(who).has_value());
    CHECK(r.claims(*r.s) == 2);
  }
  SUBCASE("after a partial publication only those that were reached count") {
    r.reserve_and_cancel();
    r.s->publication_aborted(at(10.2), {8});
    CHECK(r.claims(*r.s) == 1);
    CHECK(r.heard(7).has_value());
    CHECK(r.heard(9).has_value());
    CHECK(r.claims(*r.s) == 1);
    CHECK(r.heard(8).has_value());
    proven = true;
  }
  SUBCASE("with the backend's access open") {
    r.publish();
    r.s->writer_in_doubt(at(10.2), r.kv, 8);
    for (const peer_rank who : {7, 8, 9}) CHECK(r.heard(who).has_value());
    CHECK(r.claims(*r.s) == 1);
    CHECK_FALSE(r.s->destination_of(r.kv)->drained());
  }
  SUBCASE("with the local copy open") {
    r.publish();
    REQUIRE(r.s->writer_result(at(10.2), r.kv, 7, true, true));
    REQUIRE(r.s->writer_result(at(10.2), r.kv, 8, true, true));
    for (const peer_rank who : {7, 8, 9}) CHECK(r.heard(who).has_value());
    CHECK(r.claims(*r.s) == 1);
    CHECK(r.s->destination_of(r.kv)->local_completion_pending());
  }
  SUBCASE("that is missing until 11") {
    r.publish();
    CHECK(r.heard(7).has_value());
    CHECK(r.heard(9).has_value());
    CHECK(r.round.heard() == std::set<peer_rank>{7, 9});
  }
  CHECK(r.s->close(at(10.999)) == proven);
  CHECK(r.count<fatal_record>(10.999) == 0);
  CHECK(r.count<fatal_record>(11) == (proven ? 0 : 1));
  CHECK(r.heard(8, 11).has_value());  // late: it reverses nothing
  CHECK(r.s->close(at(11)) == proven);
  CHECK(r.count<slot_freed>(11) == (proven ? 1 : 0));
}

TEST_CASE("RC-22 each candidate is told of the cancel once") {
  receiver r;
  r.publish();
  r.s->cancel(at(10), cancelled_by::local);
  CHECK(r.round.take_untold() == std::set<peer_rank>{7, 8, 9});
  CHECK(r.round.take_untold().empty());
}

TEST_CASE("RC-22 candidates that no destination knows, and destinations that do not know a writer") {
  bench b;
  const auto s = b.open_receive();
  REQUIRE(s->prepare(at(10), piece_kind::kv, last_piece::yes, {2, {7, 8}, {7, 8}}));
  REQUIRE(s->prepare(at(10), piece_kind::aux, last_piece::no, {1, {7}, {7}}));
  cancel_round round{s, {7, 8, 9}};
  REQUIRE(s->begin_publication(at(10)));
  s->cancel(at(10), cancelled_by::local);
  s->published(at(10));
  CHECK(round.acknowledged(at(10), {s->id(), request, 9}).has_value());
  CHECK(b.claims(*s) == 2);
  CHECK(round.acknowledged(at(10), {s->id(), request, 8}).has_value());
  CHECK(round.acknowledged(at(10), {s->id(), request, 7}).has_value());
  CHECK(s->close(at(10)));
}
