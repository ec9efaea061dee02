#include "tools/command_line.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <ostream>
#include <string>
#include <string_view>

#include "tools/bench_command.hpp"
#include "tools/inspect_command.hpp"
#include "tools/names_command.hpp"
#include "tools/replay_command.hpp"
#include "tools/serve_command.hpp"

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
  sub->add_option("--device", o.device, "Memory and copies of the pages: host, cuda or cuda:N")
      ->capture_default_str();
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
  sub->add_option("--role", o.role,
                  "both; publish: fetch nothing, then serve until the input ends; fetch: publish nothing")
      ->capture_default_str();
  sub->add_option("--journal", o.journal_path, "Write instance N's journal to FILE.N, for inspect replay");
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print no report and no progress");
}

void add_names(CLI::App& app, names_options& o) {
  auto* sub = app.add_subcommand("names", "Check or compute block names, keys and part names");
  sub->add_option("--vectors", o.vectors, "Inputs, with or without expected values")->required();
  sub->add_flag("--json", o.json, "Machine-readable output");
}

void add_bench_copy(CLI::App& bench, bench::copy_options& o) {
  auto* sub = bench.add_subcommand("copy", "Each copy path beside one large copy of the same bytes");
  sub->add_option("--device", o.device, "cuda, cuda:N, or the stand-in: host")->capture_default_str();
  sub->add_option("--rows", o.rows, "Sizes of a row")->capture_default_str();
  sub->add_option("--totals", o.totals, "Sizes of a batch")->capture_default_str();
  sub->add_option("--direction", o.direction, "h2d, d2h or all")->capture_default_str();
  sub->add_option("--paths", o.paths, "Paths to force, and selected: what the table chooses")
      ->capture_default_str();
  sub->add_option("--repetitions", o.repetitions, "Samples of each path, at least")->capture_default_str();
  sub->add_option("--min-time", o.min_time, "Time of each path's samples, at least")->capture_default_str();
  sub->add_option("--in-flight", o.in_flight, "Batches of a sample, submitted back to back")
      ->capture_default_str();
  sub->add_option("--window", o.window, "Bytes that the batches of a path cycle through")
      ->capture_default_str();
  sub->add_option("--sm-budget", o.sm_budget, "Blocks of a copy kernel")->capture_default_str();
  sub->add_option("--chunk", o.chunk, "Chunk of path bulk")->capture_default_str();
  sub->add_option("--bounce", o.bounce, "Bounce memory of path bulk, a direction")->capture_default_str();
  sub->add_flag("--load", o.load, "All of it again beside a compute load that fills the GPU");
  sub->add_flag("--both", o.both, "Also both directions at once, 64K rows");
  sub->add_flag("--no-grid", o.no_grid, "Only --both or --sweep");
  sub->add_option("--sweep", o.sweep, "sm: SM budgets and chunks of the paths kernel and bulk");
  sub->add_option("--table", o.table_path, "Write the fastest path of each cell to this file");
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_option("--seed", o.seed, "Of where the rows lie")->capture_default_str();
  sub->add_flag("--quiet", o.quiet, "Print nothing but errors");
}

void add_bench_detection(CLI::App& bench, bench::detection_options& o) {
  auto* sub =
      bench.add_subcommand("detection", "How soon the end of a copy is known, and what waiting costs");
  sub->add_option("--device", o.device, "cuda, cuda:N, or the stand-in: host")->capture_default_str();
  sub->add_option("--rounds", o.rounds,
                  "Copies of each way to learn of it; fewer where long holds would add up")
      ->capture_default_str();
  sub->add_option("--holds", o.holds, "How long a copy is pending")->capture_default_str();
  sub->add_option("--pending", o.pending, "Copies that wait while the actor's thread is watched")
      ->capture_default_str();
  sub->add_option("--watch", o.watch, "For how long it is watched")->capture_default_str();
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print nothing but errors");
}

void add_bench_inspection(CLI::App& bench, bench::inspection_options& o) {
  auto* sub = bench.add_subcommand("inspection", "What it costs a runtime to be watched");
  sub->add_option("--requests", o.requests, "Of a replay")->capture_default_str();
  sub->add_option("--rounds", o.rounds, "Replays each way")->capture_default_str();
  sub->add_option("--operations", o.operations, "Open while snapshots are taken; 0: no snapshots")
      ->capture_default_str();
  sub->add_option("--looks", o.looks, "Snapshots")->capture_default_str();
  sub->add_option("--look-every", o.look_every_ms, "During the replays: ms from one look to the next")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print nothing but errors");
}

