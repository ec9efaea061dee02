#include "src/registrar.hpp"

#include <doctest/doctest.h>

#include "tests/mutations.hpp"

using namespace kvlease;

namespace {

const operation_id claim{7};
const hold_id hold{9};

part part_at(std::uintptr_t address) { return {"same name", address, 64, 16, 4}; }

/// A registrar of two parts, started and holding; `ids` are those of its registrations.
struct two_parts {
  registrar r{incarnation{1}, claim, {part_at(64), part_at(128)}};
  std::vector<registration_id> ids;

  two_parts() {
    REQUIRE(r.may_start());
    const auto e = r.start();
    CHECK(e.take_hold);
    REQUIRE_FALSE(e.open.has_value());
  }
  registrar_effects opened(const registrar_effects& e) {
    REQUIRE(e.open.has_value());
    ids.push_back(e.open->id);
    return e;
  }
  void register_all() {
    opened(r.held(hold));
    opened(r.registered(ids[0], ""));
    CHECK(r.registered(ids[1], "").start_answer == "");
    CHECK(r.accepting());
  }
};

bool nothing(const registrar_effects& e) {
  return !e.take_hold && !e.open && !e.close && !e.retain && !e.settle && !e.release_hold && !e.retired &&
         !e.start_answer;
}

}  // namespace

static const broken_by hold_first{mutation::register_before_hold, "registrar: the hold*"};
TEST_CASE("registrar: the hold, then each part once, in order, whatever the parts are called") {
  two_parts t;
  CHECK_FALSE(t.r.may_start());
  const auto e = t.opened(t.r.held(hold));
  CHECK(e.open->span.address == 64);
  CHECK_FALSE(t.r.accepting());
  const auto second = t.opened(t.r.registered(t.ids[0], ""));
  CHECK(second.open->span.address == 128);
  CHECK(t.ids[0] != t.ids[1]);
  CHECK_FALSE(t.r.accepting());
  CHECK(nothing(t.r.registered(t.ids[0], "")));  // a duplicate
  CHECK(nothing(t.r.registered(registration_id{1}, "late")));
  CHECK(t.r.registered(t.ids[1], "").start_answer == "");
  CHECK(t.r.accepting());
  CHECK(nothing(t.r.held(hold)));
  CHECK(t.r.accepting());
}

TEST_CASE("registrar: a failure keeps handles and hold, retains the claim once, and leaves only close") {
  two_parts t;
  t.opened(t.r.held(hold));
  t.opened(t.r.registered(t.ids[0], ""));
  const auto failed = t.r.registered(t.ids[1], "no room");
  CHECK(failed.retain == "pool registration failed: no room");
  CHECK(failed.start_answer == failed.retain);
  CHECK_FALSE(t.r.accepting());
  CHECK_FALSE(t.r.may_start());
  CHECK(nothing(t.r.stop()));  // retained already
  const auto e = t.r.close(0);
  REQUIRE(e.close.has_value());
  CHECK(*e.close == t.ids[0]);
  CHECK(t.r.revoked(t.ids[0], "").settle);
  const auto end = t.r.settled();
  CHECK(end.release_hold == hold);
  CHECK(end.retired);
  CHECK(t.r.closed());
}

static const broken_by failed_close{mutation::failed_close_counts, "registrar: close*"};
static const broken_by early_close{mutation::deregister_early, "registrar: close*"};
TEST_CASE(
    "registrar: close goes last first, retries the handle that failed, settles, then gives the hold back") {
  two_parts t;
  t.register_all();
  CHECK(nothing(t.r.close(0)));  // not stopped
  CHECK(t.r.stop().retain == "staging adapter shutdown");
  CHECK(nothing(t.r.stop()));  // its grace starts at the first
  CHECK_FALSE(t.r.accepting());
  CHECK(nothing(t.r.close(1)));  // operations are open
  const auto e = t.r.close(0);
  REQUIRE(e.close.has_value());
  CHECK(*e.close == t.ids[1]);
  CHECK(nothing(t.r.close(0)));  // under way
  CHECK(nothing(t.r.registered(t.ids[1], "")));
  CHECK(nothing(t.r.revoked(t.ids[0], "")));
  CHECK(nothing(t.r.revoked(t.ids[1], "busy")));
  CHECK(t.r.state_text().find("busy") != std::string::npos);
  CHECK(*t.r.close(0).close == t.ids[1]);
  CHECK(*t.r.revoked(t.ids[1], "").close == t.ids[0]);
  CHECK_FALSE(t.r.closed());
  CHECK(t.r.revoked(t.ids[0], "").settle);
  CHECK(nothing(t.r.close(0)));
  CHECK(nothing(t.r.stop()));
  const auto end = t.r.settled();
  CHECK(end.release_hold == hold);
  CHECK(end.retired);
  CHECK(nothing(t.r.settled()));
  CHECK(nothing(t.r.close(0)));
  CHECK(t.r.closed());
}

