// The files of a segment store and the calls on them: segment.0000, segment.0001, ..., journal and lock in
// one directory. It knows sizes and file descriptors, not what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "messages/error.hpp"
#include "src/providers/segment/layout.hpp"

namespace kvlease {

/// Closes by itself.
class file_handle {
 public:
  file_handle() = default;
  explicit file_handle(int number) : number_{number} {}
  file_handle(file_handle&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  file_handle& operator=(file_handle&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~file_handle();
  int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// Threads: any, but calls on the journal one at a time.
class segment_files {
 public:
  /// Makes the directory where it is missing (its parent must be there), becomes its only owner, and sees to
  /// it that segments of `segment_bytes` (0: as it was made, or by a rule: bytes/8, but 1 GiB at most until
  /// there are 256) with `total` bytes together are there, allocated on disk. Segments beyond `total` are
  /// removed. Without `direct`, or where the file system refuses it, transfers go through the page cache.
  ///
  /// Errors: state when another process, or another store of this one, holds the directory (its pid is
  /// named); invalid when it was made with other segments; io with the system's reason, also where the disk
  /// has not enough room: what was made for it is removed then.
  static result<std::unique_ptr<segment_files>> open(const std::string& directory, std::uint64_t total,
                                                     std::uint64_t segment_bytes, bool direct = true);

  const segment_geometry& geometry() const noexcept { return geometry_; }
  const std::string& directory() const noexcept { return directory_; }
  int file(std::uint32_t segment) const { return segments_[segment].number(); }
  /// Transfers bypass the page cache, and must be aligned to disk_block.
  bool direct() const noexcept { return direct_; }
  /// Why not.
  const std::string& buffered_because() const noexcept { return buffered_because_; }

  /// One disk_block of a segment.
  result<void> read_block(std::uint32_t segment, std::uint64_t offset, std::span<std::byte> out) const;
  result<void> write_block(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> in) const;
  result<void> sync(std::uint32_t segment) const;

  /// The whole journal; empty when there is none.
  result<std::vector<std::byte>> read_journal() const;
  /// Replaces the journal, durably: afterwards there is either the old one or the new one.
  result<void> replace_journal(std::span<const std::byte> all);
  /// After a failure the journal ends where it ended before.
  result<void> append_journal(std::span<const std::byte> records);
  result<void> sync_journal() const;
  std::uint64_t journal_bytes() const noexcept { return journal_bytes_; }

 private:
  segment_files() = default;
  result<void> lock();
  result<void> open_segments(std::uint64_t total, std::uint64_t segment_bytes);
  result<void> open_segment(const std::string& path, bool& made);
  void probe_direct();
  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
  segment_geometry geometry_;
  file_handle lock_, journal_;
  std::vector<file_handle> segments_;
  bool direct_ = true;
  std::string buffered_because_;
  std::uint64_t journal_bytes_ = 0;
};

}  // namespace kvlease
