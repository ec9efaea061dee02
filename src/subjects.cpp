#include "src/subjects.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>

namespace kvlease {

namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  std::uint64_t n = 0;
  const auto* end = text.data() + text.size();
  const auto [at, problem] = std::from_chars(text.data(), end, n, base);
  if (text.empty() || problem != std::errc{} || at != end) return std::nullopt;
  return n;
}

/// What a person typed, fit for an error's text.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 64;
  return text.size() <= most ? std::string{text} : std::string{text.substr(0, most)} + "...";
}

}  // namespace

std::optional<std::uint64_t> parse_id(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return number(text);
  const auto runtime = number(text.substr(0, dot));
  const auto sequence = number(text.substr(dot + 1));
  const bool fits = runtime && sequence && *runtime < (std::uint64_t{1} << (64 - id_sequence_bits)) &&
                    *sequence < (std::uint64_t{1} << id_sequence_bits);
  if (!fits) return std::nullopt;
  return (*runtime << id_sequence_bits) | *sequence;
}

result<std::pair<std::size_t, std::int64_t>> parse_slot(std::string_view text,
                                                        const std::vector<part>& parts) {
  const auto slash = text.rfind('/');
  std::size_t p = 0;
  if (slash != std::string_view::npos) {
    const auto name = text.substr(0, slash);
    while (p < parts.size() && parts[p].name != name) ++p;
    if (p == parts.size()) return fail(errc::unknown, fmt::format("there is no part '{}'", shown(name)));
    text.remove_prefix(slash + 1);
  } else if (parts.size() != 1) {
    return fail(errc::invalid, fmt::format("slot '{}' names no part, and there are {}: say PART/INDEX",
                                           shown(text), parts.size()));
  }
  const auto slot = number(text);
  if (!slot) return fail(errc::invalid, fmt::format("'{}' is no slot: say PART/INDEX or INDEX", shown(text)));
  if (*slot >= static_cast<std::uint64_t>(parts[p].slots))
    return fail(errc::unknown, fmt::format("part {} has {} slots, there is no slot {}", parts[p].name,
                                           parts[p].slots, *slot));
  return std::pair{p, static_cast<std::int64_t>(*slot)};
}

result<std::pair<std::size_t, std::int64_t>> slot_of_address(std::string_view text,
                                                             const std::vector<part>& parts) {
  const auto address = number(text);
  if (!address)
    return fail(errc::invalid,
                fmt::format("'{}' is no address: say it in decimal or as 0x hex", shown(text)));
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto& in = parts[p];
    if (*address < in.address || *address - in.address >= static_cast<std::uint64_t>(in.nbytes)) continue;
    const auto slot =
        static_cast<std::int64_t>((*address - in.address) / static_cast<std::uint64_t>(in.slot_bytes));
    if (slot < in.slots) return std::pair{p, slot};
  }
  return fail(errc::unknown, fmt::format("address {:#x} is in no staging slot of this runtime", *address));
}

result<about_question> question_of(const subject& what, const std::vector<part>& parts) {
  about_question q;
  const auto id = parse_id(what.id);
  const auto needs_id = [&]() -> result<about_question> {
    return fail(errc::invalid,
                fmt::format("'{}' is no {}: ids are printed as 1.7", shown(what.id), to_string(what.kind)));
  };
  switch (what.kind) {
    case subject_kind::lease:
      if (!id) return needs_id();
      q.leases = {lease_id{*id}};
      return q;
    case subject_kind::operation:
      if (!id) return needs_id();
      q.operations = {operation_id{*id}};
      return q;
    case subject_kind::request:
      if (!id) return needs_id();
      q.request = request_id{*id};
      return q;
    case subject_kind::registration:
      q.registrations = true;
      return q;
    case subject_kind::slot:
    case subject_kind::address: {
      const auto slot =
          what.kind == subject_kind::slot ? parse_slot(what.id, parts) : slot_of_address(what.id, parts);
      if (!slot) return tl::unexpected{slot.error()};
      q.slot = *slot;
      return q;
    }
  }
  return needs_id();
}

}  // namespace kvlease
