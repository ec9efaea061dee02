// A segment store: units on a local disk, found again after a restart. The shell around segment_index,
// segment_journal and segment_layout: it holds the directory, runs the transfers (segment_engine), and makes
// visible what was written (segment_committer).
//
// Shared by the providers of one factory, and kept by every operation that is on its way: it goes, with its
// engine and its lock, when the last transfer that it has begun has completed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/providers/segment/buffers.hpp"
#include "src/providers/segment/committer.hpp"
#include "src/providers/segment/engine.hpp"
#include "src/providers/segment/files.hpp"
#include "src/providers/segment/index.hpp"
#include "src/providers/segment/options.hpp"

namespace kvlease {

/// Thread-safe.
class segment_store : public std::enable_shared_from_this<segment_store> {
 public:
  /// `engine`: instead of what the options choose. Errors: as segment_files::open; unsupported for
  /// engine=uring where the kernel refuses it.
  static result<std::shared_ptr<segment_store>> open(const segment_options& options,
                                                     std::unique_ptr<disk_engine> engine = {});
  segment_store(const segment_store&) = delete;
  segment_store& operator=(const segment_store&) = delete;

  std::string describe() const;
  const segment_files& files() const noexcept { return *files_; }
  buffer_pool& buffers() noexcept { return buffers_; }
  disk_engine& engine() noexcept { return *engine_; }

  /// Room for `units` in the queue, until the ticket is gone; null when there is not enough.
  std::shared_ptr<void> admit(std::size_t units);

  std::optional<stored_unit> find(const unit_key& key) const;
  /// The unit's bytes stay where they are until end_read().
  std::optional<stored_unit> begin_read(const unit_key& key);
  void end_read(const stored_unit& unit, bool found_right);
  /// A unit that was found damaged.
  void remove(const unit_key& key, const stored_unit& unit);

  /// Finds a place for the unit and answers with it; or answers with nothing, and then the unit hears of it
  /// later, by placed() and a new submission to the engine, or by settled() and tell(). Errors: capacity,
  /// when no segment could hold it; io, when the store can take no unit any more.
  result<std::optional<segment_index::reservation>> place(const std::shared_ptr<incoming_unit>& unit);
  /// A place that holds nothing.
  void cancel(disk_place place);
  /// The unit has been written: makes it visible, and tells it.
  void commit(std::shared_ptr<incoming_unit> unit) { committer_.add_written(std::move(unit)); }

  struct figures {
    std::uint64_t units = 0, unit_bytes = 0, evictions = 0, journal_bytes = 0;
    bool recovered_by_scan = false;
    std::size_t queued = 0;
  };
  figures look() const;
  /// segment_index::check().
  std::string check() const;

 private:
  friend class segment_committer;
  segment_store(segment_options options, std::unique_ptr<segment_files> files);
  result<void> recover();
  void scan(const segment_head& head);
  result<void> rewrite_journal();

  using unit_list = std::vector<std::shared_ptr<incoming_unit>>;
  /// On the committer's thread: makes `written` visible and finds places for `waiting`; leaves in each what
  /// must come again. Answers whom to tell.
  unit_list round(unit_list& written, unit_list& waiting);
  struct placing {
    std::shared_ptr<incoming_unit> unit;
    segment_index::reservation at;
  };
  std::vector<placing> find_places(unit_list& waiting, unit_list& settled);
  result<void> persist(const unit_list& written, const std::vector<placing>& placed);
  tl::expected<segment_index::reservation, error> reserve_locked(std::uint64_t length, bool may_evict,
                                                                 bool& later);

  const segment_options options_;
  const std::unique_ptr<segment_files> files_;
  std::string engine_because_;
  std::atomic<std::size_t> queued_{0};
  bool scanned_ = false;
  std::uint64_t epoch_ = 0;
  std::uint64_t journal_bound_ = 0;  ///< the committer's, from recover() on

  mutable std::mutex mutex_;  ///< guards what follows
  segment_index index_;
  std::optional<error> broken_;  ///< why nothing can be published any more

  buffer_pool buffers_;
  std::unique_ptr<disk_engine> engine_;
  segment_committer committer_;
};

}  // namespace kvlease
