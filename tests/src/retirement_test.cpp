// The reference rows RD (scenarios 7.G) that the clocks alone decide, and the edges 7.Q 8-12. Clock 10, T 5.
#include "src/retirement.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "src/arbitration.hpp"
#include "tests/mutations.hpp"
#include "tests/seconds.hpp"

using namespace kvlease;
namespace fx = kvlease::arbitration_effects;

namespace {

const broken_by guards[] = {
    {mutation::expose_moves_clock, "retirement: the first exposure alone starts the request clock"},
    {mutation::complete_hides_claims, "RD-18 *"},
    {mutation::drain_restarts, "RD-01 *"},
    {mutation::exclusive_boundary, "RD-02 *"},
    {mutation::skip_elapsed, "RD-20 *"},
};

constexpr operation_id a{101}, b{102}, c{103};
constexpr request_id request{7};

using kvlease::test::at;
transfer_timeout span(double seconds) {
  return *transfer_timeout::make(std::chrono::duration<double>(seconds));
}

struct clocks : retirement {
  clocks() : retirement{incarnation{1}} {}
  owner_id owner(double now = 10, direction way = direction::fetch) {
    return *create_owner(at(now), request, way, span(5));
  }
  template <class Event>
  int count() {
    int n = 0;
    for (const auto& e : take_events()) n += std::holds_alternative<Event>(e) ? 1 : 0;
    return n;
  }
};

/// Everything that the clocks forbid once fatal.
void check_final(clocks& r, owner_id owner, claim_id claim, double now) {
  CHECK_FALSE(r.settle(at(now), owner, claim));
  CHECK_FALSE(r.can_retire(at(now), owner));
  CHECK_FALSE(r.close(at(now), owner));
  CHECK_FALSE(r.expose(at(now), owner, {claim}));
  CHECK_FALSE(r.create_owner(at(now), request, direction::fetch, span(5)).has_value());
  CHECK_FALSE(r.stop(at(now)).has_value());
}

/// The arbiter's core with one operation exposed at 10, and what it was told since.
struct arbiter : arbitration {
  arbiter() : arbitration{incarnation{1}} {}
  void open(operation_id op, double now = 10, double timeout = 5) {
    expose(at(now), {op, std::nullopt, request, direction::fetch, span(timeout), at(now)});
  }
  std::vector<std::string> told(operation_id op) {
    std::vector<std::string> lines;
    for (const auto& e : take_effects()) {
      if (const auto* d = std::get_if<fx::decided>(&e); d != nullptr && d->operation == op)
        lines.push_back(to_string(d->value));
      if (const auto* f = std::get_if<fx::authorised>(&e); f != nullptr && f->token.operation() == op)
        lines.emplace_back("authorised");
      if (const auto* n = std::get_if<fx::not_authorised>(&e); n != nullptr && n->operation == op)
        lines.emplace_back("not authorised");
      if (const auto* g = std::get_if<fx::granted>(&e); g != nullptr && g->operation == op)
        lines.emplace_back("granted");
      if (const auto* x = std::get_if<fx::refused>(&e); x != nullptr && x->operation == op)
        lines.emplace_back("refused");
      if (const auto* r = std::get_if<operation_released>(&e); r != nullptr && r->operation == op)
        lines.emplace_back("released");
      if (const auto* k = std::get_if<operation_retained>(&e); k != nullptr && k->operation == op)
        lines.emplace_back(k->final ? "retained for good" : "retained");
      if (std::holds_alternative<fatal_record>(e)) lines.emplace_back("fatal");
    }
    return lines;
  }
};
using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("RD-01 the first trigger stands: start and reason of the drain") {
  for (const std::string reason : {"cancelled", "failed", "shutdown", "peer lost"}) {
    CAPTURE(reason);
    clocks r;
    const auto o = r.owner();
    REQUIRE(r.expose(at(10), o, {a}));
    r.request_drain(at(10), o, reason);
    r.request_drain(at(14), o, "another");
    r.advance(at(14));
    CHECK_FALSE(r.fatal().has_value());
    r.advance(at(15));
    REQUIRE(r.fatal().has_value());
    CHECK(*r.fatal() == fatal_record{o, request, direction::fetch, reason, at(10), at(15), at(15)});
    r.advance(at(15));
    CHECK(r.count<fatal_record>() == 1);
    check_final(r, o, a, 15);
  }
}

TEST_CASE("RD-02 one boundary decides between settle and fatal") {
  for (const double when : {14.999, 15.0, 15.001}) {
    CAPTURE(when);
    clocks r;
    const auto o = r.owner();
    REQUIRE(r.expose(at(10), o, {a}));
    r.request_drain(at(10), o, "cancelled");
    const bool in_time = when < 15;
    CHECK(r.settle(at(when), o, a) == in_time);
    CHECK(r.close(at(when), o) == in_time);
    r.advance(at(100));
    CHECK(r.fatal().has_value() == !in_time);
  }
}

TEST_CASE("RD-03 the request timeout comes first, then the grace") {
  clocks r;
  const auto o = r.owner();
  REQUIRE(r.expose(at(10), o, {a}));
  r.advance(at(19));
  CHECK_FALSE(r.fatal().has_value());
  CHECK_FALSE(r.expose(at(19), o, {b}));
  r.advance(at(20));
  REQUIRE(r.fatal().has_value());
  CHECK(r.fatal()->started == at(15));
  CHECK(r.fatal()->reason == "transfer timeout");
}

TEST_CASE("RD-04 an overdue request can't restart its grace") {
  arbiter r;
  r.open(a);
  SUBCASE("by a cancel at 16") { r.commit(at(16), a, cancelled{cancelled_by::local}); }
  SUBCASE("by a shutdown at 16") { r.request_shutdown(at(16)); }
  CHECK(r.told(a) == lines{"granted", "failed(transfer timeout)"});
  r.advance(at(20));
  REQUIRE(r.clocks().fatal().has_value());
  CHECK(r.clocks().fatal()->started == at(15));
  CHECK(r.clocks().fatal()->deadline == at(20));
  CHECK(r.clocks().fatal()->reason == "transfer timeout");
}

TEST_CASE("RD-05 an unexposed cancel closes at once") {
  clocks r;
  const auto o = r.owner();
  r.request_drain(at(10), o, "cancelled");
  CHECK_FALSE(r.expose(at(10), o, {a}));
  CHECK(r.close(at(10), o));
  CHECK(r.close(at(10), o));
  r.advance(at(100));
  CHECK_FALSE(r.fatal().has_value());
  CHECK(r.stop(at(100)).has_value());
}

TEST_CASE("RD-06 fatal covers the whole runtime") {
  clocks r;
  const auto sender = r.owner(10, direction::publish);
  const auto receiver = r.owner(10);
  REQUIRE(r.expose(at(10), sender, {a}));
  REQUIRE(r.expose(at(10), receiver, {b}));
  r.request_drain(at(10), sender, "peer lost");
  r.advance(at(15));
  REQUIRE(r.fatal().has_value());
  CHECK(r.fatal()->owner == sender);
  CHECK(r.fatal()->way == direction::publish);
  check_final(r, receiver, b, 15);
}

TEST_CASE("RD-12 a timeout that is not finite and positive leaves nothing tracked") {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const double seconds : {0.0, -1.0, infinite, -infinite, std::nan("")}) {
    CAPTURE(seconds);
    const auto t = transfer_timeout::make(std::chrono::duration<double>(seconds));
    REQUIRE_FALSE(t.has_value());
    CHECK(t.error().code == errc::invalid);
    CHECK(t.error().text.find("finite positive") != std::string::npos);
  }
  CHECK(clocks{}.tracked() == 0);
  SUBCASE("the smallest and the largest do") {
    CHECK(span(1e-12).value() == duration{1});
    clocks r;
    const auto o = *r.create_owner(time_point::max() - duration{3}, request, direction::fetch, span(1e300));
    CHECK(r.expose(time_point::max() - duration{3}, o, {a}));
    CHECK(r.view(o)->request_deadline == time_point::max());
  }
}

