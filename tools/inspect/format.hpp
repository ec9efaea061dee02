// How figures are written for people.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kvlease::inspect {

/// "850 ms", "12.0 s", "3 min", "-7.0 s".
std::string span_text(double seconds);
/// Of a JSON number; "" for null and for what is not there.
std::string span_text(const nlohmann::json& object, const char* member);
/// "512 B", "16.0 KiB".
std::string size_text(double bytes);

/// A member, or what stands for it where a file from elsewhere lacks it or has another type.
std::string text_of(const nlohmann::json& object, const char* member);
double number_of(const nlohmann::json& object, const char* member, double otherwise = 0);
bool flag_of(const nlohmann::json& object, const char* member);
/// Empty where it is no array.
const nlohmann::json& list_of(const nlohmann::json& object, const char* member);
/// The texts of an array, joined.
std::string joined(const nlohmann::json& array, std::string_view by = ", ");

}  // namespace kvlease::inspect
