#include "tools/inspect/json_writer.hpp"

#include <fmt/format.h>

#include <cmath>

namespace kvlease::inspect {

namespace {

/// Length of the UTF-8 sequence at the start of `s`; 0 when there is none.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&s](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const auto lead = byte(0);
  const std::size_t n = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (n == 0 || lead > 0xF4 || s.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  // Overlong forms, surrogates, and what is past the last code point.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F))
    return 0;
  return n;
}

/// Stands in a text as it is, whatever follows.
bool is_plain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

}  // namespace

void json_writer::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

json_writer& json_writer::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
  return *this;
}

json_writer& json_writer::close(char bracket) {
  out_ += bracket;
  first_ = false;
  return *this;
}

json_writer& json_writer::key(std::string_view name) {
  separate();
  quoted(name);
  out_ += ':';
  first_ = true;  // its value follows without a comma
  return *this;
}

json_writer& json_writer::text(std::string_view value) {
  separate();
  quoted(value);
  return *this;
}

json_writer& json_writer::raw(std::string_view value) {
  separate();
  out_ += value;
  return *this;
}

json_writer& json_writer::number(double value) {
  return std::isfinite(value) ? raw(fmt::format("{}", value)) : null();
}

json_writer& json_writer::seconds(std::optional<std::chrono::nanoseconds> value) {
  if (!value) return null();
  const auto ns = value->count();
  const auto whole = ns / 1'000'000'000, rest = ns % 1'000'000'000;
  separate();
  if (ns < 0 && whole == 0) out_ += '-';
  out_ += std::to_string(whole);
  if (rest == 0) return *this;
  auto digits = std::to_string(1'000'000'000 + (rest < 0 ? -rest : rest));
  digits[0] = '.';
  while (digits.back() == '0') digits.pop_back();
  out_ += digits;
  return *this;
}

void json_writer::quoted(std::string_view value) {
  out_ += '"';
  while (!value.empty()) {
    std::size_t plain = 0;
    while (plain < value.size() && is_plain(value[plain])) ++plain;
    out_.append(value.data(), plain);
    value.remove_prefix(plain);
    if (value.empty()) break;
    const char c = value.front();
    std::size_t taken = 1;
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out_), "\\u{:04x}", static_cast<unsigned>(c));
    } else if (const auto n = utf8_length(value); n > 0) {
      out_.append(value.data(), n);
      taken = n;
    } else {
      out_ += '?';
    }
    value.remove_prefix(taken);
  }
  out_ += '"';
}

}  // namespace kvlease::inspect
