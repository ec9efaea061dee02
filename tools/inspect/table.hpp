// Tables for people: as wide as the terminal allows, plain text elsewhere.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvlease::inspect {

enum class tone : unsigned char { plain, soft, good, warn, bad };

struct cell {
  std::string text;
  tone as = tone::plain;
};

/// What becomes of a column where the width does not suffice for all of them.
struct column {
  std::string head;
  bool right = false;     ///< aligned
  unsigned dropped = 0;   ///< 1 goes first, then 2, ...; 0 stays
  std::size_t least = 0;  ///< columns down to which it shrinks before any is dropped; 0: it does not
  bool last = false;      ///< is cut only when no column is left to drop
};

struct table {
  std::vector<column> columns;
  std::vector<std::vector<cell>> rows;
};

struct paper {
  std::size_t width = 0;  ///< columns; 0: no bound
  bool colour = false;
};

/// One text a line, the head first; none is wider than the paper. Where it does not suffice: texts that may
/// shrink do, then columns are dropped in their order, then the `last` one is cut.
std::vector<std::string> lay_out(const table& t, const paper& on);

/// With the colour's escapes around it, where the paper has colour.
std::string toned(const std::string& text, tone as, const paper& on);

}  // namespace kvlease::inspect
