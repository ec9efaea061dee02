#include "src/providers/ucx/source_walk.hpp"

#include <algorithm>
#include <map>

namespace kvlease {

std::vector<source_walk::question> source_walk::take_questions() {
  std::size_t open_at = sources_;  // the first source at which a unit is open
  std::map<std::size_t, std::vector<std::size_t>> waiting;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    auto& u = units_[i];
    if (u.now == stand::asked) open_at = std::min(open_at, u.source);
    if (u.now != stand::waiting) continue;
    if (u.source == sources_) {  // there is none at all
      next_source(u);
      continue;
    }
    waiting[u.source].push_back(i);
  }
  std::vector<question> now;
  if (waiting.empty() || waiting.begin()->first > open_at) return now;
  auto& [source, units] = *waiting.begin();
  for (const auto i : units) units_[i].now = stand::asked;
  now.push_back({source, std::move(units)});
  return now;
}

void source_walk::next_source(unit_state& u) {
  if (u.source < sources_) ++u.source;
  u.now = stand::waiting;
  if (u.source < sources_) return;
  u.now = stand::missed;
  ++settled_;
  if (failure_.empty()) failure_ = u.trouble;
}

void source_walk::served(std::size_t unit) {
  units_[unit].now = stand::served;
  ++settled_;
}

void source_walk::absent(std::size_t unit) { next_source(units_[unit]); }

void source_walk::lost(std::size_t unit, const std::string& why) {
  units_[unit].trouble = why;
  next_source(units_[unit]);
}

}  // namespace kvlease
