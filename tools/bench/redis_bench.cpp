#include "tools/bench/redis_bench.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "kvlease/provider_uri.hpp"
#include "tools/bench/redis_raw_client.hpp"
#include "tools/bench/redis_server_process.hpp"

namespace kvlease::bench {

namespace {

/// Units of one submission, and submissions under way: what a runtime has under way.
constexpr std::size_t units_each = 32;
constexpr std::size_t submissions = 4;

result<double> seconds_of(const std::function<result<void>()>& job) {
  const auto began = std::chrono::steady_clock::now();
  if (const auto ok = job(); !ok) return tl::unexpected{ok.error()};
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// The provider, over `memory` as slots of `size` bytes.
class our_client {
 public:
  static result<our_client> open(const std::string& uri, std::span<std::byte> memory, std::size_t size) {
    const auto factory = provider_from_uri(uri);
    if (!factory) return tl::unexpected{factory.error()};
    const std::vector<part> parts{{.name = "bench",
                                   .address = reinterpret_cast<std::uintptr_t>(memory.data()),
                                   .nbytes = static_cast<std::int64_t>(memory.size()),
                                   .slot_bytes = static_cast<std::int64_t>(size),
                                   .slots = static_cast<std::int64_t>(memory.size() / size)}};
    our_client c;
    c.provider_ =
        (*factory)({std::make_shared<local_resolver>(parts, std::vector<std::size_t>{0}), nullptr, nullptr});
    c.pool_ = c.provider_->as_registers_pools()->register_pool(parts[0].address, memory.size());
    c.units_ = memory.size() / size;
    return c;
  }

  /// All units, once.
  result<void> move(direction way) {
    std::deque<std::pair<std::shared_ptr<attempt>, std::size_t>> under_way;
    const auto finish_first = [&]() -> result<void> {
      const auto [a, count] = std::move(under_way.front());
      under_way.pop_front();
      auto& deliveries = *provider_->as_fetches();
      deliveries.settle({&a, 1});
      const auto o = a->poll();
      const auto* d = std::get_if<delivered>(&*o);
      if (!deliveries.quiesce({&a, 1}) || d == nullptr || d->served().size() != count)
        return fail(errc::provider, fmt::format("not all of {} units were served: {}", count, to_string(*o)));
      return {};
    };
    for (std::size_t first = 0; first < units_; first += units_each) {
      std::vector<unit> units;
      for (auto n = first; n < std::min(units_, first + units_each); ++n)
        units.push_back(*unit::make({fmt::format("{:054}", n), 0, static_cast<std::int64_t>(n)}));
      const auto count = units.size();
      const auto extent = *cache_extent::make("bench", std::move(units), end_of_sequence::no);
      under_way.emplace_back(way == direction::fetch ? provider_->as_fetches()->fetch(extent)
                                                     : provider_->as_publishes()->publish(extent),
                             count);
      if (under_way.size() == submissions)
        if (const auto ok = finish_first(); !ok) return ok;
    }
    while (!under_way.empty())
      if (const auto ok = finish_first(); !ok) return ok;
    return {};
  }

 private:
  std::shared_ptr<provider> provider_;
  std::unique_ptr<registration> pool_;
  std::size_t units_ = 0;
};

/// One raw connection, or more, each on a thread with its share of the memory.
class raw_clients {
 public:
  static result<raw_clients> open(const std::string& where, std::size_t count) {
    raw_clients all;
    for (std::size_t n = 0; n < count; ++n) {
      auto c = redis_raw_client::open(where);
      if (!c) return tl::unexpected{c.error()};
      all.clients_.push_back(std::move(*c));
    }
    return all;
  }
  redis_raw_client& first() { return clients_.front(); }

  result<void> move(direction way, std::span<std::byte> memory, std::size_t size, std::size_t depth) {
    const std::size_t units = memory.size() / size;
    std::vector<result<void>> ended(clients_.size());
    const auto one = [&](std::size_t n) {
      const auto from = units * n / clients_.size(), to = units * (n + 1) / clients_.size();
      const auto mine = memory.subspan(from * size, (to - from) * size);
      const std::string key = "raw:" + std::string(54, 'x');
      ended[n] = way == direction::fetch ? clients_[n].get(key, from, mine, size, depth)
                                         : clients_[n].set(key, from, mine, size, depth);
    };
    std::vector<std::thread> threads;
    for (std::size_t n = 1; n < clients_.size(); ++n) threads.emplace_back(one, n);
    one(0);
    for (auto& t : threads) t.join();
    for (const auto& e : ended)
      if (!e) return e;
    return {};
  }

 private:
  std::vector<redis_raw_client> clients_;
};

/// SET and GET of one size over one kind of socket, each way in turn; the first round does not count.
result<void> measure(const redis_options& o, const redis_server_process& server, bool over_unix,
                     std::size_t kib, std::vector<redis_cell>& cells) {
  const std::size_t size = kib << 10;
  std::vector<std::byte> memory((o.mib << 20) / size * size, std::byte{0x5a});
  const auto options = fmt::format("?connections={}&pipeline={}&prefix=ours:", o.connections, o.depth);
  auto ours = our_client::open(over_unix ? "redis+unix:" + server.socket() + options
                                         : fmt::format("redis://127.0.0.1:{}{}", server.port(), options),
                               memory, size);
  if (!ours) return tl::unexpected{ours.error()};
  auto raw = raw_clients::open(over_unix ? server.socket() : std::to_string(server.port()), o.connections);
  if (!raw) return tl::unexpected{raw.error()};
  const direction ways[] = {direction::publish, direction::fetch};
  std::vector<double> rates[2][2];  // by way, then ours and raw
  for (std::size_t round = 0; round <= o.rounds; ++round)
    for (const bool with_ours : {round % 2 == 0, round % 2 != 0}) {
      if (const auto ok = raw->first().flush(); !ok) return ok;
      for (std::size_t w = 0; w < 2; ++w) {
        const auto took = seconds_of(
            [&] { return with_ours ? ours->move(ways[w]) : raw->move(ways[w], memory, size, o.depth); });
        if (!took) return tl::unexpected{took.error()};
        if (round > 0)
          rates[w][with_ours ? 0 : 1].push_back(static_cast<double>(memory.size()) / *took / 1e9);
      }
    }
  for (std::size_t w = 0; w < 2; ++w) {
    redis_cell c{over_unix ? "unix" : "tcp",
                 w == 0 ? "SET" : "GET",
                 kib,
                 spread_of(std::move(rates[w][0])),
                 spread_of(std::move(rates[w][1])),
                 0};
    c.ratio = c.ours.median / c.raw.median;
    cells.push_back(std::move(c));
  }
  return {};
}

}  // namespace

result<redis_report> run_redis_bench(const redis_options& o) {
  if (o.rounds == 0) return fail(errc::invalid, "--rounds is 0, must be 1 or more");
  if (o.connections == 0 || o.connections > 64)
    return fail(errc::invalid, "--connections must be from 1 to 64");
  if (o.depth == 0 || o.depth > 1024) return fail(errc::invalid, "--depth must be from 1 to 1024");
  for (const auto kib : o.kib)
    if (kib == 0 || kib > o.mib << 10)
      return fail(errc::invalid,
                  fmt::format("--size {} must be from 1 to the {} MiB of a measurement", kib, o.mib));
  const auto server = redis_server_process::start();
  if (!server) return tl::unexpected{server.error()};
  redis_report r{o, {}};
  for (const bool over_unix : {false, true})
    for (const auto kib : o.kib)
      if (const auto ok = measure(o, **server, over_unix, kib, r.cells); !ok)
        return tl::unexpected{ok.error()};
  return r;
}

void print(const redis_report& r, std::ostream& out) {
  fmt::print(
      out,
      "{} MiB a measurement, {} rounds each way, in turn; {} connection(s), {} commands under way; GB/s\n",
      r.asked.mib, r.asked.rounds, r.asked.connections, r.asked.depth);
  fmt::print(out, "  {:<6}{:<5}{:>8}  {:<26}{:<26}{:>7}\n", "socket", "", "unit", "provider (p10, p90)",
             "bare client (p10, p90)", "ratio");
  const auto text = [](const spread& s) {
    return fmt::format("{:.2f} ({:.2f}, {:.2f})", s.median, s.p10, s.p90);
  };
  for (const auto& c : r.cells)
    fmt::print(out, "  {:<6}{:<5}{:>4} KiB  {:<26}{:<26}{:>5.0f} %\n", c.socket, c.command, c.kib,
               text(c.ours), text(c.raw), c.ratio * 100);
}

nlohmann::ordered_json to_json(const redis_report& r) {
  const auto of = [](const spread& s) {
    return nlohmann::ordered_json{
        {"median", s.median}, {"p10", s.p10}, {"p90", s.p90}, {"samples", s.samples}};
  };
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const auto& c : r.cells)
    cells.push_back({{"socket", c.socket},
                     {"command", c.command},
                     {"unit_bytes", c.kib << 10},
                     {"provider", of(c.ours)},
                     {"bare_client", of(c.raw)},
                     {"ratio", c.ratio}});
  return {{"schema_version", 1},      {"bench", "redis"},
          {"unit", "GB/s"},           {"connections", r.asked.connections},
          {"depth", r.asked.depth},   {"mib", r.asked.mib},
          {"rounds", r.asked.rounds}, {"cells", cells}};
}

}  // namespace kvlease::bench
