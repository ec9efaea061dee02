// `kvlease inspect replay FILE`: checks a journal offline against every rule that it can show.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace kvlease::inspect {

struct replay_options {
  std::vector<std::string> files;  ///< one a runtime; "-" is standard input
  bool json = false;               ///< a line of JSON for each file on `out`, with schema_version
};

/// Returns 0 when every rule holds, 1 when one is broken (its number and the first record that breaks it on
/// `out`), and 2 when a file can't be read: one line on `err` that says why. Of several files the worst.
int run_replay(const replay_options& options, std::ostream& out, std::ostream& err);

/// Adds the subcommand `replay` to `inspect`. `o` outlives the parsing; whether it was given is asked of CLI.
CLI::App* add_replay(CLI::App& inspect, replay_options& o);

}  // namespace kvlease::inspect
