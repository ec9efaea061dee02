// Semantics 2 where the runtime has a part in it: what the actors make of a provider's answers. What a
// provider itself must do stands in tests/providers/rules_2_test.cpp.
#include <doctest/doctest.h>

#include <stdexcept>

#include "actors/guard.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

using enum actor_kind;

const broken_by merged{actor_mutation::one_answer_for_all, "2.4 the collector*"};
TEST_CASE("2.4 the collector never merges attempts into one answer") {
  for (const bool pollable : {true, false}) {
    CAPTURE(pollable);
    world w{{.provider = {.pollable = pollable}}};
    w.hold_workers(false, true);  // so that one round asks about all three
    one_fetch ended{w}, running{w}, broken{w};
    for (auto* f : {&ended, &running, &broken}) f->at->deliver_all();
    ended.at->end_access();
    broken.at->proof_throws = true;
    w.hold_workers(false, false);
    w.advance(a_while);
    CHECK(ended.host().events == strings{"outcome delivered(2)", "released"});
    CHECK(running.host().releases == 0);
    CHECK(broken.host().releases == 0);
    CHECK(fact(w, broken.op, "access") == "disputed");
    CHECK(fact(w, running.op, "access") == (pollable ? "running" : "disputed"));
  }
}

const broken_by nothing_asked{actor_mutation::missing_attempt_is_end, "2.4 without an attempt*"};
TEST_CASE("2.4 without an attempt there is nothing to ask: disputed") {
  world w;
  const operation_id nobody{(std::uint64_t{1} << id_sequence_bits) + 99};
  w.in().send(w.in().parts.actors->proof_collector, collect_proof{nobody, proof_id{1}});
  CHECK(w.figure(proof_collector, "proofs") == 1);
  CHECK(w.figure(proof_collector, "disputed") == 1);
}

/// Fetches and nothing else; counts who waits in settle.
class settle_counter final : public provider, public fetches {
 public:
  std::string describe() const override { return "settle counter"; }
  unit_counters counters() const override { return {}; }
  fetches* as_fetches() override { return this; }
  std::shared_ptr<attempt> fetch(const cache_extent& e, route* along) override {
    return inner.fetch(e, along);
  }
  bool quiesce(attempt_list list) override { return inner.quiesce(list); }
  void settle(attempt_list) override { ++settles; }
  std::optional<std::set<bytes>> probe(const bytes&, const std::set<bytes>&) override {
    throw std::runtime_error{"the index is gone"};
  }
  result<std::unique_ptr<route>> open_route(const std::string& hint) override {
    return inner.open_route(hint);
  }

  scripted_provider inner;
  int settles = 0;
};

TEST_CASE("2.5 nothing in the runtime calls settle, however an operation ends") {
  auto p = std::make_shared<settle_counter>();
  world w{{.open_provider = [&](const provider_context&) { return p; }}};
  const auto fetched = [&](std::uint32_t first) {
    const auto op = w.fetch(w.admit(13, first), 1);
    return std::pair{op, p->inner.attempts.back()};
  };
  const auto [served, a] = fetched(1);
  a->deliver_all(), a->end_access();
  const auto [errs, b] = fetched(100);
  b->fail("broke"), b->end_access();
  const auto [stopped, c] = fetched(200);
  REQUIRE(w.cancel(stopped).has_value());
  c->end_access();
  const auto [missed, d] = fetched(300);
  d->deliver({}), d->end_access();
  // It can only block in quiesce, and was asked too early.
  for (const auto op : {served, errs, stopped, missed}) REQUIRE(w.retry_proof(op).has_value());
  w.advance(a_while);
  for (const auto op : {served, errs, stopped, missed}) CHECK(w.of(op).events.back() == "released");
  CHECK(w.stop().stopped);
  CHECK(p->settles == 0);
}

const broken_by probe_lost{actor_mutation::probe_error_is_miss, "2.6 a probe*"};
TEST_CASE("2.6 a probe that fails raises: its failure is no miss") {
  auto p = std::make_shared<settle_counter>();
  world w{{.open_provider = [&](const provider_context&) { return p; }}};
  const auto got = ask<probe_answer>(w.in(), w.in().parts.actors->backend, probe_units{"extent", {"a"}});
  REQUIRE_FALSE(got.has_value());
  CHECK(got.error().code == errc::provider);
  CHECK(contains(got.error().text, "the index is gone"));
}

TEST_CASE("2.9 a registration's handle is closed once, and again only after it has failed") {
  world w;
  w.provider->fail_closes = 2;
  for (int i = 0; i < 6; ++i) w.close_adapter();
  CHECK(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register", "deregister", "deregister", "deregister"});
}

TEST_CASE("2.13 a status that nobody knows never ends access") {
  world w;
  one_fetch f{w};
  f.at->access = static_cast<access_state>(77);
  f.at->deliver_all();
  w.advance(1s);
  CHECK(f.host().releases == 0);
  CHECK(f.marked() == none);
  CHECK(w.slots().free == w.slots().total - 2);
}

}  // namespace
}  // namespace kvlease::test
