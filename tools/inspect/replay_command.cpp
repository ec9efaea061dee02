#include "tools/inspect/replay_command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "src/journal_check.hpp"
#include "src/journal_file.hpp"
#include "tools/inspect/json_writer.hpp"
#include "tools/inspect/render_json.hpp"

namespace kvlease::inspect {

namespace {

/// The record as one line: its time, who noted it, and what it is about.
std::string line_of(const journal_record& r) {
  auto line = fmt::format("record {} at {:.6f} s: {} from the {}", r.sequence,
                          static_cast<double>(r.at) / 1e9, to_string(r.kind), to_string(r.from));
  for (const auto& [name, id] :
       {std::pair{"operation", r.operation}, {"lease", r.lease}, {"request", r.request}})
    if (id != 0) line += fmt::format(", {} {}", name, id_text(id));
  return line;
}

void print_json(const std::string& file, const journal_on_file& j, const journal_verdict& v,
                std::ostream& out) {
  std::string text;
  json_writer w{text};
  w.begin_object();
  w.key("schema_version").number(inspection_schema_version);
  w.key("file").text(file);
  w.key("runtime").number(j.runtime.value);
  w.key("records").number(j.records.size());
  w.key("checked").number(v.records);
  w.key("lost").number(j.lost);
  w.key("cut_bytes").number(j.cut_bytes);
  w.key("whole").boolean(v.whole);
  w.key("operations_open").number(v.operations_open);
  w.key("leases_open").number(v.leases_open);
  w.key("broken");
  if (v.broken) {
    w.begin_object();
    w.key("rule").text(v.broken->rule);
    w.key("sequence").number(v.broken->sequence);
    w.key("what").text(v.broken->what);
    w.end_object();
  } else {
    w.null();
  }
  w.end_object();
  out << text << "\n";
}

void print(const journal_on_file& j, const journal_verdict& v, std::ostream& out) {
  out << fmt::format("journal of runtime {}: {} records", j.runtime.value, j.records.size());
  if (j.lost > 0) out << fmt::format(", {} lost", j.lost);
  if (j.cut_bytes > 0) out << fmt::format(", the last {} bytes are cut off", j.cut_bytes);
  out << "\n";
  if (!v.whole) out << "records are missing: what lies before each gap is not held against what follows\n";
  if (v.broken) {
    const auto what = v.broken->rule == "form" ? "the form of a record" : "rule " + v.broken->rule;
    out << fmt::format("{} is broken: {}\n", what, v.broken->what);
    const auto it = std::ranges::find(j.records, v.broken->sequence, &journal_record::sequence);
    if (it != j.records.end()) out << "  " << line_of(*it) << "\n";
    return;
  }
  if (j.records.empty()) {
    out << "nothing is in it, so nothing is shown\n";
    return;
  }
  out << fmt::format(
      "every rule that a journal shows holds in these records; {} operations and {} leases are open at the "
      "end\n",
      v.operations_open, v.leases_open);
}

}  // namespace

int run_replay(const replay_options& options, std::ostream& out, std::ostream& err) {
  int worst = 0;
  for (const auto& file : options.files) {
    const auto j = read_journal_file(file);
    if (!j) {
      err << "kvlease inspect replay: " << j.error().text << "\n";
      worst = 2;
      continue;
    }
    const auto v = check_journal(j->runtime, j->records);
    if (options.json) {
      print_json(file, *j, v, out);
    } else {
      if (options.files.size() > 1) out << file << ": ";
      print(*j, v, out);
    }
    worst = std::max(worst, v.broken ? 1 : 0);
  }
  return worst;
}

CLI::App* add_replay(CLI::App& inspect, replay_options& o) {
  auto* sub = inspect.add_subcommand("replay", "Check journal files against every rule that they can show");
  sub->add_option("file", o.files, "Journal files, as runtime_options.journal_file names them; - from a pipe")
      ->required();
  sub->add_flag("--json", o.json, "Machine-readable output, a line for each file");
  return sub;
}

}  // namespace kvlease::inspect
