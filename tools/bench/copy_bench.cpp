#include "tools/bench/copy_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/bench/copy_case.hpp"
#include "tools/bench/copy_measure.hpp"

namespace kvlease::bench {

namespace {

constexpr std::size_t kib = std::size_t{1} << 10;
constexpr std::size_t mib = std::size_t{1} << 20;

/// A way to copy, for the length of the run.
struct way {
  std::string name;
  std::optional<copy_path> path;
  std::optional<unsigned> sm_budget;
  std::optional<std::size_t> chunk_bytes;
  std::shared_ptr<device_port> device;  ///< null: one contiguous copy
  bool events_of_its_own = true;        ///< in both directions at once: each batch behind its own event

  bool is_ceiling() const noexcept { return device == nullptr; }
  cuda_device* cuda() const noexcept { return dynamic_cast<cuda_device*>(device.get()); }
};

using path_counts = std::array<std::uint64_t, all_copy_paths.size()>;

path_counts counts_of(const way& w) {
  const auto* cuda = w.cuda();
  return cuda != nullptr ? cuda->batches_by_path() : path_counts{};
}

std::string taken_between(const path_counts& before, const path_counts& after) {
  std::string names;
  for (std::size_t p = 0; p < all_copy_paths.size(); ++p)
    if (after[p] > before[p]) {
      if (!names.empty()) names += "+";
      names += to_string(all_copy_paths[p]);
    }
  return names;
}

class bench {
 public:
  bench(const copy_bench_plan& plan, target& on, copy_report& report,
        const std::function<void(const copy_cell&)>& measured)
      : plan_{plan}, on_{on}, report_{report}, measured_{measured} {}

  result<void> grid() {
    std::vector<way> ways{{.name = "one copy"}};
    for (const auto path : plan_.paths)
      if (auto ok = add_path(ways, path, plan_.sm_budget, plan_.chunk_bytes, std::string{to_string(path)});
          !ok)
        return ok;
    if (plan_.selected)
      if (auto ok = add_path(ways, std::nullopt, plan_.sm_budget, plan_.chunk_bytes, "selected"); !ok)
        return ok;
    return one_way_cells(copy_section::grid, ways, plan_.rows, plan_.totals);
  }

  result<void> sweep() {
    std::vector<way> ways{{.name = "one copy"}};
    for (const unsigned sms : {4U, 8U, 16U, 32U, 64U}) {
      const auto kernel = fmt::format("kernel sm {}", sms);
      if (auto ok = add_path(ways, copy_path::kernel, sms, plan_.chunk_bytes, kernel); !ok) return ok;
      for (const std::size_t chunk : {2 * mib, 4 * mib, 8 * mib, 16 * mib, 32 * mib}) {
        if (chunk > plan_.bounce_bytes / 2) continue;
        const auto bulk = fmt::format("bulk sm {} chunk {}", sms, size_text(chunk));
        if (auto ok = add_path(ways, copy_path::bulk, sms, chunk, bulk); !ok) return ok;
      }
    }
    return one_way_cells(copy_section::sweep, ways, {64 * kib, 4 * kib},
                         {std::min(64 * mib, plan_.most_total())});
  }

  result<void> both() {
    std::vector<way> ways{{.name = "two bulk copies"}};
    constexpr auto no_path = std::optional<copy_path>{};
    for (const auto& [name, path, own_events] : {std::tuple{"selected, own events", no_path, true},
                                                 {"bulk, own events", std::optional{copy_path::bulk}, true},
                                                 {"selected, stream order", no_path, false}}) {
      if (auto ok = add_path(ways, path, plan_.sm_budget, plan_.chunk_bytes, name); !ok) return ok;
      ways.back().events_of_its_own = own_events;
    }
    std::vector<std::size_t> totals;
    for (const auto total : plan_.totals)
      if (total >= 64 * mib) totals.push_back(total);
    if (totals.empty()) totals.push_back(plan_.most_total());

    auto in = arena_for(copy_kind::host_to_device, ways);
    if (!in) return tl::unexpected{in.error()};
    auto out = arena_for(copy_kind::device_to_host, ways);
    if (!out) return tl::unexpected{out.error()};
    for (const auto total : totals)
      for (const auto load : loads()) {
        copy_cell cell{copy_section::both, std::nullopt, load, std::min(64 * kib, total), total, 0, {}};
        if (auto ok = run_both(cell, ways, **in, **out); !ok) return ok;
      }
    return {};
  }

 private:
  std::vector<device_load> loads() const {
    return plan_.load ? std::vector{device_load::idle, device_load::busy} : std::vector{device_load::idle};
  }

