// Scenarios 7.K, the rows that are Python's in the reference, as C++ has them: what a host sees, and what it
// brings in. Most are decided by the compiler; the row's case says so by existing. PS-07 to PS-12:
// boundaries_test.cpp; PS-16 to PS-20: staging_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>

#include "cuda/host_device.hpp"
#include "src/include/kvlease/runtime.hpp"
#include "src/paged_manager.hpp"
#include "tests/scripted_provider.hpp"

namespace kvlease::test {
namespace {

namespace fs = std::filesystem;

const fs::path root{KVLEASE_SOURCE_DIR};

std::string text_of(const fs::path& file) {
  std::ifstream in{file};
  REQUIRE(in.good());
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// What a file includes: "..." ones as paths from the root, <...> ones with their bracket.
std::set<std::string> includes(const fs::path& file) {
  std::set<std::string> found;
  std::istringstream in{text_of(file)};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("#include ")) continue;
    auto what = line.substr(9);
    if (what.starts_with("\"")) what = what.substr(1, what.size() - 2);
    found.insert(what.starts_with("kvlease/") ? "src/include/" + what : what);
  }
  return found;
}

/// All that including `header` brings in, however deep.
std::set<std::string> closure(const std::string& header) {
  std::set<std::string> all, open{header};
  while (!open.empty()) {
    const auto next = open.extract(open.begin()).value();
    if (!all.insert(next).second || next.starts_with("<")) continue;
    open.merge(includes(root / next));
  }
  return all;
}

void brings_no_actor(const std::string& header) {
  CAPTURE(header);
  for (const auto& file : closure(header))
    for (const auto* forbidden : {"<caf/", "actors/", "cuda/", "messages/caf.hpp", "messages/common.hpp"})
      CHECK_MESSAGE(!file.starts_with(forbidden), file);
}

TEST_CASE("PS-01 import: the lender's names are value types, and including them loads nothing else") {
  using names = std::tuple<staging_options, part, group_run, region_view, readiness, lease_id, hold_id,
                           token_range, slot_counts>;
  static_assert(std::tuple_size_v<names> == 9);
  static_assert(std::is_copy_constructible_v<region_view> && std::is_copy_constructible_v<group_run>);
  for (const auto& file : closure("messages/staging.hpp")) {
    const bool value = file.starts_with("<") || file.starts_with("messages/");
    CHECK_MESSAGE(value, file);
  }
  brings_no_actor("messages/staging.hpp");
}

TEST_CASE("PS-02 package: public headers bring in values and ports, no actor and no device") {
  std::size_t headers = 0;
  for (const auto& entry : fs::directory_iterator{root / "src/include/kvlease"}) {
    brings_no_actor("src/include/kvlease/" + entry.path().filename().string());
    ++headers;
  }
  CHECK(headers >= 5);
}

TEST_CASE("PS-03 protocols: what a host asks of leases, and with what") {
  static_assert(std::is_same_v<decltype(&runtime::lend), answer_of<lease_id> (runtime::*)(
                                                             direction, request_id, token_range, lease_events,
                                                             std::optional<std::chrono::nanoseconds>)>);
  static_assert(std::is_same_v<decltype(&runtime::withdraw), answer_of<void> (runtime::*)(lease_id)>);
  static_assert(std::is_same_v<decltype(&runtime::ready_from),
                               answer_of<std::optional<readiness>> (runtime::*)(request_id)>);
  static_assert(std::is_same_v<decltype(&runtime::guard), result<read_guard> (runtime::*)(lease_id)>);
  static_assert(std::is_same_v<decltype(lease_events::ready),
                               std::function<void(lease_id, std::shared_ptr<const region_view>)>>);
  static_assert(std::is_same_v<decltype(lease_events::failed), std::function<void(lease_id, const error&)>>);
  static_assert(std::is_abstract_v<provider> && std::is_abstract_v<manager_port> &&
                std::is_abstract_v<device_port>);
  CHECK(true);
}

TEST_CASE("PS-04 instances: a runtime, a lease and a hold show only their protocol") {
  static_assert(!std::is_aggregate_v<runtime> && !std::is_copy_constructible_v<runtime>);
  static_assert(!std::is_default_constructible_v<runtime>);
  // A lease and a hold are ids and nothing more; no kind of id passes for another.
  static_assert(sizeof(lease_id) == sizeof(std::uint64_t) && sizeof(hold_id) == sizeof(std::uint64_t));
  static_assert(!std::is_convertible_v<lease_id, hold_id> && !std::is_convertible_v<lease_id, operation_id>);
  static_assert(!std::is_convertible_v<std::uint64_t, lease_id> && !std::is_convertible_v<lease_id, bool>);
  CHECK(true);
}

TEST_CASE("PS-05 types' fields: as they are documented, with their defaults, and read-only where frozen") {
  const part p{};
  [[maybe_unused]] const auto& [name, address, nbytes, slot_bytes, slots] = p;
  CHECK(p == part{.name = "", .address = 0, .nbytes = 0, .slot_bytes = 0, .slots = 0});
  const staging_options o{.fetch_tokens = 32};
  [[maybe_unused]] const auto& [fetch_tokens, max_fetches, max_bytes] = o;
  CHECK(o.max_fetches == 1);
  CHECK_FALSE(o.max_bytes.has_value());
  const readiness r{};
  [[maybe_unused]] const auto& [usable_until, restart_floor] = r;
  static_assert(std::is_same_v<decltype(r.usable_until), std::int64_t>);
  // What the reference freezes: there is no way in but a new value.
  using ordinals = decltype(std::declval<group_run&>().ordinals()[0]);
  using where = decltype(*std::declval<group_run&>().where());
  using runs = decltype(std::declval<region_view&>().runs()[0]);
  static_assert(!std::is_assignable_v<ordinals, std::int64_t>);
  static_assert(!std::is_assignable_v<where, group_run::placement>);
  static_assert(!std::is_assignable_v<runs, group_run>);
}

TEST_CASE("PS-06 attach: a manager, a device, a provider and slots are asked for by name, without defaults") {
  const auto device = std::make_shared<host_device>(host_stream::inline_);
  paged_manager_options m;
  m.tokens_per_block = 4;
  m.pool_groups = {{64, 4}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  runtime_options whole;
  whole.profile = supported_profile("surface-1");
  whole.device = device;
  whole.manager = *paged_manager::make(m, {*device->allocate_device(256)});
  whole.open_provider = [](const provider_context&) { return std::make_shared<scripted_provider>(); };
  whole.staging_slots = {2};
  const auto refused = [&](const std::string& field, auto change) {
    auto o = whole;
    change(o);
    const auto got = runtime::start(std::move(o));
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::invalid);
    CHECK_MESSAGE(got.error().text.find(field) != std::string::npos, got.error().text);
  };
  refused("manager", [](runtime_options& o) { o.manager = nullptr; });
  refused("device", [](runtime_options& o) { o.device = nullptr; });
  refused("open_provider", [](runtime_options& o) { o.open_provider = nullptr; });
  refused("staging_slots", [](runtime_options& o) { o.staging_slots.clear(); });
  refused("staging_slots", [](runtime_options& o) { o.staging_slots = {0}; });
  refused("scope", [](runtime_options& o) { o.scope = bytes(65536, 'x'); });
  refused("contract_revision", [](runtime_options& o) { o.profile = {}; });
  CHECK(runtime::start(whole).has_value());
}

TEST_CASE("PS-13 internals: only the paged manager touches pages and the reuse index; others use its port") {
  const std::set<std::string> inside{"src/page_pool.hpp", "src/reuse_index.hpp", "src/paged_manager.hpp"};
  for (const auto* folder : {"src", "actors", "cuda", "messages", "src/include/kvlease"})
    for (const auto& entry : fs::directory_iterator{root / folder}) {
      const auto file = entry.path().filename().string();
      if (!entry.is_regular_file() || file.starts_with("page") || file.starts_with("reuse_index")) continue;
      CAPTURE(file);
      for (const auto& what : includes(entry.path())) CHECK_MESSAGE(!inside.contains(what), what);
    }
}

TEST_CASE("PS-14 of a request two attributes are read: its prompt and its reuse scope") {
  const request_spec spec{};
  [[maybe_unused]] const auto& [prompt, scope] = spec;  // a third would not compile
  [[maybe_unused]] const auto& [lora_id, salt] = scope;
  CHECK(prompt.empty());
}

TEST_CASE("PS-15 license: Apache-2.0, whole, and no file says otherwise") {
  const auto license = text_of(root / "LICENSE");
  CHECK(license.find("Apache License") != std::string::npos);
  CHECK(license.find("Version 2.0, January 2004") != std::string::npos);
  CHECK(license.find("END OF TERMS AND CONDITIONS") != std::string::npos);
  for (const auto* folder : {"src", "actors", "cuda", "messages", "tools", "src/include/kvlease"})
    for (const auto& entry : fs::directory_iterator{root / folder})
      if (entry.is_regular_file()) {
        CAPTURE(entry.path().string());
        CHECK(text_of(entry.path()).find("SPDX-License-Identifier") == std::string::npos);
      }
}

}  // namespace
}  // namespace kvlease::test
