// `kvlease bench` on the host stand-in: its figures, its memory and what it finds wrong there; its options,
// and what it says without a GPU. Also the --device of `kvlease replay`.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tools/bench/copy_case.hpp"
#include "tools/bench/copy_measure.hpp"
#include "tools/bench/copy_report.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/statistics.hpp"
#include "tools/command_line.hpp"

using namespace kvlease;
using namespace kvlease::bench;

namespace {

struct ended {
  int status;
  std::string out, err;
};

ended run_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "kvlease");
  std::vector<const char*> argv;
  for (const auto& a : arguments) argv.push_back(a.c_str());
  std::ostringstream out, err;
  const int status = run_command_line(static_cast<int>(argv.size()), argv.data(), out, err, false);
  return {status, out.str(), err.str()};
}

/// A path of its own, removed afterwards.
struct temporary {
  explicit temporary(const std::string& name)
      : path{(std::filesystem::temp_directory_path() / ("kvlease-" + std::to_string(::getpid()) + "-" + name))
                 .string()} {}
  ~temporary() { std::filesystem::remove(path); }
  nlohmann::json json() const { return nlohmann::json::parse(std::ifstream{path}); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream{path}.rdbuf();
    return all.str();
  }
  const std::string path;
};

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string refusal(const copy_options& o) {
  const auto plan = plan_copy_bench(o);
  return plan ? std::string{} : plan.error().text;
}

std::byte* bytes_at(std::uintptr_t at) { return reinterpret_cast<std::byte*>(at); }

void move(const copy_row& row) { std::memcpy(bytes_at(row.to), bytes_at(row.from), row.nbytes); }

copy_series series(const char* name, std::optional<copy_path> path, double gbps, double cpu,
                   std::optional<double> kept = {}) {
  copy_series s;
  s.name = name;
  s.path = path;
  s.gbps.median = gbps;
  s.cpu_us_batch = cpu;
  s.load_kept = kept;
  return s;
}

}  // namespace

TEST_CASE("bench: quantiles of known data") {
  CHECK(quantile({5}, 0.5) == doctest::Approx(5));
  CHECK(quantile({4, 1, 3, 2}, 0.5) == doctest::Approx(2.5));
  CHECK(quantile({4, 1, 3, 2}, 0) == doctest::Approx(1));
  CHECK(quantile({4, 1, 3, 2}, 1) == doctest::Approx(4));
  std::vector<double> hundred;
  for (int i = 100; i >= 0; --i) hundred.push_back(i);
  const auto s = spread_of(hundred);
  CHECK(s.p10 == doctest::Approx(10));
  CHECK(s.median == doctest::Approx(50));
  CHECK(s.p90 == doctest::Approx(90));
  CHECK(s.p99 == doctest::Approx(99));
  CHECK(s.samples == 101);
  CHECK(spread_of({}).samples == 0);
}

TEST_CASE("bench: sizes") {
  CHECK(*parse_size("64K") == 65536);
  CHECK(*parse_size("1M") == 1048576);
  CHECK(*parse_size("100") == 100);
  CHECK(size_text(65536) == "64K");
  CHECK(size_text(3 << 20) == "3M");
  CHECK(size_text(100) == "100");
  for (const auto* bad : {"", "K", "0", "4k", "4KiB", "-1", "1.5M", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_size(bad).has_value());
  }
}

TEST_CASE("bench: options are refused by name, value and rule") {
  CHECK(refusal({}).empty());
  copy_options o;
  o.rows = "4K,7";
  CHECK(says(refusal(o), "--rows is '4K,7', must be 64 to 1G"));
  o = {};
  o.rows = "4K,4K";
  CHECK(says(refusal(o), "--rows is '4K,4K', must be without repetitions"));
  o = {};
  o.totals = "100K";
  CHECK(says(refusal(o), "--totals is '100K', must be multiples"));
  o = {};
  o.direction = "up";
  CHECK(refusal(o) == "--direction is 'up', must be h2d, d2h or all");
  o = {};
  o.paths = "bulk,teleport";
  CHECK(says(refusal(o), "--paths is 'bulk,teleport', must be some of"));
  o = {};
  o.device = "gpu";
  CHECK(refusal(o) == "--device: 'gpu' is no device: must be host, cuda or cuda:N");
  o = {};
  o.chunk = "65M";
  CHECK(says(refusal(o), "--chunk is '65M', must be 1M to 64M"));
  o = {};
  o.sm_budget = 0;
  CHECK(refusal(o) == "--sm-budget is 0, must be 1 to 1024");
  o = {};
  o.device = "host";
  o.load = true;
  CHECK(says(refusal(o), "--load needs a GPU"));
  o = {};
  o.no_grid = true;
  CHECK(says(refusal(o), "--no-grid leaves nothing"));
  detection_options d;
  d.pending = "1,many";
  CHECK(says(plan_detection(d).error().text, "--pending is '1,many': 'many'"));
  d = {};
  d.holds = "2h";
  CHECK(says(plan_detection(d).error().text, "--holds is '2h'"));
}

