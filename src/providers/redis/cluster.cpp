#include "src/providers/redis/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace kvlease::redis {

namespace {

constexpr std::array<std::uint16_t, 256> make_crc_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned byte = 0; byte < table.size(); ++byte) {
    unsigned crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ ((crc & 0x8000u) != 0 ? 0x1021u : 0u);
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}
constexpr auto crc_table = make_crc_table();

std::optional<std::uint16_t> number_below(std::string_view text, unsigned bound) {
  unsigned n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || problem != std::errc{} || end != text.data() + text.size() || n >= bound)
    return std::nullopt;
  return static_cast<std::uint16_t>(n);
}

bool is_integer(const value& v, std::int64_t least, std::int64_t most) {
  return v.what == value::kind::integer && v.number >= least && v.number <= most;
}

/// [host or nothing, port, ...]
std::optional<endpoint> node_of(const value& v, const endpoint& asked) {
  if (v.what != value::kind::array || v.items.size() < 2) return std::nullopt;
  const auto& host = v.items[0];
  if (host.what != value::kind::bulk && host.what != value::kind::nil) return std::nullopt;
  if (!is_integer(v.items[1], 1, 65535)) return std::nullopt;
  const bool itself = host.text.empty() || host.text == "?";
  return endpoint{itself ? asked.host : host.text, static_cast<std::uint16_t>(v.items[1].number)};
}

}  // namespace

std::uint16_t crc16(std::string_view data) noexcept {
  unsigned crc = 0;
  for (const char c : data)
    crc = ((crc << 8) ^ crc_table[((crc >> 8) ^ static_cast<unsigned char>(c)) & 0xff]) & 0xffff;
  return static_cast<std::uint16_t>(crc);
}

std::uint16_t key_slot(std::string_view key) noexcept {
  if (const auto open = key.find('{'); open != std::string_view::npos) {
    const auto close = key.find('}', open + 1);
    if (close != std::string_view::npos && close != open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return crc16(key) % slot_count;
}

value_limits slot_map::limits() noexcept {
  // Each slot a range of its own would be 16,384 ranges; a few hundred are many already.
  return {.bulk = 1024, .text = std::size_t{4} << 20, .items = std::size_t{1} << 18, .depth = 5};
}

result<slot_map> slot_map::from_reply(const value& reply, const endpoint& asked) {
  const auto bad = [](std::string_view why) {
    return fail(errc::provider, fmt::format("the answer to CLUSTER SLOTS is none: {}", why));
  };
  if (reply.what == value::kind::error) return bad(reply.text);
  if (reply.what != value::kind::array) return bad("not a list");
  slot_map map;
  for (const auto& range : reply.items) {
    if (range.what != value::kind::array || range.items.size() < 3) return bad("a range that is none");
    const auto& first = range.items[0];
    const auto& last = range.items[1];
    if (!is_integer(first, 0, slot_count - 1) || !is_integer(last, first.number, slot_count - 1))
      return bad("slots out of range");
    const auto node = node_of(range.items[2], asked);
    if (!node) return bad("a server that is none");
    const auto index = map.index_of(*node);
    for (auto slot = first.number; slot <= last.number; ++slot)
      map.owner_[static_cast<std::size_t>(slot)] = index;
  }
  return map;
}

const endpoint* slot_map::owner(std::uint16_t slot) const noexcept {
  const auto index = slot < slot_count ? owner_[slot] : 0;
  return index == 0 ? nullptr : &nodes_[index - 1u];
}

void slot_map::move(std::uint16_t slot, const endpoint& to) {
  if (slot < slot_count && nodes_.size() < slot_count) owner_[slot] = index_of(to);
}

std::uint16_t slot_map::index_of(const endpoint& e) {
  auto at = std::ranges::find(nodes_, e);
  if (at == nodes_.end()) at = nodes_.insert(at, e);
  return static_cast<std::uint16_t>(at - nodes_.begin() + 1);
}

std::optional<redirect> parse_redirect(std::string_view text, const endpoint& asked) {
  redirect r;
  if (text.starts_with("ASK ")) {
    r.ask = true;
    text.remove_prefix(4);
  } else if (text.starts_with("MOVED ")) {
    text.remove_prefix(6);
  } else {
    return std::nullopt;
  }
  const auto space = text.find(' ');
  const auto colon = text.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space)
    return std::nullopt;
  const auto slot = number_below(text.substr(0, space), slot_count);
  const auto port = number_below(text.substr(colon + 1), 65536);
  const auto host = text.substr(space + 1, colon - space - 1);
  if (!slot || !port || *port == 0) return std::nullopt;
  r.slot = *slot;
  r.to = {host.empty() || host == "?" ? asked.host : std::string{host}, *port};
  return r;
}

}  // namespace kvlease::redis
