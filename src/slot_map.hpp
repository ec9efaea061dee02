// Who has each staging slot now: kept up by the lender as slots move, so that a slot or an address can be
// looked up, and a pool shown, without walking the leases. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/ids.hpp"
#include "messages/retirement.hpp"
#include "src/lending.hpp"

namespace kvlease {

/// As pool_line::map has it.
enum class slot_state : char { free = '.', lent = 'L', awaiting_proof = 'A', quarantined = 'Q' };

class slot_map {
 public:
  struct cell {
    slot_state state = slot_state::free;
    lease_id lease;
    std::optional<time_point> since;  ///< when it came into this state; none: it never left it
  };
  struct counts {
    std::int64_t free = 0, lent = 0, awaiting_proof = 0, quarantined = 0;
  };
  explicit slot_map(const std::vector<part>& parts);

  void set(const std::vector<part_run>& runs, slot_state to, lease_id lease, time_point now);
  /// Null for a slot that there is not.
  const cell* at(std::size_t part, std::int64_t slot) const;
  const counts& of(std::size_t part) const { return counts_.at(part); }
  std::size_t parts() const noexcept { return cells_.size(); }
  /// A character a slot; in a pool of more than `most` each stands for a run, and shows the worst of them.
  std::string text(std::size_t part, std::size_t most = 65'536) const;

 private:
  std::int64_t& count(std::size_t part, slot_state s);
  std::vector<std::vector<cell>> cells_;
  std::vector<counts> counts_;
};

}  // namespace kvlease
