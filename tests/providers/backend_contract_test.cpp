// Scenarios 7.A, the rows about protocols and deliveries. What the reference checks at run time with
// structural protocols, C++ checks at compile time with abstract classes: those rows are static assertions.
// The double is a fetch-only store over local byte arrays whose outcome and end of access the test moves
// apart.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <type_traits>

#include "src/include/kvlease/provider.hpp"

using namespace kvlease;

namespace {

/// A store that answers only when told to.
class local_store : public provider, public fetches {
 public:
  class delivery final : public attempt {
   public:
    std::optional<outcome> poll() override { return value_; }
    /// False when it was answered before.
    bool answer(outcome o) {
      if (value_) return false;
      value_ = std::move(o);
      return true;
    }
    bool access_ended = false;
    cache_extent extent;
    explicit delivery(cache_extent e) : extent{std::move(e)} {}

   private:
    std::optional<outcome> value_;
  };

  std::string describe() const override { return "local store"; }
  unit_counters counters() const override { return counted; }
  fetches* as_fetches() override { return this; }

  std::shared_ptr<attempt> fetch(const cache_extent& e, route* = nullptr) override {
    if (reject) throw submission_rejected{"the store rejects"};
    ++submissions;
    auto d = std::make_shared<delivery>(e);
    all.push_back(d);
    return d;
  }
  bool quiesce(attempt_list list) override {
    for (const auto& a : list)
      if (!dynamic_cast<delivery&>(*a).access_ended) return false;
    return true;
  }
  void settle(attempt_list list) override {
    for (const auto& a : list)
      if (!a->poll()) throw std::logic_error{"would block for ever"};
  }
  std::optional<std::set<bytes>> probe(const bytes&, const std::set<bytes>& names) override {
    std::set<bytes> hits;
    for (const auto& n : names)
      if (held.contains(n)) hits.insert(n);
    return hits;
  }
  result<std::unique_ptr<route>> open_route(const std::string&) override {
    return fail(errc::unsupported, "local store: one source");
  }

  /// Moves what is held, then answers.
  void deliver(delivery& d) {
    std::set<bytes> served;
    for (const auto& u : d.extent.units()) {
      const auto it = held.find(u.name());
      if (it == held.end()) {
        ++counted.misses;
        continue;
      }
      destinations.at(static_cast<std::size_t>(u.local())) = it->second;
      ++counted.hits;
      served.insert(u.name());
    }
    d.answer(delivered{served});
  }

  std::map<bytes, std::byte> held;
  std::array<std::byte, 2> destinations{std::byte{0xee}, std::byte{0xee}};
  unit_counters counted;
  std::vector<std::shared_ptr<delivery>> all;
  bool reject = false;
  int submissions = 0;
};

cache_extent both() {
  return *cache_extent::make("content", {*unit::make({"first", 0, 0}), *unit::make({"second", 0, 1})},
                             end_of_sequence::yes);
}

constexpr std::byte untouched{0xee};

template <class F>
struct lacks_fetch : F {
  std::shared_ptr<attempt> fetch(const cache_extent&, route*) override = 0;
};
template <class F>
struct lacks_quiesce : F {
  bool quiesce(attempt_list) override = 0;
};
template <class F>
struct lacks_settle : F {
  void settle(attempt_list) override = 0;
};
template <class F>
struct lacks_probe : F {
  std::optional<std::set<bytes>> probe(const bytes&, const std::set<bytes>&) override = 0;
};
template <class F>
struct lacks_open_route : F {
  result<std::unique_ptr<route>> open_route(const std::string&) override = 0;
};

template <class T>
concept publishes_with_a_route = requires(T& p, const cache_extent& e, route* r) {
  p.publish(e, r);
};
template <class T>
concept can_be_asked_for_a_route = requires(T& p) {
  p.as_route();
};
template <class T>
concept can_be_asked_for_a_registration = requires(T& p) {
  p.as_registration();
};

}  // namespace

TEST_CASE("BC-01 surface: the thirteen symbols and their signatures") {
  // unit, cache_extent, delivered, failed, cancelled, outcome, attempt, submission_rejected, route,
  // registration, fetches, publishes, registers_pools
  static_assert(std::is_same_v<outcome, std::variant<delivered, failed, cancelled>>);
  static_assert(std::is_base_of_v<std::runtime_error, submission_rejected>);
  static_assert(std::is_same_v<decltype(&attempt::poll), std::optional<outcome> (attempt::*)()>);
  static_assert(std::is_same_v<decltype(&route::close), void (route::*)()>);
  static_assert(std::is_same_v<decltype(&registration::close), void (registration::*)()>);
  // quiesce takes only attempts and answers bool, on both
  static_assert(std::is_same_v<decltype(&fetches::quiesce), bool (deliveries::*)(attempt_list)>);
  static_assert(std::is_same_v<decltype(&publishes::quiesce), bool (deliveries::*)(attempt_list)>);
  // fetch has a route that may be left out, publish has none
  static_assert(requires(fetches & f, const cache_extent& e, route* r) { f.fetch(e), f.fetch(e, r); });
  static_assert(!publishes_with_a_route<publishes>);
  static_assert(
      std::is_same_v<decltype(&registers_pools::register_pool),
                     std::unique_ptr<registration> (registers_pools::*)(std::uintptr_t, std::size_t)>);
  CHECK(true);
}

