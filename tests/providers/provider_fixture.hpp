// Real staging memory for tests of providers: two parts, their slots granted to one lease.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvlease/provider.hpp"
#include "src/exposure.hpp"
#include "tests/manual_executor.hpp"

namespace kvlease::test {

inline constexpr std::byte untouched{0xa5};

/// Group 0 and group 2 lie in part 0 (8 slots of 256 bytes), group 1 in part 1 (6 slots of 1000 bytes).
struct staging_fixture {
  staging_fixture() { grant_all(lease_id{1}, true); }

  std::vector<std::byte> memory_0 = std::vector<std::byte>(8 * 256, untouched);
  std::vector<std::byte> memory_1 = std::vector<std::byte>(6 * 1000 + 24, untouched);
  std::vector<part> parts{
      {.name = "p0", .address = address(memory_0), .nbytes = 2048, .slot_bytes = 256, .slots = 8},
      {.name = "p1", .address = address(memory_1), .nbytes = 6024, .slot_bytes = 1000, .slots = 6}};
  std::shared_ptr<manual_executor> exec = std::make_shared<manual_executor>();
  std::shared_ptr<touch_table> touches = std::make_shared<touch_table>(parts);
  std::shared_ptr<const local_resolver> resolver =
      std::make_shared<local_resolver>(parts, std::vector<std::size_t>{0, 1, 0});
  provider_context context{resolver, exec, touches};

  static std::uintptr_t address(const std::vector<std::byte>& v) {
    return reinterpret_cast<std::uintptr_t>(v.data());
  }

  void grant_all(lease_id to, bool writable) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (std::int64_t s = 0; s < parts[p].slots; ++s) touches->grant(p, s, to, writable);
    }
  }

  std::span<std::byte> slot(std::int64_t group, std::int64_t local) const {
    return *resolver->resolve(group, local);
  }
  void fill(std::int64_t group, std::int64_t local, unsigned char value) const {
    std::ranges::fill(slot(group, local), std::byte{value});
  }
  bool holds(std::int64_t group, std::int64_t local, std::byte value) const {
    return std::ranges::all_of(slot(group, local), [value](std::byte b) { return b == value; });
  }
  bool holds(std::int64_t group, std::int64_t local, unsigned char value) const {
    return holds(group, local, std::byte{value});
  }
  bool all_untouched() const {
    const auto same = [](std::byte b) { return b == untouched; };
    return std::ranges::all_of(memory_0, same) && std::ranges::all_of(memory_1, same);
  }
  void clear() {
    std::ranges::fill(memory_0, untouched);
    std::ranges::fill(memory_1, untouched);
  }

  /// Registers both parts where the provider wants that.
  std::vector<std::unique_ptr<registration>> register_all(provider& p) const {
    std::vector<std::unique_ptr<registration>> handles;
    auto* pools = p.as_registers_pools();
    for (const part& in : parts) {
      if (pools) handles.push_back(pools->register_pool(in.address, static_cast<std::size_t>(in.nbytes)));
    }
    return handles;
  }
};

inline unit at(const char* name, std::int64_t group, std::int64_t local) {
  return *unit::make({.name = name, .local_group = group, .local = local});
}

inline cache_extent extent_of(std::vector<unit> units, const char* name = "extent") {
  return *cache_extent::make(name, std::move(units), end_of_sequence::no);
}

inline std::set<bytes> served_of(const std::optional<outcome>& o) {
  const auto* d = o ? std::get_if<delivered>(&*o) : nullptr;
  return d ? d->served() : std::set<bytes>{"(not delivered)"};
}

inline std::string reason_of(const std::optional<outcome>& o) {
  const auto* f = o ? std::get_if<failed>(&*o) : nullptr;
  return f ? f->reason() : "(not failed)";
}

}  // namespace kvlease::test
