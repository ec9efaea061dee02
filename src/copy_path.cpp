#include "src/copy_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

namespace kvlease {

namespace {

constexpr std::size_t kib = 1024, mib = kib * kib;

result<copy_kind> parse_kind(std::string_view name) {
  if (name == "h2d") return copy_kind::host_to_device;
  if (name == "d2h") return copy_kind::device_to_host;
  return fail(errc::invalid, fmt::format("direction is \"{}\", must be h2d or d2h", name));
}

result<device_load> parse_load(std::string_view name) {
  if (name == "idle") return device_load::idle;
  if (name == "busy") return device_load::busy;
  return fail(errc::invalid, fmt::format("load is \"{}\", must be idle or busy", name));
}

result<std::size_t> parse_size(std::string_view text) {
  std::size_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc{} || end != text.data() + text.size() || n == 0)
    return fail(errc::invalid,
                fmt::format("size is \"{}\", must be a whole number of bytes, 1 or more", text));
  return n;
}

result<copy_choice> parse_choice(const std::vector<std::string>& words) {
  if (words.size() != 5)
    return fail(
        errc::invalid,
        fmt::format("{} words, must be 5: direction, load, row bytes, total bytes, path", words.size()));
  const auto kind = parse_kind(words[0]);
  if (!kind) return tl::unexpected{kind.error()};
  const auto load = parse_load(words[1]);
  if (!load) return tl::unexpected{load.error()};
  const auto row = parse_size(words[2]);
  if (!row) return tl::unexpected{row.error()};
  const auto total = parse_size(words[3]);
  if (!total) return tl::unexpected{total.error()};
  const auto path = parse_copy_path(words[4]);
  if (!path) return tl::unexpected{path.error()};
  return copy_choice{*kind, *load, *row, *total, *path};
}

double log_distance(std::size_t a, std::size_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

/// For devices that nobody has measured: few large rows go as they are, small batches by one kernel, all
/// else through the bounce buffer, where the copy engines carry the bytes.
copy_path unmeasured(std::size_t row_bytes, std::size_t total_bytes) {
  if (row_bytes >= 8 * mib) return copy_path::rows;
  return total_bytes < 2 * mib ? copy_path::kernel : copy_path::bulk;
}

}  // namespace

std::string_view to_string(copy_path path) noexcept {
  switch (path) {
    case copy_path::rows:
      return "rows";
    case copy_path::batch:
      return "batch";
    case copy_path::kernel:
      return "kernel";
    case copy_path::bulk:
      return "bulk";
  }
  return "unknown";
}

std::string_view to_string(device_load load) noexcept { return load == device_load::idle ? "idle" : "busy"; }

std::string_view to_string(copy_kind kind) noexcept {
  return kind == copy_kind::host_to_device ? "h2d" : "d2h";
}

result<copy_path> parse_copy_path(std::string_view name) {
  for (const auto path : all_copy_paths)
    if (to_string(path) == name) return path;
  return fail(errc::invalid, fmt::format("copy path is \"{}\", must be rows, batch, kernel or bulk", name));
}

copy_table::copy_table(std::string device, std::vector<copy_choice> choices)
    : device_{std::move(device)}, choices_{std::move(choices)} {}

result<copy_table> copy_table::parse(std::string_view text) {
  copy_table table;
  std::istringstream lines{std::string{text}};
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    std::istringstream in{line};
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) continue;
    if (words[0] == "device") {
      const auto at = line.find("device") + 6;
      const auto from = line.find_first_not_of(" \t", at);
      const auto to = line.find_last_not_of(" \t\r");
      if (from == std::string::npos || from > to)
        return fail(errc::invalid, fmt::format("copy table, line {}: the device has no name", number));
      table.device_ = line.substr(from, to + 1 - from);
      continue;
    }
    const auto choice = parse_choice(words);
    if (!choice)
      return fail(errc::invalid, fmt::format("copy table, line {}: {}", number, choice.error().text));
    table.choices_.push_back(*choice);
  }
  return table;
}

std::string copy_table::text() const {
  std::string out = fmt::format("device {}\n# direction load row_bytes total_bytes path\n", device_);
  for (const auto& c : choices_)
    out += fmt::format("{} {} {} {} {}\n", to_string(c.kind), to_string(c.load), c.row_bytes, c.total_bytes,
                       to_string(c.path));
  return out;
}

copy_path copy_table::choose(const batch_shape& shape) const {
  if (shape.rows == 0 || shape.total_bytes == 0) return copy_path::rows;
  const auto row_bytes = std::max<std::size_t>(shape.total_bytes / shape.rows, 1);
  if (shape.rows == 1 && shape.total_bytes >= 64 * kib) return copy_path::rows;  // one copy is the ceiling
  // Copies over the bus as small as this cost more than a kernel does.
  const bool scattered_staging = shape.runs > 1 && shape.total_bytes / shape.runs < mib;
  const auto usable = [&](copy_path p) { return !(p == copy_path::bulk && scattered_staging); };
  const copy_choice* best = nullptr;
  auto least = std::numeric_limits<double>::infinity();
  for (const auto& c : choices_) {
    if (c.kind != shape.kind || c.load != shape.load || !usable(c.path)) continue;
    const auto distance =
        log_distance(c.row_bytes, row_bytes) + log_distance(c.total_bytes, shape.total_bytes);
    if (distance < least) {
      least = distance;
      best = &c;
    }
  }
  if (best != nullptr) return best->path;
  const auto path = unmeasured(row_bytes, shape.total_bytes);
  return usable(path) ? path : copy_path::kernel;
}

}  // namespace kvlease
