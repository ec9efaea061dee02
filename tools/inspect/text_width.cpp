#include "tools/inspect/text_width.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace kvlease::inspect {

namespace {

struct glyph {
  std::string_view bytes;
  std::size_t width = 1;  ///< terminal columns
  bool harmless = true;   ///< no control character
};

/// Two columns: East Asian wide and full-width forms, and pictures (Unicode's EastAsianWidth W and F, by
/// blocks).
bool is_wide(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 9> blocks{{{0x1100, 0x115F},
                                                                 {0x2E80, 0xA4CF},
                                                                 {0xAC00, 0xD7A3},
                                                                 {0xF900, 0xFAFF},
                                                                 {0xFE30, 0xFE6F},
                                                                 {0xFF00, 0xFF60},
                                                                 {0xFFE0, 0xFFE6},
                                                                 {0x1F300, 0x1FAFF},
                                                                 {0x20000, 0x3FFFD}}};
  return std::ranges::any_of(blocks, [c](const auto& b) { return c >= b.first && c <= b.second; });
}
/// No column: combining marks and what is not seen.
bool is_mark(char32_t c) {
  return (c >= 0x300 && c <= 0x36F) || (c >= 0x200B && c <= 0x200F) || (c >= 0xFE00 && c <= 0xFE0F);
}

/// The character at `at` of UTF-8 text, and moves behind it. A byte that begins none stands for itself.
glyph next_glyph(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  char32_t c = length == 1 ? first : first & (0x7FU >> length);
  std::size_t end = at + 1;
  for (; end < text.size() && end < at + length && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80;
       ++end)
    c = (c << 6U) | (static_cast<unsigned char>(text[end]) & 0x3FU);
  glyph g{text.substr(at, end - at)};
  at = end;
  const bool well_formed = g.bytes.size() == length && (length > 1 || first < 0x80);
  g.harmless = well_formed && c >= 0x20 && !(c >= 0x7F && c <= 0x9F);
  if (g.harmless) g.width = is_mark(c) ? 0 : is_wide(c) ? 2 : 1;
  return g;
}

/// The escape that sets colours at `at`; empty where there is none.
std::string_view escape_at(std::string_view line, std::size_t at) {
  if (!line.substr(at).starts_with("\x1b[")) return {};
  const auto end = line.find('m', at);
  return end == std::string_view::npos ? std::string_view{} : line.substr(at, end + 1 - at);
}

}  // namespace

std::size_t width_of(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size();) n += next_glyph(text, at).width;
  return n;
}

std::string cut(std::string_view text, std::size_t width) {
  if (width == 0) return "";
  const bool whole = width_of(text) <= width;
  const auto room = whole ? width : width - 1;
  std::string out;
  std::size_t taken = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto g = next_glyph(text, at);
    if (taken + g.width > room) break;
    taken += g.width;
    if (g.harmless)
      out += g.bytes;
    else
      out += '?';
  }
  return whole ? out : out + "…";
}

std::string clip_line(std::string_view line, std::size_t width) {
  if (width_without_escapes(line) <= width) return std::string{line};
  if (width == 0) return "";
  std::string out;
  std::size_t taken = 0;
  bool painted = false;
  for (std::size_t at = 0; at < line.size();) {
    if (const auto escape = escape_at(line, at); !escape.empty()) {
      painted = escape != "\x1b[0m";
      out += escape;
      at += escape.size();
      continue;
    }
    const auto g = next_glyph(line, at);
    if (taken + g.width > width - 1) break;
    taken += g.width;
    out += g.bytes;
  }
  out += "…";
  return painted ? out + "\x1b[0m" : out;
}

std::size_t width_without_escapes(std::string_view line) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < line.size();) {
    if (const auto escape = escape_at(line, at); !escape.empty())
      at += escape.size();
    else
      n += next_glyph(line, at).width;
  }
  return n;
}

}  // namespace kvlease::inspect
