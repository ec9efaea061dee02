#include "tools/bench/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "tools/replay/options.hpp"

namespace kvlease::bench {

namespace {

constexpr std::size_t kib = std::size_t{1} << 10;
constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t gib = std::size_t{1} << 30;

tl::unexpected<error> refuse(const char* option, const std::string& value, const std::string& rule) {
  return fail(errc::invalid, fmt::format("--{} is '{}', must be {}", option, value, rule));
}

template <class T>
result<void> in_range(const char* option, T value, T least, T most) {
  if (value >= least && value <= most) return {};
  return fail(errc::invalid, fmt::format("--{} is {}, must be {} to {}", option, value, least, most));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t comma = text.find(','); comma != std::string::npos; comma = text.find(',', from)) {
    parts.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  parts.push_back(text.substr(from));
  return parts;
}

/// Each part of a comma-separated option, read by `read`.
template <class T, class Read>
result<std::vector<T>> list_of(const char* option, const std::string& text, Read read) {
  std::vector<T> values;
  for (const auto& part : split(text)) {
    auto value = read(part);
    if (!value)
      return fail(value.error().code, fmt::format("--{} is '{}': {}", option, text, value.error().text));
    if (std::find(values.begin(), values.end(), *value) != values.end())
      return refuse(option, text, "without repetitions");
    values.push_back(*value);
  }
  return values;
}

result<std::size_t> size_within(const char* option, const std::string& text, std::size_t least,
                                std::size_t most) {
  const auto value = parse_size(text);
  if (!value) return fail(errc::invalid, fmt::format("--{}: {}", option, value.error().text));
  if (*value < least || *value > most)
    return refuse(option, text, fmt::format("{} to {}", size_text(least), size_text(most)));
  return *value;
}

result<std::chrono::nanoseconds> time_within(const std::string& text, double least, double most) {
  const auto value = replay::parse_duration(text);
  if (!value) return tl::unexpected{value.error()};
  if (value->count() < least || value->count() > most)
    return fail(errc::invalid, fmt::format("{} must be {} s to {} s", text, least, most));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(*value);
}

result<std::size_t> count_from(const std::string& text) {
  std::size_t value = 0;
  const auto* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc{} || rest != end || value > 1'000'000)
    return fail(errc::invalid, fmt::format("'{}' must be a number from 0 to 1000000", text));
  return value;
}

result<device_choice> device_from(const std::string& text) {
  auto device = parse_device_choice(text);
  if (!device) return fail(errc::invalid, "--device: " + device.error().text);
  return device;
}

result<void> read_shapes(const copy_options& o, copy_bench_plan& plan) {
  auto rows = list_of<std::size_t>("rows", o.rows, parse_size);
  if (!rows) return tl::unexpected{rows.error()};
  auto totals = list_of<std::size_t>("totals", o.totals, parse_size);
  if (!totals) return tl::unexpected{totals.error()};
  for (const auto row : *rows)
    if (row < 64 || row > gib || row % 8 != 0)
      return refuse("rows", o.rows, "64 to 1G each, in multiples of 8");
  for (const auto total : *totals) {
    if (total > 8 * gib) return refuse("totals", o.totals, "8G or less each");
    for (const auto row : *rows)
      if (total >= row && total % row != 0)
        return refuse("totals", o.totals,
                      fmt::format("multiples of every row size; {} is none of {}", total, row));
  }
  plan.rows = *std::move(rows);
  plan.totals = *std::move(totals);
  if (*std::min_element(plan.rows.begin(), plan.rows.end()) > plan.most_total())
    return refuse("totals", o.totals, "at least one row");
  return {};
}

result<void> read_directions(const std::string& text, copy_bench_plan& plan) {
  if (text == "all" || text == "h2d") plan.directions.push_back(copy_kind::host_to_device);
  if (text == "all" || text == "d2h") plan.directions.push_back(copy_kind::device_to_host);
  if (plan.directions.empty()) return refuse("direction", text, "h2d, d2h or all");
  return {};
}

result<void> read_paths(const std::string& text, copy_bench_plan& plan) {
  plan.selected = false;
  for (const auto& name : split(text)) {
    if (name == "selected") {
      plan.selected = true;
      continue;
    }
    const auto* const found = std::find_if(all_copy_paths.begin(), all_copy_paths.end(),
                                           [&](copy_path p) { return to_string(p) == name; });
    if (found == all_copy_paths.end())
      return refuse("paths", text, "some of rows, batch, kernel, bulk, selected");
    if (std::find(plan.paths.begin(), plan.paths.end(), *found) == plan.paths.end())
      plan.paths.push_back(*found);
  }
  return {};
}

result<void> read_sizes(const copy_options& o, copy_bench_plan& plan) {
  const auto window = size_within("window", o.window, kib, 8 * gib);
  if (!window) return tl::unexpected{window.error()};
  const auto bounce = size_within("bounce", o.bounce, 2 * mib, 8 * gib);
  if (!bounce) return tl::unexpected{bounce.error()};
  const auto chunk = size_within("chunk", o.chunk, mib, *bounce / 2);
  if (!chunk) return tl::unexpected{chunk.error()};
  plan.window_bytes = *window;
  plan.bounce_bytes = *bounce;
  plan.chunk_bytes = *chunk;
  return {};
}

}  // namespace

