#include "src/slot_map.hpp"

#include <algorithm>

namespace kvlease {

slot_map::slot_map(const std::vector<part>& parts) {
  for (const auto& p : parts) {
    cells_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(p.slots, 0)));
    counts_.push_back({.free = p.slots});
  }
}

std::int64_t& slot_map::count(std::size_t part, slot_state s) {
  auto& c = counts_.at(part);
  switch (s) {
    case slot_state::lent:
      return c.lent;
    case slot_state::awaiting_proof:
      return c.awaiting_proof;
    case slot_state::quarantined:
      return c.quarantined;
    case slot_state::free:
      break;
  }
  return c.free;
}

void slot_map::set(const std::vector<part_run>& runs, slot_state to, lease_id lease, time_point now) {
  for (const auto& run : runs)
    for (auto slot = run.slots.start; slot < run.slots.end(); ++slot) {
      auto& c = cells_.at(run.part).at(static_cast<std::size_t>(slot));
      --count(run.part, c.state);
      ++count(run.part, to);
      c = {to, lease, now};
    }
}

const slot_map::cell* slot_map::at(std::size_t part, std::int64_t slot) const {
  if (part >= cells_.size() || slot < 0 || static_cast<std::size_t>(slot) >= cells_[part].size())
    return nullptr;
  return &cells_[part][static_cast<std::size_t>(slot)];
}

std::string slot_map::text(std::size_t part, std::size_t most) const {
  const auto& cells = cells_.at(part);
  const auto run = std::max<std::size_t>((cells.size() + most - 1) / std::max<std::size_t>(most, 1), 1);
  const auto badness = [](slot_state s) { return std::string_view{".LAQ"}.find(static_cast<char>(s)); };
  std::string out;
  out.reserve(cells.size() / run + 1);
  for (std::size_t i = 0; i < cells.size(); i += run) {
    auto worst = slot_state::free;
    for (std::size_t k = i; k < std::min(i + run, cells.size()); ++k)
      if (badness(cells[k].state) > badness(worst)) worst = cells[k].state;
    out += static_cast<char>(worst);
  }
  return out;
}

}  // namespace kvlease
