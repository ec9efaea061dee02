#include "tools/replay_command.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>

#include "tools/replay/replay.hpp"

namespace kvlease {

int run_replay_command(const replay::replay_options& options, std::ostream& out, std::ostream& err,
                       bool err_is_terminal) {
  const auto complain = [&err](const std::string& what) {
    err << "kvlease replay: " << what << "\n";
    return 2;
  };
  std::ofstream json;
  if (!options.json_path.empty()) {
    json.open(options.json_path, std::ios::trunc);  // before the run: a bad path should not cost one
    if (!json) return complain("--json: can't write '" + options.json_path + "': " + std::strerror(errno));
  }
  auto plan = replay::plan_replay(options);
  if (!plan) return complain(plan.error().text);
  if (plan->role == replay::replay_role::publish)
    plan->before_stop = [&out](const std::string& provider) {
      out << "published; serving until the input ends: " << provider << std::endl;
      std::cin.ignore(std::numeric_limits<std::streamsize>::max());
    };
  const auto report = replay::run_replay(*plan, err_is_terminal && !options.quiet ? &err : nullptr);
  if (!report) return complain(report.error().text);
  if (json.is_open()) {
    json << to_json(*report).dump(2) << "\n";
    json.flush();
    if (!json) return complain("--json: writing '" + options.json_path + "' failed");
  }
  if (!options.quiet) print(*report, out);
  return report->exit_status();
}

}  // namespace kvlease
