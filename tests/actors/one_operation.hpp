// What the tests of the adapter's rules share: one operation in a world, and what the actors say of it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/world.hpp"

namespace kvlease::test {

using strings = std::vector<std::string>;
using marks = std::vector<bool>;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline bool any_contains(const strings& lines, const std::string& part) {
  return std::ranges::any_of(lines, [&](const auto& l) { return contains(l, part); });
}

/// What an actor reports of one thing: "" when it keeps no such thing, or says no such fact of it.
inline std::string fact(world& w, actor_kind kind, const std::string& id, const std::string& name) {
  const auto seen = w.look();
  REQUIRE(seen.has_value());
  for (const auto& entry : seen->actors)
    for (const auto& row : entry.report.rows)
      if (entry.kind == kind && row.id == id)
        for (const auto& [key, value] : row.facts)
          if (key == name) return value;
  return {};
}
inline std::string fact(world& w, operation_id op, const std::string& name) {
  return fact(w, actor_kind::adapter, to_string(op), name);
}
inline std::string registrations(world& w) {
  const auto seen = w.look();
  REQUIRE(seen.has_value());
  for (const auto& entry : seen->actors)
    for (const auto& row : entry.report.rows)
      if (row.kind == "registrations") return row.facts.at(0).second;
  return {};
}
/// Why the retirement owner of a request drains; "" while it does not.
inline std::string drain_reason(world& w, request_id request) {
  const auto seen = w.look();
  REQUIRE(seen.has_value());
  for (const auto& entry : seen->actors)
    for (const auto& row : entry.report.rows)
      if (row.kind == "owner" && row.facts.at(0).second == to_string(request))
        for (const auto& [key, value] : row.facts)
          if (key == "reason") return value;
  return {};
}

/// A request of three whole blocks, a fetch lease of its first two, and staging rows whose bytes are known.
/// marked() tells which of them have reached the pages.
class one_fetch {
 public:
  explicit one_fetch(world& w, bool submitted = true) : w_{w}, request{w.admit(13)} {
    const auto got = w.lend(direction::fetch, request, {0, 8});
    REQUIRE(got.has_value());
    lease = *got;
    REQUIRE(w.of(lease).view != nullptr);
    std::byte value{0x11};
    for (const auto slot : w.of(lease).view->runs().at(0).where()->addresses) {
      std::memset(reinterpret_cast<void*>(slot), std::to_integer<int>(value), 64);
      value = static_cast<std::byte>(std::to_integer<int>(value) + 0x11);
    }
    if (submitted) submit();
  }
  void submit() {
    const auto got = w_.submit(direction::fetch, lease, request);
    REQUIRE(got.has_value());
    op = *got;
    if (w_.provider->submissions > 0 && !w_.provider->attempts.empty()) at = w_.provider->attempts.back();
  }
  marks marked() const {
    return {w_.page(request, 0)[0] == std::byte{0x11}, w_.page(request, 1)[0] == std::byte{0x22}};
  }
  const heard& host() const { return w_.of(op); }

 private:
  world& w_;

 public:
  request_id request;
  lease_id lease;
  operation_id op;
  std::shared_ptr<scripted_attempt> at;  ///< of the provider, when it made one
};

/// Long enough for every poll to come round.
inline constexpr auto a_while = 300ms;

inline const marks none{false, false}, first{true, false}, both{true, true};

inline const outcome timed_out{failed{"transfer timeout"}};
inline const outcome cancelled_here{cancelled{cancelled_by::local}};

/// Ends the world as the reference's rows end: closed, twice, deregistered and retired.
inline void check_close(world& w) {
  w.close_adapter();
  CHECK(w.close_adapter().first);
  CHECK(w.close_adapter().first);
  CHECK(w.provider->log == strings{"register", "deregister"});
  CHECK(w.figure(actor_kind::lender, "holds") == 0);
  CHECK(w.roots->rest().empty());
  CHECK(w.stop_arbiter().has_value());
  CHECK(w.exposure_bytes() == 0);
}

/// What nothing may have happened to yet.
inline void check_kept(world& w, const heard& host) {
  CHECK(host.releases == 0);
  CHECK(w.slots().free == 6);
  CHECK(w.slots().conserved());
}

}  // namespace kvlease::test
