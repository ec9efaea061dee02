#include "src/providers/segment/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "src/providers/unit_frame.hpp"

namespace kvlease {

namespace {

place_id id_of(disk_place p) { return (place_id{p.segment} << 32) | p.slot; }
disk_place place_of(place_id id) {
  return {static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)};
}

}  // namespace

segment_index::segment_index(segment_geometry geometry, eviction policy)
    : geometry_{geometry}, policy_{policy}, segments_(geometry.segments) {}

std::string segment_index::joined(const unit_key& key) {
  std::string all;
  const auto size = static_cast<std::uint32_t>(key.extent.size());
  all.reserve(sizeof size + key.extent.size() + key.name.size());
  all.append(reinterpret_cast<const char*>(&size), sizeof size);
  return all.append(key.extent).append(key.name);
}

segment_index::size_class& segment_index::class_for(std::uint64_t unit_bytes) {
  auto& c = classes_[unit_bytes];
  if (!c.order) c.order = make_eviction(policy_);
  return c;
}

// ---- Reading ---------------------------------------------------------------------------------------------

std::optional<stored_unit> segment_index::find(const unit_key& key) const {
  const auto it = units_.find(joined(key));
  return it == units_.end() ? std::nullopt : std::optional{it->second.unit};
}

std::optional<stored_unit> segment_index::begin_read(const unit_key& key) {
  const auto it = units_.find(joined(key));
  if (it == units_.end()) return std::nullopt;
  const auto& unit = it->second.unit;
  ++at(unit.place).readers;
  class_of(unit.place).order->used(id_of(unit.place));
  return unit;
}

void segment_index::end_read(const stored_unit& unit, bool found_right) {
  auto& s = at(unit.place);
  assert(s.readers > 0);
  --s.readers;
  if (s.is == state::gone && s.readers == 0) make_free(unit.place);
  if (s.is == state::visible && s.holds->unit.generation == unit.generation)
    s.holds->unit.verified |= found_right;
}

// ---- Writing ---------------------------------------------------------------------------------------------

bool segment_index::can_go(disk_place p) const {
  const auto& s = segments_[p.segment].slots[p.slot];
  return s.is == state::visible && s.readers == 0;
}

tl::expected<segment_index::reservation, segment_index::refusal> segment_index::reserve(std::uint64_t length,
                                                                                        bool may_evict) {
  const auto unit_bytes = unit_bytes_for(length);
  if (geometry_.slots(unit_bytes) == 0) return tl::unexpected{refusal::too_large};
  auto& c = class_for(unit_bytes);
  reservation r;
  r.unit_bytes = unit_bytes;
  if (c.free.empty()) {
    const auto unused =
        std::ranges::find_if(segments_, [](const segment& s) { return s.head.unit_bytes == 0; });
    if (unused != segments_.end()) {
      r.head = give(static_cast<std::uint32_t>(unused - segments_.begin()), unit_bytes);
    } else if (!may_evict) {
      return tl::unexpected{refusal::needs_eviction};
    } else if (const auto id = c.order->victim([this](place_id p) { return can_go(place_of(p)); })) {
      auto& e = *at(place_of(*id)).holds;
      r.evicted.emplace_back(e.unit.place, e.unit.generation);
      forget(e);
      ++evictions_;
    } else if (const auto other = c.segments == 0 ? segment_to_take() : std::nullopt) {
      for (const auto& s : segments_[*other].slots)
        if (s.is == state::visible) {
          r.evicted.emplace_back(s.holds->unit.place, s.holds->unit.generation);
          class_of(s.holds->unit.place).order->removed(id_of(s.holds->unit.place));
          forget(*s.holds);
          ++evictions_;
        }
      r.head = give(*other, unit_bytes);
    } else {
      return tl::unexpected{refusal::busy};
    }
  }
  r.place = c.free.back();
  c.free.pop_back();
  at(r.place).is = state::reserved;
  r.generation = ++generation_;
  return r;
}

std::optional<std::uint32_t> segment_index::segment_to_take() const {
  std::optional<std::uint32_t> best;
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i < segments_.size(); ++i) {
    const auto& s = segments_[i];
    const bool idle = std::ranges::all_of(s.slots, [](const slot& one) {
      return one.is == state::free || (one.is == state::visible && one.readers == 0);
    });
    const auto size = classes_.at(s.head.unit_bytes).segments;
    if (idle && size > most) {
      best = i;
      most = size;
    }
  }
  return best;
}

segment_head segment_index::give(std::uint32_t number, std::uint64_t unit_bytes) {
  auto& s = segments_[number];
  if (s.head.unit_bytes != 0) {
    auto& from = class_of({number, 0});
    std::erase_if(from.free, [number](disk_place p) { return p.segment == number; });
    --from.segments;
  }
  s.head = {number, unit_bytes, generation_ + 1};
  s.slots.assign(geometry_.slots(unit_bytes), slot{});
  auto& to = class_for(unit_bytes);
  ++to.segments;
  for (auto i = static_cast<std::uint32_t>(s.slots.size()); i-- > 0;) to.free.push_back({number, i});
  return s.head;
}

void segment_index::make_free(disk_place p) {
  at(p) = slot{};
  class_of(p).free.push_back(p);
}

void segment_index::cancel(disk_place place) {
  assert(at(place).is == state::reserved);
  make_free(place);
}

