#include "src/providers/uri_options.hpp"

#include <doctest/doctest.h>

using namespace kvlease;

namespace {

uri_options parsed(std::string_view after_colon) {
  const auto o = uri_options::parse("s", after_colon, {"bytes", "n", "on", "kind"});
  REQUIRE(o.has_value());
  return *o;
}

/// The one place for "names the scheme, the key, the value": `text` holds each of `words`.
void names(const std::string& text, std::initializer_list<const char*> words) {
  CAPTURE(text);
  for (const auto* w : words) CHECK(text.find(w) != std::string::npos);
}

}  // namespace

TEST_CASE("uri options: the place, and values as they stand") {
  const auto o = parsed("/a/b:c?bytes=4G&kind=x=y");
  CHECK(o.place() == "/a/b:c");
  CHECK(o.text("kind") == "x=y");
  CHECK(o.text("n", "7") == "7");
  CHECK(o.has("kind"));
  CHECK_FALSE(o.has("n"));
  CHECK(parsed("").place().empty());
  CHECK(parsed("?").place().empty());
}

TEST_CASE("uri options: numbers, sizes, flags and choices") {
  const auto o = parsed("?bytes=3K&n=12&on=off&kind=b");
  CHECK(o.byte_size("bytes", 1, 1) == std::uint64_t{3072});
  CHECK(parsed("?bytes=1T").byte_size("bytes", 1, 1) == std::uint64_t{1} << 40);
  CHECK(parsed("?bytes=77").byte_size("bytes", 1, 1) == std::uint64_t{77});
  CHECK(o.number("n", 1, 0, 12) == std::uint64_t{12});
  CHECK(o.number("absent", 5, 6, 7) == std::uint64_t{5});
  CHECK(o.flag("on", true) == false);
  CHECK(o.flag("absent", true) == true);
  CHECK(o.choice("kind", 0, {"a", "b"}) == std::size_t{1});
}

TEST_CASE("uri options: what is wrong is named, with the rule") {
  const auto refused = [](std::string_view text) {
    const auto o = uri_options::parse("s", text, {"bytes", "n"});
    REQUIRE_FALSE(o.has_value());
    CHECK(o.error().code == errc::invalid);
    return o.error().text;
  };
  names(refused("?bytes"), {"s:", "'bytes'", "key=value"});
  names(refused("?=1"), {"'=1'"});
  names(refused("?colour=red"), {"'colour'", "bytes, n"});
  names(refused("?n=1&n=2"), {"'n'", "twice"});
  for (const auto* bad : {"?bytes=", "?bytes=0", "?bytes=-1", "?bytes=4X", "?bytes=K", "?bytes=1.5G",
                          "?bytes=99999999999999999999", "?bytes=99999999999T"}) {
    CAPTURE(bad);
    const auto n = parsed(bad).byte_size("bytes", 1, 1);
    REQUIRE_FALSE(n.has_value());
    names(n.error().text, {"s:", "bytes is '", "at least 1"});
  }
  names(parsed("?n=13").number("n", 1, 0, 12).error().text, {"'13'", "from 0 to 12"});
  names(parsed("?on=yes").flag("on", true).error().text, {"'yes'", "off, on"});
  names(parsed("?kind=").choice("kind", 0, {"a", "b"}).error().text, {"''", "a, b"});
}
