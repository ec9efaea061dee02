// What a runtime tells of itself: values without any CAF in them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/ids.hpp"

namespace kvlease {

enum class actor_kind : std::uint8_t {
  manager,
  lender,
  adapter,
  backend,
  proof_collector,
  deadline_arbiter,
  cuda,
  supervisor,
  inspector,
};

std::string_view to_string(actor_kind k) noexcept;

/// One thing that an actor keeps: an operation, a lease, a retirement owner, a registration.
struct report_row {
  std::string kind;
  std::string id;
  std::vector<std::pair<std::string, std::string>> facts;
};

/// What one actor says of itself.
struct actor_report {
  actor_kind kind = actor_kind::manager;
  std::map<std::string, std::int64_t> figures;
  std::vector<report_row> rows;
};

struct snapshot_entry {
  actor_kind kind = actor_kind::manager;
  bool answered = false;           ///< in this snapshot; else `report` is the last one there was
  std::chrono::nanoseconds age{};  ///< of `report`
  actor_report report;
};

struct snapshot {
  std::uint32_t schema_version = 1;
  incarnation runtime;
  std::vector<snapshot_entry> actors;
  std::vector<actor_kind> down;
};

/// How a shutdown ended (semantics 4.10, 7.8).
struct stop_report {
  bool stopped = false;
  std::vector<std::string> retained;  ///< a line for each thing that keeps memory mapped
};
}  // namespace kvlease
