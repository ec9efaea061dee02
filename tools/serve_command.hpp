// `kvlease serve`.
#pragma once

#include <ostream>

#include "tools/serve/options.hpp"

namespace CLI {
class App;
}

namespace kvlease {

void add_serve(CLI::App& app, serve::serve_options& options);

/// Serves until SIGTERM or SIGINT, then drains and reports on `err`. Exit status: 0 drained; 1 with what was
/// retained; 2 bad usage; 3 could not start; 70 fatal, without destructors; 130 after a second SIGINT,
/// likewise.
int run_serve_command(const serve::serve_options& options, std::ostream& out, std::ostream& err);

}  // namespace kvlease
