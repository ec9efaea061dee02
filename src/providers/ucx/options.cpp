#include "src/providers/ucx/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "src/providers/uri_options.hpp"

namespace kvlease {

namespace {

constexpr std::string_view self = "self";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const auto first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

result<void> add_peer(ucx_options& o, std::string_view text, std::string_view what) {
  if (text == self) {
    o.ask_self = true;
    return {};
  }
  auto peer = parse_host_port(text, what);
  if (!peer) return tl::unexpected{peer.error()};
  if (std::ranges::find(o.peers, *peer) == o.peers.end()) o.peers.push_back(*std::move(peer));
  return {};
}

result<void> add_listed(ucx_options& o, std::string_view list) {
  while (!list.empty()) {
    const auto one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    if (const auto ok = add_peer(o, one, "ucx: peers"); !ok) return ok;
  }
  return {};
}

/// One peer a line; "#" begins a comment.
result<void> add_file(ucx_options& o, const std::string& path) {
  std::ifstream in{path};
  if (!in) return fail(errc::io, fmt::format("ucx: peers_file '{}': {}", path, std::strerror(errno)));
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const auto text = trimmed(std::string_view{line}.substr(0, line.find('#')));
    if (text.empty()) continue;
    if (const auto ok = add_peer(o, text, fmt::format("ucx: peers_file '{}', line {}", path, number)); !ok)
      return ok;
  }
  return {};
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// UCX takes a list; a character outside it would be a second setting or a format of its own.
result<std::string> word_list(const uri_options& from, std::string_view key, std::string_view otherwise) {
  auto text = from.text(key, otherwise);
  const auto fits = [](unsigned char c) { return std::isalnum(c) || std::strchr(",_-.:^/", c) != nullptr; };
  if (text.empty() || !std::ranges::all_of(text, fits))
    return fail(errc::invalid, fmt::format("ucx: {} is '{}', must be names joined by ','", key, text));
  return text;
}

}  // namespace

result<host_port> parse_host_port(std::string_view text, std::string_view what, std::uint16_t least_port) {
  const auto bad = [&](std::string_view why) {
    return fail(errc::invalid, fmt::format("{}: '{}' {}; it must be HOST:PORT", what, text, why));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("has no port");
  auto host = text.substr(0, colon);
  const auto digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad("has a colon in its host, which needs brackets");
  const auto fits = [](unsigned char c) { return std::isalnum(c) || std::strchr(".-_:%", c) != nullptr; };
  if (host.empty() || host.size() > 253 || !std::ranges::all_of(host, fits)) return bad("has no host's name");
  std::uint16_t port = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (problem != std::errc{} || end != digits.data() + digits.size() || port < least_port)
    return bad(fmt::format("has a port that is not a number from {} to 65535", least_port));
  return host_port{std::string{host}, port};
}

std::string to_string(const host_port& a) {
  return a.host.find(':') == std::string::npos ? fmt::format("{}:{}", a.host, a.port)
                                               : fmt::format("[{}]:{}", a.host, a.port);
}

result<ucx_options> parse_ucx_options(std::string_view after_colon) {
  const auto given = uri_options::parse("ucx", after_colon,
                                        {"peers", "peers_file", "bytes", "tls", "net_device", "segment",
                                         "spin", "window", "connections", "probe_timeout", "force_close"});
  if (!given) return tl::unexpected{given.error()};
  std::string_view place = given->place();
  if (!place.starts_with("//"))
    return fail(errc::invalid, fmt::format("ucx:{}: '//HOST:PORT' must follow the colon", after_colon));
  place.remove_prefix(2);
  ucx_options o;
  auto listen = parse_host_port(place, "ucx", 0);
  if (!listen) return tl::unexpected{listen.error()};
  o.listen = *std::move(listen);
  if (const auto ok = add_listed(o, given->text("peers")); !ok) return tl::unexpected{ok.error()};
  if (given->has("peers_file"))
    if (const auto ok = add_file(o, given->text("peers_file")); !ok) return tl::unexpected{ok.error()};

  const auto words = [&](std::string& into, std::string_view key,
                         std::string_view otherwise) -> result<void> {
    auto text = word_list(*given, key, otherwise);
    if (!text) return tl::unexpected{text.error()};
    into = *std::move(text);
    return {};
  };
  const auto number = [&](std::uint64_t& into, std::string_view key, std::uint64_t otherwise,
                          std::uint64_t least, std::uint64_t most) -> result<void> {
    const auto n = given->number(key, otherwise, least, most);
    if (!n) return tl::unexpected{n.error()};
    into = *n;
    return {};
  };
  const auto size = [&](std::uint64_t& into, std::string_view key, std::uint64_t otherwise,
                        std::uint64_t least, std::uint64_t most) -> result<void> {
    const auto n = given->byte_size(key, otherwise, least);
    if (!n) return tl::unexpected{n.error()};
    if (*n > most)
      return fail(errc::invalid, fmt::format("ucx: {} is {}, must be at most {}", key, *n, most));
    into = *n;
    return {};
  };
  constexpr auto any = ~std::uint64_t{0};
  result<void> ok;
  if (!(ok = words(o.tls, "tls", "tcp"))) return tl::unexpected{ok.error()};
  if (!(ok = words(o.net_device, "net_device", is_loopback(o.listen.host) ? "lo" : "all")))
    return tl::unexpected{ok.error()};
  if (!(ok = size(o.pool_bytes, "bytes", std::uint64_t{1} << 30, 1, any))) return tl::unexpected{ok.error()};
  if (!(ok = size(o.segment_bytes, "segment", std::uint64_t{256} << 10, std::uint64_t{16} << 10,
                  std::uint64_t{16} << 20)))
    return tl::unexpected{ok.error()};
  if (!(ok = number(o.spin_us, "spin", 20, 0, 100'000))) return tl::unexpected{ok.error()};
  if (!(ok = number(o.window, "window", 16, 1, 4096))) return tl::unexpected{ok.error()};
  if (!(ok = number(o.connections, "connections", 256, 1, 65536))) return tl::unexpected{ok.error()};
  if (!(ok = number(o.probe_timeout_ms, "probe_timeout", 1000, 1, 60'000))) return tl::unexpected{ok.error()};
  const auto force = given->flag("force_close", false);
  if (!force) return tl::unexpected{force.error()};
  o.force_close = *force;
  return o;
}

}  // namespace kvlease
