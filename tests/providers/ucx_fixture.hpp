// Staging memory and peers for tests of the UCX provider. A peer is a provider of this process, or this test
// program again (see "ucx peer" in ucx_faults_test.cpp), which can be stopped and killed.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/exposure.hpp"
#include "src/include/kvlease/provider_uri.hpp"
#include "src/mix.hpp"
#include "src/providers/ucx/ucx_provider.hpp"
#include "tests/child_process.hpp"
#include "tests/manual_executor.hpp"

namespace kvlease::test {

/// Ends the case, as skipped, in a build without UCX.
#define KVLEASE_NEEDS_UCX()                 \
  if (!ucx_built()) {                       \
    MESSAGE("SKIP: this build has no UCX"); \
    return;                                 \
  }

/// Bytes that follow from a unit's name, so that any process can check them.
inline void fill_for(const bytes& name, std::span<std::byte> out) {
  const auto seed = std::hash<std::string>{}(name);
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix64(seed, i, 1);
    std::copy_n(reinterpret_cast<const std::byte*>(&word), std::min(sizeof word, out.size() - i),
                out.begin() + static_cast<std::ptrdiff_t>(i));
  }
}
inline bool is_for(const bytes& name, std::span<const std::byte> memory) {
  std::vector<std::byte> right(memory.size());
  fill_for(name, right);
  return std::ranges::equal(right, memory);
}

/// One provider over `slots` slots of `size` bytes, registered and granted to a lease; painted.
struct ucx_bench {
  ucx_bench(const std::string& uri, std::int64_t slots = 8, std::size_t size = 64 * 1024)
      : slot_bytes{size}, memory(static_cast<std::size_t>(slots) * size) {
    paint();
    for (std::int64_t s = 0; s < slots; ++s) touches->grant(0, s, lease_id{1}, true);
    const auto factory = provider_from_uri(uri);
    REQUIRE_MESSAGE(factory.has_value(), factory.error().text);
    subject = (*factory)(context());
    pool = subject->as_registers_pools()->register_pool(part_of().address, memory.size());
  }

  part part_of() const {
    return {.name = "p",
            .address = reinterpret_cast<std::uintptr_t>(memory.data()),
            .nbytes = static_cast<std::int64_t>(memory.size()),
            .slot_bytes = static_cast<std::int64_t>(slot_bytes),
            .slots = static_cast<std::int64_t>(memory.size() / slot_bytes)};
  }
  provider_context context() const { return {resolver, exec, touches}; }
  fetches& fetching() const { return *subject->as_fetches(); }
  std::span<std::byte> slot(std::size_t i) { return std::span{memory}.subspan(i * slot_bytes, slot_bytes); }
  void paint() { std::ranges::fill(memory, std::byte{0xa5}); }
  bool painted() const {
    return std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{0xa5}; });
  }

  /// Names "0", "1", ...; unit i goes to slot i.
  cache_extent extent(std::size_t units, std::size_t first = 0) const {
    std::vector<unit> all;
    for (std::size_t i = 0; i < units; ++i)
      all.push_back(*unit::make(
          {.name = std::to_string(first + i), .local_group = 0, .local = static_cast<std::int64_t>(i)}));
    return *cache_extent::make("extent", std::move(all), end_of_sequence::no);
  }
  /// Publishes the units with the bytes of their names, and paints again.
  void publish(std::size_t units, std::size_t first = 0) {
    for (std::size_t i = 0; i < units; ++i) fill_for(std::to_string(first + i), slot(i));
    const auto a = subject->as_publishes()->publish(extent(units, first));
    REQUIRE(std::get<delivered>(*a->poll()).served().size() == units);
    paint();
  }
  access_answer access(attempt& a) const { return subject->as_pollable()->poll_access(a); }
  bool ended(attempt& a) const { return access(a).state == access_state::ended; }
  /// Of "HOST:PORT" in what describe() says.
  std::string address() const {
    const auto text = subject->describe();
    const auto from = text.find('(') + 1;
    return text.substr(from, text.find(' ', from) - from);
  }

  std::size_t slot_bytes;
  std::vector<std::byte> memory;
  std::shared_ptr<manual_executor> exec = std::make_shared<manual_executor>();
  std::shared_ptr<touch_table> touches = std::make_shared<touch_table>(std::vector<part>{part_of()});
  std::shared_ptr<const local_resolver> resolver =
      std::make_shared<local_resolver>(std::vector<part>{part_of()}, std::vector<std::size_t>{0});
  std::shared_ptr<provider> subject;
  std::unique_ptr<registration> pool;
};

/// A process that has published `units` units of `size` bytes, and serves them.
struct ucx_peer {
  ucx_peer(std::size_t units, std::size_t size)
      : process{child_process::again(
            "ucx peer", {{"KVLEASE_UCX_PEER", std::to_string(units) + " " + std::to_string(size)}})} {
    constexpr std::string_view mark = "serving at ";
    REQUIRE(eventually([&] {
      return process.output().find("\n", process.output().find(mark)) != std::string::npos &&
             process.output().find(mark) != std::string::npos;
    }));
    const auto text = process.output();
    const auto from = text.find(mark) + mark.size();
    address = text.substr(from, text.find('\n', from) - from);
  }
  child_process process;
  std::string address;
};

inline std::string failure_of(attempt& a) {
  const auto o = a.poll();
  const auto* f = o ? std::get_if<failed>(&*o) : nullptr;
  return f ? f->reason() : "(not failed)";
}

}  // namespace kvlease::test
