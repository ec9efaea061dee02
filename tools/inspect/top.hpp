// `kvlease inspect top` on a terminal.
#pragma once

#include "tools/inspect/options.hpp"
#include "tools/inspect/target.hpp"

namespace kvlease::inspect {

/// Until q. Errors: unsupported where there is no terminal; what the target answered if it never answered.
result<void> run_top(const target& t, const inspect_options& options, int in, int out);

}  // namespace kvlease::inspect
