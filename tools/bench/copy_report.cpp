#include "tools/bench/copy_report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <string_view>

#include "tools/bench/options.hpp"

namespace kvlease::bench {

namespace {

using json = nlohmann::ordered_json;

std::string_view name_of(copy_section section) {
  switch (section) {
    case copy_section::grid:
      return "grid";
    case copy_section::both:
      return "both";
    case copy_section::sweep:
      return "sweep";
  }
  return "unknown";
}

std::string_view direction_of(const copy_cell& cell) { return cell.kind ? to_string(*cell.kind) : "both"; }

std::string label_of(const copy_cell& cell) {
  return fmt::format("{:<4} {:<4} {:>5} {:>5}", direction_of(cell), to_string(cell.load),
                     size_text(cell.row_bytes), size_text(cell.total_bytes));
}

/// Whether `a` is to be preferred, of two that are about equally fast.
bool gentler(const copy_series& a, const copy_series& b) {
  if (a.load_kept && b.load_kept) return *a.load_kept > *b.load_kept;
  return a.cpu_us_batch < b.cpu_us_batch;
}

const copy_series* best_of(const copy_cell& cell) {
  constexpr double equally_fast = 0.99;
  const auto as_forced = [](const copy_series& s) { return s.path && s.took.empty(); };
  double fastest = 0;
  for (const auto& s : cell.series)
    if (as_forced(s)) fastest = std::max(fastest, s.gbps.median);
  const copy_series* best = nullptr;
  for (const auto& s : cell.series)
    if (as_forced(s) && s.gbps.median >= equally_fast * fastest && (best == nullptr || gentler(s, *best)))
      best = &s;
  return best;
}

json to_json(const spread& s) {
  return {{"p10", s.p10}, {"median", s.median}, {"p90", s.p90}, {"samples", s.samples}};
}

json to_json(const copy_series& s) {
  json j{{"name", s.name}};
  if (s.sm_budget) j["sm_budget"] = *s.sm_budget;
  if (s.chunk_bytes) j["chunk_bytes"] = *s.chunk_bytes;
  if (!s.took.empty()) j["took"] = s.took;
  j["gbps"] = to_json(s.gbps);
  j["share_of_ceiling"] = s.share;
  j["batch_us"] = to_json(s.batch_us);
  j["cpu_us_batch"] = s.cpu_us_batch;
  j["cpu_us_row"] = s.cpu_us_row;
  if (s.load_kept) j["load_kept"] = *s.load_kept;
  return j;
}

json to_json(const copy_cell& cell) {
  json series = json::array();
  for (const auto& s : cell.series) series.push_back(to_json(s));
  json j{{"section", name_of(cell.section)}, {"direction", direction_of(cell)},
         {"load", to_string(cell.load)},     {"row_bytes", cell.row_bytes},
         {"total_bytes", cell.total_bytes},  {"rows", cell.total_bytes / cell.row_bytes}};
  if (cell.load == device_load::busy) j["load_alone_operations_per_second"] = cell.load_alone;
  j["ways"] = std::move(series);
  return j;
}

bool same_names(const copy_cell& a, const copy_cell& b) {
  return std::ranges::equal(a.series, b.series, {}, &copy_series::name, &copy_series::name);
}

/// A table of one figure of each series, the cells below each other.
template <class Figure>
void print_figures(const copy_report& report, copy_section section, const char* title, std::ostream& out,
                   Figure figure) {
  const copy_cell* above = nullptr;
  for (const auto& cell : report.cells) {
    if (cell.section != section) continue;
    if (above == nullptr) fmt::print(out, "\n{}\n", title);
    if (above == nullptr || !same_names(*above, cell)) {
      fmt::print(out, "{:<21}", "");
      for (const auto& s : cell.series) fmt::print(out, " {:>17}", s.name);
      fmt::print(out, "\n");
    }
    fmt::print(out, "{:<21}", label_of(cell));
    for (const auto& s : cell.series) fmt::print(out, " {:>17}", figure(s));
    fmt::print(out, "\n");
    above = &cell;
  }
}

}  // namespace

copy_table table_of(const copy_report& report) {
  std::vector<copy_choice> choices;
  for (const auto& cell : report.cells) {
    if (cell.section != copy_section::grid || !cell.kind) continue;
    if (const auto* best = best_of(cell))
      choices.push_back({*cell.kind, cell.load, cell.row_bytes, cell.total_bytes, *best->path});
  }
  return {report.facts.device, std::move(choices)};
}

json to_json(const copy_report& r) {
  json cells = json::array();
  for (const auto& cell : r.cells) cells.push_back(to_json(cell));
  return {{"schema_version", copy_schema_version},
          {"bench", "copy"},
          {"device", r.facts.device},
          {"bus_id", r.facts.bus_id},
          {"multiprocessors", r.facts.multiprocessors},
          {"memory_bytes", r.facts.memory_bytes},
          {"driver", r.facts.driver},
          {"runtime", r.facts.runtime},
          {"date", r.date},
          {"command", r.command},
          {"in_flight", r.in_flight},
          {"repetitions", r.repetitions},
          {"window_bytes", r.window_bytes},
          {"seconds", r.seconds},
          {"wrong", r.wrong},
          {"cells", std::move(cells)}};
}

void print_head(const copy_report& r, std::ostream& out) {
  fmt::print(out, "copies on {}{}\n{}, {}\n", r.facts.device,
             r.facts.driver.empty()
                 ? std::string{}
                 : fmt::format(" ({}, {} multiprocessors), driver {}, runtime {}", r.facts.bus_id,
                               r.facts.multiprocessors, r.facts.driver, r.facts.runtime),
             r.date, r.command);
  fmt::print(out,
             "GB/s: median (p10-p90) of {} samples or more, and the share of one contiguous copy of the same "
             "total; {} batch(es) in flight\n",
             r.repetitions, r.in_flight);
  fmt::print(out, "{:<4} {:<4} {:>5} {:>5}\n", "way", "load", "row", "total");
}

void print_cell(const copy_cell& cell, std::ostream& out) {
  if (cell.section == copy_section::sweep || cell.section == copy_section::both) {
    fmt::print(out, "{}\n", label_of(cell));
    for (const auto& s : cell.series)
      fmt::print(out, "  {:<28} {:>6.2f} ({:.2f}-{:.2f}) {:>4.0f}%{}{}\n", s.name, s.gbps.median, s.gbps.p10,
                 s.gbps.p90, s.share * 100, s.took.empty() ? "" : "  took " + s.took,
                 s.load_kept ? fmt::format("  load keeps {:.1f}%", *s.load_kept * 100) : "");
  } else {
    fmt::print(out, "{}", label_of(cell));
    for (const auto& s : cell.series)
      fmt::print(out, " | {} {:.2f} ({:.2f}-{:.2f}) {:.0f}%", s.took.empty() ? s.name : s.name + "=" + s.took,
                 s.gbps.median, s.gbps.p10, s.gbps.p90, s.share * 100);
    fmt::print(out, "\n");
  }
  out.flush();
}

void print_rest(const copy_report& r, std::ostream& out) {
  for (const auto section : {copy_section::grid, copy_section::both}) {
    print_figures(
        r, section, "CPU, us a batch (us a row): enqueue and record", out,
        [](const copy_series& s) { return fmt::format("{:.1f} ({:.3f})", s.cpu_us_batch, s.cpu_us_row); });
  }
  if (std::ranges::any_of(r.cells, [](const copy_cell& c) { return c.load == device_load::busy; }))
    print_figures(r, copy_section::grid, "What the compute load keeps of its rate alone", out,
                  [](const copy_series& s) {
                    return s.load_kept ? fmt::format("{:.1f}%", *s.load_kept * 100) : std::string{"-"};
                  });
  fmt::print(out, "\ncontents: {}; {:.0f} s in all\n",
             r.wrong.empty() ? "every byte compared, all right" : fmt::format("{} WRONG", r.wrong.size()),
             r.seconds);
  for (const auto& line : r.wrong) fmt::print(out, "WRONG {}\n", line);
}

}  // namespace kvlease::bench
