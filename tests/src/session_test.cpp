// Scenarios 7.G: what a send session, the table and the clocks' callers owe the deadline. Clock at 10, T = 5.
// A call that blocks is the time between two calls here: the state machine calls nobody.
#include "src/session.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "src/containment.hpp"
#include "tests/seconds.hpp"
#include "tests/src/refused.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

constexpr request_id request{7};
const session_outcome done_well{transferred{}};
const session_outcome timed_out{failed{"transfer timeout"}};

using kvlease::test::at;

struct bench {
  retirement clocks{incarnation{1}};
  std::unique_ptr<session_table> table = *session_table::make(&clocks, 5s, incarnation{1});
  std::vector<session_event> log;
  std::uint32_t taken = 0;

  session_table::setup setup(bool aux = true) {
    session_table::setup s{.request = request};
    if (aux) s.take_slot = [this]() -> result<aux_slot> { return aux_slot{taken++}; };
    return s;
  }
  std::shared_ptr<send_session> open(bool aux = false, std::set<peer_rank> peers = {1}) {
    return *table->open_send(at(10), setup(aux), std::move(peers));
  }
  /// Queued, taken by a worker, submitted with `root`.
  piece_id submit(send_session& s, double now, piece_kind kind = piece_kind::kv,
                  last_piece last = last_piece::yes, std::shared_ptr<void> root = nullptr,
                  peer_rank peer = 1) {
    REQUIRE(s.queue(at(now), peer, kind, last));
    const auto piece = s.next(at(now));
    REQUIRE(piece.has_value());
    REQUIRE(s.submit(at(now), *piece, std::move(root)));
    REQUIRE(s.submitted(at(now), *piece, [] { return true; }));
    return *piece;
  }
  void advance(double now) {
    table->advance(at(now));
    for (auto& e : table->take_events()) log.push_back(std::move(e));
  }
  template <class Event>
  int count(double now) {
    advance(now);
    return static_cast<int>(
        std::ranges::count_if(log, [](const auto& e) { return std::holds_alternative<Event>(e); }));
  }
  std::optional<time_point> drain(const session& s) const {
    const auto v = clocks.view(s.id());
    return v ? v->drain_started : std::nullopt;
  }
  std::size_t claims(const session& s) const { return clocks.view(s.id())->claims; }
  /// A wait of the host's: it looks at every deadline on its way, and gives up at `until`.
  std::optional<session_outcome> wait(const session& s, double from, double until) {
    auto now = at(from);
    while (!s.outcome() && now < at(until)) {
      now = std::min(clocks.next_deadline().value_or(at(until)), at(until));
      table->advance(now);
    }
    return s.outcome();
  }
};

}  // namespace

TEST_CASE("RD-07 a containment callback that fails is called once, and the fatal stays") {
  bench b;
  const auto s = b.open();
  const auto piece = b.submit(*s, 10);
  s->cancel(at(10), cancelled_by::local);
  std::atomic<int> calls{0};
  containment contain{[&](const fatal_record&) {
    ++calls;
    throw std::runtime_error{"broke"};
  }};
  for (const double now : {15.0, 15.0}) {
    b.table->advance(at(now));
    for (const auto& e : b.table->take_events())
      if (const auto* f = std::get_if<fatal_record>(&e)) contain.trigger(*f);
  }
  for (int i = 0; i < 2000 && !contain.failed(); ++i) std::this_thread::sleep_for(1ms);
  CHECK(contain.failed());
  CHECK(calls == 1);
  CHECK(b.clocks.fatal().has_value());
  CHECK_FALSE(b.clocks.settle(at(15), s->id(), piece));
  CHECK_FALSE(s->close(at(15)));
}

TEST_CASE("RD-08 the notification holds nothing: its callback may wait for who uses the sessions") {
  bench b;
  std::mutex lock;  // a host's, around its sessions
  const auto s = b.open();
  const auto piece = b.submit(*s, 10);
  s->cancel(at(10), cancelled_by::local);
  std::promise<bool> settled;
  containment contain{[&](const fatal_record&) {
    settled.set_value(std::async(std::launch::async, [&] {
                        const std::lock_guard in{lock};
                        return s->backend_done(at(15), piece);
                      }).get());
  }};
  std::vector<session_event> events;
  {
    const std::lock_guard in{lock};
    b.table->advance(at(15));
    events = b.table->take_events();
  }
  for (const auto& e : events)
    if (const auto* f = std::get_if<fatal_record>(&e)) contain.trigger(*f);
  auto got = settled.get_future();
  REQUIRE(got.wait_for(5s) == std::future_status::ready);
  CHECK_FALSE(got.get());
}

