#include "tools/bench_command.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>

#include "tools/bench/copy_bench.hpp"
#include "tools/bench/detection_bench.hpp"

namespace kvlease {

namespace {

constexpr int status_wrong = 1;
constexpr int status_usage = 2;
constexpr int status_no_device = 3;
constexpr int status_failed = 4;

/// A file that an option names, opened before the run: a bad path should not cost one.
class output_file {
 public:
  result<void> open(const char* option, const std::string& path) {
    if (path.empty()) return {};
    option_ = option;
    path_ = path;
    file_.open(path, std::ios::trunc);
    if (file_) return {};
    return fail(errc::io, fmt::format("{}: can't write '{}': {}", option, path, std::strerror(errno)));
  }
  result<void> write(const std::string& text) {
    if (path_.empty()) return {};
    file_ << text;
    file_.flush();
    if (file_) return {};
    return fail(errc::io, fmt::format("{}: writing '{}' failed", option_, path_));
  }
  bool wanted() const noexcept { return !path_.empty(); }

 private:
  std::string option_, path_;
  std::ofstream file_;
};

result<std::unique_ptr<bench::target>> open_target(const device_choice& device) {
  if (!device.cuda) return bench::open_host_target();
  if (const auto there = check_device(device); !there) return tl::unexpected{there.error()};
  return bench::open_cuda_target(*device.cuda);
}

std::string now_utc() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// Reports errors as one line.
class complaint {
 public:
  complaint(const char* command, std::ostream& err) : command_{command}, err_{err} {}
  int operator()(const std::string& what, int status) const {
    err_ << "kvlease " << command_ << ": " << what << "\n";
    return status;
  }

 private:
  const char* command_;
  std::ostream& err_;
};

}  // namespace

int run_bench_copy(const bench::copy_options& options, const std::string& command, std::ostream& out,
                   std::ostream& err) {
  const complaint complain{"bench copy", err};
  const auto plan = bench::plan_copy_bench(options);
  if (!plan) return complain(plan.error().text, status_usage);
  output_file json, table;
  if (const auto ok = json.open("--json", options.json_path); !ok)
    return complain(ok.error().text, status_usage);
  if (const auto ok = table.open("--table", options.table_path); !ok)
    return complain(ok.error().text, status_usage);
  const auto on = open_target(plan->device);
  if (!on) return complain("--device: " + on.error().text, status_no_device);

  bench::copy_report report;
  report.facts = (*on)->facts();
  report.date = now_utc();
  report.command = command;
  report.in_flight = plan->in_flight;
  report.repetitions = plan->repetitions;
  if (!options.quiet) print_head(report, out);
  const auto ran = bench::run_copy_bench(*plan, **on, report, [&](const bench::copy_cell& cell) {
    if (!options.quiet) print_cell(cell, out);
  });
  if (!options.quiet) print_rest(report, out);
  if (const auto ok = json.write(to_json(report).dump(1) + "\n"); !ok)
    return complain(ok.error().text, status_failed);
  if (!ran) return complain(to_string(ran.error()), status_failed);  // what was measured by then is kept
  if (table.wanted())
    if (const auto ok = table.write(table_of(report).text()); !ok)
      return complain(ok.error().text, status_failed);
  return report.wrong.empty() ? 0 : status_wrong;
}

int run_bench_detection(const bench::detection_options& options, const std::string& command,
                        std::ostream& out, std::ostream& err) {
  const complaint complain{"bench detection", err};
  const auto plan = bench::plan_detection(options);
  if (!plan) return complain(plan.error().text, status_usage);
  output_file json;
  if (const auto ok = json.open("--json", options.json_path); !ok)
    return complain(ok.error().text, status_usage);
  const auto on = open_target(plan->device);
  if (!on) return complain("--device: " + on.error().text, status_no_device);

  bench::detection_report report;
  report.date = now_utc();
  report.command = command;
  if (const auto ran = bench::run_detection_bench(*plan, **on, report); !ran)
    return complain(to_string(ran.error()), status_failed);
  if (!options.quiet) print(report, out);
  if (const auto ok = json.write(to_json(report).dump(1) + "\n"); !ok)
    return complain(ok.error().text, status_failed);
  return report.problems.empty() ? 0 : status_wrong;
}

int run_bench_inspection(const bench::inspection_options& options, std::ostream& out, std::ostream& err) {
  output_file json;
  if (const auto ok = json.open("--json", options.json_path); !ok) {
    err << "kvlease bench: " << ok.error().text << "\n";
    return status_usage;
  }
  const auto r = bench::run_inspection_bench(options);
  if (!r) {
    err << "kvlease bench: " << r.error().text << "\n";
    return r.error().code == errc::invalid ? status_usage : status_failed;
  }
  if (!options.quiet) print(*r, out);
  if (const auto ok = json.write(to_json(*r).dump(2) + "\n"); !ok) {
    err << "kvlease bench: " << ok.error().text << "\n";
    return status_failed;
  }
  return r->wrong_blocks == 0 ? 0 : status_wrong;
}

int run_bench_ucx(const bench::ucx_bench_options& options, std::ostream& out, std::ostream& err) {
  const complaint complain{"bench ucx", err};
  output_file json;
  if (const auto ok = json.open("--json", options.json_path); !ok)
    return complain(ok.error().text, status_usage);
  const auto r = bench::run_ucx_bench(options);
  if (!r) return complain(r.error().text, r.error().code == errc::invalid ? status_usage : status_failed);
  if (!options.quiet) print(*r, out);
  if (const auto ok = json.write(to_json(*r).dump(2) + "\n"); !ok)
    return complain(ok.error().text, status_failed);
  for (const auto& l : r->lines)
    if (l.wrong != 0) return status_wrong;
  return 0;
}

int run_bench_segment(const bench::segment_bench_options& options, std::ostream& out, std::ostream& err) {
  const complaint complain{"bench segment", err};
  output_file json;
  if (const auto ok = json.open("--json", options.json_path); !ok)
    return complain(ok.error().text, status_usage);
  const auto r = bench::run_segment_bench(options);
  if (!r) return complain(r.error().text, r.error().code == errc::invalid ? status_usage : status_failed);
  if (!options.quiet) print(*r, out);
  if (const auto ok = json.write(to_json(*r).dump(2) + "\n"); !ok)
    return complain(ok.error().text, status_failed);
  return r->failed_units == 0 ? 0 : status_wrong;
}

int run_bench_redis(const bench::redis_options& options, std::ostream& out, std::ostream& err) {
  const complaint complain{"bench redis", err};
  output_file json;
  if (const auto ok = json.open("--json", options.json_path); !ok)
    return complain(ok.error().text, status_usage);
  const auto r = bench::run_redis_bench(options);
  if (!r) return complain(r.error().text, r.error().code == errc::invalid ? status_usage : status_failed);
  if (!options.quiet) print(*r, out);
  if (const auto ok = json.write(to_json(*r).dump(2) + "\n"); !ok)
    return complain(ok.error().text, status_failed);
  return 0;
}

}  // namespace kvlease
