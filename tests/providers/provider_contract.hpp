// What the contract suite (semantics 2, tests/providers/rules_2_test.cpp and rules_2b_test.cpp) runs over:
// every provider that a URI can name, in each of its ways of working, plain and behind the fault decorator. A
// check skips the providers that do not offer what it is about.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/include/kvlease/provider_uri.hpp"
#include "src/providers/fault_provider.hpp"
#include "tests/providers/provider_fixture.hpp"
#include "tests/providers/redis_servers.hpp"

namespace kvlease::test {

struct provider_under_test {
  std::shared_ptr<provider> subject;
  /// Lets the provider finish what it was given. Null: the fixture's executor runs dry.
  std::function<void()> drive;
  /// Puts a unit into what it fetches from. Null: it is published through the subject.
  std::function<void(const bytes& extent, const bytes& name, std::span<const std::byte> data)> store;
  /// It works on threads of its own: the fixture's executor says nothing about how far it is.
  bool own_threads = false;
};

using provider_maker = std::function<provider_under_test(const provider_context&)>;

/// One subject over real memory, registered.
class contract_bench : public staging_fixture {
 public:
  explicit contract_bench(const provider_maker& make) : under_{make(context)} {}

  provider& subject() { return *under_.subject; }
  fetches& fetching() { return *subject().as_fetches(); }
  publishes& publishing() { return *subject().as_publishes(); }
  deliveries& delivering() {
    return subject().as_fetches() ? static_cast<deliveries&>(fetching()) : publishing();
  }

  void drive() {
    if (under_.drive) return under_.drive();
    exec->run_all();
  }
  /// Whether its work stands in the fixture's executor, so that nothing moves unless the test says so.
  bool stepped() const { return !under_.own_threads; }
  /// Runs jobs, no more than it takes, until the attempt has an outcome.
  std::optional<outcome> outcome_of(const std::shared_ptr<attempt>& a) {
    while (!a->poll() && exec->run_one()) continue;
    if (!stepped()) delivering().settle({&a, 1});
    return a->poll();
  }
  void register_pools() { handles = register_all(subject()); }

  /// After it the source can serve `name`, each byte of which is `value`.
  void source_has(const char* name, std::int64_t group, unsigned char value) {
    const auto where = slot(group, 5);
    const std::vector<std::byte> before(where.begin(), where.end());
    fill(group, 5, value);
    if (under_.store) {
      under_.store("extent", name, where);
    } else {
      REQUIRE(served_of(finish(publishing().publish(extent_of({at(name, group, 5)})))).contains(name));
    }
    std::ranges::copy(before, where.begin());
  }

  /// To the end of one attempt, outcome and access.
  std::optional<outcome> finish(const std::shared_ptr<attempt>& a) {
    drive();
    REQUIRE(a);
    delivering().settle({&a, 1});
    REQUIRE(delivering().quiesce({&a, 1}));
    return a->poll();
  }

  std::vector<std::unique_ptr<registration>> handles;