TEST_CASE("RD-09 a blocked backend call delays no expiry, and its roots are kept") {
  for (const std::string blocked : {"submit", "wait", "query"}) {
    CAPTURE(blocked);
    bench b;
    const auto s = b.open();
    auto root = std::make_shared<int>(1), status = std::make_shared<int>(2);
    const std::weak_ptr<int> request_root = root, status_root = status;
    REQUIRE(s->queue(at(10), 1, piece_kind::kv, last_piece::yes));
    const auto piece = *s->next(at(10));
    REQUIRE(s->submit(at(10), piece, std::move(root)));
    send_owner::completion_query query = [kept = std::move(status)] { return *kept == 2; };
    if (blocked != "submit") REQUIRE(s->submitted(at(10), piece, std::exchange(query, nullptr)));
    std::optional<send_owner::completion_query> asked;
    if (blocked == "query") {
      s->backend_failed(at(10), piece, "broke");
      asked = s->ask(piece);
      REQUIRE(asked.has_value());
    } else {
      s->cancel(at(10), cancelled_by::local);
    }
    CHECK(b.count<fatal_record>(14.999) == 0);
    CHECK(b.count<fatal_record>(15) == 1);
    CHECK_FALSE(s->drained(at(15)));
    // Now the call comes back, with the best of news.
    if (blocked == "submit") REQUIRE(s->submitted(at(16), piece, std::move(query)));
    if (asked)
      CHECK_FALSE(s->answered(at(16), piece, (*asked)()));
    else
      CHECK_FALSE(s->backend_done(at(16), piece));
    CHECK_FALSE(request_root.expired());
    CHECK_FALSE(status_root.expired());
    CHECK(s->state(piece) == send_state::in_doubt);
    CHECK_FALSE(s->drained(at(16)));
    CHECK_FALSE(s->close(at(16)));
  }
}

TEST_CASE("RD-10 a backend that ends within the grace leaves the outcome as it is") {
  for (const std::string how : {"timeout", "cancel", "fail"}) {
    CAPTURE(how);
    bench b;
    const auto s = b.open();
    const auto piece = b.submit(*s, 10);
    if (how == "cancel") s->cancel(at(10), cancelled_by::peer);
    if (how == "fail") s->fail(at(10), "broke");
    if (how == "timeout") b.advance(15);
    const session_outcome expected = how == "timeout"  ? timed_out
                                     : how == "cancel" ? session_outcome{cancelled{cancelled_by::peer}}
                                                       : session_outcome{failed{"broke"}};
    REQUIRE(s->outcome() == expected);
    CHECK_FALSE(s->close(at(10)));
    const double later = how == "timeout" ? 19.999 : 14.999;
    CHECK(s->backend_done(at(later), piece));
    CHECK(s->outcome() == expected);
    CHECK(s->piece_outcome(piece) == expected);
    CHECK(s->drained(at(later)));
    CHECK(s->close(at(later)));
    CHECK(b.count<fatal_record>(100) == 0);
    CHECK(b.count<session_decided>(100) == 1);
  }
}

TEST_CASE("RD-11 done stays done after another session's fatal") {
  bench b;
  const auto first = b.open(), second = b.open();
  const auto piece = b.submit(*first, 10);
  b.submit(*second, 10);
  CHECK(first->backend_done(at(11), piece));
  CHECK(first->drained(at(11)));
  second->cancel(at(11), cancelled_by::local);
  CHECK(b.count<fatal_record>(16) == 1);
  CHECK(first->backend_done(at(16), piece));
  CHECK(first->state(piece) == send_state::backend_done);
  CHECK(first->outcome() == done_well);
  CHECK_FALSE(first->drained(at(16)));
  CHECK_FALSE(first->close(at(16)));
}

