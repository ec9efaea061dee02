#include "src/exposure.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <numeric>

#include "src/guard.hpp"
#include "src/mix.hpp"

namespace kvlease {

namespace {

std::size_t slot_count(const part& p) {
  return p.slot_bytes > 0 && p.slots > 0 ? static_cast<std::size_t>(p.slots) : 0;
}

constexpr std::size_t tile_bytes = 4096;
constexpr std::size_t edge_bytes = 64;
using tile = std::array<std::uint64_t, tile_bytes / sizeof(std::uint64_t)>;

/// The pattern of one slot, tile after tile: words of a Weyl sequence, which vectorises to an addition, so
/// that the tile (in L1) is made faster than the slot can be written or compared.
class pattern {
 public:
  pattern(std::size_t p, std::int64_t slot, std::uint64_t generation) noexcept
      : word_{mix64(p, static_cast<std::uint64_t>(slot), generation)} {}

  const std::byte* next() noexcept {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] = word_ + i * weyl_step;
    word_ += words_.size() * weyl_step;
    return reinterpret_cast<const std::byte*>(words_.data());
  }

 private:
  std::uint64_t word_;
  tile words_;
};

/// Calls f(offset, expected, size) for each painted stretch of a slot.
template <class F>
void for_each_stretch(std::size_t size, paint_mode mode, pattern paint, F f) {
  for (std::size_t at = 0; at < size; at += tile_bytes) {
    const std::size_t n = std::min(tile_bytes, size - at);
    const std::byte* expected = paint.next();
    if (mode == paint_mode::full || n <= 2 * edge_bytes) {
      f(at, expected, n);
    } else {
      f(at, expected, edge_bytes);
      f(at + n - edge_bytes, expected + n - edge_bytes, edge_bytes);
    }
  }
}

std::uint64_t differing(const std::byte* a, const std::byte* b, std::size_t n) {
  if (std::memcmp(a, b, n) == 0) return 0;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += a[i] != b[i];
  return count;
}

std::byte* slot_address(const part& p, std::int64_t slot) {
  return reinterpret_cast<std::byte*>(p.address + static_cast<std::uintptr_t>(slot * p.slot_bytes));
}

}  // namespace

touch_table::touch_table(std::vector<part> parts) : by_address_(parts.size()) {
  parts_.reserve(parts.size());
  for (part& p : parts) {
    auto cells = std::make_unique<slot_cell[]>(slot_count(p));
    parts_.push_back({std::move(p), std::move(cells)});
  }
  std::iota(by_address_.begin(), by_address_.end(), std::size_t{0});
  std::sort(by_address_.begin(), by_address_.end(), [this](std::size_t a, std::size_t b) {
    return parts_[a].geometry.address < parts_[b].geometry.address;
  });
}

touch_table::slot_cell& touch_table::cell(std::size_t p, std::int64_t slot) {
  table& in = parts_.at(p);
  assert(slot >= 0 && static_cast<std::size_t>(slot) < slot_count(in.geometry));
  return in.cells[static_cast<std::size_t>(slot)];
}

void touch_table::grant(std::size_t p, std::int64_t slot, lease_id to, bool writable) {
  assert(to);
  slot_cell& c = cell(p, slot);
  // Through "nobody", so that no reader pairs the new permission with the old holder.
  c.holder.store(0, std::memory_order_release);
  c.writable.store(writable, std::memory_order_release);
  c.holder.store(to.value, std::memory_order_release);
}

void touch_table::revoke(std::size_t p, std::int64_t slot) {
  cell(p, slot).holder.store(0, std::memory_order_release);
}

touch_table::piece touch_table::first_piece(std::uintptr_t address, std::size_t size) const noexcept {
  const auto after =
      std::upper_bound(by_address_.begin(), by_address_.end(), address,
                       [this](std::uintptr_t a, std::size_t p) { return a < parts_[p].geometry.address; });
  if (after != by_address_.begin()) {
    const table& in = parts_[*(after - 1)];
    const std::size_t offset = address - in.geometry.address;
    if (const std::size_t slots = slot_count(in.geometry); slots > 0) {
      const auto slot_bytes = static_cast<std::size_t>(in.geometry.slot_bytes);
      const std::size_t slot = offset / slot_bytes;
      if (slot < slots) return {&in.cells[slot], std::min(size, (slot + 1) * slot_bytes - offset)};
    }
  }
  if (after == by_address_.end()) return {nullptr, size};
  return {nullptr, std::min(size, parts_[*after].geometry.address - address)};
}

