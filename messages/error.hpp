// Errors as values. Every expected failure of kvlease is an `error`: a code that says which class of
// rule was broken, and a text that names the thing, its value and the rule.
// Exceptions stop at the provider port; see src/include/kvlease/provider.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace kvlease {

/// The classes of rejection. The order is part of the C ABI: append only.
enum class errc : std::uint8_t {
  invalid = 1,  ///< a value that the rule excludes (range, geometry, duplicate)
  type,         ///< a value of the wrong kind, where C++'s types could not exclude it
  state,        ///< a valid call at the wrong time
  unknown,      ///< an id, name or ticket that is not known here
  unsupported,  ///< the component cannot do this
  no_memory,    ///< pages, staging or host memory exhausted
  capacity,     ///< a bound of semantics 7.7 is reached
  timeout,      ///< no answer in time
  provider,     ///< the provider failed
  device,       ///< the device failed
  io,           ///< a file could not be read or written
};

/// Stable lower-case name of a code, e.g. "invalid".
std::string_view to_string(errc code) noexcept;

/// What went wrong, for a program (`code`) and for a person (`text`).
struct error {
  errc code = errc::invalid;
  std::string text;

  friend bool operator==(const error&, const error&) = default;
};

/// "invalid: negative local coordinate: local_group is -1, must be 0 or more"
std::string to_string(const error& e);

template <class T>
using result = tl::expected<T, error>;

/// Shorthand for `return fail(errc::invalid, "...")` from a function that returns a `result`.
inline tl::unexpected<error> fail(errc code, std::string text) {
  return tl::unexpected<error>{error{code, std::move(text)}};
}

}  // namespace kvlease
