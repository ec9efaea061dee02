// The journal of a segment store: which units became visible, in order, and which were given up. From it the
// index is rebuilt without a look at every slot. Pure: bytes in, records out; the file is segment_files'.
//
// It only ever says what to look for: whatever it says, a unit is served only after its own header and
// checksum were found to agree. Damage or a cut costs units, or a scan of all headers, never a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "messages/contract.hpp"
#include "messages/error.hpp"
#include "src/providers/segment/layout.hpp"

namespace kvlease {

struct segment_record {
  bool added = true;  ///< else given up: then only place and generation count
  disk_place place;
  std::uint64_t generation = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  bytes extent;
  bytes name;
  friend bool operator==(const segment_record&, const segment_record&) = default;
};

/// What a journal begins with. `epoch`: how often the store was opened; generations begin with it.
void begin_segment_journal(std::uint64_t epoch, std::vector<std::byte>& out);
/// Precondition: the names fit a unit_frame.
void append_segment_record(const segment_record& record, std::vector<std::byte>& out);

struct segment_journal_reading {
  std::uint64_t epoch = 0;
  std::size_t good_bytes = 0;  ///< what was read of it before the first damage
  bool whole = false;          ///< all of it
};

/// Calls `each` for every record up to the first damaged one. Nothing is allocated from a length that was
/// not checked. Errors: invalid for what is no journal, another version, or one with a damaged beginning.
result<segment_journal_reading> read_segment_journal(std::span<const std::byte> in,
                                                     const std::function<void(const segment_record&)>& each);

}  // namespace kvlease
