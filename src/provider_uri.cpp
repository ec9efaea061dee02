#include "src/include/kvlease/provider_uri.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "src/memory_provider.hpp"

namespace kvlease {

namespace {

/// memory:[?bytes=N&background=on|off], an in-process store of N bytes (1 GiB when not given).
result<provider_factory> open_memory(std::string_view rest) {
  std::size_t capacity = std::size_t{1} << 30;
  memory_options options;
  if (!rest.empty() && rest.front() != '?')
    return fail(errc::invalid, fmt::format("memory:{}: nothing but ?key=value may follow the colon", rest));
  rest.remove_prefix(rest.empty() ? 0 : 1);
  while (!rest.empty()) {
    const auto field = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    const auto equals = field.find('=');
    const auto key = field.substr(0, equals);
    const auto value = equals == std::string_view::npos ? std::string_view{} : field.substr(equals + 1);
    if (key == "bytes") {
      const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), capacity);
      if (problem != std::errc{} || end != value.data() + value.size() || capacity < 1)
        return fail(errc::invalid,
                    fmt::format("memory: bytes is '{}', must be a whole number of at least 1", value));
    } else if (key == "background" && (value == "on" || value == "off")) {
      options.background = value == "on";
    } else {
      return fail(errc::invalid,
                  fmt::format("memory: '{}' is neither bytes=N nor background=on or off", field));
    }
  }
  return provider_factory{
      [store = std::make_shared<memory_store>(capacity), options](const provider_context& c) {
        return std::make_shared<memory_provider>(store, c, options);
      }};
}

constexpr provider_entry entries[] = {{"memory", "memory:[?bytes=N&background=on|off]", open_memory}};

}  // namespace

std::span<const provider_entry> provider_entries() noexcept { return entries; }

result<provider_factory> provider_from_uri(std::string_view uri) {
  const auto colon = uri.find(':');
  const auto scheme = uri.substr(0, colon);
  std::string known;
  for (const auto& e : entries) {
    if (colon != std::string_view::npos && e.scheme == scheme) return e.open(uri.substr(colon + 1));
    known += fmt::format("{}{}", known.empty() ? "" : ", ", e.form);
  }
  return fail(errc::invalid, fmt::format("'{}' names no provider; there is: {}", uri, known));
}

}  // namespace kvlease
