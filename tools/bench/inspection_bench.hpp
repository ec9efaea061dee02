// `kvlease bench inspection`: what it costs a runtime to be watched. The same replay again and again, with
// meters, the journal, its file and an inspector that is looked at, and with none of them, in
// turn; then how long actors take to answer while snapshots of many operations are taken.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>

#include "messages/error.hpp"
#include "tools/bench/inspection_delay.hpp"
#include "tools/bench/statistics.hpp"

namespace kvlease::bench {

struct inspection_options {
  std::size_t requests = 3000;
  std::size_t rounds = 9;
  std::size_t operations = 10'000;   ///< open while the snapshots are taken; 0: no snapshots
  std::size_t looks = 40;            ///< snapshots
  std::size_t look_every_ms = 1000;  ///< during a replay: a look and the metrics, as a scraper does it
  std::string journal_file;          ///< empty: in a temporary folder
  std::string json_path;
  bool quiet = false;
};

struct inspection_report {
  spread watched, alone;  ///< operations a second
  double ratio = 0;       ///< of a round's two, next to each other; the median of all rounds
  std::size_t looks = 0;
  std::size_t look_every_ms = 0;
  std::size_t rounds = 0, requests = 0;
  std::uint64_t wrong_blocks = 0;
  std::optional<delay_report> delay;
};

/// Errors: invalid (rounds or requests of 0); whatever a replay answers.
result<inspection_report> run_inspection_bench(const inspection_options& options);
void print(const inspection_report& r, std::ostream& out);
nlohmann::ordered_json to_json(const inspection_report& r);

}  // namespace kvlease::bench