TEST_CASE("RD-14 an idle gap keeps the deadline") {
  for (const double when : {14.999, 15.0, 15.001}) {
    CAPTURE(when);
    clocks r;
    const auto o = r.owner();
    REQUIRE(r.expose(at(10), o, {a}));
    CHECK(r.settle(at(11), o, a));  // the first piece is delivered: no claim is left
    const bool in_time = when < 15;
    CHECK(r.expose(at(when), o, {b}) == in_time);
    if (in_time) {
      r.complete_pieces(at(when), o);
      CHECK(r.settle(at(when), o, b));
      CHECK(r.is_complete(at(100), o));
    } else {
      CHECK(r.view(o)->claims == 0);
      CHECK(r.view(o)->drain_started == at(15));
      CHECK(r.count<request_expired>() == 1);
    }
    r.advance(at(100));
    CHECK_FALSE(r.fatal().has_value());
    CHECK(r.close(at(100), o));
  }
}

TEST_CASE("RD-15 a missing piece is a timeout and never fatal") {
  clocks r;
  const auto o = r.owner();
  REQUIRE(r.expose(at(10), o, {a}));
  CHECK(r.settle(at(11), o, a));
  r.advance(at(100));
  CHECK(r.count<request_expired>() == 1);
  CHECK(r.view(o)->drain_started == at(15));
  CHECK(r.view(o)->reason == "transfer timeout");
  CHECK_FALSE(r.fatal().has_value());
  CHECK(r.close(at(100), o));
}

