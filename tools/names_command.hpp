// `kvlease names`: checks names, block keys and part names against a file of vectors, or computes them.
#pragma once

#include <iosfwd>
#include <string>

namespace kvlease {

struct names_options {
  std::string vectors;  ///< path of a JSON file with the lists `vectors`, `pins` and `errors`
  bool json = false;    ///< one JSON document on `out`, with schema_version
};

/// Checks every vector, pin and error of the file. A vector without `expected` is computed instead, and
/// printed in the file's own form.
/// Returns 0 when all are equal, 1 when any differs (each on `out`, by id and field), and 2 for bad input:
/// one line on `err` that says what and where, and nothing on `out`.
int run_names(const names_options& options, std::ostream& out, std::ostream& err);

}  // namespace kvlease
