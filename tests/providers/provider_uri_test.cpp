// 2.14: what a URI can name has passed the contract suite, because the suite (rules_2_test.cpp,
// rules_2b_test.cpp) runs over every entry of the one table that URIs are looked up in.
#include "src/include/kvlease/provider_uri.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <type_traits>

#include "tests/providers/lying_provider.hpp"
#include "tests/providers/provider_contract.hpp"

using namespace kvlease;
using namespace kvlease::test;

namespace {

/// In the process of a liar (see below) the suite runs over it alone.
[[maybe_unused]] const bool in_liar = [] {
  const char* which = std::getenv("KVLEASE_CONTRACT_LIE");
  if (which != nullptr)
    only_provider() = named_provider{
        "liar", [which = static_cast<lie>(std::atoi(which))](const provider_context& c) {
          return provider_under_test{
              std::make_shared<lying_provider>((*provider_from_uri("memory:"))(c), which), {}, {}};
        }};
  return which != nullptr;
}();

/// The exit status of the suite's cases that match, in a process whose provider tells the lie; 0: none
/// failed.
int suite_over(const std::string& environment, const std::string& cases) {
  std::array<char, 4096> self{};
  REQUIRE(readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  const auto command = environment + " " + self.data() + " '-tc=" + cases + "' > /dev/null 2>&1";
  return std::system(command.c_str());
}

}  // namespace

TEST_CASE("2.14 every provider that a URI can name is in the suite, plain and behind the fault decorator") {
  const auto all = contract_providers();
  for (const auto& entry : provider_entries()) {
    CAPTURE(entry.scheme);
    REQUIRE(contract_uris().contains(entry.scheme));  // a new entry without a line there fails here
    std::size_t named = 0;
    for (const auto& p : all) named += p.name.starts_with(std::string{entry.scheme} + ":") ? 1 : 0;
    CHECK(named == 2 * contract_uris().at(entry.scheme).size());
    CHECK((named >= 2 || (entry.scheme == "ucx" && !ucx_built())));
  }
  CHECK(provider_entries().size() == contract_uris().size());
}

TEST_CASE("2.14 a provider that has not passed can't be selected: nothing adds to the table at run time") {
  static_assert(std::is_same_v<decltype(provider_entries()), std::span<const provider_entry>>);
  for (const auto* outside : {"scripted:", "fault:memory:", "liar:", "file:///lib/provider.so", "Memory:"}) {
    CAPTURE(outside);
    const auto got = provider_from_uri(outside);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::invalid);
  }
}

TEST_CASE("2.14 a provider that breaks one rule does not pass") {
  const std::pair<lie, const char*> lies[] = {
      {lie::takes_any_route, "2.2 *"}, {lie::takes_any_route, "2.7 *"},  {lie::outcome_changes, "2.3 *"},
      {lie::ends_early, "2.4 *"},      {lie::proves_strangers, "2.4 *"}, {lie::probe_hits_all, "2.6 *"},
      {lie::registers_twice, "2.9 *"}, {lie::miss_fails, "2.11 *"},      {lie::cancel_wavers, "2.12 *"},
      {lie::counts_nothing, "2.15 *"}};
  for (const auto& [which, cases] : lies) {
    CAPTURE(cases);
    CAPTURE(static_cast<int>(which));
    const auto telling = [](lie l) { return "KVLEASE_CONTRACT_LIE=" + std::to_string(static_cast<int>(l)); };
    CHECK(suite_over(telling(lie::none), cases) == 0);
    CHECK(suite_over(telling(which), cases) != 0);
  }
}

TEST_CASE("2.14 a URI that names no provider, or a part that it refuses, is a clear error") {
  for (const auto* bad :
       {"", "memory", "carrier-pigeon:", ":", "memory:here", "memory:?bytes=0", "memory:?bytes=many",
        "memory:?bytes=", "memory:?colour=red", "memory:?background=maybe"}) {
    CAPTURE(bad);
    const auto got = provider_from_uri(bad);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::invalid);
    CHECK(got.error().text.find("memory:") != std::string::npos);
  }
  CHECK(provider_from_uri("memory:").has_value());
  CHECK(provider_from_uri("memory:?bytes=1024&background=off").has_value());
}

TEST_CASE("2.14 runtimes that are given one factory share what is behind it") {
  staging_fixture one, other;
  const auto factory = provider_from_uri("memory:");
  REQUIRE(factory.has_value());
  const auto from = (*factory)(one.context), to = (*factory)(other.context);
  const auto handles = one.register_all(*from);
  const auto more = other.register_all(*to);
  one.fill(0, 1, 0x5a);
  const auto a = from->as_publishes()->publish(extent_of({at("n", 0, 1)}));
  one.exec->run_all();
  CHECK(a->poll() == outcome{delivered{{"n"}}});
  CHECK(to->as_fetches()->probe("extent", {"n"}) == std::set<bytes>{"n"});
}