TEST_CASE("RD-16 complete and settled stops the clock") {
  for (const auto way : {direction::publish, direction::fetch}) {
    clocks r;
    const auto o = r.owner(10, way);
    REQUIRE(r.expose(at(10), o, {a, b}));
    r.complete_pieces(at(12), o);
    CHECK_FALSE(r.is_complete(at(12), o));
    CHECK(r.settle(at(12), o, a));
    CHECK(r.settle(at(13), o, b));
    CHECK(r.is_complete(at(100), o));
    CHECK_FALSE(r.view(o)->drain_started.has_value());
    CHECK_FALSE(r.expose(at(100), o, {c}));
    CHECK(r.close(at(100), o));
    CHECK(r.count<request_expired>() == 0);
  }
}

TEST_CASE("RD-17 time that passes after completion changes nothing") {
  arbiter r;
  r.open(a);
  r.commit(at(11), a, delivered{{"x"}});
  r.settle(at(12), a);
  r.advance(at(100));  // what a slow log line takes
  CHECK(r.told(a) == lines{"granted", "delivered(1)", "authorised"});
  CHECK_FALSE(r.clocks().owners().front().drain_started.has_value());
  CHECK_FALSE(r.clocks().fatal().has_value());
  r.retired(at(100), a, {});
  CHECK(r.told(a) == lines{"released"});
  CHECK(r.clocks().tracked() == 0);
}

TEST_CASE("RD-18 logically complete with access open stays under the clock") {
  arbiter r;
  r.open(a);
  r.commit(at(11), a, delivered{{"x"}});
  r.advance(at(15));
  const auto o = r.clocks().owners().front();
  CHECK(o.drain_started == at(15));
  CHECK(o.reason == "transfer timeout");
  CHECK(r.told(a) == lines{"granted", "delivered(1)"});  // the outcome stays
  r.advance(at(20));
  REQUIRE(r.clocks().fatal().has_value());
  CHECK(r.told(a) == lines{"retained for good", "fatal"});
  r.settle(at(20), a);
  CHECK(r.told(a) == lines{"not authorised"});
  CHECK(static_cast<const arbitration&>(r).open() == 1);
}

TEST_CASE("RD-19 a piece that is not the last leaves the owner incomplete") {
  for (const auto way : {direction::publish, direction::fetch}) {
    clocks r;
    const auto o = r.owner(10, way);
    REQUIRE(r.expose(at(10), o, {a}));
    CHECK(r.settle(at(11), o, a));
    CHECK_FALSE(r.is_complete(at(14.999), o));
    CHECK(r.count<request_expired>() == 0);
    r.advance(at(15));
    CHECK(r.count<request_expired>() == 1);
    CHECK_FALSE(r.fatal().has_value());
    CHECK(r.close(at(15), o));
  }
}