void add_bench_ucx(CLI::App& bench, bench::ucx_bench_options& o) {
  auto* sub = bench.add_subcommand("ucx", "Fetches over ucx:// beside ucx_perftest, on the loopback device");
  sub->add_option("--sizes", o.sizes, "Sizes of a unit")->capture_default_str();
  sub->add_option("--bytes", o.bytes, "Of a round and a way")->capture_default_str();
  sub->add_option("--rounds", o.rounds, "Each way, in turn")->capture_default_str();
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print nothing but errors");
}

void add_bench_segment(CLI::App& bench, bench::segment_bench_options& o) {
  auto* sub = bench.add_subcommand("segment", "The segment store beside fio, with the same pattern");
  sub->add_option("--directory", o.directory, "Where, if not in a temporary one; nothing stays there");
  sub->add_option("--bytes", o.bytes, "Of the store, and of fio's file")->capture_default_str();
  sub->add_option("--sizes", o.sizes, "Of a unit")->capture_default_str();
  sub->add_option("--depth", o.depth, "Transfers at once")->capture_default_str();
  sub->add_option("--rounds", o.rounds, "Passes of each")->capture_default_str();
  sub->add_option("--engine", o.engine, "auto, uring or threads")->capture_default_str();
  sub->add_option("--fio", o.fio, "fio's command, or off")->capture_default_str();
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print nothing but errors");
}

void add_bench_redis(CLI::App& bench, bench::redis_options& o) {
  auto* sub = bench.add_subcommand("redis", "The redis provider beside a bare client; starts a redis-server");
  sub->add_option("--size", o.kib, "KiB of a unit, one or more")->delimiter(',')->capture_default_str();
  sub->add_option("--connections", o.connections, "To the server")->capture_default_str();
  sub->add_option("--depth", o.depth, "Commands without reply on a connection")->capture_default_str();
  sub->add_option("--mib", o.mib, "Moved in one measurement")->capture_default_str();
  sub->add_option("--rounds", o.rounds, "Measurements each way")->capture_default_str();
  sub->add_option("--json", o.json_path, "Write the report to this file");
  sub->add_flag("--quiet", o.quiet, "Print nothing but errors");
}

/// Of `inspect`, 2 says that memory is held unproven: what is typed wrongly must not look like that.
int usage_status(int argc, const char* const* argv) {
  return argc > 1 && std::string_view{argv[1]} == "inspect" ? inspect::bad_usage : 2;
}

/// What was typed.
std::string joined(int argc, const char* const* argv) {
  std::string all = "kvlease";
  for (int i = 1; i < argc; ++i) all.append(" ").append(argv[i]);
  return all;
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
  bench::copy_options copy;
  bench::detection_options detection;
  bench::inspection_options inspection;
  bench::ucx_bench_options ucx;
  bench::segment_bench_options segment;
  bench::redis_options redis;
  auto* bench = app.add_subcommand("bench", "Measure copies, their detection, inspection, and providers");
  bench->require_subcommand(1);
  add_bench_copy(*bench, copy);
  add_bench_detection(*bench, detection);
  add_bench_inspection(*bench, inspection);
  add_bench_segment(*bench, segment);
  add_bench_ucx(*bench, ucx);
  add_bench_redis(*bench, redis);
  inspect::inspect_options inspect;
  add_inspect(app, inspect);
  serve::serve_options serve;
  add_serve(app, serve);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e, out, err);
  } catch (const CLI::RequiredError& e) {
    const int at = app.get_subcommands().empty() ? 1 : app.got_subcommand("bench") ? 2 : argc;
    const bool named = argc > at && argv[at][0] != '-';
    err << "kvlease: "
        << (named ? "there is no subcommand '" + std::string{argv[at]} + "'" : std::string{e.what()})
        << " (kvlease --help lists what there is)\n";
    return usage_status(argc, argv);
  } catch (const CLI::ParseError& e) {
    err << "kvlease: " << e.what() << " (kvlease --help lists what there is)\n";
    return usage_status(argc, argv);
  }
  if (app.got_subcommand("inspect"))
    return run_inspect_command(inspect, out, err, &out == &std::cout && isatty(STDOUT_FILENO) == 1);
  if (app.got_subcommand("serve")) return run_serve_command(serve, out, err);
  if (app.got_subcommand("names")) return run_names(names, out, err);
  if (bench->got_subcommand("copy")) return run_bench_copy(copy, joined(argc, argv), out, err);
  if (bench->got_subcommand("segment")) return run_bench_segment(segment, out, err);
  if (bench->got_subcommand("inspection")) return run_bench_inspection(inspection, out, err);
  if (bench->got_subcommand("ucx")) return run_bench_ucx(ucx, out, err);
  if (bench->got_subcommand("redis")) return run_bench_redis(redis, out, err);
  if (bench->got_subcommand("detection")) return run_bench_detection(detection, joined(argc, argv), out, err);
  return run_replay_command(replay, out, err, err_is_terminal);
}

}  // namespace kvlease
