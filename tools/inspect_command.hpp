// `kvlease inspect`.
#pragma once

#include <ostream>

#include "tools/inspect/options.hpp"

namespace CLI {
class App;
}

namespace kvlease {

/// Adds the subcommand with all below it; `options.command` says which was given.
void add_inspect(CLI::App& app, inspect::inspect_options& options);

/// Exit status: inspect::inspect_status.
int run_inspect_command(const inspect::inspect_options& options, std::ostream& out, std::ostream& err,
                        bool out_is_terminal);

}  // namespace kvlease
