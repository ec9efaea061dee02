// What every rejection must show: its class, and the word that its scenario row promises.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "messages/error.hpp"

namespace kvlease::test {

template <class T>
void check_refused(const result<T>& r, errc code, std::string_view keyword) {
  REQUIRE_FALSE(r.has_value());
  const std::string text = to_string(r.error());
  CAPTURE(text);
  CAPTURE(std::string{keyword});
  CHECK(r.error().code == code);
  CHECK(text.find(keyword) != std::string::npos);
}

}  // namespace kvlease::test
