// What the contract suite (semantics 2, tests/providers/rules_2_test.cpp and rules_2b_test.cpp) runs over:
// every provider that a URI can name, in each of its ways of working, plain and behind the fault decorator. A
// check skips the providers that do not offer what it is about.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

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
#include "src/providers/segment/engine.hpp"
#include "src/providers/ucx/ucx_provider.hpp"
#include "src/thread_pool.hpp"
#include "tests/providers/provider_fixture.hpp"
#include "tests/providers/redis_servers.hpp"
#include "tests/temporary_directory.hpp"

namespace kvlease::test {

struct provider_under_test {
  std::shared_ptr<provider> subject;
  /// Lets the provider finish what it was given. Null: the fixture's executor runs dry.
  std::function<void()> drive;
  /// Puts a unit into what it fetches from. Null: it is published through the subject.
  std::function<void(const bytes& extent, const bytes& name, std::span<const std::byte> data)> store;
  /// It has threads of its own: it advances whether it is driven or not.
  bool by_itself = false;
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
  /// Whether it moves bytes only when it is driven, so that a test can look at it in between.
  bool stands_still() const { return !under_.by_itself; }
  /// Until `a` has its outcome and its access has ended.
  void bring_to_end(const std::shared_ptr<attempt>& a) {
    if (stands_still())
      while (!a->poll() && exec->run_one()) continue;
    else
      REQUIRE((delivering().settle({&a, 1}), delivering().quiesce({&a, 1})));
    REQUIRE(a->poll());
  }
  /// Lets it do a little more. False when there is no more to do for `a`.
  bool advance(const std::shared_ptr<attempt>& a) { return stands_still() ? exec->run_one() : !a->poll(); }
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

/// `made` with a directory of its own that goes after it.
inline std::shared_ptr<provider> in_a_directory(
    const std::function<std::shared_ptr<provider>(const std::string&)>& make) {
  struct room {
    temporary_directory directory;
    std::shared_ptr<provider> subject;
  };
  auto r = std::make_shared<room>();
  r->subject = make(r->directory.path().string());
  return {r, r->subject.get()};
}

/// Those of the segment store, in each durability, on each engine that this machine has.
inline std::vector<std::string> segment_uris() {
  std::vector<std::string> uris;
  for (const auto* engine : {"threads", "uring"}) {
    if (engine == std::string_view{"uring"} && !open_ring_engine(1)) continue;
    for (const auto* durable : {"off", "on"})
      uris.push_back(fmt::format("segment:{{directory}}?bytes=1M&engine={}&durable={}", engine, durable));
  }
  return uris;
}

inline std::vector<std::string> ucx_uris() {
  if (!ucx_built()) return {};
  return {"ucx://127.0.0.1:0?bytes=65536", "ucx://127.0.0.1:0?bytes=65536&peers=self",
          "ucx://127.0.0.1:0?peers=self&window=1&force_close=on"};
}

/// How each scheme of provider_entries() is named for the suite: one URI for each of its ways of working. A
/// scheme without a line fails 2.14, and so can't be added without passing. {directory} stands for a
/// directory of the bench's own, what begins with '$' for a server that is started when the first bench asks
/// for it (redis_servers.hpp).
inline const std::map<std::string_view, std::vector<std::string>>& contract_uris() {
  static const std::map<std::string_view, std::vector<std::string>> uris{
      {"memory", {"memory:?bytes=65536", "memory:?bytes=65536&background=off"}},
      {"segment", segment_uris()},
      {"ucx", ucx_uris()},
      {"redis",
       {"redis://$tcp?prefix=$bench", "redis://$tcp?prefix=$bench&connections=3&pipeline=1",
        "redis://$cluster?cluster=on&prefix=$bench"}},
      {"rediss", {"rediss://$tls?ca=$ca&prefix=$bench"}},
      {"redis+unix", {"redis+unix:$socket?prefix=$bench"}},
      {"tier",
       {"tier:memory:?bytes=65536,memory:?bytes=131072",
        "tier:?past=failures;memory:?bytes=65536&background=off,memory:",
        "tier:memory:?bytes=65536,segment:{directory}?bytes=1M&engine=threads",
        "tier:segment:{directory}?bytes=1M&engine=threads,optional+redis://$tcp?prefix=$bench"}}};
  return uris;
}

/// Whether it has threads of its own.
inline bool works_by_itself(const std::string& uri) {
  for (const auto* scheme : {"segment:", "ucx:", "redis"})
    if (uri.find(scheme) != std::string::npos) return true;
  return false;
}

inline std::shared_ptr<provider> open_for_suite(const std::string& uri, provider_context c) {
  // Tiers on threads of their own make the tier's jobs on any thread: the fixture's executor has but one.
  if (uri.starts_with("tier:") && works_by_itself(uri))
    c.exec = std::make_shared<thread_pool>("kvl-tier", 1, std::chrono::seconds{10});
  static const std::string hole = "{directory}";
  const auto whole = with_servers(uri);
  const auto at = whole.find(hole);
  if (at == std::string::npos) return provider_from_uri(whole).value()(c);
  return in_a_directory([&](const std::string& directory) {
    return provider_from_uri(std::string{whole}.replace(at, hole.size(), directory)).value()(c);
  });
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
      const auto open = [uri](const provider_context& c) { return open_for_suite(uri, c); };
      const bool by_itself = works_by_itself(uri);
      all.push_back({uri, [open, by_itself](const provider_context& c) {
                       return provider_under_test{open(c), {}, {}, by_itself};
                     }});
      all.push_back(
          {uri + " behind a fault provider that strikes nothing",
           [open, by_itself](const provider_context& c) {
             return provider_under_test{
                 std::make_shared<fault_provider>(open(c), fault_plan{.seed = 7}, c), {}, {}, by_itself};
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
