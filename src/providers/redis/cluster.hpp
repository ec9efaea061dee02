// Redis Cluster: which server holds a key. Pure.
// Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/providers/redis/options.hpp"
#include "src/providers/redis/resp.hpp"

namespace kvlease::redis {

inline constexpr std::size_t slot_count = 16384;

/// CRC-16/XMODEM.
std::uint16_t crc16(std::string_view data) noexcept;

/// The server's own rule: what stands between the first '{' and the first '}' behind it counts alone, unless
/// that is nothing. Names are binary, so both may be there by chance.
std::uint16_t key_slot(std::string_view key) noexcept;

class slot_map {
 public:
  /// What CLUSTER SLOTS answered. A server that names no host means itself: `asked`. Errors: provider, for
  /// what is no such reply or names a slot or a port out of range.
  static result<slot_map> from_reply(const value& reply, const endpoint& asked);
  /// The limits that such a reply is read with.
  static value_limits limits() noexcept;

  /// Null when nobody does.
  const endpoint* owner(std::uint16_t slot) const noexcept;
  /// What a MOVED says. Ignored past the last node that can be told apart.
  void move(std::uint16_t slot, const endpoint& to);
  const std::vector<endpoint>& nodes() const noexcept { return nodes_; }
  bool empty() const noexcept { return nodes_.empty(); }

 private:
  std::uint16_t index_of(const endpoint& e);

  std::vector<endpoint> nodes_;
  std::array<std::uint16_t, slot_count> owner_{};  ///< 1 + index into nodes_; 0: nobody
};

/// "MOVED 3999 127.0.0.1:6381" or "ASK ...": go there instead.
struct redirect {
  bool ask = false;  ///< for this command alone, behind ASKING
  std::uint16_t slot = 0;
  endpoint to;
  friend bool operator==(const redirect&, const redirect&) = default;
};
/// Empty for any other error text, and for one that names a slot or a port out of range.
std::optional<redirect> parse_redirect(std::string_view error_text, const endpoint& asked);

}  // namespace kvlease::redis
