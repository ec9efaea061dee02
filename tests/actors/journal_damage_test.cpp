// "replay checks every invariant": journals of real runs are accepted, and each of them with any single
// damage is not, but where the damaged journal is a legal one as well (tests/journal_damage_legal.cpp says
// why).
#include "tests/journal_damage.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/include/kvlease/provider.hpp"
#include "tests/actors/one_operation.hpp"
#include "tests/inject.hpp"
#include "tests/world.hpp"

namespace kvlease::test {
namespace {

using journal_kept = std::vector<journal_record>;
using run = std::pair<std::string, std::function<void(world&)>>;

void good(world& w) {
  w.provider->on_attempt = [](scripted_attempt& a) {
    a.deliver_all();
    a.end_access();
  };
}

/// Each on a world of its own; the journal is what it has written by the end.
const std::vector<run>& runs() {
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
std::vector<run> deaths() {
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

/// What came to what, over all journals.
struct tally {
  std::array<std::uint64_t, damage_classes> tried{}, found{}, legal{};
  std::map<std::string_view, std::uint64_t> why;
  std::uint64_t journals = 0, records = 0;

  void take(const std::string& name, const journal_kept& whole) {
    const incarnation of{1};
    CAPTURE(name);
    const auto accepted = check_journal(of, whole);
    INFO((accepted.broken ? accepted.broken->what : std::string{}));
    REQUIRE_FALSE(accepted.broken.has_value());
    REQUIRE(accepted.whole);
    ++journals;
    records += whole.size();
    for_each_damage(whole, [&](const damage& d) {
      const auto c = static_cast<std::size_t>(d.what);
      ++tried[c];
      if (const auto v = check_journal(of, d.records); v.broken) {
        ++found[c];
        if (v.broken->sequence <= d.at)  // ahead of it
          FAIL_CHECK(to_string(d.what), " at ", d.at + 1, " is named at ", v.broken->sequence);
      } else if (const auto reason = why_legal(whole, d)) {
        ++legal[c];
        ++why[*reason];
      } else {
        FAIL_CHECK(name, ": ", to_string(d.what), " ", d.field, " is not found at record ", d.at + 1, ", ",
                   to_string(whole[d.at].kind));
      }
    });
  }
  std::string text() const {
    auto out = fmt::format("{} journals, {} records\n{:14}{:>9}{:>9}{:>9}\n", journals, records, "damage",
                           "tried", "found", "legal");
    for (std::size_t c = 0; c < damage_classes; ++c)
      out += fmt::format("{:14}{:>9}{:>9}{:>9}\n", to_string(static_cast<damage_class>(c)), tried[c],
                         found[c], legal[c]);
    for (const auto& [reason, n] : why) out += fmt::format("{:>9} legal: {}\n", n, reason);
    return out;
  }
};

journal_kept journal_of(const run& r, bool start) {
  CAPTURE(r.first);
  world w{{.start = start}};
  w.advance(1s);
  r.second(w);
  return w.records();
}

/// Fetches and publishes, messages taken in the order that the seed says.
journal_kept interleaved(std::uint64_t seed) {
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

TEST_CASE("journal check: any single damage to the journal of any run is found, or leaves a legal one") {
  tally t;
  for (const auto& r : runs()) t.take(r.first, journal_of(r, r.first != "a registration fails"));
  for (const auto& r : deaths()) t.take(r.first, journal_of(r, true));
  for (std::uint64_t seed = 1; seed <= 8; ++seed) t.take(fmt::format("seed {}", seed), interleaved(seed));
  MESSAGE(t.text());
  for (std::size_t c = 0; c < damage_classes; ++c) CHECK(t.found[c] > 0);
  for (const auto c :
       {damage_class::foreign_id, damage_class::stray_field, damage_class::unknown_kind, damage_class::early})
    CHECK(t.legal[static_cast<std::size_t>(c)] == 0);
}

TEST_CASE("journal check: records that were lost, and are counted, are not held against what is there") {
  std::uint64_t tried = 0;
  const auto hold = [&tried](const journal_kept& whole, std::size_t from, std::size_t to) {
    auto holed = whole;  // the numbers stay: that is how a gap shows
    holed.erase(holed.begin() + static_cast<std::ptrdiff_t>(from),
                holed.begin() + static_cast<std::ptrdiff_t>(to));
    const auto v = check_journal({1}, holed);
    CAPTURE(from);
    CAPTURE(to);
    INFO((v.broken ? v.broken->what : std::string{}));
    CHECK_FALSE(v.broken.has_value());
    CHECK(v.whole == (to == whole.size()));
    ++tried;
  };
  auto all = deaths();
  all.insert(all.end(), runs().begin(), runs().end());
  std::vector<journal_kept> journals;
  for (const auto& r : all) journals.push_back(journal_of(r, r.first != "a registration fails"));
  for (std::uint64_t seed = 1; seed <= 4; ++seed) journals.push_back(interleaved(seed));
  for (const auto& whole : journals)
    for (std::size_t from = 0; from < whole.size(); ++from)
      for (const std::size_t n : {1, 2, 3, 7, 20})
        if (from + n <= whole.size()) hold(whole, from, from + n);
  MESSAGE(tried << " journals with a gap");
}

TEST_CASE("journal check: what happens behind a gap from its beginning is checked") {
  auto records = interleaved(1);
  // The first half is lost; an operation that is admitted behind it is settled before its copies have ended.
  const auto half = records.size() / 2;
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(half));
  REQUIRE_FALSE(check_journal({1}, records).broken.has_value());
  bool broken = false;
  for (std::size_t i = 0; i + 1 < records.size() && !broken; ++i) {
    auto less = records;
    if (less[i].kind != journal_kind::copies_ended) continue;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto j = i; j < less.size(); ++j) --less[j].sequence;
    const auto v = check_journal({1}, less);
    broken = v.broken.has_value() && v.broken->rule == "1.2" && !v.whole;
  }
  CHECK(broken);
}

}  // namespace
}  // namespace kvlease::test
