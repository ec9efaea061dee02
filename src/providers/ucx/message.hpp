// What UCX peers say to each other, as bytes: a question (which units, how long) and its replies. Whoever can
// reach the port may send anything, so every count and size is checked before a byte is allocated from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/providers/unit_frame.hpp"

namespace kvlease {

/// Active-message ids on the wire.
inline constexpr unsigned ucx_question_id = 1;
inline constexpr unsigned ucx_reply_id = 2;

/// Bounds of one question; a longer list of units is asked for in several.
inline constexpr std::size_t ucx_question_units = 1024;
inline constexpr std::size_t ucx_question_bytes = std::size_t{256} << 10;

enum class ucx_ask : std::uint16_t { fetch = 1, probe = 2 };

struct ucx_wanted {
  bytes name;
  std::uint64_t length = 0;  ///< of the slot that waits for it; 0 in a probe
  friend bool operator==(const ucx_wanted&, const ucx_wanted&) = default;
};

/// Encoded, little-endian, as the data of one message: magic 4 | version 2 | ask 2 | id 8 | units 4 | size of
/// the extent's name 4 | that name | for each unit: length 8 | size of its name 4 | name. A probe needs no
/// unit.
struct ucx_question {
  ucx_ask ask = ucx_ask::fetch;
  std::uint64_t id = 0;  ///< the asker's own
  bytes extent;
  std::vector<ucx_wanted> units;
  friend bool operator==(const ucx_question&, const ucx_question&) = default;
};

/// Bytes that a unit of this name takes in a question.
std::size_t ucx_question_room(std::string_view name) noexcept;
/// Bytes before the first unit.
std::size_t ucx_question_head(std::string_view extent) noexcept;

/// Errors: invalid for more units, bytes or longer names than the bounds.
result<std::vector<std::byte>> encode_question(const ucx_question& q);
/// Errors: invalid, with what is wrong.
result<ucx_question> decode_question(std::span<const std::byte> in);

enum class ucx_verdict : std::uint16_t {
  served = 1,  ///< the unit's bytes are the message's data; the header carries their frame
  absent = 2,
  other_size = 3,  ///< it is here with `length` bytes, which is not what was asked for
  probed = 4,      ///< of a probe: which units are here
};

/// Encoded as the header of one message: magic 4 | version 2 | verdict 2 | id 8 | unit 4 | size of the rest 4
/// | length 8 | rest. The rest is the unit_frame of what is served, or one byte (0 or 1) a unit of a probe.
struct ucx_reply {
  ucx_verdict verdict = ucx_verdict::absent;
  std::uint64_t id = 0;      ///< of the question
  std::uint32_t unit = 0;    ///< index into it; 0 for probed
  std::uint64_t length = 0;  ///< of the unit; 0 for absent and probed
  unit_frame frame;          ///< of served; its length is `length`
  std::vector<bool> here;    ///< of probed
  friend bool operator==(const ucx_reply&, const ucx_reply&) = default;
};

/// Bytes of the longest header.
inline constexpr std::size_t ucx_reply_bytes = 32 + frame_head + frame_names;

/// Errors: invalid when its names or its probe are too long.
result<std::vector<std::byte>> encode_reply(const ucx_reply& r);
/// `data_length`: bytes of data that came, or are to come, with the header; only a served unit has any,
/// exactly its length. Errors: invalid, with what is wrong.
result<ucx_reply> decode_reply(std::span<const std::byte> header, std::uint64_t data_length);

}  // namespace kvlease
