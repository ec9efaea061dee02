// Runs of a whole runtime, for what their journals show: everything that can become of an operation, and the
// death of each actor.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/include/kvlease/provider.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/world.hpp"

namespace kvlease::test {

using journal_kept = std::vector<journal_record>;
using run = std::pair<std::string, std::function<void(world&)>>;

inline void good(world& w) {
  w.provider->on_attempt = [](scripted_attempt& a) {
    a.deliver_all();
    a.end_access();
  };
}

/// Each on a world of its own; the journal is what it has written by the end.
inline const std::vector<run>& runs() {
  static const std::vector<run> all{
      {"fetch, to the end",
       [](world& w) {
         good(w);
         w.fetch(w.admit(13));
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"publish, to the end",
       [](world& w) {
         good(w);
         const auto request = w.admit(13);
         w.publish(request);
         w.advance(a_while);
         CHECK(w.free(request).has_value());
         CHECK(w.stop().stopped);
       }},
      {"some of it served, late proof",
       [](world& w) {
         one_fetch f{w};
         f.at->deliver({0});
         w.advance(a_while);
         f.at->end_access();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"a miss, and a lease without rows",
       [](world& w) {
         one_fetch f{w};
         f.at->deliver({});
         f.at->end_access();
         w.advance(a_while);
         const auto request = w.admit(13);
         const auto empty = w.lend(direction::fetch, request, {0, 0});
         REQUIRE(empty.has_value());
         CHECK(w.withdraw(*empty).has_value());
         CHECK(w.stop().stopped);
       }},
      {"cancelled, ended, stopped",
       [](world& w) {
         one_fetch f{w};
         CHECK(w.cancel(f.op).has_value());
         w.advance(1s);
         f.at->end_access();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"timed out, then proven",
       [](world& w) {
         one_fetch f{w};
         w.advance(6s);
         f.at->end_access();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"failed by the provider",
       [](world& w) {
         one_fetch f{w};
         f.at->fail("no");
         w.advance(a_while);
         f.at->end_access();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"rejected",
       [](world& w) {
         w.provider->on_submit = [](const cache_extent&) { throw submission_rejected{"full"}; };
         w.fetch(w.admit(13));
         CHECK(w.stop().stopped);
       }},
      {"escaped, until it is fatal",
       [](world& w) {
         w.provider->on_submit = [](const cache_extent&) { throw std::runtime_error{"broke"}; };
         w.fetch(w.admit(13));
         w.advance(6s);
         CHECK(w.fatal().has_value());
       }},
      {"unproven, tried again, proven",
       [](world& w) {
         one_fetch f{w};
         f.at->deliver_all();
         f.at->access = access_state::unproven;
         w.advance(a_while);
         f.at->access = access_state::ended;
         CHECK(w.retry_proof(f.op).has_value());
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"unproven, until it is fatal",
       [](world& w) {
         one_fetch f{w}, other{w};
         f.at->access = access_state::unproven;
         w.advance(20s);
         CHECK(w.fatal().has_value());
         f.at->access = other.at->access = access_state::ended;
         static_cast<void>(w.retry_proof(f.op));
         w.advance(1s);
         CHECK_FALSE(w.stop().stopped);
       }},
      {"settlement refused after fatal",
       [](world& w) {
         one_fetch f{w}, other{w};
         CHECK(w.cancel(f.op).has_value());
         other.at->deliver_all();
         w.advance(5s);
         CHECK(w.fatal().has_value());
       }},
      {"withdrawn from the queue",
       [](world& w) {
         w.hold_workers(true, false);
         const auto op = w.fetch(w.admit(13));
         CHECK(w.cancel(op).has_value());
         w.hold_workers(false, false);
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"a read guard",
       [](world& w) {
         one_fetch f{w};
         auto guard = w.roots->guard(f.lease);
         f.at->deliver_all();
         f.at->end_access();
         w.advance(a_while);
         guard->drop();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"leases that wait, fail and are given up",
       [](world& w) {
         one_fetch f{w, false}, g{w, false}, h{w, false}, i{w, false};
         const auto request = w.admit(13), gone = w.admit(13), patient = w.admit(13);
         const auto given_up = *w.lend(direction::fetch, request, {0, 8});
         static_cast<void>(*w.lend(direction::fetch, gone, {0, 8}, 1s));
         const auto other = w.admit(13);
         static_cast<void>(*w.lend(direction::fetch, other, {0, 8}));
         const auto last = *w.lend(direction::fetch, patient, {0, 8});
         CHECK(w.withdraw(given_up).has_value());
         w.advance(2s);
         CHECK(w.free(other).has_value());
         for (const auto& x : {&f, &g, &h, &i}) CHECK(w.withdraw(x->lease).has_value());
         CHECK(w.withdraw(last).has_value());
         CHECK(w.stop().stopped);
       }},
      {"a read is given up while it is copied",
       [](world& w) {
         const auto request = w.admit(13);
         w.compute(request, 2, std::byte{1});
         w.device->hold();
         const auto lease = *w.lend(direction::publish, request, {0, 8});
         CHECK(w.withdraw(lease).has_value());
         w.device->open();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"a copy into the pages is lost",
       [](world& w) {
         w.device->fail_next_record();
         one_fetch f{w};
         f.at->deliver_all();
         f.at->end_access();
         w.advance(a_while);
         CHECK_FALSE(w.stop().stopped);
       }},
      {"a copy out of the pages is lost",
       [](world& w) {
         const auto request = w.admit(13);
         w.compute(request, 2, std::byte{1});
         w.device->fail_next_record();
         static_cast<void>(w.lend(direction::publish, request, {0, 8}));
         const auto waits = w.admit(40);
         static_cast<void>(w.lend(direction::fetch, waits, {0, 32}));
         w.advance(a_while);
       }},
      {"the request exits before its rows are marked",
       [](world& w) {
         one_fetch f{w};
         CHECK(w.free(f.request).has_value());
         f.at->deliver_all();
         f.at->end_access();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"owners of the host's",
       [](world& w) {
         good(w);
         const auto request = w.admit(13);
         const auto used = w.create_owner(request, 3s), closed = w.create_owner(request, 4s);
         const auto lease = *w.lend(direction::fetch, request, {0, 8});
         CHECK(w.submit(direction::fetch, lease, request, *used, 3s).has_value());
         w.advance(a_while);
         CHECK(ask<done>(w.in(), w.in().parts.actors->deadline_arbiter, close_owner{*closed}).has_value());
         CHECK(w.stop().stopped);
       }},
      {"shut down in the midst of it",
       [](world& w) {
         one_fetch f{w};
         CHECK_FALSE(w.stop().stopped);
         f.at->end_access();
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"shut down, and refused at the arbiter",
       [](world& w) {
         const auto request = w.admit(13);
         const auto lease = *w.lend(direction::fetch, request, {0, 8});
         CHECK(w.close_admission().has_value());
         CHECK(w.submit(direction::fetch, lease, request).has_value());
         w.advance(a_while);
         CHECK(w.stop().stopped);
       }},
      {"the adapter dies in a shutdown, until it is fatal",
       [](world& w) {
         CHECK(w.close_admission().has_value());
         w.kill(actor_kind::adapter);
         w.advance(6s);
         CHECK(w.fatal().has_value());
       }},
      {"a registration fails",
       [](world& w) {
         w.provider->fail_registration = 0;
         CHECK_FALSE(w.start().has_value());
         w.advance(1s);
         CHECK(w.stop().stopped);
       }},
      {"a registration is closed at the second attempt",
       [](world& w) {
         w.provider->fail_closes = 1;
         CHECK(w.stop().stopped);
       }},
  };
  return all;
}

/// An operation under way, then the death of `kind`.
inline std::vector<run> deaths() {
  std::vector<run> all;
  for (const auto k : {actor_kind::manager, actor_kind::lender, actor_kind::adapter, actor_kind::backend,
                       actor_kind::proof_collector, actor_kind::deadline_arbiter, actor_kind::cuda})
    for (const int when : {0, 1, 2})
      all.emplace_back(fmt::format("the {} dies, {}", to_string(k), when), [k, when](world& w) {
        if (when == 0) w.hold_workers(true, false);
        const auto reader = w.admit(13, 50);
        w.compute(reader, 2, std::byte{1});
        w.device->hold();
        static_cast<void>(w.lend(direction::publish, reader, {0, 8}));
        if (when != 2) w.device->open();
        one_fetch f{w};
        const auto request = w.admit(40);
        static_cast<void>(w.lend(direction::fetch, request, {0, 32}));
        if (when == 2) {
          f.at->deliver_all();
          f.at->end_access();
          w.advance(a_while);
        }
        w.kill(k);
        w.advance(a_while);
        w.hold_workers(false, false);
        if (f.at != nullptr) f.at->end_access();
        w.advance(6s);
      });
  return all;
}

inline journal_kept journal_of(const run& r, bool start) {
  CAPTURE(r.first);
  world w{{.start = start}};
  w.advance(1s);
  r.second(w);
  return w.records();
}

/// Fetches and publishes, messages taken in the order that the seed says.
inline journal_kept interleaved(std::uint64_t seed) {
  world w{{.slots = 4}};
  good(w);
  for (int i = 0; i < 2; ++i) {
    w.fetch(w.admit(13, static_cast<std::uint32_t>(100 * i)));
    w.publish(w.admit(13, static_cast<std::uint32_t>(100 * i)));
    w.run_random(seed * 7 + static_cast<std::uint64_t>(i), 300ms);
  }
  w.advance(1s);
  CHECK(w.stop(1s).stopped);
  return w.records();
}

}  // namespace kvlease::test
