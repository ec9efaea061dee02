#include "tools/inspect/table.hpp"

#include <algorithm>
#include <numeric>

#include "tools/inspect/format.hpp"

namespace kvlease::inspect {

namespace {

constexpr std::size_t gap = 2, least_column = 6;

std::vector<std::size_t> widths_of(const table& t, const paper& on) {
  std::vector<std::size_t> widths;
  for (const auto& h : t.head) widths.push_back(width_of(h));
  for (const auto& row : t.rows)
    for (std::size_t c = 0; c < widths.size() && c < row.size(); ++c)
      widths[c] = std::max(widths[c], width_of(row[c].text));
  if (on.width == 0 || widths.empty()) return widths;
  const auto room = on.width - std::min(on.width, gap * (widths.size() - 1));
  auto total = std::accumulate(widths.begin(), widths.end(), std::size_t{0});
  while (total > room) {
    auto& widest = *std::ranges::max_element(widths);
    if (widest <= least_column) break;
    --widest;
    --total;
  }
  return widths;
}

/// One line of texts that fit their columns.
std::string line_of(const std::vector<cell>& row, const std::vector<std::size_t>& widths,
                    const std::vector<bool>& right, const paper& on) {
  std::string line;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    const auto text = c < row.size() ? cut(row[c].text, widths[c]) : "";
    const std::string pad(widths[c] - std::min(widths[c], width_of(text)), ' ');
    const bool to_right = c < right.size() && right[c];
    const auto shown = toned(text, c < row.size() ? row[c].as : tone::plain, on);
    if (c > 0) line.append(gap, ' ');
    line += to_right ? pad + shown : shown + pad;
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
  const auto widths = widths_of(t, on);
  std::vector<std::string> lines;
  std::vector<cell> head;
  for (const auto& h : t.head) head.push_back({h, tone::soft});
  lines.push_back(line_of(head, widths, t.right, on));
  for (const auto& row : t.rows) lines.push_back(line_of(row, widths, t.right, on));
  return lines;
}

}  // namespace kvlease::inspect
