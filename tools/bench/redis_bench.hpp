// `kvlease bench redis`: the redis provider beside a bare pipelined client, which checks nothing and proves
// nothing, on the same server, sockets, depth and bytes, in turn.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "messages/error.hpp"
#include "tools/bench/statistics.hpp"

namespace kvlease::bench {

struct redis_options {
  std::vector<std::size_t> kib{64, 256, 1024};  ///< sizes of a unit
  std::size_t connections = 1;
  std::size_t depth = 16;   ///< commands without reply on a connection
  std::size_t mib = 64;     ///< moved in one measurement
  std::size_t rounds = 11;  ///< measurements each way
  std::string json_path;
  bool quiet = false;
};

struct redis_cell {
  std::string socket;  ///< "tcp" or "unix"
  std::string command;
  std::size_t kib = 0;
  spread ours, raw;  ///< GB/s of units' bytes
  double ratio = 0;  ///< of the medians
};

struct redis_report {
  redis_options asked;
  std::vector<redis_cell> cells;
};

/// Starts its own redis-server. Errors: invalid, for options that make no sense; io, without redis-server;
/// provider, when something was not served.
result<redis_report> run_redis_bench(const redis_options& options);
void print(const redis_report& r, std::ostream& out);
nlohmann::ordered_json to_json(const redis_report& r);

}  // namespace kvlease::bench
