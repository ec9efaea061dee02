#include "tools/bench/detection_report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

namespace kvlease::bench {

namespace {

double us(std::chrono::nanoseconds t) { return std::chrono::duration<double, std::micro>(t).count(); }

}  // namespace

nlohmann::ordered_json to_json(const detection_report& r) {
  using json = nlohmann::ordered_json;
  json detection = json::array();
  for (const auto& s : r.detection)
    detection.push_back({{"name", s.name},
                         {"pending_for_us", us(s.hold)},
                         {"p10_us", s.us.p10},
                         {"p50_us", s.us.median},
                         {"p90_us", s.us.p90},
                         {"p99_us", s.us.p99},
                         {"samples", s.us.samples}});
  json pending = json::array();
  for (const auto& p : r.pending)
    pending.push_back({{"pending", p.pending},
                       {"seconds", p.seconds},
                       {"cpu_seconds", p.cpu_seconds},
                       {"cpu_share", p.seconds > 0 ? p.cpu_seconds / p.seconds : 0},
                       {"queries", p.queries}});
  return {{"schema_version", detection_schema_version},
          {"bench", "detection"},
          {"device", r.facts.device},
          {"bus_id", r.facts.bus_id},
          {"driver", r.facts.driver},
          {"runtime", r.facts.runtime},
          {"date", r.date},
          {"command", r.command},
          {"target_p50_us", detection_target_us},
          {"detection", std::move(detection)},
          {"pending", std::move(pending)},
          {"notes", r.notes},
          {"problems", r.problems}};
}

void print(const detection_report& r, std::ostream& out) {
  fmt::print(out, "detection on {}{}\n{}, {}\n\n", r.facts.device,
             r.facts.driver.empty() ? std::string{}
                                    : fmt::format(", driver {}, runtime {}", r.facts.driver, r.facts.runtime),
             r.date, r.command);
  fmt::print(
      out,
      "from the last byte of the copy being readable, us (target: a median below {:.0f} at the client)\n",
      detection_target_us);
  fmt::print(out, "  {:<44} {:>12} {:>8} {:>8} {:>8} {:>8}\n", "", "pending for", "p10", "p50", "p99",
             "rounds");
  for (const auto& s : r.detection)
    fmt::print(out, "  {:<44} {:>9.0f} us {:>8.1f} {:>8.1f} {:>8.1f} {:>8}\n", s.name, us(s.hold), s.us.p10,
               s.us.median, s.us.p99, s.us.samples);
  fmt::print(out, "\nthe CUDA actor's thread while copies wait behind a held stream\n");
  fmt::print(out, "  {:>8} {:>10} {:>10} {:>12}\n", "pending", "seconds", "CPU", "queries");
  for (const auto& p : r.pending)
    fmt::print(out, "  {:>8} {:>10.2f} {:>9.2f}% {:>12}\n", p.pending, p.seconds,
               p.seconds > 0 ? 100 * p.cpu_seconds / p.seconds : 0, p.queries);
  for (const auto& line : r.notes) fmt::print(out, "note: {}\n", line);
  for (const auto& line : r.problems) fmt::print(out, "PROBLEM: {}\n", line);
}

}  // namespace kvlease::bench
