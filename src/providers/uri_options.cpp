#include "src/providers/uri_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace kvlease {

namespace {

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string listed(std::initializer_list<std::string_view> words) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), ", "));
}

}  // namespace

result<uri_options> uri_options::parse(std::string_view scheme, std::string_view after_colon,
                                       std::initializer_list<std::string_view> known) {
  uri_options o;
  o.scheme_ = scheme;
  const auto question = after_colon.find('?');
  o.place_ = after_colon.substr(0, question);
  if (question == std::string_view::npos) return o;
  auto rest = after_colon.substr(question + 1);
  while (!rest.empty()) {
    const auto field = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    const auto equals = field.find('=');
    const auto key = field.substr(0, equals);
    if (equals == std::string_view::npos || key.empty())
      return fail(errc::invalid, fmt::format("{}: option '{}' must be key=value", scheme, field));
    if (std::ranges::find(known, key) == known.end())
      return fail(errc::invalid,
                  fmt::format("{}: no option is named '{}'; there is: {}", scheme, key, listed(known)));
    if (!o.values_.emplace(key, field.substr(equals + 1)).second)
      return fail(errc::invalid, fmt::format("{}: option '{}' is given twice", scheme, key));
  }
  return o;
}

std::string uri_options::text(std::string_view key, std::string_view otherwise) const {
  const auto it = values_.find(key);
  return it == values_.end() ? std::string{otherwise} : it->second;
}

result<std::uint64_t> uri_options::number(std::string_view key, std::uint64_t otherwise, std::uint64_t least,
                                          std::uint64_t most) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return otherwise;
  const auto n = whole_number(it->second);
  if (!n || *n < least || *n > most)
    return fail(errc::invalid, fmt::format("{}: {} is '{}', must be a whole number from {} to {}", scheme_,
                                           key, it->second, least, most));
  return *n;
}

result<std::uint64_t> uri_options::byte_size(std::string_view key, std::uint64_t otherwise,
                                             std::uint64_t least) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return otherwise;
  constexpr std::string_view units = "KMGT";
  std::string_view digits = it->second;
  std::uint64_t factor = 1;
  if (const auto unit = digits.empty() ? std::string_view::npos : units.find(digits.back());
      unit != std::string_view::npos) {
    factor <<= 10 * (unit + 1);
    digits.remove_suffix(1);
  }
  const auto n = whole_number(digits);
  if (!n || *n > std::numeric_limits<std::uint64_t>::max() / factor || *n * factor < least)
    return fail(errc::invalid,
                fmt::format("{}: {} is '{}', must be a whole number of at least {}, K, M, G or T may follow",
                            scheme_, key, it->second, least));
  return *n * factor;
}

result<bool> uri_options::flag(std::string_view key, bool otherwise) const {
  const auto index = choice(key, otherwise ? 1 : 0, {"off", "on"});
  if (!index) return tl::unexpected{index.error()};
  return *index == 1;
}

result<std::size_t> uri_options::choice(std::string_view key, std::size_t otherwise,
                                        std::initializer_list<std::string_view> choices) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return otherwise;
  const auto found = std::ranges::find(choices, std::string_view{it->second});
  if (found == choices.end())
    return fail(errc::invalid,
                fmt::format("{}: {} is '{}', must be one of: {}", scheme_, key, it->second, listed(choices)));
  return static_cast<std::size_t>(found - choices.begin());
}

}  // namespace kvlease
