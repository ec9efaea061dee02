// A trace, replayed through the real actors of several instances at once.
#pragma once

#include <ostream>

#include "tools/replay/options.hpp"
#include "tools/replay/report.hpp"

namespace kvlease::replay {

/// Errors: as make_instance. `progress` gets a line that rewrites itself, unless it is null.
result<report> run_replay(const replay_plan& plan, std::ostream* progress);

}  // namespace kvlease::replay
