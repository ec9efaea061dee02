#include "messages/contract.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace kvlease {

namespace {

/// Enumerators count from `first` and names stand in their order.
template <class Enum, std::size_t N>
std::string_view name_of(Enum e, const std::array<std::string_view, N>& names,
                         std::size_t first = 0) noexcept {
  const auto i = static_cast<std::size_t>(e) - first;  // one below `first` wraps to a large one
  return i < N ? names[i] : "?";
}

}  // namespace

std::string_view to_string(errc code) noexcept {
  static constexpr auto names =
      std::to_array<std::string_view>({"invalid", "type", "state", "unknown", "unsupported", "no_memory",
                                       "capacity", "timeout", "provider", "device", "io"});
  static_assert(names.size() == static_cast<std::size_t>(errc::io));
  return name_of(code, names, 1);
}

std::string to_string(const error& e) { return fmt::format("{}: {}", to_string(e.code), e.text); }

std::string name_text(const bytes& name) {
  std::string text = "'";
  for (const char c : name) fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned char>(c));
  return text + "'";
}

result<unit> unit::make(fields f) {
  if (f.local_group < 0)
    return fail(errc::invalid, fmt::format("negative local coordinate: local_group is {}, must be 0 or more",
                                           f.local_group));
  if (f.local < 0)
    return fail(errc::invalid,
                fmt::format("negative local coordinate: local is {}, must be 0 or more", f.local));
  return unit{std::move(f)};
}

result<cache_extent> cache_extent::make(bytes name, std::vector<unit> units, end_of_sequence is_last) {
  std::unordered_map<std::string_view, std::size_t> seen;
  seen.reserve(units.size());
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto [first, fresh] = seen.emplace(units[i].name(), i);
    if (!fresh)
      return fail(errc::invalid,
                  fmt::format("units {} and {} of an extent share a name, {}: names must be unique",
                              first->second, i, name_text(units[i].name())));
  }
  return cache_extent{std::move(name), std::move(units), is_last};
}

std::string to_string(const outcome& o) {
  if (const auto* d = std::get_if<delivered>(&o))
    return d->served().empty() ? "miss" : fmt::format("delivered({})", d->served().size());
  if (const auto* f = std::get_if<failed>(&o)) return fmt::format("failed({})", f->reason());
  return std::get<cancelled>(o).by_peer() ? "cancelled(peer)" : "cancelled(local)";
}

std::string_view to_string(access_state s) noexcept {
  static constexpr auto names = std::to_array<std::string_view>({"running", "ended", "unproven"});
  return name_of(s, names);
}

std::string_view to_string(proof_source s) noexcept {
  static constexpr auto names =
      std::to_array<std::string_view>({"terminal_status", "flush", "endpoint_closed", "registration_revoked",
                                       "peer_epoch_ended", "process_exit"});
  return name_of(s, names);
}

std::string_view to_string(cancel_disposition d) noexcept {
  static constexpr auto names = std::to_array<std::string_view>({"unsupported", "requested"});
  return name_of(d, names);
}

std::string_view to_string(direction d) noexcept {
  static constexpr auto names = std::to_array<std::string_view>({"fetch", "publish"});
  return name_of(d, names);
}

}  // namespace kvlease