TEST_CASE("RD-13 a session is bound to the clocks, and without them there is none") {
  for (const bool sends : {true, false}) {
    CAPTURE(sends);
    bench b;
    const auto id = sends ? (*b.table->open_send(at(10), b.setup(), {1}))->id()
                          : (*b.table->open_receive(at(10), b.setup()))->id();
    const auto view = b.clocks.view(id);
    REQUIRE(view.has_value());
    CHECK(view->way == (sends ? direction::publish : direction::fetch));
    CHECK(view->request == request);
    CHECK_FALSE(view->request_deadline.has_value());  // none runs before the first exposure
    CHECK(b.clocks.expose(at(11), id, {piece_id{99}}));
    CHECK(b.clocks.view(id)->request_deadline == at(16));
  }
  // Sessions of either kind come from a table alone, and there is no table without clocks.
  test::check_refused(session_table::make(nullptr, 5s, incarnation{1}), errc::invalid,
                      "deadline retirement requires");
}

TEST_CASE("RD-14 an idle gap between pieces keeps the request deadline") {
  for (const auto second : {piece_kind::kv, piece_kind::aux})
    for (const double when : {14.999, 15.0, 15.001}) {
      CAPTURE(static_cast<int>(second));
      CAPTURE(when);
      bench b;
      const auto s = b.open(second == piece_kind::aux);
      const auto last = second == piece_kind::aux ? last_piece::yes : last_piece::no;
      const auto first = b.submit(*s, 10, piece_kind::kv, last);
      CHECK(s->backend_done(at(11), first));
      CHECK(b.claims(*s) == 0);
      const auto piece = s->queue(at(14), 1, second, last_piece::yes);
      REQUIRE(piece.has_value());
      // The worker takes it in time, or at the time that it submits: late is late.
      const auto taken = s->next(at(when));
      if (when < 15) {
        REQUIRE(taken == *piece);
        REQUIRE(s->submit(at(when), *piece, nullptr));
        REQUIRE(s->submitted(at(when), *piece, nullptr));
        CHECK(s->backend_done(at(when), *piece));
        CHECK(s->outcome() == done_well);
        CHECK_FALSE(b.drain(*s).has_value());
      } else {
        CHECK_FALSE(taken.has_value());
        CHECK_FALSE(s->state(*piece).has_value());  // no worker has seen it
        CHECK(s->outcome() == timed_out);
        CHECK(s->piece_outcome(*piece) == timed_out);
        CHECK(b.claims(*s) == 0);
        CHECK(b.drain(*s) == at(15));
      }
      CHECK(s->piece_outcome(first) == done_well);
      CHECK(b.count<fatal_record>(100) == 0);
      CHECK(s->close(at(100)));
    }
}

TEST_CASE("RD-14 a piece that its worker took in time and submits late") {
  bench b;
  const auto s = b.open();
  REQUIRE(s->queue(at(10), 1, piece_kind::kv, last_piece::no));
  REQUIRE(s->submit(at(10), *s->next(at(10)), nullptr));  // starts the clock
  const auto piece = s->queue(at(14), 1, piece_kind::kv, last_piece::yes);
  REQUIRE(s->next(at(14.999)) == *piece);
  auto root = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = root;
  test::check_refused(s->submit(at(15), *piece, std::move(root)), errc::state, "admission is closed");
  CHECK(alive.expired());
  CHECK(s->state(*piece) == send_state::not_submitted);
  CHECK(b.claims(*s) == 1);
}

TEST_CASE("RD-16 a send session that has sent all pieces has no clock any more") {
  bench b;
  const auto s = b.open(true);
  const auto kv = b.submit(*s, 10);
  const auto aux = b.submit(*s, 10, piece_kind::aux);
  CHECK(s->backend_done(at(11), kv));
  CHECK_FALSE(s->outcome().has_value());
  CHECK(s->backend_done(at(12), aux));
  b.advance(100);
  s->cancel(at(100), cancelled_by::local);  // too late for that
  CHECK(s->outcome() == done_well);
  CHECK(b.clocks.is_complete(at(100), s->id()));
  CHECK_FALSE(b.drain(*s).has_value());
  CHECK_FALSE(b.clocks.expose(at(100), s->id(), {piece_id{99}}));
  test::check_refused(s->queue(at(100), 1, piece_kind::kv, last_piece::no), errc::state, "decided");
  CHECK(s->close(at(100)));
  CHECK(s->close(at(100)));
  CHECK(b.count<slot_freed>(100) == 1);
}

