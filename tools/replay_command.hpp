// `kvlease replay`.
#pragma once

#include <ostream>

#include "tools/replay/options.hpp"

namespace kvlease {

/// Runs it and prints the report. Exit status: 0 all held, 3 all held but fatal, 1 an invariant broke, 2 bad
/// usage (one line on `err` that says what and where).
int run_replay_command(const replay::replay_options& options, std::ostream& out, std::ostream& err,
                       bool err_is_terminal);

}  // namespace kvlease
