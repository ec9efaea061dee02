// What a link carries: one command, and who takes its reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "src/providers/redis/resp.hpp"
#include "src/providers/redis/unit_value.hpp"

namespace kvlease::redis {

class link;

/// A command's bytes: `head`, then `payload` from where it lies, then `tail`.
struct outgoing {
  std::string head = {};
  std::span<const std::byte> payload = {};
  std::string tail = {};
  std::size_t preludes = 0;  ///< replies of +OK that come first (ASKING)
  std::size_t size() const noexcept { return head.size() + payload.size() + tail.size(); }
};

/// How the reply is read.
using expectation = std::variant<value_limits, expected_unit>;
using reply = std::variant<value, unit_answer>;

/// Threads: wanted() on any, the rest on the thread of the link that carries it. A link that took a command
/// ends with exactly one call of replied() or dropped(), at which it has let go of the payload and the slot.
class command {
 public:
  virtual ~command() = default;
  /// False once nobody waits for the reply: the link lets go as soon as it is told to look (link::sweep).
  virtual bool wanted() const noexcept = 0;
  /// Called once, right before the first byte is written. The payload is read from then on.
  virtual outgoing encode() = 0;
  virtual expectation expects() const = 0;
  /// Where a unit's bytes go: written from now on. Empty when they may not.
  virtual std::span<std::byte> slot() { return {}; }
  /// May hand itself to another link.
  virtual void replied(reply r, link& on) = 0;
  /// No reply will come, or nobody waits for it.
  virtual void dropped(const std::string& why) = 0;
  /// Where the key lies in a cluster.
  virtual std::uint16_t key_slot() const noexcept { return 0; }
};

}  // namespace kvlease::redis