TEST_CASE("RD-17 what a host does with the news of completion changes nothing: send") {
  for (const bool aux : {false, true}) {
    CAPTURE(aux);
    bench b;
    const auto s = b.open(aux);
    const auto kv = b.submit(*s, 10);
    if (aux) {
      const auto piece = b.submit(*s, 10, piece_kind::aux);
      CHECK(s->backend_done(at(11), piece));
    }
    CHECK(s->backend_done(at(11), kv));
    const auto log_slowly = [&] {
      for (const auto& e : b.table->take_events())
        if (std::holds_alternative<session_decided>(e)) throw std::runtime_error{"the log is full"};
    };
    CHECK_THROWS_AS(log_slowly(), std::runtime_error);
    b.advance(100);
    CHECK(s->outcome() == done_well);
    CHECK_FALSE(b.drain(*s).has_value());
    CHECK_FALSE(b.clocks.fatal().has_value());
  }
}

TEST_CASE("RD-18 delivered with the access open is not complete") {
  bench b;
  const auto s = b.open();
  auto root = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = root;
  const auto piece = b.submit(*s, 10, piece_kind::kv, last_piece::yes, std::move(root));
  s->delivered(at(11), piece);
  CHECK(s->piece_outcome(piece) == done_well);
  CHECK_FALSE(s->outcome().has_value());
  CHECK_FALSE(b.clocks.is_complete(at(14.999), s->id()));
  b.advance(15);
  CHECK(s->outcome() == timed_out);
  CHECK(s->piece_outcome(piece) == done_well);
  CHECK(b.count<fatal_record>(19.999) == 0);
  CHECK(b.count<fatal_record>(20) == 1);
  CHECK_FALSE(s->backend_done(at(20), piece));
  CHECK_FALSE(alive.expired());
  CHECK(b.count<piece_over>(20) == 0);
}

TEST_CASE("RD-19 a piece that is not the last completes nothing: send") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    bench b;
    const auto s = b.open();
    const auto piece = b.submit(*s, 10, piece_kind::kv, last_piece::no);
    CHECK(s->backend_done(at(11), piece));
    CHECK_FALSE(b.clocks.is_complete(at(11), s->id()));
    if (waits) {
      CHECK_FALSE(b.wait(*s, 11, 14.999).has_value());
      CHECK(b.wait(*s, 14.999, 100) == timed_out);
    } else {
      b.advance(14.999);
      CHECK_FALSE(s->outcome().has_value());
      b.advance(15);
      CHECK(s->outcome() == timed_out);
    }
    CHECK(b.drain(*s) == at(15));
    CHECK(b.count<fatal_record>(15) == 0);
    CHECK(s->close(at(15)));
  }
}

TEST_CASE("RD-20 the last piece exactly at the deadline is too late") {
  bench b;
  const auto s = b.open();
  const auto piece = b.submit(*s, 10);
  CHECK(s->backend_done(at(15), piece));  // of the memory it is proof all the same
  CHECK(s->outcome() == timed_out);
  CHECK_FALSE(b.clocks.is_complete(at(15), s->id()));
  CHECK(b.claims(*s) == 0);
  CHECK(s->close(at(15)));
  CHECK(b.count<fatal_record>(100) == 0);
}

TEST_CASE("RD-21 what is queued for another peer when the request expires is never sent") {
  bench b;
  const auto s = b.open(false, {1, 2});
  const auto sent = b.submit(*s, 10);
  const auto queued = s->queue(at(10), 2, piece_kind::kv, last_piece::yes);
  REQUIRE(queued.has_value());
  b.advance(15);
  CHECK_FALSE(s->next(at(15)).has_value());
  CHECK(s->piece_outcome(*queued) == timed_out);
  CHECK_FALSE(s->state(*queued).has_value());
  CHECK(s->state(sent) == send_state::submitted);
  CHECK(b.claims(*s) == 1);
  CHECK(b.count<piece_over>(15) == 1);  // of the one that was never sent
  CHECK(b.count<fatal_record>(19.999) == 0);
  CHECK(b.count<fatal_record>(20) == 1);
  CHECK(b.clocks.fatal()->started == at(15));
}