TEST_CASE("RD-20 completion exactly at the deadline is too late") {
  SUBCASE("of an owner") {
    clocks r;
    const auto o = r.owner();
    REQUIRE(r.expose(at(10), o, {a}));
    r.complete_pieces(at(15), o);
    CHECK(r.settle(at(15), o, a));
    CHECK_FALSE(r.is_complete(at(15), o));
    CHECK(r.view(o)->drain_started == at(15));
    CHECK(r.count<request_expired>() == 1);
    CHECK(r.close(at(15), o));
  }
  SUBCASE("of an operation") {
    arbiter r;
    r.open(a);
    r.commit(at(15), a, delivered{{"x"}});
    r.settle(at(15), a);
    r.retired(at(15), a, {});
    CHECK(r.told(a) == lines{"granted", "failed(transfer timeout)", "authorised", "released"});
    CHECK(r.clocks().tracked() == 0);
  }
}

TEST_CASE("RD-24 a restored claim settles") {
  clocks r;
  const auto o = r.owner();
  REQUIRE(r.expose(at(10), o, {a}));
  r.retain_unproven(at(11), o, a, "in doubt");
  CHECK_FALSE(r.close(at(11), o));
  CHECK(r.settle(at(14), o, a));
  CHECK(r.close(at(14), o));
  CHECK(r.close(at(14), o));
  r.advance(at(100));
  CHECK_FALSE(r.fatal().has_value());
  CHECK(r.stop(at(100)).has_value());
}

TEST_CASE("RD-25 ambiguity after success starts a grace of its own") {
  arbiter r;
  r.open(a);
  r.commit(at(11), a, delivered{{"x"}});
  r.settle(at(12), a);
  r.retain_unproven(at(30), a, "in doubt");
  r.advance(at(34.999));
  CHECK_FALSE(r.clocks().fatal().has_value());
  r.advance(at(35));
  REQUIRE(r.clocks().fatal().has_value());
  CHECK(r.clocks().fatal()->started == at(30));
  CHECK(r.clocks().fatal()->deadline == at(35));
  CHECK(r.clocks().fatal()->reason == "in doubt");
  CHECK(r.told(a) ==
        lines{"granted", "delivered(1)", "authorised", "retained", "retained for good", "fatal"});
}

TEST_CASE("Q-08 close of a closed owner is refused after another's fatal") {
  clocks r;
  const auto first = r.owner();
  const auto second = r.owner();
  REQUIRE(r.expose(at(10), second, {b}));
  CHECK(r.close(at(10), first));
  r.request_drain(at(10), second, "failed");
  CHECK(r.close(at(14), first));
  CHECK_FALSE(r.close(at(15), first));
}

TEST_CASE("Q-09 settle of a claim that was never exposed") {
  clocks r;
  const auto o = r.owner();
  CHECK(r.settle(at(10), o, a));
  CHECK(r.close(at(10), o));
  CHECK(r.settle(at(10), o, a));
}

TEST_CASE("Q-10 an exposure of nothing starts the request clock") {
  clocks r;
  const auto o = r.owner();
  CHECK(r.expose(at(10), o, {}));
  CHECK(r.next_deadline() == at(15));
  r.advance(at(15));
  CHECK(r.count<request_expired>() == 1);
  r.advance(at(100));
  CHECK_FALSE(r.fatal().has_value());  // nothing is held
}

TEST_CASE("Q-11 complete_pieces after a latched timeout completes nothing") {
  clocks r;
  const auto o = r.owner();
  REQUIRE(r.expose(at(10), o, {a}));
  r.advance(at(15));
  r.complete_pieces(at(16), o);
  CHECK_FALSE(r.is_complete(at(16), o));
  CHECK(r.settle(at(16), o, a));
  CHECK_FALSE(r.is_complete(at(16), o));
  CHECK(r.view(o)->drain_started == at(15));
}

