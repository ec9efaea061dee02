// A journal on file: a header, then blocks of records with a checksum each. Written by a thread of its own
// that reads the ring; a process that dies leaves a tail that is cut off, which readers tolerate.
//
// header, 64 bytes: magic "KVLJRNL\n" | version u32 | record size u32 | incarnation u32 | 0 u32 |
//   wall clock of the start, ns since 1970, i64 | 0 x 24 | checksum u64 of what is before it
// block: magic u32 | count u32 | lost before it u64 | checksum u64 of count, lost and records | records
// All little-endian. Checksums are XXH3-64.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages/error.hpp"
#include "src/journal.hpp"

namespace kvlease {

inline constexpr std::uint32_t journal_file_version = 1;

/// Writes what comes into the ring until it is destroyed, and then the rest. It looks every 5 ms while
/// something comes, and ten times a second while nothing does.
class journal_file_writer {
 public:
  /// Makes the file anew. Errors: io, with the path and the system's reason.
  static result<std::unique_ptr<journal_file_writer>> open(std::shared_ptr<journal> from,
                                                           const std::string& path);
  ~journal_file_writer();
  journal_file_writer(const journal_file_writer&) = delete;
  journal_file_writer& operator=(const journal_file_writer&) = delete;

  /// Waits until what is in the ring now is in the file, at most two seconds. False when it is not by then.
  bool flush();

 private:
  struct body;
  explicit journal_file_writer(std::unique_ptr<body> b);
  std::unique_ptr<body> body_;
};

struct journal_on_file {
  incarnation runtime;
  std::chrono::system_clock::time_point started;
  std::vector<journal_record> records;
  std::uint64_t lost = 0;       ///< records that the writer missed
  std::uint64_t cut_bytes = 0;  ///< of a tail that was cut off or is damaged
};

/// `path`: a file or a pipe; "-" is standard input. Errors: io (it can't be opened or read), invalid (no
/// journal, another version, more than one journal, a damaged block, a record that is missing and not
/// counted): each names the first record that it costs, where that can be known.
result<journal_on_file> read_journal_file(const std::string& path);

}  // namespace kvlease
