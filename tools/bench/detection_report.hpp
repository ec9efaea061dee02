// What `kvlease bench detection` found.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "tools/bench/statistics.hpp"
#include "tools/bench/target.hpp"

namespace kvlease::bench {

inline constexpr int detection_schema_version = 1;
/// The target for the median, from the end of the work to the client's message.
inline constexpr double detection_target_us = 15;

/// One way to learn of the end of a copy.
struct detection_series {
  std::string name;
  std::chrono::nanoseconds hold{};  ///< how long the copy was pending
  spread us;                        ///< from the end of the work
};

/// The CUDA actor's thread while copies wait behind a held stream.
struct pending_series {
  std::size_t pending = 0;
  double seconds = 0;
  double cpu_seconds = 0;
  std::int64_t queries = 0;
};

struct detection_report {
  target_facts facts;
  std::string date;
  std::string command;
  std::vector<detection_series> detection;
  std::vector<pending_series> pending;
  std::vector<std::string> notes;     ///< what could not be measured, and why
  std::vector<std::string> problems;  ///< what must not be
};

nlohmann::ordered_json to_json(const detection_report& report);
void print(const detection_report& report, std::ostream& out);

}  // namespace kvlease::bench
