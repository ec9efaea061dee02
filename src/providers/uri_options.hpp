// The options of a provider's URI: what follows '?' as key=value, joined by '&'.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "messages/error.hpp"

namespace kvlease {

/// "DIR?bytes=4G&durable=on" is the place "DIR" and two options. Errors are `invalid` and name the scheme,
/// the key, the value and the rule.
class uri_options {
 public:
  /// Errors: an option without '=', an empty key, a key twice, or a key that is not in `known`.
  static result<uri_options> parse(std::string_view scheme, std::string_view after_colon,
                                   std::initializer_list<std::string_view> known);

  /// What stands before '?'.
  const std::string& place() const noexcept { return place_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  /// As it stands; `otherwise` when not given.
  std::string text(std::string_view key, std::string_view otherwise = {}) const;
  /// A whole number from `least` to `most`.
  result<std::uint64_t> number(std::string_view key, std::uint64_t otherwise, std::uint64_t least,
                               std::uint64_t most) const;
  /// A whole number of bytes, at least `least`, with K, M, G or T for powers of 1,024 behind it or none.
  result<std::uint64_t> byte_size(std::string_view key, std::uint64_t otherwise, std::uint64_t least) const;
  /// "on" or "off".
  result<bool> flag(std::string_view key, bool otherwise) const;
  /// One of `choices`; the index into them.
  result<std::size_t> choice(std::string_view key, std::size_t otherwise,
                             std::initializer_list<std::string_view> choices) const;

 private:
  std::string scheme_;
  std::string place_;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace kvlease
