// What a snapshot of many operations does to the actors: how long they take to answer a message while one is
// taken, and while none is, in one run.
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "messages/error.hpp"

namespace kvlease::bench {

/// Percentiles in seconds of a message's way to an actor and back. All 0 without a sample.
struct delay_figures {
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, longest = 0;
  std::size_t samples = 0;
};

struct delay_report {
  std::size_t operations = 0;  ///< open, with a lease and an owner each
  std::size_t looks = 0;
  double look_p50 = 0, look_longest = 0;  ///< seconds that a snapshot of all of them takes
  struct actor {
    std::string name;
    delay_figures quiet;   ///< no snapshot was under way at any time of the message
    delay_figures looked;  ///< one was
  };
  std::vector<actor> actors;
};

/// Opens `operations` fetches whose backend never ends, then asks manager, lender and adapter in turn while a
/// second thread takes `looks` snapshots of all, as long apart as each takes. Errors: those of the runtime.
result<delay_report> measure_delay(std::size_t operations, std::size_t looks);
void print(const delay_report& r, std::ostream& out);
nlohmann::ordered_json to_json(const delay_report& r);

}  // namespace kvlease::bench
