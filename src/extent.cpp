#include "src/extent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/mix.hpp"

namespace kvlease {

namespace {

/// Where a row lies: which slot of which part.
struct coordinate {
  std::int64_t part_index;
  std::int64_t slot;
  friend bool operator==(const coordinate&, const coordinate&) = default;
};

struct coordinate_hash {
  std::size_t operator()(const coordinate& c) const noexcept {
    return mix64(mix64(static_cast<std::uint64_t>(c.part_index) + weyl_step) +
                 static_cast<std::uint64_t>(c.slot));
  }
};

using coordinates = std::unordered_set<coordinate, coordinate_hash>;

/// "row 3 of layer group 7"
std::string row_text(const group_run& run, std::size_t row) {
  return fmt::format("row {} of layer group {}", row, run.layer_group());
}

result<void> check_geometry(std::size_t index, const part& p) {
  const auto bad = [&](std::string_view what) {
    return fail(errc::invalid, fmt::format("staging part {} '{}': {}", index, p.name, what));
  };
  if (p.address == 0) return bad("address is 0, must be positive");
  if (p.nbytes <= 0) return bad(fmt::format("nbytes is {}, must be positive", p.nbytes));
  if (p.slot_bytes <= 0) return bad(fmt::format("slot_bytes is {}, must be positive", p.slot_bytes));
  if (p.slots <= 0) return bad(fmt::format("slots is {}, must be positive", p.slots));
  if (p.slots > p.nbytes / p.slot_bytes)
    return bad(
        fmt::format("nbytes is {}, must cover its {} slots of {} bytes", p.nbytes, p.slots, p.slot_bytes));
  if (static_cast<std::uintptr_t>(p.nbytes) > std::numeric_limits<std::uintptr_t>::max() - p.address)
    return bad(
        fmt::format("{} bytes at address {} are past the end of the address space", p.nbytes, p.address));
  return {};
}

/// Precondition: each part passes check_geometry. Parts that touch are fine.
result<void> check_overlap(std::span<const part> parts) {
  std::vector<std::size_t> by_address(parts.size());
  std::iota(by_address.begin(), by_address.end(), std::size_t{0});
  std::ranges::stable_sort(by_address, {}, [&](std::size_t i) { return parts[i].address; });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const part& low = parts[by_address[i - 1]];
    const part& high = parts[by_address[i]];
    if (static_cast<std::uintptr_t>(low.nbytes) > high.address - low.address)
      return fail(errc::invalid,
                  fmt::format("staging parts {} '{}' and {} '{}' overlap: the first has {} bytes at {}, the "
                              "second starts at {}",
                              by_address[i - 1], low.name, by_address[i], high.name, low.nbytes, low.address,
                              high.address));
  }
  return {};
}

result<void> check_run(const group_run& run, std::size_t parts) {
  const auto bad = [&](std::string_view what) {
    return fail(errc::invalid, fmt::format("run of layer group {}: {}", run.layer_group(), what));
  };
  if (!run.where()) return bad("has no staging names, addresses or part, must have all three");
  if (static_cast<std::uint64_t>(run.where()->part_index) >= parts)
    return bad(fmt::format("unknown part {}, there are {}", run.where()->part_index, parts));
  for (const auto ordinal : run.ordinals())
    if (ordinal < 0) return bad(fmt::format("ordinal is {}, must be nonnegative", ordinal));
  return {};
}

/// The slot of `p` that starts at `address`. Precondition: p passes check_geometry.
result<std::int64_t> slot_at(const part& p, std::uintptr_t address) {
  const auto slot_bytes = static_cast<std::uintptr_t>(p.slot_bytes);
  if (address < p.address || (address - p.address) % slot_bytes != 0)
    return fail(
        errc::invalid,
        fmt::format("address {} is outside or misaligned: slots of part '{}' start at {}, every {} bytes",
                    address, p.name, p.address, slot_bytes));
  const auto slot = (address - p.address) / slot_bytes;
  if (slot >= static_cast<std::uintptr_t>(p.slots))
    return fail(errc::invalid, fmt::format("address {} is slot {}, past the capacity of part '{}': {} slots",
                                           address, slot, p.name, p.slots));
  assert((slot + 1) * slot_bytes <= static_cast<std::uintptr_t>(p.nbytes));  // check_geometry's promise
  return static_cast<std::int64_t>(slot);
}

result<void> append_units(const group_run& run, std::span<const part> parts, coordinates& used,
                          std::vector<unit>& units) {
  const auto& where = *run.where();
  const part& in = parts[static_cast<std::size_t>(where.part_index)];
  for (std::size_t row = 0; row < run.size(); ++row) {
    const auto slot = slot_at(in, where.addresses[row]);
    if (!slot) return fail(slot.error().code, row_text(run, row) + ": " + slot.error().text);
    if (!used.insert({where.part_index, *slot}).second)
      return fail(
          errc::invalid,
          fmt::format("duplicate physical coordinate: {} is on slot {} of part {} '{}', an earlier row's",
                      row_text(run, row), *slot, where.part_index, in.name));
    auto made = unit::make({.name = where.names[row], .local_group = run.layer_group(), .local = *slot});
    if (!made) return tl::unexpected{std::move(made).error()};
    units.push_back(*std::move(made));
  }
  return {};
}

}  // namespace

result<cache_extent> build_extent(const region_view& view, std::span<const part> parts, bytes name,
                                  end_of_sequence is_last) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (auto ok = check_geometry(i, parts[i]); !ok) return tl::unexpected{std::move(ok).error()};
  if (auto ok = check_overlap(parts); !ok) return tl::unexpected{std::move(ok).error()};
  coordinates used;
  std::vector<unit> units;
  used.reserve(view.num_rows());
  units.reserve(view.num_rows());
  for (const auto& run : view.runs()) {
    if (auto ok = check_run(run, parts.size()); !ok) return tl::unexpected{std::move(ok).error()};
    if (auto ok = append_units(run, parts, used, units); !ok) return tl::unexpected{std::move(ok).error()};
  }
  return cache_extent::make(std::move(name), std::move(units), is_last);
}

result<row_masks> served_masks(const region_view& view, const std::set<bytes>& served) {
  const auto& runs = view.runs();
  for (const auto& run : runs)
    if (!run.where())
      return fail(errc::invalid,
                  fmt::format("run of layer group {} has no staging names: nothing of it can be "
                              "found among the served",
                              run.layer_group()));
  struct place {
    std::size_t run;
    std::size_t row;
  };
  std::unordered_map<std::string_view, place> places;
  places.reserve(view.num_rows());
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto& names = runs[r].where()->names;
    for (std::size_t row = 0; row < names.size(); ++row) {
      const auto [first, fresh] = places.try_emplace(names[row], place{r, row});
      if (!fresh)
        return fail(errc::invalid, fmt::format("duplicate names in the view: {} and {} are both {}",
                                               row_text(runs[first->second.run], first->second.row),
                                               row_text(runs[r], row), name_text(names[row])));
    }
  }
  row_masks masks = view.masks();
  for (const auto& name : served) {
    const auto it = places.find(name);
    if (it == places.end())
      return fail(errc::invalid,
                  fmt::format("served name {} is not in the view: the served must be a subset of "
                              "what was asked for",
                              name_text(name)));
    masks[it->second.run][it->second.row] = true;
  }
  return masks;
}

}  // namespace kvlease
