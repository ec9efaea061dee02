#include "tools/command_line.hpp"

#include <CLI/CLI.hpp>
#include <ostream>
#include <string>

#include "tools/names_command.hpp"
#include "tools/replay_command.hpp"

namespace kvlease {

namespace {

void add_replay(CLI::App& app, replay::replay_options& o) {
  auto* sub =
      app.add_subcommand("replay", "Replay a trace through every actor, fetch and publish, with faults");
  auto* trace = sub->add_option("--trace", o.trace_path, "JSONL trace file");
  sub->add_option("--generate", o.workload, "Built-in workload: conversation or agents")->excludes(trace);
  sub->add_option("--format", o.format, "Of the trace: auto, mooncake, qwen, weka")->capture_default_str();
  sub->add_option("--requests", o.requests, "Replay the first N requests (default: all; 2000 generated)");
  sub->add_option("--instances", o.instances, "Managers that share the store")->capture_default_str();
  sub->add_option("--backend", o.backend, "Provider URI")->capture_default_str();
  sub->add_option("--block-bytes", o.block_bytes, "Bytes of a block's page and slot")->capture_default_str();
  sub->add_option("--tokens-per-block", o.tokens_per_block, "Default: the trace's; 512 generated");
  sub->add_option("--pool-blocks", o.pool_blocks, "Device pages an instance (default: by concurrency)");
  sub->add_option("--staging-slots", o.staging_slots, "Staging slots an instance")->capture_default_str();
  sub->add_option("--store-bytes", o.store_bytes, "Bound of the store")->capture_default_str();
  sub->add_option("--concurrency", o.concurrency, "Requests at once")->capture_default_str();
  sub->add_option("--timeout", o.timeout, "Request deadline, and the grace after it")->capture_default_str();
  sub->add_option("--seed", o.seed, "Of faults, aborts and generated traces")->capture_default_str();
  sub->add_option("--abort", o.abort, "Share of requests that abort")->capture_default_str();
  sub->add_option("--faults", o.faults,
                  "KIND=P,... of miss, partial, fail, reject, escape, hang, late, unproven, stubborn");
  sub->add_option("--late", o.late, "Bound of the delays of late and stubborn")->capture_default_str();
  sub->add_option("--local-reuse", o.local_reuse, "Reuse blocks of the instance's own pages: on or off")
      ->capture_default_str();
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print no report and no progress");
}

void add_names(CLI::App& app, names_options& o) {
  auto* sub = app.add_subcommand("names", "Check or compute block names, keys and part names");
  sub->add_option("--vectors", o.vectors, "Inputs, with or without expected values")->required();
  sub->add_flag("--json", o.json, "Machine-readable output");
}

}  // namespace

int run_command_line(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                     bool err_is_terminal) {
  CLI::App app{"kvlease: lends KV-cache staging memory, and takes it back only on proof"};
  app.require_subcommand(1);
  app.set_version_flag("--version", KVLEASE_VERSION);
  replay::replay_options replay;
  names_options names;
  add_replay(app, replay);
  add_names(app, names);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e, out, err);
  } catch (const CLI::RequiredError& e) {
    const bool named = argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty();
    err << "kvlease: "
        << (named ? "there is no subcommand '" + std::string{argv[1]} + "'" : std::string{e.what()})
        << " (kvlease --help lists what there is)\n";
    return 2;
  } catch (const CLI::ParseError& e) {
    err << "kvlease: " << e.what() << " (kvlease --help lists what there is)\n";
    return 2;
  }
  if (app.got_subcommand("names")) return run_names(names, out, err);
  return run_replay_command(replay, out, err, err_is_terminal);
}

}  // namespace kvlease