 private:
  provider_under_test under_;
};

struct named_provider {
  std::string name;
  provider_maker make;
};

/// How each scheme of provider_entries() is named for the suite: one URI for each of its ways of working.
/// A scheme without a line fails 2.14, and so can't be added without passing. What begins with '$' stands for
/// a server that is started when the first bench asks for it (redis_servers.hpp).
inline const std::map<std::string_view, std::vector<std::string>>& contract_uris() {
  static const std::map<std::string_view, std::vector<std::string>> uris{
      {"memory", {"memory:?bytes=65536", "memory:?bytes=65536&background=off"}},
      {"redis",
       {"redis://$tcp?prefix=$bench", "redis://$tcp?prefix=$bench&connections=3&pipeline=1",
        "redis://$cluster?cluster=on&prefix=$bench"}},
      {"rediss", {"rediss://$tls?ca=$ca&prefix=$bench"}},
      {"redis+unix", {"redis+unix:$socket?prefix=$bench"}}};
  return uris;
}

/// Instead of all of them, when it is set: for the test that the suite finds a provider that lies.
inline std::optional<named_provider>& only_provider() {
  static std::optional<named_provider> only;
  return only;
}

inline std::vector<named_provider> contract_providers() {
  if (only_provider()) return {*only_provider()};
  std::vector<named_provider> all;
  for (const auto& [scheme, uris] : contract_uris())
    for (const auto& uri : uris) {
      const bool own_threads = scheme != "memory";
      const auto open = [uri](const provider_context& c) {
        return provider_from_uri(with_servers(uri)).value()(c);
      };
      all.push_back({uri, [=](const provider_context& c) {
                       return provider_under_test{open(c), {}, {}, own_threads};
                     }});
      all.push_back(
          {uri + " behind a fault provider that strikes nothing", [=](const provider_context& c) {
             return provider_under_test{
                 std::make_shared<fault_provider>(open(c), fault_plan{.seed = 7}, c), {}, {}, own_threads};
           }});
    }
  return all;
}

/// `check` on a bench of its own for each provider that `offers` what it needs; at least one must. Whatever
/// it does, no byte may be touched without the right to it.
template <class Bench, class Offers, class Check>
void for_each_provider(Offers offers, Check check) {
  int checked = 0;
  for (const auto& p : contract_providers()) {
    CAPTURE(p.name);
    {
      contract_bench probe{p.make};
      if (!offers(probe.subject())) continue;
    }
    Bench b{p.make};
    check(b);
    CHECK(b.touches->exposure_bytes() == 0);
    ++checked;
  }
  CHECK(checked > 0);
}

/// A provider that fetches, registered, whose source holds "a" (of group 0) and "b" (of group 1).
struct fetch_bench : contract_bench {
  explicit fetch_bench(const provider_maker& make) : contract_bench{make} {
    register_pools();
    source_has("a", 0, 1);
    source_has("b", 1, 2);
    before = subject().counters();
    touched = touches->touched_bytes();
  }
  std::shared_ptr<attempt> fetch(std::vector<unit> units) {
    return fetching().fetch(extent_of(std::move(units)));
  }
  std::shared_ptr<attempt> fetch_all() { return fetching().fetch(all); }

  unit_counters before;
  std::uint64_t touched = 0;
  const cache_extent all = extent_of({at("a", 0, 1), at("b", 1, 0), at("absent", 2, 2)});
};
void each_fetcher(auto check) {
  for_each_provider<fetch_bench>([](provider& p) { return p.as_fetches() != nullptr; }, check);
}

/// A provider that publishes, registered.
struct publish_bench : contract_bench {
  explicit publish_bench(const provider_maker& make) : contract_bench{make} { register_pools(); }
  std::shared_ptr<attempt> publish(std::vector<unit> units, const char* extent = "extent") {
    return publishing().publish(extent_of(std::move(units), extent));
  }
  std::shared_ptr<attempt> fetch(std::vector<unit> units, const char* extent = "extent") {
    return fetching().fetch(extent_of(std::move(units), extent));
  }
};
void each_publisher(auto check) {
  for_each_provider<publish_bench>([](provider& p) { return p.as_publishes() != nullptr; }, check);
}
/// What was published can be looked at by a fetch.
void each_store(auto check) {
  for_each_provider<publish_bench>(
      [](provider& p) { return p.as_publishes() != nullptr && p.as_fetches() != nullptr; }, check);
}

/// A provider that registers pools, with nothing registered yet.
void each_registrar(auto check) {
  for_each_provider<contract_bench>([](provider& p) { return p.as_registers_pools() != nullptr; }, check);
}

/// A handle of no provider.
struct foreign_route final : route {
  void close() override {}
};
struct foreign_attempt final : attempt {
  std::optional<outcome> poll() override { return delivered{{}}; }
};

}  // namespace kvlease::test
