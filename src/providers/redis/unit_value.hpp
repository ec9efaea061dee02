// A unit as Redis holds it: its key, and its value, which is a frame (unit_frame.hpp) with the unit's bytes
// behind it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/providers/redis/resp.hpp"
#include "src/providers/unit_frame.hpp"

namespace kvlease::redis {

/// A server takes no longer string (its proto-max-bulk-len, when nobody changed it).
inline constexpr std::size_t value_limit = std::size_t{512} << 20;

/// prefix, size of the extent's name, ':', both names. Binary; the size keeps ("a", "bc") from ("ab", "c").
std::string unit_key(std::string_view prefix, const bytes& extent, const bytes& name);

/// What a value must be to be a unit's.
struct expected_unit {
  bytes extent;
  bytes name;
  std::size_t length = 0;  ///< bytes of the slot
  std::size_t frame() const noexcept { return frame_head + extent.size() + name.size(); }
};

/// Does `in` begin with the frame of this unit? Errors: invalid, with what it is instead. The length is not
/// looked at.
result<unit_frame> check_frame(std::span<const std::byte> in, const expected_unit& expected);

/// What came of reading one unit.
struct unit_answer {
  enum class kind : std::uint8_t {
    served,      ///< the slot holds exactly what was published
    absent,      ///< nothing has this key
    foreign,     ///< what has this key is no unit, or another; the slot was not touched
    other_size,  ///< the unit, but not of the slot's size; the slot was not touched
    damaged,     ///< the checksum differs; the slot was written
    unwanted,    ///< the slot was withdrawn before all was there
    error,       ///< the server's error reply
  };
  kind what = kind::absent;
  std::string text = {};     ///< of an error, or what is wrong
  std::uint64_t length = 0;  ///< of other_size
};

/// Reads the reply to GET straight into the slot: first the frame, and only behind a good one the bytes.
/// Whoever owns it gives the slot when it is asked for, and may withdraw it at any time.
class unit_reader {
 public:
  explicit unit_reader(expected_unit expected);

  /// How many bytes of `in` it took; it stops where it wants the slot, and leaves a line that is not all
  /// there. Errors: provider, for what is no reply to GET.
  result<std::size_t> feed(std::span<const std::byte> in);

  /// The frame was good: give() the slot. Nothing is read until then.
  bool wants_slot() const noexcept { return step_ == step::slot; }
  /// Of expected_unit::length bytes; empty when it may not be written any more.
  void give(std::span<std::byte> slot);
  /// Where the next bytes of the reply may be read to at once, around feed(); empty when they may not.
  std::span<std::byte> direct() const noexcept;
  /// So many bytes were read into the front of direct().
  void took(std::size_t bytes);
  /// Nothing of the slot is touched from now on; the rest of the reply is dropped.
  void withdraw() noexcept;

  bool done() const noexcept { return step_ == step::done; }
  /// Precondition: done().
  unit_answer& get() noexcept { return answer_; }

 private:
  enum class step : std::uint8_t { line, frame, slot, payload, drop, end, done };
  result<void> begin(const reply_line& line);
  void finish_frame();
  void advance_payload(std::span<const std::byte> fresh);

  const expected_unit expected_;
  step step_ = step::line;
  std::string frame_;            ///< what is there of it
  std::uint64_t remaining_ = 0;  ///< bytes of the string that were not taken yet
  std::uint64_t checksum_ = 0;   ///< that the frame promises
  std::span<std::byte> slot_;    ///< what is not written of it
  std::optional<checksum_stream> sum_;
  std::size_t end_seen_ = 0;
  bool withdrawn_ = false;
  unit_answer answer_;
};

}  // namespace kvlease::redis
