// The `kvlease` command: its subcommands and their options.
#pragma once

#include <iosfwd>

namespace kvlease {

/// Everything but main(). Answers the exit status; 2 for bad usage.
int run_command_line(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                     bool err_is_terminal);

}  // namespace kvlease