  result<void> add_path(std::vector<way>& ways, std::optional<copy_path> path, unsigned sms,
                        std::size_t chunk, std::string name) {
    cuda_options settings;
    settings.bounce_bytes = plan_.bounce_bytes;
    settings.chunk_bytes = chunk;
    settings.sm_budget = sms;
    settings.always = path;
    auto device = on_.open(std::move(settings));
    if (!device) return tl::unexpected{device.error()};
    if (auto bound = (*device)->bind_thread(); !bound) return bound;
    way made{.name = std::move(name), .path = path, .device = *std::move(device)};
    if (!path || *path == copy_path::kernel || *path == copy_path::bulk) made.sm_budget = sms;
    if (!path || *path == copy_path::bulk) made.chunk_bytes = chunk;
    ways.push_back(std::move(made));
    return {};
  }

  result<std::unique_ptr<copy_arena>> arena_for(copy_kind kind, const std::vector<way>& ways) {
    if (!memory_) {
      auto device = on_.open({});
      if (!device) return tl::unexpected{device.error()};
      memory_ = *std::move(device);
    }
    std::vector<device_port*> devices;
    devices.reserve(ways.size());
    for (const auto& w : ways) devices.push_back(w.is_ceiling() ? memory_.get() : w.device.get());
    return copy_arena::make(on_, devices, kind, {plan_.most_total(), plan_.window_bytes});
  }

  result<std::shared_ptr<lane>> new_lane() {
    auto made = on_.open_lane();
    if (!made) return tl::unexpected{made.error()};
    return std::shared_ptr<lane>{*std::move(made)};
  }

  result<void> one_way_cells(copy_section section, const std::vector<way>& ways,
                             const std::vector<std::size_t>& rows, const std::vector<std::size_t>& totals) {
    for (const auto kind : plan_.directions) {
      auto arena = arena_for(kind, ways);
      if (!arena) return tl::unexpected{arena.error()};
      for (const auto row : rows)
        for (const auto total : totals)
          for (const auto load : loads()) {
            if (!copy_bench_plan::makes_a_batch(row, total)) continue;
            copy_cell cell{section, kind, load, row, total, 0, {}};
            if (auto ok = run_one_way(cell, ways, **arena); !ok) return ok;
          }
    }
    return {};
  }

  result<std::unique_ptr<mover>> mover_of(const way& w, std::size_t target_number, copy_kind kind,
                                          copy_arena& arena, bool own_event) {
    if (w.is_ceiling()) {
      auto on = new_lane();
      if (!on) return tl::unexpected{on.error()};
      return std::make_unique<one_copy_mover>(*std::move(on), kind, arena.contiguous(target_number));
    }
    std::shared_ptr<lane> before;
    if (own_event) {
      auto made = new_lane();
      if (!made) return tl::unexpected{made.error()};
      before = *std::move(made);
    }
    const auto after = before ? before->event() : event_handle{0};
    return std::make_unique<port_mover>(*w.device, arena.batches(target_number, after), std::move(before));
  }

  result<void> run_one_way(copy_cell cell, const std::vector<way>& ways, copy_arena& arena) {
    const copy_shape shape{*cell.kind, cell.row_bytes, cell.total_bytes};
    if (auto ready = arena.begin(shape, ++drawn_ + plan_.seed * 1'000'003); !ready) return ready;
    std::vector<std::unique_ptr<mover>> movers;
    for (std::size_t t = 0; t < ways.size(); ++t) {
      auto made = mover_of(ways[t], t, shape.kind, arena, false);
      if (!made) return tl::unexpected{made.error()};
      movers.push_back(*std::move(made));
    }
    if (auto ok = time_cell(cell, ways, movers, 1); !ok) return ok;
    if (auto ok = compare(cell, ways, arena); !ok) return ok;
    finish(std::move(cell));
    return {};
  }

  result<void> run_both(copy_cell cell, const std::vector<way>& ways, copy_arena& in, copy_arena& out) {
    const std::uint64_t seed = ++drawn_ + plan_.seed * 1'000'003;
    const copy_shape shape_in{copy_kind::host_to_device, cell.row_bytes, cell.total_bytes};
    const copy_shape shape_out{copy_kind::device_to_host, cell.row_bytes, cell.total_bytes};
    if (auto ready = in.begin(shape_in, seed); !ready) return ready;
    if (auto ready = out.begin(shape_out, seed + 1); !ready) return ready;
    std::vector<std::unique_ptr<mover>> movers;
    for (std::size_t t = 0; t < ways.size(); ++t) {
      auto first = mover_of(ways[t], t, shape_in.kind, in, ways[t].events_of_its_own);
      if (!first) return tl::unexpected{first.error()};
      auto second = mover_of(ways[t], t, shape_out.kind, out, ways[t].events_of_its_own);
      if (!second) return tl::unexpected{second.error()};
      movers.push_back(std::make_unique<pair_mover>(*std::move(first), *std::move(second)));
    }
    if (auto ok = time_cell(cell, ways, movers, 2); !ok) return ok;
    if (auto ok = compare(cell, ways, in); !ok) return ok;
    if (auto ok = compare(cell, ways, out); !ok) return ok;
    finish(std::move(cell));
    return {};
  }

