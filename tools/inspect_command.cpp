#include "tools/inspect_command.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tools/inspect/format.hpp"
#include "tools/inspect/http_client.hpp"
#include "tools/inspect/target.hpp"
#include "tools/inspect/top.hpp"
#include "tools/inspect/views.hpp"

namespace kvlease {

namespace {

using inspect::inspect_options;
using inspect::target;
using nlohmann::json;

/// The terminal's width, and colour unless NO_COLOR is set; elsewhere plain lines of any length.
inspect::paper paper_of(bool terminal) {
  if (!terminal) return {};
  winsize size{};
  const char* plain = std::getenv("NO_COLOR");
  return {::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : std::size_t{80},
          plain == nullptr || *plain == 0};
}

class command {
 public:
  command(const inspect_options& o, const target& t, std::ostream& out, std::ostream& err, bool terminal)
      : o_{o}, t_{t}, out_{out}, err_{err}, terminal_{terminal}, paper_{paper_of(terminal)} {}

  int run() {
    if (o_.command == "top") return top();
    if (o_.command == "ls") return ls();
    if (o_.command == "why") return why();
    if (o_.command == "watch") return watch();
    if (o_.command == "health") return health();
    if (o_.command == "snapshot") return snapshot();
    if (o_.command == "metrics") return plain(o_.json ? "/metrics?format=json" : "/metrics");
    return plain("/trace");
  }

  int complain(const error& e) {
    err_ << "kvlease inspect: " << e.text << "\n";
    const bool unreachable = e.code == errc::io || e.code == errc::timeout;
    return unreachable ? inspect::not_reachable : inspect::bad_usage;
  }

 private:
  int by_health() {
    const auto h = t_.health();
    return h ? inspect::status_of_health(*h) : complain(h.error());
  }
  void print(const std::vector<std::string>& lines) {
    for (const auto& l : lines) out_ << l << "\n";
  }

  /// That there are others, where nobody has said which.
  void say_which(const json& snapshot) {
    const auto all = inspect::number_of(snapshot, "runtimes");
    if (all > 1 && !o_.runtime)
      err_ << fmt::format("runtime {:.0f} of {:.0f}; --runtime N shows another\n",
                          inspect::number_of(snapshot, "runtime_index"), all);
  }

  int top() {
    if (terminal_ && !o_.json) {
      const auto ended = inspect::run_top(t_, o_, STDIN_FILENO, STDOUT_FILENO);
      return ended ? by_health() : complain(ended.error());
    }
    // Once, for what is no terminal.
    const auto s = t_.snapshot(o_.limit);
    if (!s) return complain(s.error());
    if (o_.json) {
      out_ << s->dump() << "\n";
    } else {
      print(inspect::summary_lines(*s, paper_));
      out_ << "\n";
      print(inspect::lay_out(inspect::list_table(*s, "operations"), paper_));
    }
    return inspect::status_of_health(inspect::text_of(*s, "health"));
  }

  int ls() {
    if (std::ranges::find(inspect::listable, o_.what) == inspect::listable.end()) {
      std::string known;
      for (const auto w : inspect::listable) known += (known.empty() ? "" : ", ") + std::string{w};
      return complain({errc::invalid, fmt::format("there is no list '{}': known are {}", o_.what, known)});
    }
    const auto s = t_.snapshot(o_.limit);
    if (!s) return complain(s.error());
    if (o_.json) {
      json one{{"schema_version", inspection_schema_version},
               {o_.what, inspect::list_of(*s, o_.what.c_str())}};
      if (const auto total = o_.what + "_total"; s->contains(total)) one[total] = (*s)[total];
      out_ << one.dump() << "\n";
    } else {
      const auto t = inspect::list_table(*s, o_.what);
      print(inspect::lay_out(t, paper_));
      say_which(*s);
      const auto total = inspect::number_of(*s, (o_.what + "_total").c_str());
      if (total > static_cast<double>(t.rows.size()))
        out_ << fmt::format("the oldest {} of {:.0f}; --limit shows more\n", t.rows.size(), total);
    }
    return inspect::status_of_health(inspect::text_of(*s, "health"));
  }

