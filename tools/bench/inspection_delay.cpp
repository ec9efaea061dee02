#include "tools/bench/inspection_delay.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tools/bench/statistics.hpp"
#include "tools/replay/instance.hpp"

namespace kvlease::bench {

namespace {

using steady = std::chrono::steady_clock;

constexpr std::uint32_t tokens_per_block = 16;
constexpr std::chrono::milliseconds least_pause{20};

/// One instance with `n` fetches open that never end.
class crowd {
 public:
  static result<std::unique_ptr<crowd>> gather(std::size_t n) {
    replay::replay_options asked;
    asked.requests = 1;
    asked.instances = 1;
    asked.block_bytes = 64;
    asked.tokens_per_block = tokens_per_block;
    asked.staging_slots = n;
    asked.pool_blocks = std::max<std::size_t>(2 * n, 4096);
    asked.timeout = "3000s";
    asked.faults = "hang=1";
    auto plan = replay::plan_replay(asked);
    if (!plan) return tl::unexpected{plan.error()};
    plan->concurrency = n;  // bounds admission
    auto made = replay::make_instance(*plan, 0, [](const fatal_record&) {});
    if (!made) return tl::unexpected{made.error()};
    auto c = std::make_unique<crowd>();
    c->on_ = *std::move(made);
    for (std::size_t i = 0; i < n; ++i)
      if (const auto ok = c->open_one(i); !ok) return tl::unexpected{ok.error()};
    return c;
  }

  runtime& of() { return *on_->lender; }
  request_id request() const { return request_; }

 private:
  result<void> open_one(std::size_t i) {
    request_spec spec;
    for (std::uint32_t t = 0; t <= tokens_per_block; ++t)
      spec.prompt.ids.push_back(static_cast<std::uint32_t>(i * tokens_per_block + t));
    const auto info = of().admit(std::move(spec)).get();
    if (!info) return tl::unexpected{info.error()};
    request_ = info->request;
    auto ready = std::make_shared<std::promise<void>>();
    auto lent = ready->get_future();
    lease_events events;
    events.ready = [ready](lease_id, const auto&) { ready->set_value(); };
    const auto lease = of().lend(direction::fetch, request_, {0, tokens_per_block}, std::move(events)).get();
    if (!lease) return tl::unexpected{lease.error()};
    if (lent.wait_for(std::chrono::seconds{30}) != std::future_status::ready)
      return fail(errc::timeout, fmt::format("lease {} is not ready", to_string(*lease)));
    const auto timeout = *transfer_timeout::make(std::chrono::seconds{3000});
    const auto op = of().submit(direction::fetch, *lease, request_, timeout, {}).get();
    if (!op) return tl::unexpected{op.error()};
    return {};
  }

  std::unique_ptr<replay::instance> on_;
  request_id request_;
};

/// Takes snapshots on a thread of its own, and tells when one is under way.
class looker {
 public:
  looker(std::shared_ptr<inspection_port> port, std::size_t limit, std::size_t looks)
      : thread_{[this, port = std::move(port), limit, looks] { run(*port, limit, looks); }} {}
  ~looker() { thread_.join(); }
  looker(const looker&) = delete;
  looker& operator=(const looker&) = delete;

  bool done() const { return done_; }
  /// Odd while one is under way; rises with each begin and end.
  std::uint64_t phase() const { return phase_; }
  /// Once done.
  const std::vector<double>& took() const { return took_; }

 private:
  void run(inspection_port& port, std::size_t limit, std::size_t looks) {
    for (std::size_t i = 0; i < looks; ++i) {
      const auto began = steady::now();
      ++phase_;
      static_cast<void>(port.look(limit));
      ++phase_;
      const auto took = steady::now() - began;
      took_.push_back(std::chrono::duration<double>(took).count());
      std::this_thread::sleep_for(std::max<steady::duration>(took, least_pause));
    }
    done_ = true;
  }

  std::vector<double> took_;
  std::atomic<std::uint64_t> phase_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

delay_figures figures_of(const std::vector<double>& seconds) {
  if (seconds.empty()) return {};
  return {quantile(seconds, 0.5),   quantile(seconds, 0.9), quantile(seconds, 0.99),
          quantile(seconds, 0.999), quantile(seconds, 1),   seconds.size()};
}

}  // namespace

result<delay_report> measure_delay(std::size_t operations, std::size_t looks) {
  auto gathered = crowd::gather(operations);
  if (!gathered) return tl::unexpected{gathered.error()};
  auto& on = **gathered;
  delay_report r;
  r.operations = operations;
  r.looks = looks;
  std::array<std::vector<double>, 3> quiet, looked;
  {
    looker looking{on.of().inspection(), operations, looks};
    for (std::size_t i = 0; !looking.done(); ++i) {
      const auto whom = i % 3;
      const auto phase = looking.phase();
      const auto began = steady::now();
      if (whom == 0)
        static_cast<void>(on.of().describe(on.request()).get());
      else if (whom == 1)
        static_cast<void>(on.of().ready_from(on.request()).get());
      else
        static_cast<void>(on.of().retry_proof({}).get());  // of no operation: the answer is an error, at once
      const auto took = std::chrono::duration<double>(steady::now() - began).count();
      const bool beside = phase % 2 != 0 || looking.phase() != phase;
      (beside ? looked : quiet)[whom].push_back(took);
    }
    r.look_p50 = quantile(looking.took(), 0.5);
    r.look_longest = quantile(looking.took(), 1);
  }
  constexpr std::array<const char*, 3> names{"manager", "lender", "adapter"};
  for (std::size_t a = 0; a < names.size(); ++a)
    r.actors.push_back({names[a], figures_of(quiet[a]), figures_of(looked[a])});
  return r;
}

void print(const delay_report& r, std::ostream& out) {
  fmt::print(out, "{} operations open; {} snapshots of them all: {:.1f} ms each (longest {:.1f} ms)\n",
             r.operations, r.looks, r.look_p50 * 1e3, r.look_longest * 1e3);
  fmt::print(
      out, "a message to an actor and back, us          p50      p90      p99    p99.9  longest  messages\n");
  const auto line = [&out](const std::string& name, const delay_figures& d) {
    fmt::print(out, "  {:<36} {:>8.0f} {:>8.0f} {:>8.0f} {:>8.0f} {:>8.0f}  {:>8}\n", name, d.p50 * 1e6,
               d.p90 * 1e6, d.p99 * 1e6, d.p999 * 1e6, d.longest * 1e6, d.samples);
  };
  for (const auto& a : r.actors) {
    line(a.name + ", no snapshot", a.quiet);
    line(a.name + ", while one is taken", a.looked);
  }
}

nlohmann::ordered_json to_json(const delay_report& r) {
  const auto of = [](const delay_figures& d) {
    return nlohmann::ordered_json{{"p50_seconds", d.p50},         {"p90_seconds", d.p90},
                                  {"p99_seconds", d.p99},         {"p999_seconds", d.p999},
                                  {"longest_seconds", d.longest}, {"samples", d.samples}};
  };
  nlohmann::ordered_json actors;
  for (const auto& a : r.actors) actors[a.name] = {{"quiet", of(a.quiet)}, {"looked", of(a.looked)}};
  return {{"operations", r.operations},
          {"looks", r.looks},
          {"look_p50_seconds", r.look_p50},
          {"look_longest_seconds", r.look_longest},
          {"actors", actors}};
}

}  // namespace kvlease::bench