  result<void> time_cell(copy_cell& cell, const std::vector<way>& ways,
                         const std::vector<std::unique_ptr<mover>>& movers, std::size_t directions) {
    std::vector<mover*> turns;
    std::vector<path_counts> before;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      turns.push_back(movers[i].get());
      before.push_back(counts_of(ways[i]));
      if (auto* cuda = ways[i].cuda()) cuda->set_load(cell.load);
    }
    measure_options options;
    options.repetitions = plan_.repetitions;
    options.min_time = plan_.min_time;
    options.in_flight = plan_.in_flight;
    std::unique_ptr<busy_load> load;
    if (cell.load == device_load::busy) {
      auto started = on_.start_load();
      if (!started) return tl::unexpected{started.error()};
      load = *std::move(started);
      // Long beside one kernel of the load, so that its rate means something.
      options.slice = std::chrono::milliseconds{20};
      options.min_time = std::max(options.min_time, 5 * options.slice);
    }
    const auto got = measure(turns, options, load.get());
    if (!got) return tl::unexpected{got.error()};
    cell.load_alone = got->load_alone;
    const std::size_t bytes = cell.total_bytes * directions;
    const std::size_t rows = bytes / cell.row_bytes;
    for (std::size_t i = 0; i < ways.size(); ++i)
      cell.series.push_back(series_of(ways[i], got->movers[i], bytes, rows, got->load_alone,
                                      taken_between(before[i], counts_of(ways[i]))));
    for (auto& s : cell.series) s.share = s.gbps.median / cell.series.front().gbps.median;
    return {};
  }

  static copy_series series_of(const way& w, const samples& got, std::size_t bytes, std::size_t rows,
                               double load_alone, std::string took) {
    copy_series s{.name = w.name, .path = w.path, .sm_budget = w.sm_budget, .chunk_bytes = w.chunk_bytes};
    std::vector<double> gbps, us;
    double cpu = 0;
    for (const double t : got.seconds) {
      gbps.push_back(static_cast<double>(bytes) / t * 1e-9);
      us.push_back(t * 1e6);
    }
    for (const double t : got.cpu_seconds) cpu += t * 1e6 / static_cast<double>(got.cpu_seconds.size());
    s.gbps = spread_of(std::move(gbps));
    s.batch_us = spread_of(std::move(us));
    s.cpu_us_batch = cpu;
    s.cpu_us_row = cpu / static_cast<double>(w.is_ceiling() ? 1 : rows);
    if (load_alone > 0) s.load_kept = got.load_rate / load_alone;
    if (!w.path || (w.cuda() != nullptr && took != to_string(*w.path))) s.took = std::move(took);
    return s;
  }

  result<void> compare(const copy_cell& cell, const std::vector<way>& ways, copy_arena& arena) {
    for (std::size_t t = 0; t < ways.size(); ++t) {
      const auto wrong = arena.wrong(t, !ways[t].is_ceiling());
      if (!wrong) return tl::unexpected{wrong.error()};
      if (*wrong)
        report_.wrong.push_back(fmt::format("{} {} rows of {}, batches of {}: {}: {}",
                                            cell.kind ? to_string(*cell.kind) : "both", to_string(cell.load),
                                            size_text(cell.row_bytes), size_text(cell.total_bytes),
                                            ways[t].name, **wrong));
    }
    return {};
  }

  void finish(copy_cell cell) {
    report_.cells.push_back(std::move(cell));
    measured_(report_.cells.back());
  }

  const copy_bench_plan& plan_;
  target& on_;
  copy_report& report_;
  const std::function<void(const copy_cell&)>& measured_;
  std::shared_ptr<device_port> memory_;  ///< of the ceiling, which has no device under test
  std::uint64_t drawn_ = 0;              ///< seeds of arrangements
};

}  // namespace

result<void> run_copy_bench(const copy_bench_plan& plan, target& on, copy_report& report,
                            const std::function<void(const copy_cell&)>& measured) {
  const auto start = std::chrono::steady_clock::now();
  report.facts = on.facts();
  report.in_flight = plan.in_flight;
  report.repetitions = plan.repetitions;
  report.window_bytes = plan.window_bytes;
  bench b{plan, on, report, measured};
  if (plan.both)
    if (auto ok = b.both(); !ok) return ok;
  if (plan.grid)
    if (auto ok = b.grid(); !ok) return ok;
  if (plan.sweep)
    if (auto ok = b.sweep(); !ok) return ok;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

}  // namespace kvlease::bench