result<std::size_t> parse_size(const std::string& text) {
  std::size_t value = 0;
  const auto* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  const std::string_view unit{rest, static_cast<std::size_t>(end - rest)};
  const std::size_t scale = unit.empty() ? 1 : unit == "K" ? kib : unit == "M" ? mib : unit == "G" ? gib : 0;
  if (problem != std::errc{} || scale == 0 || value == 0 || value > SIZE_MAX / scale)
    return fail(errc::invalid,
                fmt::format("'{}' is no size: a number from 1, and K, M or G, such as 64K", text));
  return value * scale;
}

std::string size_text(std::size_t bytes) {
  for (const auto& [unit, name] : {std::pair{gib, 'G'}, {mib, 'M'}, {kib, 'K'}})
    if (bytes >= unit && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, name);
  return fmt::format("{}", bytes);
}

std::size_t copy_bench_plan::most_total() const { return *std::max_element(totals.begin(), totals.end()); }

result<copy_bench_plan> plan_copy_bench(const copy_options& o) {
  copy_bench_plan plan;
  auto device = device_from(o.device);
  if (!device) return tl::unexpected{device.error()};
  plan.device = *device;
  for (const auto& ok :
       {read_shapes(o, plan), read_directions(o.direction, plan), read_paths(o.paths, plan),
        read_sizes(o, plan), in_range<std::size_t>("repetitions", o.repetitions, 1, 1'000'000),
        in_range<std::size_t>("in-flight", o.in_flight, 1, 10'000),
        in_range<unsigned>("sm-budget", o.sm_budget, 1, 1024)})
    if (!ok) return tl::unexpected{ok.error()};
  const auto min_time = time_within(o.min_time, 0, 60);
  if (!min_time) return fail(errc::invalid, "--min-time: " + min_time.error().text);
  if (!o.sweep.empty() && o.sweep != "sm") return refuse("sweep", o.sweep, "sm");
  if (o.no_grid && !o.both && o.sweep.empty())
    return fail(errc::invalid, "--no-grid leaves nothing to measure without --both or --sweep");
  if (o.no_grid && !o.table_path.empty())
    return fail(errc::invalid, "--table needs the grid that --no-grid leaves out");
  if (o.load && !plan.device.cuda)
    return fail(errc::invalid, "--load needs a GPU: the host stand-in has no multiprocessors to keep busy");
  plan.repetitions = o.repetitions;
  plan.min_time = *min_time;
  plan.in_flight = o.in_flight;
  plan.sm_budget = o.sm_budget;
  plan.load = o.load;
  plan.both = o.both;
  plan.grid = !o.no_grid;
  plan.sweep = !o.sweep.empty();
  plan.seed = o.seed;
  return plan;
}

result<detection_plan> plan_detection(const detection_options& o) {
  detection_plan plan;
  auto device = device_from(o.device);
  if (!device) return tl::unexpected{device.error()};
  plan.device = *device;
  if (const auto ok = in_range<std::size_t>("rounds", o.rounds, 1, 1'000'000); !ok)
    return tl::unexpected{ok.error()};
  plan.rounds = o.rounds;
  auto holds = list_of<std::chrono::nanoseconds>(
      "holds", o.holds, [](const std::string& part) { return time_within(part, 0, 1); });
  if (!holds) return tl::unexpected{holds.error()};
  plan.holds = *std::move(holds);
  auto pending = list_of<std::size_t>("pending", o.pending, count_from);
  if (!pending) return tl::unexpected{pending.error()};
  plan.pending = *std::move(pending);
  const auto watch = time_within(o.watch, 0.01, 10);
  if (!watch) return fail(errc::invalid, "--watch: " + watch.error().text);
  plan.watch = *watch;
  return plan;
}

}  // namespace kvlease::bench