TEST_CASE("RD-31 opening a send session fails: nothing of it is left") {
  for (const bool taken : {false, true}) {
    CAPTURE(taken);
    bench b;
    const auto before = b.open(true);
    auto setup = b.setup();
    if (taken)
      setup.enroll = [](aux_slot) -> result<void> { return fail(errc::provider, "registration failed"); };
    else
      setup.take_slot = []() -> result<aux_slot> { return fail(errc::no_memory, "no slot"); };
    test::check_refused(b.table->open_send(at(10), setup, {1}), taken ? errc::provider : errc::no_memory,
                        taken ? "registration failed" : "no slot");
    CHECK(b.clocks.tracked() == 1);
    CHECK(b.table->sessions() == std::vector<std::shared_ptr<session>>{before});
    CHECK(b.count<slot_freed>(10) == (taken ? 1 : 0));
    const auto kv = b.submit(*before, 10), aux = b.submit(*before, 10, piece_kind::aux);
    CHECK(before->backend_done(at(10), kv));
    CHECK(before->backend_done(at(10), aux));
    CHECK(before->outcome() == done_well);
  }
}

TEST_CASE("RD-32 a wait for the backend that returns at the deadline has not succeeded") {
  bench b;
  const auto s = b.open();
  const auto piece = b.submit(*s, 10);
  const auto wait_for_backend = [](double& now) {
    now = 15;
    return true;
  };
  double now = 14;
  if (wait_for_backend(now)) s->backend_done(at(now), piece);
  CHECK(s->outcome() == timed_out);
  CHECK(s->piece_outcome(piece) == timed_out);
  bool reported_failed = false;
  b.advance(15);
  for (const auto& e : b.log)
    if (const auto* over = std::get_if<piece_over>(&e)) reported_failed = !over->succeeded;
  CHECK(reported_failed);
  CHECK(s->close(at(15)));
}

TEST_CASE("RD-33 activation needs ownership and a finite positive timeout") {
  retirement clocks{incarnation{1}};
  const char* const rule = "deadline retirement requires";
  test::check_refused(session_table::make(nullptr, 5s, incarnation{1}), errc::invalid, rule);
  test::check_refused(session_table::make(&clocks, std::nullopt, incarnation{1}), errc::invalid, rule);
  for (const double bad : {std::numeric_limits<double>::infinity(), 0.0, -1.0})
    test::check_refused(session_table::make(&clocks, std::chrono::duration<double>{bad}, incarnation{1}),
                        errc::invalid, rule);
  CHECK(clocks.tracked() == 0);
}

TEST_CASE("send session: what it refuses") {
  bench b;
  const auto s = b.open();
  test::check_refused(s->queue(at(10), 9, piece_kind::kv, last_piece::no), errc::unknown, "peer 9");
  test::check_refused(s->queue(at(10), 1, piece_kind::aux, last_piece::no), errc::invalid, "slot");
  REQUIRE(s->queue(at(10), 1, piece_kind::kv, last_piece::yes));
  test::check_refused(s->queue(at(10), 1, piece_kind::kv, last_piece::no), errc::state, "last piece");
  test::check_refused(s->submit(at(10), piece_id{99}, nullptr), errc::unknown, "not admitted");
  test::check_refused(b.table->open_send(at(10), b.setup(), {}), errc::invalid, "peer");
  const auto piece = *s->next(at(10));
  CHECK(s->unsubmitted(at(10), piece));
  CHECK(s->unsubmitted(at(10), piece));
  CHECK(b.count<piece_over>(10) == 1);
  CHECK(s->outcome() == session_outcome{failed{"a piece was not submitted"}});
  CHECK(s->close(at(10)));
}

TEST_CASE("session table: another owner's fatal decides what has no outcome yet, and stays in the way") {
  for (const bool open : {false, true}) {
    CAPTURE(open);
    bench b;
    const auto s = b.open();
    if (!open) {
      s->cancel(at(10), cancelled_by::local);
      CHECK(s->close(at(10)));
    }
    const auto other =
        *b.clocks.create_owner(at(10), request_id{8}, direction::fetch, *transfer_timeout::make(5s));
    REQUIRE(b.clocks.expose(at(10), other, {piece_id{99}}));
    b.clocks.request_drain(at(10), other, "peer lost");
    CHECK(b.count<fatal_record>(15) == 1);
    CHECK(s->outcome() == (open ? session_outcome{failed{"fatal: peer lost"}}
                                : session_outcome{cancelled{cancelled_by::local}}));
    test::check_refused(b.table->shutdown(at(15)), errc::state, "fatal");
    CHECK(b.count<may_deregister>(15) == 0);
  }
}