TEST_CASE("bench: rows are never contiguous on the device") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto pages = scatter(8, 16, seed);
    CHECK(std::set<std::uint32_t>(pages.begin(), pages.end()).size() == 8);
    CHECK(*std::max_element(pages.begin(), pages.end()) < 16);
    for (std::size_t i = 1; i < pages.size(); ++i) CHECK(pages[i] != pages[i - 1] + 1);
  }
}

TEST_CASE("bench: a case sees each wrong byte, and each stray one") {
  const auto on = open_host_target();
  const auto device = *on->open({});
  for (const auto kind : {copy_kind::host_to_device, copy_kind::device_to_host}) {
    CAPTURE(to_string(kind));
    const auto arena = *copy_arena::make(*on, {device.get(), device.get()}, kind, {4096, 8192});
    REQUIRE(arena->begin({kind, 256, 2048}, 7));
    CHECK(*arena->wrong(0, true));  // poison everywhere: nothing has been copied
    const auto batches = arena->batches(0);
    REQUIRE(batches.size() == 4);
    for (const auto& b : batches) {
      REQUIRE(b->rows.size() == 8);
      for (const auto& row : b->rows) move(row);
    }
    CHECK_FALSE(*arena->wrong(0, true));
    CHECK(*arena->wrong(1, true));  // the other target is on its own
    for (const auto& row : arena->contiguous(1)) move(row);
    CHECK_FALSE(*arena->wrong(1, false));

    auto* last = bytes_at(batches[3]->rows[7].to) + 255;
    *last ^= std::byte{1};
    CHECK(says(**arena->wrong(0, true), "1 of 32"));
    *last ^= std::byte{1};
    CHECK_FALSE(*arena->wrong(0, true));
  }
  const auto kind = copy_kind::host_to_device;
  const auto arena = *copy_arena::make(*on, {device.get()}, kind, {2048, 2048});
  REQUIRE(arena->begin({kind, 256, 2048}, 7));
  const auto batches = arena->batches(0);
  auto lowest = batches[0]->rows[0];
  std::set<std::uintptr_t> taken;
  for (const auto& row : batches[0]->rows) {
    move(row);
    taken.insert(row.to);
    if (row.to < lowest.to) lowest = row;
  }
  auto stray = lowest.to + 256;
  while (taken.contains(stray)) stray += 256;
  *bytes_at(stray) = std::byte{0};
  CHECK(says(**arena->wrong(0, true), "1 others were touched"));
}

TEST_CASE("bench: movers are timed in turns until each has its samples") {
  const auto on = open_host_target();
  const auto device = *on->open({});
  REQUIRE(device->bind_thread());
  const auto kind = copy_kind::host_to_device;
  const auto arena = *copy_arena::make(*on, {device.get(), device.get()}, kind, {4096, 4096});
  REQUIRE(arena->begin({kind, 512, 2048}, 1));
  one_copy_mover ceiling{std::shared_ptr<lane>{*on->open_lane()}, kind, arena->contiguous(0)};
  port_mover rows{*device, arena->batches(1)};
  mover* const both[] = {&ceiling, &rows};
  measure_options options;
  options.repetitions = 5;
  options.in_flight = 3;
  const auto got = measure(both, options, nullptr);
  REQUIRE(got);
  REQUIRE(got->movers.size() == 2);
  for (const auto& m : got->movers) {
    CHECK(m.seconds.size() >= 5);
    CHECK(m.seconds.size() == m.cpu_seconds.size());
    CHECK(*std::min_element(m.seconds.begin(), m.seconds.end()) > 0);
  }
  CHECK_FALSE(*arena->wrong(0, false));
  CHECK_FALSE(*arena->wrong(1, true));
}