  int why() {
    auto kind = o_.kind, id = o_.id;
    if (id.empty()) {
      const auto slash = std::min(kind.find('/'), kind.size());
      id = kind.substr(std::min(slash + 1, kind.size()));
      kind.resize(slash);
    }
    const auto known = parse_subject_kind(kind);
    if (!known || id.empty())
      return complain({errc::invalid,
                       "why needs KIND ID: a lease, operation, slot, address, request or "
                       "registration, such as lease 1.7"});
    const auto answer = t_.why({*known, id});
    if (!answer) return complain(answer.error());
    if (o_.json)
      out_ << answer->dump() << "\n";
    else
      print(inspect::why_lines(*answer, paper_));
    if (!inspect::flag_of(*answer, "found")) return inspect::not_known;
    const auto& holders = inspect::list_of(*answer, "holders");
    if (holders.empty())
      return inspect::list_of(*answer, "unknown").empty() ? inspect::all_healthy : inspect::something_held;
    if (const auto it = answer->find("facts"); it != answer->end() && it->contains("fatal"))
      return inspect::something_unproven;
    return std::ranges::any_of(holders,
                               [](const json& h) {
                                 const auto reason = inspect::text_of(h, "reason");
                                 return reason == "quarantined" ||
                                        (reason != "registered_by_backend" &&
                                         inspect::number_of(h, "next_in_seconds", 1) < 0);
                               })
               ? inspect::something_unproven
               : inspect::something_held;
  }

  /// Of all runtimes, or of the one that was chosen.
  int health() {
    const auto all = t_.health_of_all();
    if (!all) return complain(all.error());
    const auto status = inspect::status_of_health(inspect::text_of(*all, "health"));
    if (o_.json) {
      json out = *all;
      if (!t_.live())
        out = {{"schema_version", inspection_schema_version},
               {"health", all->value("health", json{})},
               {"status", status},
               {"fatal", all->contains("fatal") && !(*all)["fatal"].is_null()},
               {"exposure_bytes", all->value("exposure_bytes", json{0})},
               {"drain", all->value("drain", json{})}};
      out_ << out.dump() << "\n";
      return status;
    }
    const auto& runtimes = inspect::list_of(*all, "runtimes");
    if (runtimes.size() > 1)
      out_ << "of " << runtimes.size() << " runtimes, the worst: " << inspect::text_of(*all, "health")
           << "\n";
    for (std::size_t i = 0; i < std::max<std::size_t>(runtimes.size(), 1); ++i) {
      const auto index = static_cast<std::size_t>(
          i < runtimes.size() ? inspect::number_of(runtimes[i], "runtime_index") : 0);
      const auto ok = show_health(t_.of_runtime(index));
      if (!ok) return complain(ok.error());
    }
    return status;
  }

  result<void> show_health(const target& of) {
    auto s = of.snapshot(o_.limit);  // the owners' clocks tell when a drain turns fatal
    if (!s) return tl::unexpected{s.error()};
    if (of.live())  // what is held is counted in full there, and by no list
      if (const auto m = of.text("/metrics?format=json")) {
        const auto counted = json::parse(*m, nullptr, false);
        if (counted.is_object() && counted.contains("held_bytes")) (*s)["held_bytes"] = counted["held_bytes"];
      }
    print(inspect::summary_lines(*s, paper_));
    return {};
  }

  int snapshot() {
    const auto s = t_.whole_snapshot(o_.limit, o_.explain, o_.events);
    if (!s) return complain(s.error());
    out_ << (o_.json ? s->dump() : s->dump(2)) << "\n";
    return inspect::status_of_health(inspect::text_of(*s, "health"));
  }

