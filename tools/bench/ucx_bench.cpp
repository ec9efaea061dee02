#include "tools/bench/ucx_bench.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>
#include <thread>

#include "src/include/kvlease/provider_uri.hpp"
#include "tools/bench/free_port.hpp"
#include "tools/bench/options.hpp"

namespace kvlease::bench {

namespace {

using clock_type = std::chrono::steady_clock;

constexpr std::size_t slots = 4;        ///< a side
constexpr std::size_t fetch_units = 2;  ///< two fetches are under way at a time
constexpr const char* settings =
    "env UCX_TLS=tcp UCX_NET_DEVICES=lo UCX_TCP_TX_SEG_SIZE=256K UCX_TCP_RX_SEG_SIZE=256K";

// ---- Fetches ---------------------------------------------------------------------------------------------

/// One provider over memory of its own.
struct side {
  side(const std::string& uri, std::size_t size) : memory(slots * size) {
    const part whole{.name = "p",
                     .address = reinterpret_cast<std::uintptr_t>(memory.data()),
                     .nbytes = static_cast<std::int64_t>(memory.size()),
                     .slot_bytes = static_cast<std::int64_t>(size),
                     .slots = static_cast<std::int64_t>(slots)};
    subject = provider_from_uri(uri).value()(
        {std::make_shared<local_resolver>(std::vector{whole}, std::vector<std::size_t>{0}), nullptr,
         nullptr});
    pool = subject->as_registers_pools()->register_pool(whole.address, memory.size());
  }
  std::vector<std::byte> memory;
  std::shared_ptr<provider> subject;
  std::unique_ptr<registration> pool;
};

cache_extent units(std::size_t first, std::size_t count) {
  std::vector<unit> all;
  for (std::size_t i = first; i < first + count; ++i)
    all.push_back(
        *unit::make({.name = std::to_string(i), .local_group = 0, .local = static_cast<std::int64_t>(i)}));
  return *cache_extent::make("bench", std::move(all), end_of_sequence::no);
}

/// Publishing side and fetching side, connected.
class pair {
 public:
  explicit pair(std::size_t size)
      : from_{"ucx://127.0.0.1:0?spin=2000&bytes=" + std::to_string(slots * size), size}, size_{size} {
    for (std::size_t i = 0; i < from_.memory.size(); ++i) from_.memory[i] = std::byte(i / size + i % 251);
    from_.subject->as_publishes()->publish(units(0, slots));
    const auto text = from_.subject->describe();  // "ucx (HOST:PORT over ..."
    const auto at = text.find('(') + 1;
    to_ = std::make_unique<side>(
        "ucx://127.0.0.1:0?spin=2000&peers=" + text.substr(at, text.find(' ', at) - at), size);
  }

  /// GB/s over `bytes`.
  result<double> run(std::size_t bytes) {
    auto& fetching = *to_->subject->as_fetches();
    const cache_extent halves[] = {units(0, fetch_units), units(fetch_units, fetch_units)};
    const auto fetches = std::max<std::size_t>(2, bytes / (fetch_units * size_));
    std::deque<std::shared_ptr<attempt>> open;
    const auto began = clock_type::now();
    for (std::size_t n = 0; n < fetches || !open.empty();) {
      if (n < fetches && open.size() < std::size(halves)) {
        open.push_back(fetching.fetch(halves[n++ % std::size(halves)]));
        continue;
      }
      const auto first = open.front();
      open.pop_front();
      fetching.settle({&first, 1});
      const auto o = first->poll();
      const auto* d = std::get_if<delivered>(&*o);
      if (d == nullptr || d->served().size() != fetch_units)
        return fail(errc::provider, "a fetch brought: " + to_string(*o));
    }
    const std::chrono::duration<double> took = clock_type::now() - began;
    return static_cast<double>(fetches * fetch_units * size_) / took.count() / 1e9;
  }
  std::size_t wrong() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < slots; ++i)
      n += std::equal(from_.memory.begin() + static_cast<std::ptrdiff_t>(i * size_),
                      from_.memory.begin() + static_cast<std::ptrdiff_t>((i + 1) * size_),
                      to_->memory.begin() + static_cast<std::ptrdiff_t>(i * size_))
               ? 0
               : 1;
    return n;
  }

 private:
  side from_;
  std::size_t size_;
  std::unique_ptr<side> to_;
};

// ---- ucx_perftest ----------------------------------------------------------------------------------------

result<std::string> output_of(const std::string& command) {
  auto* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return fail(errc::io, "can't run " + command);
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  if (::pclose(pipe) != 0) return fail(errc::io, fmt::format("'{}' failed: {}", command, text));
  return text;
}

