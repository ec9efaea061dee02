#include "tools/bench/inspection_bench.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/include/kvlease/runtime.hpp"
#include "tools/replay/replay.hpp"

namespace kvlease::bench {

namespace {

/// Looks at every runtime that a replay starts, ten times a second, as a dashboard does.
class watcher {
 public:
  explicit watcher(std::chrono::milliseconds every) : every_{every}, thread_{[this] { watch(); }} {}
  ~watcher() {
    stop_ = true;
    thread_.join();
  }
  void meet(std::shared_ptr<inspection_port> port) {
    const std::lock_guard held{mutex_};
    ports_.push_back(std::move(port));
  }
  std::size_t looks() const { return looks_; }

 private:
  void watch() {
    auto next = std::chrono::steady_clock::now();
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      if (std::chrono::steady_clock::now() < next) continue;
      next += every_;
      std::vector<std::shared_ptr<inspection_port>> ports;
      {
        const std::lock_guard held{mutex_};
        ports = ports_;
      }
      for (const auto& p : ports) {
        p->look(1000);
        p->metrics();
        ++looks_;
      }
    }
  }

  const std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<inspection_port>> ports_;
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> looks_{0};
  std::thread thread_;
};

}  // namespace

result<inspection_report> run_inspection_bench(const inspection_options& o) {
  if (o.rounds == 0) return fail(errc::invalid, "--rounds is 0, must be 1 or more");
  if (o.requests == 0) return fail(errc::invalid, "--requests is 0, must be 1 or more");
  replay::replay_options asked;
  asked.requests = o.requests;
  auto plan = replay::plan_replay(asked);
  if (!plan) return tl::unexpected{plan.error()};
  const auto file = o.journal_file.empty()
                        ? (std::filesystem::temp_directory_path() / "kvlease-bench.journal").string()
                        : o.journal_file;
  inspection_report r;
  r.rounds = o.rounds;
  r.requests = o.requests;
  r.look_every_ms = o.look_every_ms;
  std::vector<double> watched, alone;
  const auto once = [&](bool with, bool counts) -> result<void> {
    const auto eyes = with ? std::make_unique<watcher>(std::chrono::milliseconds{o.look_every_ms}) : nullptr;
    plan->journal = plan->meters = with;
    plan->journal_path = with ? file : std::string{};
    plan->on_instance = [&eyes](runtime& started) {
      if (eyes) eyes->meet(started.inspection());
    };
    const auto ran = replay::run_replay(*plan, nullptr);
    if (!ran) return tl::unexpected{ran.error()};
    r.wrong_blocks += ran->wrong_blocks;
    if (eyes) r.looks += eyes->looks();
    if (counts) (with ? watched : alone).push_back(static_cast<double>(ran->operations) / ran->seconds);
    return {};
  };
  // One round that does not count; then each way goes first in turn.
  for (std::size_t round = 0; round <= o.rounds; ++round)
    for (const bool with : {round % 2 == 0, round % 2 != 0})
      if (const auto ok = once(with, round > 0); !ok) return tl::unexpected{ok.error()};
  for (std::size_t n = 0; n < plan->instances; ++n) std::filesystem::remove(fmt::format("{}.{}", file, n));
  // Round by round: what else the machine does changes from one to the next.
  std::vector<double> ratios;
  for (std::size_t i = 0; i < watched.size(); ++i) ratios.push_back(watched[i] / alone[i]);
  r.ratio = quantile(std::move(ratios), 0.5);
  r.watched = spread_of(std::move(watched));
  r.alone = spread_of(std::move(alone));
  if (o.operations > 0) {
    auto delay = measure_delay(o.operations, std::max<std::size_t>(o.looks, 1));
    if (!delay) return tl::unexpected{delay.error()};
    r.delay = *std::move(delay);
  }
  return r;
}

void print(const inspection_report& r, std::ostream& out) {
  fmt::print(out, "a replay of {} requests, {} rounds each way, in turn; operations a second\n", r.requests,
             r.rounds);
  const auto line = [&](const char* name, const spread& s) {
    fmt::print(out, "  {:<44} {:>8.0f} (p10 {:.0f}, p90 {:.0f})\n", name, s.median, s.p10, s.p90);
  };
  line("no meters, no journal, no looks", r.alone);
  line(fmt::format("meters, journal, its file, a look each {} ms", r.look_every_ms).c_str(), r.watched);
  fmt::print(out, "  the second of the first, median of the rounds: {:.1f} % ({} looks, {} wrong blocks)\n",
             r.ratio * 100, r.looks, r.wrong_blocks);
  if (r.delay) print(*r.delay, out);
}

nlohmann::ordered_json to_json(const inspection_report& r) {
  const auto of = [](const spread& s) {
    return nlohmann::ordered_json{
        {"median", s.median}, {"p10", s.p10}, {"p90", s.p90}, {"samples", s.samples}};
  };
  nlohmann::ordered_json j{{"schema_version", 1},
                           {"bench", "inspection"},
                           {"requests", r.requests},
                           {"rounds", r.rounds},
                           {"alone", of(r.alone)},
                           {"watched", of(r.watched)},
                           {"ratio", r.ratio},
                           {"looks", r.looks},
                           {"look_every_ms", r.look_every_ms},
                           {"wrong_blocks", r.wrong_blocks}};
  if (r.delay) j["delay"] = to_json(*r.delay);
  return j;
}

}  // namespace kvlease::bench
