#include "tools/inspect/table.hpp"

#include <algorithm>

#include "tools/inspect/text_width.hpp"

namespace kvlease::inspect {

namespace {

/// `keyword`: of a column that is cut last, its first word stays as long as anything does.
constexpr std::size_t gap = 2, keyword = 24, least_column = 6;

/// Each column's width; 0 for one that is dropped.
class fitting {
 public:
  fitting(const table& t, std::size_t room) : t_{t}, room_{room} {
    for (const auto& c : t.columns) widths.push_back(width_of(c.head));
    for (const auto& row : t.rows)
      for (std::size_t c = 0; c < widths.size() && c < row.size(); ++c)
        widths[c] = std::max(widths[c], width_of(row[c].text));
    if (room_ == 0) return;
    const auto natural = widths;
    const auto least = [](const column& c) { return c.least; };
    shrink(least);
    drop();
    for (std::size_t c = 0; c < widths.size(); ++c)  // what those have left is room for the others
      if (widths[c] > 0) widths[c] = natural[c];
    shrink(least);
    shrink([](const column& c) { return c.last ? keyword : 0; });
    shrink([](const column& c) { return c.last || c.least > 0 ? least_column : 0; });
  }

  std::vector<std::size_t> widths;

 private:
  std::size_t total() const {
    std::size_t sum = 0;
    for (const auto w : widths) sum += w == 0 ? 0 : w + gap;
    return sum - std::min(sum, gap);
  }
  /// The widest gives first; `least(column)` is 0 for one that gives nothing.
  template <class F>
  void shrink(F least) {
    while (total() > room_) {
      std::size_t widest = widths.size();
      for (std::size_t c = 0; c < widths.size(); ++c) {
        const auto floor = least(t_.columns[c]);
        if (floor == 0 || widths[c] <= floor) continue;
        if (widest == widths.size() || widths[c] > widths[widest]) widest = c;
      }
      if (widest == widths.size()) return;
      --widths[widest];
    }
  }
  void drop() {
    while (total() > room_) {
      std::size_t first = widths.size();
      for (std::size_t c = 0; c < widths.size(); ++c) {
        if (widths[c] == 0 || t_.columns[c].dropped == 0) continue;
        if (first == widths.size() || t_.columns[c].dropped < t_.columns[first].dropped) first = c;
      }
      if (first == widths.size()) return;
      widths[first] = 0;
    }
  }

  const table& t_;
  const std::size_t room_;
};

/// One line of texts that fit their columns.
std::string line_of(const std::vector<cell>& row, const std::vector<std::size_t>& widths, const table& t,
                    const paper& on) {
  std::string line;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (widths[c] == 0) continue;
    const auto text = c < row.size() ? cut(row[c].text, widths[c]) : "";
    const std::string pad(widths[c] - std::min(widths[c], width_of(text)), ' ');
    const auto shown = toned(text, c < row.size() ? row[c].as : tone::plain, on);
    if (!line.empty()) line.append(gap, ' ');
    line += t.columns[c].right ? pad + shown : shown + pad;
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace

std::string toned(const std::string& text, tone as, const paper& on) {
  if (!on.colour || as == tone::plain || text.empty()) return text;
  const auto* code = as == tone::soft   ? "\x1b[2m"
                     : as == tone::good ? "\x1b[32m"
                     : as == tone::warn ? "\x1b[33m"
                                        : "\x1b[31m";
  return code + text + "\x1b[0m";
}

std::vector<std::string> lay_out(const table& t, const paper& on) {
  const auto widths = fitting{t, on.width}.widths;
  std::vector<std::string> lines;
  const auto add = [&](const std::vector<cell>& row) {
    auto line = line_of(row, widths, t, on);
    lines.push_back(on.width > 0 ? clip_line(line, on.width) : std::move(line));
  };
  std::vector<cell> head;
  for (const auto& c : t.columns) head.push_back({c.head, tone::soft});
  add(head);
  for (const auto& row : t.rows) add(row);
  return lines;
}

}  // namespace kvlease::inspect
