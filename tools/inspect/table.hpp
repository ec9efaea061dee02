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

struct table {
  std::vector<std::string> head;
  std::vector<bool> right;  ///< aligned; one a column
  std::vector<std::vector<cell>> rows;
};

struct paper {
  std::size_t width = 0;  ///< columns; 0: no bound
  bool colour = false;
};

/// One text a line, the head first. Where the width does not suffice, the widest columns are cut.
std::vector<std::string> lay_out(const table& t, const paper& on);

/// With the colour's escapes around it, where the paper has colour.
std::string toned(const std::string& text, tone as, const paper& on);

}  // namespace kvlease::inspect