touch_right touch_table::claim(std::span<const std::byte> span) const {
  auto address = reinterpret_cast<std::uintptr_t>(span.data());
  std::uint64_t holder = 0;
  for (std::size_t done = 0; done < span.size();) {
    const piece at = first_piece(address + done, span.size() - done);
    const std::uint64_t here = at.cell ? at.cell->holder.load(std::memory_order_acquire) : 0;
    if (here == 0 || (done > 0 && here != holder)) return {};
    holder = here;
    done += at.size;
  }
  return {holder};
}

bool touch_table::touch(touch_right right, std::span<const std::byte> span, touch_kind kind) {
  auto address = reinterpret_cast<std::uintptr_t>(span.data());
  std::size_t exposed = 0;
  for (std::size_t done = 0; done < span.size();) {
    const piece at = first_piece(address + done, span.size() - done);
    const bool may = at.cell && right.holder != 0 &&
                     (kind == touch_kind::read || at.cell->writable.load(std::memory_order_acquire)) &&
                     at.cell->holder.load(std::memory_order_acquire) == right.holder;
    if (!may && !mutated(mutation::touch_uncounted)) exposed += at.size;
    done += at.size;
  }
  touched_.fetch_add(span.size(), std::memory_order_relaxed);
  if (exposed > 0) exposure_.fetch_add(exposed, std::memory_order_relaxed);
  return exposed == 0;
}

slot_paint::slot_paint(std::vector<part> parts, paint_mode mode) : parts_{std::move(parts)}, mode_{mode} {
  slots_.reserve(parts_.size());
  for (const part& p : parts_) slots_.emplace_back(slot_count(p));
}

void slot_paint::paint(std::size_t p, std::int64_t slot) {
  if (mode_ == paint_mode::off) return;
  slot_state& state = slots_.at(p).at(static_cast<std::size_t>(slot));
  ++state.generation;
  state.counted = 0;
  state.painted = true;
  std::byte* base = slot_address(parts_[p], slot);
  for_each_stretch(static_cast<std::size_t>(parts_[p].slot_bytes), mode_, {p, slot, state.generation},
                   [base](std::size_t at, const std::byte* expected, std::size_t n) {
                     std::memcpy(base + at, expected, n);
                   });
}

std::uint64_t slot_paint::damage(std::size_t p, std::int64_t slot) const {
  const slot_state& state = slots_.at(p).at(static_cast<std::size_t>(slot));
  if (!state.painted || mutated(mutation::paint_unchecked)) return 0;
  std::uint64_t count = 0;
  const std::byte* base = slot_address(parts_[p], slot);
  for_each_stretch(static_cast<std::size_t>(parts_[p].slot_bytes), mode_, {p, slot, state.generation},
                   [&](std::size_t at, const std::byte* expected, std::size_t n) {
                     count += differing(base + at, expected, n);
                   });
  return count;
}

std::uint64_t slot_paint::count_damage(std::size_t p, std::int64_t slot) {
  slot_state& state = slots_.at(p).at(static_cast<std::size_t>(slot));
  const std::uint64_t now = damage(p, slot);
  if (now > state.counted) {
    exposure_ += now - state.counted;
    state.counted = now;
  }
  return now;
}

std::uint64_t slot_paint::check(std::size_t p, std::int64_t slot) {
  const std::uint64_t found = count_damage(p, slot);
  slots_.at(p).at(static_cast<std::size_t>(slot)).painted = false;
  return found;
}

std::uint64_t slot_paint::check_all() {
  std::uint64_t found = 0;
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    for (std::size_t slot = 0; slot < slots_[p].size(); ++slot) {
      found += count_damage(p, static_cast<std::int64_t>(slot));
    }
  }
  return found;
}

}  // namespace kvlease
