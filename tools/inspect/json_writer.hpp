// Writes JSON into one string, front to back. A snapshot of ten thousand operations has some 300,000 values:
// a tree of them would cost more than all the rest of the answer.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvlease::inspect {

/// Calls must nest as JSON does; keys stand in objects only. Text that is not UTF-8 is written as it can be,
/// with '?' for bytes that can't.
class json_writer {
 public:
  explicit json_writer(std::string& out) : out_{out} {}

  json_writer& begin_object() { return open('{'); }
  json_writer& end_object() { return close('}'); }
  json_writer& begin_array() { return open('['); }
  json_writer& end_array() { return close(']'); }
  json_writer& key(std::string_view name);

  json_writer& text(std::string_view value);
  json_writer& number(std::integral auto value) { return raw(std::to_string(value)); }
  json_writer& number(double value);
  json_writer& boolean(bool value) { return raw(value ? "true" : "false"); }
  json_writer& null() { return raw("null"); }
  /// null for none.
  json_writer& seconds(std::optional<std::chrono::nanoseconds> value);
  /// What is JSON already.
  json_writer& raw(std::string_view value);

 private:
  json_writer& open(char bracket);
  json_writer& close(char bracket);
  void separate();
  void quoted(std::string_view value);

  std::string& out_;
  bool first_ = true;  ///< nothing stands before the next value in this object or array
};

}  // namespace kvlease::inspect
