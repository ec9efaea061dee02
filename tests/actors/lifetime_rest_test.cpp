// Scenarios 7.C (SL): rows that the types or the construction of a runtime answer, and the start of a proof.
#include <doctest/doctest.h>

#include <type_traits>

#include "actors/guard.hpp"
#include "actors/spawn.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {
template <class T>
concept names_a_backend = requires(T m) {
  m.backend;
}
|| requires(T m) { m.service; };
}  // namespace

TEST_CASE("SL-15 a proof is true or it is none: there is nothing truthy") {
  static_assert(std::is_same_v<decltype(std::declval<deliveries&>().quiesce(attempt_list{})), bool>);
  static_assert(!std::is_convertible_v<access_state, bool> && !std::is_convertible_v<access_answer, bool>);
  world w;
  one_fetch f{w};
  f.at->deliver_all();
  f.at->access = static_cast<access_state>(77);  // what no provider may answer proves nothing
  w.advance(a_while);
  CHECK(w.of(f.op).releases == 0);
  f.at->end_access();
  REQUIRE(w.retry_proof(f.op));
  w.advance(a_while);
  CHECK(w.of(f.op).releases == 1);
}

static const broken_by proof_unanswered{actor_mutation::unposted_proof_is_silent, "SL-17 a proof*"};
TEST_CASE("SL-17 a proof that can't be started is disputed, and an explicit retry recovers") {
  for (const bool pollable : {true, false}) {
    CAPTURE(pollable);
    world w{{.provider = {.pollable = pollable}}};
    w.refuse_jobs(0, 1);
    one_fetch f{w};
    CHECK(w.provider->submissions == 1);
    CHECK(w.provider->quiesces + f.at->proofs == 0);
    f.at->deliver_all();
    w.advance(a_while);
    CHECK(w.of(f.op).outcomes == 1);
    CHECK(w.of(f.op).retentions == 1);
    CHECK(w.of(f.op).releases == 0);
    CHECK(f.marked() == none);
    f.at->end_access();
    w.advance(a_while);
    CHECK(w.of(f.op).releases == 0);
    REQUIRE(w.retry_proof(f.op));
    w.advance(a_while);
    CHECK(w.of(f.op).releases == 1);
    check_close(w);
  }
}

static const broken_by submission_unanswered{actor_mutation::unposted_submission_is_silent,
                                             "SL-17 a submission*"};
TEST_CASE("SL-17 a submission that no worker takes has not escaped") {
  world w;
  w.refuse_jobs(1, 0);
  one_fetch f{w};
  CHECK(w.provider->submissions == 0);
  CHECK(w.of(f.op).releases == 1);
  CHECK(std::holds_alternative<failed>(*w.of(f.op).value));
}

TEST_CASE("SL-25 registration fails midway: what succeeded is kept, close revokes it and then the hold") {
  world w{{.start = false}};
  w.provider->fail_registration = 0;
  const auto started = w.start();
  REQUIRE_FALSE(started.has_value());
  CHECK(started.error().text.find("registration broke") != std::string::npos);
  CHECK(w.provider->log == strings{"register"});
  CHECK(w.figure(actor_kind::lender, "holds") == 1);
  w.close_adapter();
  CHECK(w.close_adapter().first);
  CHECK(w.figure(actor_kind::lender, "holds") == 0);
  CHECK(w.provider->log == strings{"register"});  // with two parts of one name: 5.1 a failed registration
}

TEST_CASE("SL-26 the profile is checked before the hold") {
  world w;
  auto profile = supported_profile("scripted-1");
  profile.cache_dtype = "float8";
  const auto made = spawn_runtime(*w.in().system,
                                  {.profile = profile, .registration_timeout = *transfer_timeout::make(5s)});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == errc::invalid);
  CHECK(made.error().text.find("cache_dtype") != std::string::npos);
}

TEST_CASE("SL-29 a submission names no backend: a runtime has the one that it registered with") {
  static_assert(!names_a_backend<submit>);
  static_assert(!names_a_backend<start_submission>);
  CHECK(true);
}
