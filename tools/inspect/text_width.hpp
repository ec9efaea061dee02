// How many columns of a terminal a text takes, and texts cut to a width.
#pragma once

#include <string>
#include <string_view>

namespace kvlease::inspect {

/// Columns that a UTF-8 text takes: two for wide characters, none for combining marks. A control character
/// takes one: it is shown as '?'.
std::size_t width_of(std::string_view text);
/// At most `width` columns; "…" at the end tells that something was cut. Control characters become '?'.
std::string cut(std::string_view text, std::size_t width);

/// As the two above, of a line that has escapes for colour: they take no column, and none is cut.
std::size_t width_without_escapes(std::string_view line);
std::string clip_line(std::string_view line, std::size_t width);

}  // namespace kvlease::inspect
