// The index of a segment store: which unit lies where, which places are free, and which unit goes when one is
// needed. It is the only truth about what is visible; eviction changes it and nothing else. Pure: no I/O, no
// clock. Not thread-safe.
//
// A place is free, reserved (being written), visible (found by name), or gone (its unit was given up while
// somebody still reads it). It is reused only from free: so never while it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/providers/segment/eviction.hpp"
#include "src/providers/segment/layout.hpp"

namespace kvlease {

/// A unit as the index knows it.
struct stored_unit {
  disk_place place;
  std::uint64_t generation = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  /// Written by this process, or read and found right; else a recovered one, of which nothing is sure yet.
  bool verified = false;
};

struct unit_key {
  bytes extent;
  bytes name;
};

class segment_index {
 public:
  segment_index(segment_geometry geometry, eviction policy);

  // ---- Reading
  std::optional<stored_unit> find(const unit_key& key) const;
  /// As find(); the unit's place stays until release_reader(), whatever happens to the unit.
  std::optional<stored_unit> begin_read(const unit_key& key);
  /// `found_right`: name, length, generation and checksum were checked.
  void end_read(const stored_unit& unit, bool found_right);

  // ---- Writing
  enum class refusal : std::uint8_t {
    too_large,  ///< no segment has room for one such unit
    busy,       ///< every place is being read or written: later
    needs_eviction,
  };
  struct reservation {
    disk_place place;
    std::uint64_t generation = 0;
    std::uint64_t unit_bytes = 0;
    std::vector<std::pair<disk_place, std::uint64_t>> evicted;  ///< place and generation of who went
    std::optional<segment_head> head;  ///< to be written before anything else goes into this segment
  };
  /// A place for a unit of `length` bytes. Without `may_evict` only one that costs no unit.
  tl::expected<reservation, refusal> reserve(std::uint64_t length, bool may_evict);
  /// A reserved place that holds nothing.
  void cancel(disk_place place);
  enum class inserted : std::uint8_t { added, kept, other_size };
  /// The unit in a reserved place becomes visible; the place is free again unless `added`. A verified unit of
  /// the same name stays (`kept`, or `other_size`); one that is not is replaced.
  inserted insert(const unit_key& key, const stored_unit& unit);
  /// Gives a unit up, if it still is that writing of it.
  void remove(const unit_key& key, std::uint64_t generation);

  // ---- Recovery: adopt() for each used segment, then restore() and drop() in any number, then recovered().
  void adopt(const segment_head& head);
  /// A unit that may be there. Of two in one place or with one name the later generation stays. Ignores what
  /// fits no adopted segment.
  void restore(const unit_key& key, stored_unit unit);
  void drop(disk_place place, std::uint64_t generation);
  void recovered(std::uint64_t next_generation);

  // ---- Looking
  std::uint64_t units() const noexcept { return units_.size(); }
  std::uint64_t unit_bytes() const noexcept { return bytes_; }
  std::uint64_t evictions() const noexcept { return evictions_; }
  std::uint64_t last_generation() const noexcept { return generation_; }
  void each(const std::function<void(const unit_key&, const stored_unit&)>& f) const;
  /// Conservation: every slot is in one state, every unit in one visible slot. The first thing that is
  /// wrong, or empty.
  std::string check() const;

 private:
  enum class state : std::uint8_t { free, reserved, visible, gone };
  struct entry {
    unit_key key;
    stored_unit unit;
  };
  struct slot {
    state is = state::free;
    std::uint32_t readers = 0;
    entry* holds = nullptr;  ///< when visible
  };
  struct segment {
    segment_head head;  ///< unit_bytes 0: never used
    std::vector<slot> slots;
  };
  struct size_class {
    std::vector<disk_place> free;  ///< the next one last
    std::unique_ptr<eviction_policy> order;
    std::uint32_t segments = 0;
  };

  static std::string joined(const unit_key& key);
  slot& at(disk_place p) { return segments_[p.segment].slots[p.slot]; }
  size_class& class_of(disk_place p) { return classes_.at(segments_[p.segment].head.unit_bytes); }
  size_class& class_for(std::uint64_t unit_bytes);
  void make_free(disk_place p);
  void forget(entry& e);
  bool can_go(disk_place p) const;
  std::optional<std::uint32_t> segment_to_take() const;
  segment_head give(std::uint32_t segment, std::uint64_t unit_bytes);

  const segment_geometry geometry_;
  const eviction policy_;
  std::vector<segment> segments_;
  std::map<std::uint64_t, size_class> classes_;  ///< by unit_bytes
  std::unordered_map<std::string, entry> units_;
  std::uint64_t generation_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t evictions_ = 0;
};

}  // namespace kvlease
