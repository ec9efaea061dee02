// 2.14: what can be named by a URI has passed the contract suite, because the suite runs over every entry
// here.
#include "src/include/kvlease/provider_uri.hpp"

#include <doctest/doctest.h>

#include <map>

#include "tests/src/provider_contract.hpp"

using namespace kvlease;
using namespace kvlease::test;

TEST_CASE("2.14 every provider that a URI can name passes the contract suite") {
  // How each is named here. A new entry without a line fails below.
  const std::map<std::string_view, std::string> uris{{"memory", "memory:?bytes=65536"}};
  for (const auto& entry : provider_entries()) {
    CAPTURE(entry.scheme);
    REQUIRE(uris.contains(entry.scheme));
    const auto factory = provider_from_uri(uris.at(entry.scheme));
    REQUIRE(factory.has_value());
    check_provider_contract([&](const provider_context& c) {
      return provider_under_test{(*factory)(c), {}, {}};
    });
  }
  CHECK(provider_entries().size() == uris.size());
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