TEST_CASE("Q-12 two owners that expire together make one event") {
  clocks r;
  for (const auto claim : {a, b}) REQUIRE(r.expose(at(10), r.owner(), {claim}));
  r.advance(at(100));
  CHECK(r.count<fatal_record>() == 1);
  CHECK(r.fatal()->noticed == at(100));
  CHECK(r.fatal()->deadline == at(20));
  r.advance(at(200));
  CHECK(r.count<fatal_record>() == 0);
  CHECK_FALSE(r.next_deadline().has_value());
}

TEST_CASE("retirement: the first exposure alone starts the request clock") {
  clocks r;
  const auto o = r.owner();
  CHECK_FALSE(r.next_deadline().has_value());
  REQUIRE(r.expose(at(10), o, {a}));
  REQUIRE(r.expose(at(14), o, {b, c}));
  CHECK(r.view(o)->claims == 3);
  CHECK(r.next_deadline() == at(15));
}

TEST_CASE("retirement: deadlines are committed in the order of their times") {
  clocks r;
  const auto slow = *r.create_owner(at(10), request, direction::fetch, span(8));
  const auto quick = r.owner(11);
  REQUIRE(r.expose(at(10), slow, {a}));
  REQUIRE(r.expose(at(11), quick, {b}));
  r.advance(at(30));
  std::vector<owner_id> expired;
  for (const auto& e : r.take_events())
    if (const auto* x = std::get_if<request_expired>(&e)) expired.push_back(x->owner);
  CHECK(expired == std::vector{quick, slow});
  CHECK(r.fatal()->owner == quick);
}

TEST_CASE("4.5 retirement: the grace that ends first is known, whoever has it") {
  clocks r;
  const claim_id x{1}, y{2};
  CHECK_FALSE(r.first_grace().has_value());
  const auto early = r.owner(), late = r.owner();
  REQUIRE(r.expose(at(10), early, {x}));
  REQUIRE(r.expose(at(10), late, {y}));
  CHECK_FALSE(r.first_grace().has_value());  // a request's deadline is none
  r.retain_unproven(at(12), late, y, "disputed");
  REQUIRE(r.first_grace().has_value());
  CHECK(r.first_grace()->owner == late);
  CHECK(r.first_grace()->fatal_at == at(17));
  r.retain_unproven(at(11), early, x, "disputed");
  CHECK(r.first_grace()->owner == early);
  CHECK(r.settle(at(13), early, x));
  CHECK(r.first_grace()->owner == late);  // without a claim no grace ends
  CHECK(r.close(at(13), early));
  CHECK(r.settle(at(13), late, y));
  CHECK_FALSE(r.first_grace().has_value());
  r.retain_unproven(at(13), late, y, "disputed again");  // the drain began at 12, and is not reset
  CHECK(r.first_grace()->fatal_at == at(17));
  r.advance(at(17));
  REQUIRE(r.fatal().has_value());
  CHECK_FALSE(r.first_grace().has_value());
}

TEST_CASE("arbitration: what was settled before another's fatal is still released") {
  arbiter r;
  r.open(a);
  r.open(b);
  r.commit(at(11), a, delivered{{"x"}});
  r.settle(at(19), a);
  r.advance(at(20));
  REQUIRE(r.clocks().fatal().has_value());
  r.retired(at(20), a, {});
  CHECK(r.told(a) == lines{"granted", "delivered(1)", "authorised", "fatal", "released"});
}

TEST_CASE("arbitration: a repeated exposure and strangers are counted and change nothing") {
  arbiter r;
  r.open(a);
  r.open(a);
  CHECK(r.told(a) == lines{"granted"});
  CHECK(r.clocks().tracked() == 1);
  r.commit(at(11), b, failed{"stranger"});
  r.settle(at(11), b);
  r.retain_unproven(at(11), b, "stranger");
  r.retired(at(11), b, {});
  CHECK(r.rejected() == 5);
  CHECK(r.told(b).empty());
}