/// GB/s. Its own two processes.
result<double> perftest(std::size_t size, std::size_t bytes) {
  const auto port = free_port();
  if (port == 0) return fail(errc::io, "no port of 127.0.0.1 is free");
  const auto iterations = std::max<std::size_t>(16, bytes / size);
  const auto common = fmt::format("{} timeout 120 ucx_perftest -p {}", settings, port);
  // The server first; the client tries again until that listens.
  const auto text = output_of(fmt::format(
      "{0} > /dev/null 2>&1 & server=$!; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; "
      "if {0} 127.0.0.1 -t ucp_am_bw -s {1} -n {2} -w 20 -e -f -v 2>&1; then wait $server; exit 0; fi; done; "
      "kill $server; exit 1",
      common, size, iterations));
  if (!text) return tl::unexpected{text.error()};
  // The last line: iterations, percentile, average and overall latency, average and overall MB/s (MiB),
  // rates.
  std::string last;
  std::istringstream lines{*text};
  for (std::string line; std::getline(lines, line);)
    if (std::count(line.begin(), line.end(), ',') >= 6) last = line;
  std::ranges::replace(last, ',', ' ');
  std::istringstream fields{last};
  double n = 0, percentile = 0, latency = 0, latency_all = 0, rate = 0, rate_all = 0;
  if (!(fields >> n >> percentile >> latency >> latency_all >> rate >> rate_all) || rate_all <= 0)
    return fail(errc::io, "ucx_perftest gave no figures: " + *text);
  return rate_all * 1024 * 1024 / 1e9;
}

}  // namespace

result<ucx_bench_report> run_ucx_bench(const ucx_bench_options& o) {
  if (o.rounds == 0) return fail(errc::invalid, "--rounds is 0, must be 1 or more");
  const auto bytes = parse_size(o.bytes);
  if (!bytes) return fail(errc::invalid, "--bytes: " + bytes.error().text);
  if (const auto there = provider_from_uri("ucx://127.0.0.1:0"); !there) return tl::unexpected{there.error()};
  ucx_bench_report r{.rounds = o.rounds, .bytes = *bytes, .lines = {}};
  std::istringstream list{o.sizes};
  for (std::string word; std::getline(list, word, ',');) {
    const auto size = parse_size(word);
    if (!size || *size == 0) return fail(errc::invalid, fmt::format("--sizes: '{}' is no size", word));
    ucx_bench_line line{.size = *size};
    std::vector<double> raw, ours;
    pair p{*size};
    for (std::size_t round = 0; round <= o.rounds; ++round) {  // the first does not count
      const auto alone = perftest(*size, *bytes);
      if (!alone) return tl::unexpected{alone.error()};
      const auto fetched = p.run(*bytes);
      if (!fetched) return tl::unexpected{fetched.error()};
      if (round == 0) continue;
      raw.push_back(*alone);
      ours.push_back(*fetched);
    }
    line.wrong = p.wrong();
    line.raw = spread_of(std::move(raw));
    line.ours = spread_of(std::move(ours));
    line.ratio = line.ours.median / line.raw.median;
    r.lines.push_back(line);
  }
  return r;
}

void print(const ucx_bench_report& r, std::ostream& out) {
  fmt::print(out, "{} rounds of {} MiB each way, in turn; GB/s, median (p10, p90)\n", r.rounds,
             r.bytes >> 20);
  fmt::print(out, "  {:>10}  {:<24}  {:<24}  {}\n", "unit", "ucx_perftest ucp_am_bw", "fetch over ucx://",
             "ratio");
  for (const auto& l : r.lines) {
    const auto text = [](const spread& s) {
      return fmt::format("{:.2f} ({:.2f}, {:.2f})", s.median, s.p10, s.p90);
    };
    fmt::print(out, "  {:>6} KiB  {:<24}  {:<24}  {:.0f} %{}\n", l.size >> 10, text(l.raw), text(l.ours),
               l.ratio * 100, l.wrong != 0 ? fmt::format("  {} WRONG UNITS", l.wrong) : "");
  }
}

nlohmann::ordered_json to_json(const ucx_bench_report& r) {
  const auto of = [](const spread& s) {
    return nlohmann::ordered_json{
        {"median", s.median}, {"p10", s.p10}, {"p90", s.p90}, {"samples", s.samples}};
  };
  auto lines = nlohmann::ordered_json::array();
  for (const auto& l : r.lines)
    lines.push_back({{"size", l.size},
                     {"perftest", of(l.raw)},
                     {"fetch", of(l.ours)},
                     {"ratio", l.ratio},
                     {"wrong", l.wrong}});
  return {
      {"schema_version", 1}, {"bench", "ucx"}, {"rounds", r.rounds}, {"bytes", r.bytes}, {"sizes", lines}};
}

}  // namespace kvlease::bench
