// What `kvlease inspect` is asked to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/inspect/replay_command.hpp"

namespace kvlease::inspect {

struct inspect_options {
  std::string socket;  ///< empty: serve's default path
  std::string file;    ///< a saved snapshot, "-" for standard input; empty: a live runtime
  std::optional<std::size_t>
      runtime;  ///< which one, where a process has several; none: as the command sees fit
  bool json = false;
  std::string command;          ///< top, ls, why, watch, health, snapshot, metrics, trace, replay
  std::string what = "leases";  ///< of ls
  std::string kind, id;         ///< of why; the kind may hold both, as KIND/ID
  std::size_t limit = 10'000;   ///< of ls, snapshot and top: rows
  std::size_t explain = 64;     ///< of snapshot: leases that are explained in it
  std::size_t events = 10'000;  ///< of snapshot: the journal's last records
  std::uint64_t count = 0;      ///< of watch: end after so many events; 0: never
  bool from_start = false;      ///< of watch: all that the journal still has
  double interval = 1;          ///< of top: seconds between two looks
  replay_options replay;
};

/// What `kvlease inspect` exits with.
enum inspect_status : int {
  all_healthy = 0,
  something_held = 1,
  something_unproven = 2,  ///< beyond budget, or fatal
  not_reachable = 3,       ///< nobody listens, or the file can't be read
  not_known = 4,           ///< `why`: there is no such thing, or no longer
  bad_usage = 64,
};

}  // namespace kvlease::inspect