static const broken_by torn{mutation::teardown_after_fatal, "registrar: after fatal*"};
TEST_CASE("registrar: after fatal nothing is registered or revoked") {
  two_parts t;
  SUBCASE("while registering") {
    t.opened(t.r.held(hold));
    t.r.fatal();
    const auto e = t.r.registered(t.ids[0], "");
    CHECK_FALSE(e.open.has_value());
    CHECK(e.start_answer.value_or("") != "");
    CHECK_FALSE(t.r.accepting());
  }
  SUBCASE("between two revocations") {
    t.register_all();
    t.r.stop();
    CHECK(t.r.close(0).close.has_value());
    t.r.fatal();
    CHECK(nothing(t.r.revoked(t.ids[1], "")));
    CHECK(nothing(t.r.close(0)));
  }
  CHECK_FALSE(t.r.closed());
}

TEST_CASE("registrar: stopped before it has what it asked for") {
  SUBCASE("never started") {
    registrar r{incarnation{1}, claim, {part_at(64)}};
    CHECK(nothing(r.stop()));
    CHECK(r.closed());
    CHECK_FALSE(r.may_start());
  }
  SUBCASE("the hold is on its way: it is given back") {
    two_parts t;
    t.r.stop();
    CHECK(nothing(t.r.close(0)));
    CHECK(t.r.held(hold).start_answer.value_or("") != "");
    CHECK(t.r.close(0).settle);
    CHECK(t.r.settled().release_hold == hold);
  }
  SUBCASE("the hold will not come") {
    two_parts t;
    CHECK(t.r.lender_down().start_answer.value_or("") != "");
    t.r.stop();
    CHECK(t.r.close(0).settle);
    const auto end = t.r.settled();
    CHECK_FALSE(end.release_hold.has_value());
    CHECK(end.retired);
  }
  SUBCASE("admission closed before the claim was tracked (found by the model, tests/model)") {
    registrar r{incarnation{1}, claim, {part_at(64)}};
    CHECK(nothing(r.stop()));
    CHECK(r.refused("admission is closed").start_answer.value_or("") != "");
    CHECK(r.closed());
  }
  SUBCASE("the lender died before it was asked for the hold (found by the model, tests/model)") {
    registrar r{incarnation{1}, claim, {part_at(64)}};
    CHECK(nothing(r.lender_down()));
    const auto e = r.start();
    CHECK_FALSE(e.take_hold);
    CHECK(e.start_answer.value_or("") != "");
    CHECK_FALSE(r.accepting());
    r.stop();
    CHECK(r.close(0).settle);
    CHECK(r.settled().retired);
  }
  SUBCASE("a registration is on its way: it is revoked") {
    two_parts t;
    t.opened(t.r.held(hold));
    t.r.stop();
    CHECK(nothing(t.r.close(0)));
    CHECK(t.r.registered(t.ids[0], "").start_answer.value_or("") != "");
    CHECK(*t.r.close(0).close == t.ids[0]);
  }
}

TEST_CASE("registrar: without a backend nothing is taken for registered or for revoked") {
  two_parts t;
  SUBCASE("down before") {
    t.r.backend_down();
    const auto e = t.r.held(hold);
    CHECK_FALSE(e.open.has_value());
    CHECK(e.start_answer.value_or("") != "");
    t.r.stop();
    CHECK(t.r.close(0).settle);  // nothing was registered
  }
  SUBCASE("while registering: it may exist") {
    t.opened(t.r.held(hold));
    CHECK(t.r.backend_down().start_answer.value_or("") != "");
    t.r.stop();
    CHECK(nothing(t.r.close(0)));
  }
  SUBCASE("while revoking, and before") {
    t.register_all();
    t.r.stop();
    SUBCASE("under way") {
      CHECK(t.r.close(0).close.has_value());
      CHECK(nothing(t.r.backend_down()));
    }
    SUBCASE("before") { CHECK(nothing(t.r.backend_down())); }
    CHECK(nothing(t.r.close(0)));
    CHECK(t.r.state_text().find("the backend is down") != std::string::npos);
  }
  CHECK_FALSE(t.r.closed());
}