  int watch() {
    if (!t_.live())
      return complain(
          {errc::unsupported,
           fmt::format("'{}' is a snapshot, nothing happens in it: `trace` shows the records that it has",
                       t_.name())});
    std::uint64_t seen = 0;
    std::optional<std::string> refused;
    const auto ended = inspect::http_lines(t_.name(), t_.path(o_.from_start ? "/events?after=0" : "/events"),
                                           [&](std::string_view line) {
                                             if (line.empty()) return static_cast<bool>(out_.flush());
                                             const auto event = json::parse(line, nullptr, false);
                                             if (event.is_object() && event.contains("error"))
                                               refused = inspect::text_of(event, "error");
                                             if (o_.json)
                                               out_ << line << "\n";
                                             else if (event.is_object())
                                               out_ << inspect::event_line(event, paper_) << "\n";
                                             return (o_.count == 0 || ++seen < o_.count) && out_;
                                           });
    out_.flush();
    if (refused) return complain({errc::invalid, *refused});
    return ended ? by_health() : complain(ended.error());
  }

  int plain(std::string_view path) {
    const auto text = t_.text(path);
    if (!text) return complain(text.error());
    out_ << *text;
    if (!text->ends_with('\n')) out_ << "\n";
    return by_health();
  }

  const inspect_options& o_;
  const target& t_;
  std::ostream& out_;
  std::ostream& err_;
  const bool terminal_;
  const inspect::paper paper_;
};

}  // namespace

void add_inspect(CLI::App& app, inspect_options& o) {
  auto* sub =
      app.add_subcommand("inspect", "Why is this memory still held? Looks at a runtime, changes nothing");
  sub->require_subcommand(1);
  sub->fallthrough();
  auto* socket =
      sub->add_option("--socket", o.socket, "Socket of the process (default: $KVLEASE_SOCKET, or serve's)");
  sub->add_option("--file", o.file, "A saved snapshot in place of a process; - for standard input")
      ->excludes(socket);
  sub->add_option("--runtime", o.runtime, "Which runtime of the process");
  sub->add_flag("--json", o.json, "Machine-readable output");
  const auto add = [&](const char* name, const char* what) {
    auto* c = sub->add_subcommand(name, what);
    c->fallthrough();
    c->callback([&o, name] { o.command = name; });
    return c;
  };
  auto* top = add("top", "Operations as they go, with their evidence; keys: ? tells");
  top->add_option("--interval", o.interval, "Seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  auto* ls =
      add("ls", "List operations, leases, pools, registrations, owners, providers, devices, actors or holds");
  ls->add_option("what", o.what, "What to list")->capture_default_str();
  ls->add_option("--limit", o.limit, "Rows, the oldest first")->capture_default_str();
  auto* why =
      add("why", "Why is it held: evidence awaited, from whom, what happens next, what is safe to do");
  why->add_option("kind", o.kind, "lease, operation, slot, address, request or registration; or KIND/ID")
      ->required();
  why->add_option("id", o.id, "Such as 1.7; a slot as PART/INDEX; an address as 0x hex");
  auto* watch = add("watch", "Print what happens, as it happens");
  watch->add_option("--count", o.count, "End after so many events");
  watch->add_flag("--from-start", o.from_start, "Begin with what the journal still has");
  add("health", "Healthy, held or unproven, and why");
  auto* snapshot = add("snapshot", "All of it, as JSON that --file reads again");
  snapshot->add_option("--limit", o.limit, "Operations and leases, the oldest first")->capture_default_str();
  snapshot->add_option("--explain", o.explain, "Held leases that are explained in it")->capture_default_str();
  snapshot->add_option("--events", o.events, "The journal's last records in it")->capture_default_str();
  add("metrics", "Prometheus text");
  add("trace", "Chrome trace of the journal, for Perfetto");
  inspect::add_replay(*sub, o.replay)->callback([&o] { o.command = "replay"; });
}

int run_inspect_command(const inspect_options& options, std::ostream& out, std::ostream& err,
                        bool out_is_terminal) {
  if (options.command == "replay") {
    auto replay = options.replay;
    replay.json |= options.json;
    return inspect::run_replay(replay, out, err);
  }
  const auto t = target::open(options);
  if (!t) {
    err << "kvlease inspect: " << t.error().text << "\n";
    return inspect::not_reachable;
  }
  return command{options, *t, out, err, out_is_terminal}.run();
}

}  // namespace kvlease
