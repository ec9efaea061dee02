#include "tools/inspect/format.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace kvlease::inspect {

std::string span_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const double a = std::abs(seconds);
  const auto* sign = seconds < 0 ? "-" : "";
  if (a < 0.001) return fmt::format("{}{:.0f} us", sign, a * 1e6);
  if (a < 1) return fmt::format("{}{:.0f} ms", sign, a * 1e3);
  if (a < 100) return fmt::format("{}{:.1f} s", sign, a);
  if (a < 7200) return fmt::format("{}{:.0f} min", sign, a / 60);
  return fmt::format("{}{:.1f} h", sign, a / 3600);
}

std::string span_text(const nlohmann::json& object, const char* member) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  return it != object.end() && it->is_number() ? span_text(it->get<double>()) : "";
}

std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  while (bytes >= 1024 && u + 1 < units.size()) {
    bytes /= 1024;
    ++u;
  }
  return u == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[u]);
}

std::string text_of(const nlohmann::json& object, const char* member) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  if (it == object.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

double number_of(const nlohmann::json& object, const char* member, double otherwise) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

bool flag_of(const nlohmann::json& object, const char* member) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

const nlohmann::json& list_of(const nlohmann::json& object, const char* member) {
  static const nlohmann::json none = nlohmann::json::array();
  const auto it = object.is_object() ? object.find(member) : object.end();
  return it != object.end() && it->is_array() ? *it : none;
}

std::string joined(const nlohmann::json& array, std::string_view by) {
  std::string out;
  if (!array.is_array()) return out;
  for (const auto& v : array) {
    if (!out.empty()) out += by;
    out += v.is_string() ? v.get<std::string>() : v.dump();
  }
  return out;
}

}  // namespace kvlease::inspect