segment_index::inserted segment_index::insert(const unit_key& key, const stored_unit& unit) {
  assert(at(unit.place).is == state::reserved);
  auto name = joined(key);
  const auto before = units_.find(name);
  if (before != units_.end() && before->second.unit.verified) {
    make_free(unit.place);
    return before->second.unit.length == unit.length ? inserted::kept : inserted::other_size;
  }
  if (before != units_.end()) {
    class_of(before->second.unit.place).order->removed(id_of(before->second.unit.place));
    forget(before->second);
  }
  const auto hash = checksum_of(std::as_bytes(std::span{name}));
  auto& e = units_.emplace(std::move(name), entry{key, unit}).first->second;
  auto& s = at(unit.place);
  s.is = state::visible;
  s.holds = &e;
  bytes_ += unit.length;
  class_of(unit.place).order->added(id_of(unit.place), hash);
  return inserted::added;
}

/// The policy has let go of it.
void segment_index::forget(entry& e) {
  const auto place = e.unit.place;
  bytes_ -= e.unit.length;
  auto& s = at(place);
  s.holds = nullptr;
  if (s.readers > 0)
    s.is = state::gone;
  else
    make_free(place);
  units_.erase(joined(e.key));
}

void segment_index::remove(const unit_key& key, std::uint64_t generation) {
  const auto it = units_.find(joined(key));
  if (it == units_.end() || it->second.unit.generation != generation) return;
  class_of(it->second.unit.place).order->removed(id_of(it->second.unit.place));
  forget(it->second);
}

// ---- Recovery --------------------------------------------------------------------------------------------

void segment_index::adopt(const segment_head& head) {
  auto& s = segments_[head.segment];
  s.head = head;
  s.slots.assign(geometry_.slots(head.unit_bytes), slot{});
  ++class_for(head.unit_bytes).segments;
  generation_ = std::max(generation_, head.since);
}

void segment_index::restore(const unit_key& key, stored_unit unit) {
  if (unit.place.segment >= segments_.size()) return;
  const auto& s = segments_[unit.place.segment];
  if (unit.place.slot >= s.slots.size() || unit.generation < s.head.since ||
      unit_bytes_for(unit.length) != s.head.unit_bytes)
    return;
  generation_ = std::max(generation_, unit.generation);
  unit.verified = false;
  const auto newer = [&](const entry* e) { return e != nullptr && e->unit.generation > unit.generation; };
  const auto drop_entry = [&](entry& e) {
    at(e.unit.place) = slot{};
    bytes_ -= e.unit.length;
    units_.erase(joined(e.key));
  };
  const auto same = units_.find(joined(key));
  auto* named = same == units_.end() ? nullptr : &same->second;
  if (newer(named) || newer(at(unit.place).holds)) return;
  if (named != nullptr) drop_entry(*named);
  if (auto* there = at(unit.place).holds) drop_entry(*there);
  auto& e = units_.emplace(joined(key), entry{key, unit}).first->second;
  at(unit.place) = slot{state::visible, 0, &e};
  bytes_ += unit.length;
}

void segment_index::drop(disk_place place, std::uint64_t generation) {
  if (place.segment >= segments_.size() || place.slot >= segments_[place.segment].slots.size()) return;
  auto* e = at(place).holds;
  if (e == nullptr || e->unit.generation != generation) return;
  bytes_ -= e->unit.length;
  at(place) = slot{};
  units_.erase(joined(e->key));
}

void segment_index::recovered(std::uint64_t next_generation) {
  generation_ = std::max(generation_, next_generation);
  std::vector<const entry*> by_age;
  for (const auto& [name, e] : units_) by_age.push_back(&e);
  std::ranges::sort(by_age, {}, [](const entry* e) { return e->unit.generation; });
  for (const auto* e : by_age) {
    const auto name = joined(e->key);
    class_of(e->unit.place).order->added(id_of(e->unit.place), checksum_of(std::as_bytes(std::span{name})));
  }
  for (std::uint32_t n = static_cast<std::uint32_t>(segments_.size()); n-- > 0;)
    for (auto i = static_cast<std::uint32_t>(segments_[n].slots.size()); i-- > 0;)
      if (segments_[n].slots[i].is == state::free) class_of({n, i}).free.push_back({n, i});
}

// ---- Looking ---------------------------------------------------------------------------------------------

void segment_index::each(const std::function<void(const unit_key&, const stored_unit&)>& f) const {
  for (const auto& [name, e] : units_) f(e.key, e.unit);
}

std::string segment_index::check() const {
  std::map<std::uint64_t, std::size_t> free;
  std::size_t visible = 0;
  for (std::uint32_t n = 0; n < segments_.size(); ++n)
    for (std::uint32_t i = 0; i < segments_[n].slots.size(); ++i) {
      const auto& s = segments_[n].slots[i];
      const auto text = fmt::format("segment {}, slot {}: ", n, i);
      if (s.is == state::free) ++free[segments_[n].head.unit_bytes];
      if ((s.is == state::visible) != (s.holds != nullptr)) return text + "visible without a unit, or not so";
      if (s.is == state::gone && s.readers == 0) return text + "nobody reads it, and it is not free";
      if (s.is != state::visible) continue;
      ++visible;
      if (s.holds->unit.place != disk_place{n, i}) return text + "its unit lies elsewhere";
    }
  if (visible != units_.size()) return fmt::format("{} visible places, {} units", visible, units_.size());
  for (const auto& [unit_bytes, c] : classes_)
    if (free[unit_bytes] != c.free.size())
      return fmt::format("{} free places of {} bytes, {} listed", free[unit_bytes], unit_bytes,
                         c.free.size());
  return {};
}

}  // namespace kvlease