TEST_CASE("BC-12 a fetcher without fetch is none") { CHECK(std::is_abstract_v<lacks_fetch<local_store>>); }
TEST_CASE("BC-13 a fetcher without quiesce is none") {
  CHECK(std::is_abstract_v<lacks_quiesce<local_store>>);
}
TEST_CASE("BC-14 a fetcher without settle is none") { CHECK(std::is_abstract_v<lacks_settle<local_store>>); }
TEST_CASE("BC-15 a fetcher without probe is none") { CHECK(std::is_abstract_v<lacks_probe<local_store>>); }
TEST_CASE("BC-16 a fetcher without open_route is none; the full store is a fetcher and nothing else") {
  CHECK(std::is_abstract_v<lacks_open_route<local_store>>);
  local_store s;
  provider& p = s;
  CHECK(p.as_fetches() != nullptr);
  CHECK(p.as_publishes() == nullptr);
  CHECK(p.as_registers_pools() == nullptr);
  CHECK(std::dynamic_pointer_cast<attempt>(s.fetch(both())) != nullptr);
}

TEST_CASE("BC-17 routes and registrations are opaque: nothing can be asked whether it is one") {
  static_assert(!can_be_asked_for_a_route<provider>);
  static_assert(!can_be_asked_for_a_registration<provider>);
  CHECK(std::is_abstract_v<route>);
  CHECK(std::is_abstract_v<registration>);
}

TEST_CASE("BC-18 a miss is an empty delivery") {
  local_store s;
  const auto a = s.fetch(both());
  CHECK_FALSE(a->poll().has_value());
  s.deliver(*s.all.back());
  CHECK(a->poll() == outcome{delivered{{}}});
  CHECK(s.destinations == std::array{untouched, untouched});
  CHECK(s.counted.hits == 0);
  CHECK_FALSE(s.quiesce({&a, 1}));
}

TEST_CASE("BC-19 partial: the second destination is untouched") {
  local_store s;
  s.held["first"] = std::byte{1};
  const auto a = s.fetch(both());
  s.deliver(*s.all.back());
  CHECK(a->poll() == outcome{delivered{{"first"}}});
  CHECK(s.destinations == std::array{std::byte{1}, untouched});
  CHECK(s.counted.hits == 1);
  CHECK_FALSE(s.quiesce({&a, 1}));
}

TEST_CASE("BC-20 complete: both are written, and nothing has quiesced by it") {
  local_store s;
  s.held = {{"first", std::byte{1}}, {"second", std::byte{2}}};
  const auto a = s.fetch(both());
  s.deliver(*s.all.back());
  CHECK(a->poll() == outcome{delivered{{"first", "second"}}});
  CHECK(s.destinations == std::array{std::byte{1}, std::byte{2}});
  CHECK(s.counted.hits == 2);
  CHECK_FALSE(s.quiesce({&a, 1}));
}

TEST_CASE("BC-21 a probe is advisory") {
  local_store s;
  s.held["first"] = std::byte{1};
  CHECK(s.probe("content", {"first", "second"}) == std::set<bytes>{"first"});
  s.held.clear();
  const auto a = s.fetch(both());
  s.deliver(*s.all.back());
  CHECK(a->poll() == outcome{delivered{{}}});
  CHECK(s.open_route("anywhere").error().code == errc::unsupported);
  CHECK(s.submissions == 1);
}

TEST_CASE("BC-22 a rejected submission leaves nothing behind") {
  local_store s;
  s.held["first"] = std::byte{1};
  s.reject = true;
  CHECK_THROWS_AS(s.fetch(both()), submission_rejected);
  CHECK(s.all.empty());
  CHECK(s.counted == unit_counters{});
  CHECK(s.destinations == std::array{untouched, untouched});
}

TEST_CASE("BC-23 an escaped failure is an attempt that failed") {
  local_store s;
  const auto a = s.fetch(both());
  s.destinations[0] = std::byte{9};  // one byte has moved
  s.all.back()->answer(failed{"broke"});
  CHECK(a->poll() == outcome{failed{"broke"}});
  s.settle({&a, 1});
  CHECK_FALSE(s.quiesce({&a, 1}));
  s.all.back()->access_ended = true;
  CHECK(s.quiesce({&a, 1}));
}

namespace {
void either_first(bool outcome_first) {
  local_store s;
  const auto a = s.fetch(both()), other = s.fetch(both());
  auto& d = *s.all.front();
  if (outcome_first) {
    CHECK(d.answer(cancelled{cancelled_by::local}));
    s.settle({&a, 1});
    CHECK_FALSE(s.quiesce({&a, 1}));
    d.access_ended = true;
  } else {
    d.access_ended = true;
    CHECK(s.quiesce({&a, 1}));
    CHECK_FALSE(a->poll().has_value());
    CHECK(d.answer(cancelled{cancelled_by::local}));
  }
  for (int i = 0; i < 3; ++i) {
    s.settle({&a, 1});
    CHECK(s.quiesce({&a, 1}));
    CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  }
  CHECK_FALSE(d.answer(delivered{{"first"}}));
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK_FALSE(other->poll().has_value());
  CHECK_FALSE(s.quiesce({&other, 1}));
}
}  // namespace

TEST_CASE("BC-24 the outcome first, then the end of access") { either_first(true); }
TEST_CASE("BC-25 the end of access first, then the outcome") { either_first(false); }

TEST_CASE("scenarios 1.14 request_cancel works on any attempt") {
  local_store s;
  const auto a = s.fetch(both());
  CHECK(request_cancel(*a) == cancel_disposition::unsupported);
}