TEST_CASE("bench: the table takes the fastest path, and of equals the gentlest") {
  copy_report r;
  r.facts.device = "NVIDIA H200";
  copy_cell idle;
  idle.kind = copy_kind::host_to_device;
  idle.row_bytes = 4096;
  idle.total_bytes = 1 << 20;
  idle.series = {series("one copy", {}, 60, 1), series("kernel", copy_path::kernel, 50, 9),
                 series("bulk", copy_path::bulk, 49.8, 5), series("rows", copy_path::rows, 2, 1),
                 series("selected", {}, 55, 1)};
  auto busy = idle;
  busy.load = device_load::busy;
  busy.series = {series("one copy", {}, 60, 1, 1.0), series("kernel", copy_path::kernel, 50, 5, 0.99),
                 series("bulk", copy_path::bulk, 49.8, 9, 0.95)};
  auto not_as_forced = idle;
  not_as_forced.row_bytes = 16384;
  not_as_forced.series[1].took = "batch";
  not_as_forced.series[2].took = "batch";
  auto sweep = idle;
  sweep.section = copy_section::sweep;
  r.cells = {idle, busy, not_as_forced, sweep};
  const auto table = table_of(r);
  CHECK(table.device() == "NVIDIA H200");
  const std::vector<copy_choice> expected{
      {copy_kind::host_to_device, device_load::idle, 4096, 1 << 20, copy_path::bulk},
      {copy_kind::host_to_device, device_load::busy, 4096, 1 << 20, copy_path::kernel},
      {copy_kind::host_to_device, device_load::idle, 16384, 1 << 20, copy_path::rows}};
  CHECK(table.choices() == expected);
}

TEST_CASE("bench: copy runs whole on the host stand-in") {
  const temporary json{"copy.json"}, table{"copy.table"};
  const auto r = run_command({"bench",      "copy",    "--device", "host",          "--rows",        "1K,4K",
                              "--totals",   "2K,16K",  "--window", "32K",           "--repetitions", "2",
                              "--min-time", "0s",      "--paths",  "bulk,selected", "--both",        "--json",
                              json.path,    "--table", table.path});
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(says(r.out, "every byte compared, all right"));
  const auto j = json.json();
  CHECK(j["schema_version"] == copy_schema_version);
  CHECK(j["device"] == "host stand-in");
  CHECK(j["wrong"].empty());
  CHECK(says(j["command"], "kvlease bench copy --device host"));
  REQUIRE(j["cells"].size() == 7);  // 4K rows make no batch of 2K: 3 a direction, and both ways
  CHECK(j["cells"][0]["direction"] == "both");
  const auto& first = j["cells"][1];
  CHECK(first["direction"] == "h2d");
  CHECK(first["ways"].size() == 3);
  CHECK(first["ways"][0]["name"] == "one copy");
  CHECK(first["ways"][0]["share_of_ceiling"] == doctest::Approx(1));
  const auto read = copy_table::parse(table.text());
  REQUIRE(read);
  CHECK(read->choices().size() == 6);
}

TEST_CASE("bench: detection runs whole on the host stand-in") {
  const temporary json{"detection.json"};
  const auto r = run_command({"bench", "detection", "--device", "host", "--rounds", "20", "--holds", "50us",
                              "--pending", "0,1,50", "--watch", "30ms", "--json", json.path});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto j = json.json();
  CHECK(j["schema_version"] == 1);
  REQUIRE(j["detection"].size() == 4);  // no host callback
  for (const auto& s : j["detection"]) {
    CHECK(s["samples"] == 20);
    CHECK(s["p50_us"] >= 0);
    CHECK(s["p99_us"] > 0);
  }
  REQUIRE(j["pending"].size() == 3);
  CHECK(j["pending"][0]["queries"] == 0);
  CHECK(j["pending"][2]["queries"] > 0);
  CHECK(j["problems"].empty());
}

TEST_CASE("bench: bad usage is 2, no such device is 3") {
  CHECK(run_command({"bench"}).status == 2);
  CHECK(says(run_command({"bench", "pages"}).err, "there is no subcommand 'pages'"));
  CHECK(run_command({"bench", "copy", "--rows", "7"}).status == 2);
  CHECK(run_command({"bench", "copy", "--device", "host", "--json", "/nowhere/x.json"}).status == 2);
  for (const auto* what : {"copy", "detection"}) {
    const auto r = run_command({"bench", what, "--device", "cuda:4096"});
    CHECK(r.status == 3);
    CHECK(says(r.err, "--device: cuda:4096: "));
  }
}

TEST_CASE("replay: --device names what it runs on") {
  const temporary json{"replay-device.json"};
  const auto host = run_command({"replay", "--device", "host", "--requests", "20", "--concurrency", "2",
                                 "--block-bytes", "256", "--json", json.path});
  CHECK(host.status == 0);
  CHECK(says(json.json()["device"], "host stand-in"));
  CHECK(says(host.out, "host stand-in"));

  for (const auto* bad : {"gpu", "cuda:", "cuda:-1", "cuda:1x", "CUDA"}) {
    CAPTURE(bad);
    const auto r = run_command({"replay", "--device", bad, "--requests", "1"});
    CHECK(r.status == 2);
    CHECK(says(r.err, "--device: '" + std::string{bad} + "' is no device: must be host, cuda or cuda:N"));
  }
  const auto none = run_command({"replay", "--device", "cuda:4096", "--requests", "1"});
  CHECK(none.status == 2);
  CHECK(says(none.err, "--device: cuda:4096: "));
}
