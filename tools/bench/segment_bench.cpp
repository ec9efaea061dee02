#include "tools/bench/segment_bench.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>

#include "src/providers/segment/segment_provider.hpp"
#include "tools/bench/options.hpp"

namespace kvlease::bench {

namespace {

using clock = std::chrono::steady_clock;

/// What a command writes to stdout; empty when it fails.
std::string output_of(const std::string& command) {
  std::string text;
  auto* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::array<char, 4096> part{};
  while (const auto n = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), n);
  return ::pclose(pipe) == 0 ? text : std::string{};
}

/// A directory that goes with all that is in it.
class work_directory {
 public:
  static result<std::unique_ptr<work_directory>> make(const std::string& parent) {
    auto name = (parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path{parent}) /
                "kvlease-bench.XXXXXX";
    auto text = name.string();
    if (::mkdtemp(text.data()) == nullptr)
      return fail(errc::invalid, fmt::format("--directory: can't make '{}'", text));
    return std::make_unique<work_directory>(text);
  }
  explicit work_directory(std::string path) : path_{std::move(path)} {}
  ~work_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
};

/// Slots of aligned memory in huge pages, as a pool of pinned memory is; some extents of which are under way
/// at a time.
constexpr std::size_t units_an_extent = 8;
constexpr std::size_t huge = std::size_t{2} << 20;
/// What is submitted; the kernel never has more than the depth of it.
constexpr std::size_t extents_at_once(std::size_t slot_bytes) {
  return std::clamp<std::size_t>((std::size_t{128} << 20) / slot_bytes, 48, 512) / units_an_extent;
}

struct pool {
  explicit pool(std::size_t slot_bytes)
      : bytes{slot_bytes * units_an_extent * extents_at_once(slot_bytes)},
        memory{static_cast<std::byte*>(std::aligned_alloc(huge, (bytes + huge - 1) / huge * huge))},
        resolver{std::make_shared<local_resolver>(
            std::vector<part>{
                {.name = "bench",
                 .address = reinterpret_cast<std::uintptr_t>(memory.get()),
                 .nbytes = static_cast<std::int64_t>(bytes),
                 .slot_bytes = static_cast<std::int64_t>(slot_bytes),
                 .slots = static_cast<std::int64_t>(units_an_extent * extents_at_once(slot_bytes))}},
            std::vector<std::size_t>{0})} {
    ::madvise(memory.get(), bytes, MADV_HUGEPAGE);
    std::mt19937_64 random{1};
    for (std::size_t i = 0; i < bytes; i += 8) {
      const auto word = random();
      std::memcpy(memory.get() + i, &word, 8);
    }
  }
  struct release {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::size_t bytes;
  std::unique_ptr<std::byte, release> memory;
  std::shared_ptr<const local_resolver> resolver;
};

/// Of memory, and much of it, so that no cache helps: GB/s.
double checksum_rate() {
  const pool p{huge};
  const auto start = clock::now();
  std::uint64_t all = 0;
  for (std::size_t at = 0; at < p.bytes; at += huge) all ^= checksum_of({p.memory.get() + at, huge});
  const std::chrono::duration<double> took = clock::now() - start;
  return all == 0 ? 0 : static_cast<double>(p.bytes) / took.count() / 1e9;
}

/// One pass over `names`: GB/s.
double pass(segment_provider& p, bool writes, const std::vector<std::string>& names, std::size_t unit_bytes,
            std::size_t& failed) {
  std::deque<std::pair<std::shared_ptr<attempt>, std::size_t>> under_way;
  const auto finish_first = [&] {
    const auto& [a, units] = under_way.front();
    p.settle({&a, 1});
    p.quiesce({&a, 1});
    const auto o = a->poll();
    const auto* d = o ? std::get_if<delivered>(&*o) : nullptr;
    failed += units - (d != nullptr ? d->served().size() : 0);
    under_way.pop_front();
  };
  const auto start = clock::now();
  std::size_t place = 0;
  for (std::size_t from = 0; from < names.size(); from += units_an_extent) {
    if (under_way.size() == extents_at_once(unit_bytes)) finish_first();
    std::vector<unit> units;
    for (std::size_t i = from; i < std::min(names.size(), from + units_an_extent); ++i)
      units.push_back(*unit::make({.name = names[i],
                                   .local_group = 0,
                                   .local = static_cast<std::int64_t>(place * units_an_extent + i - from)}));
    place = (place + 1) % extents_at_once(unit_bytes);
    const auto count = units.size();
    const auto extent = *cache_extent::make("bench", std::move(units), end_of_sequence::no);
    under_way.emplace_back(writes ? p.publish(extent) : p.fetch(extent), count);
  }
  while (!under_way.empty()) finish_first();
  const std::chrono::duration<double> took = clock::now() - start;
  return static_cast<double>(names.size() * unit_bytes) / took.count() / 1e9;
}

/// The same by fio, with registered buffers and huge pages too: GB/s.
result<double> fio_pass(const segment_bench_options& o, const std::string& file, bool writes,
                        std::size_t total, std::size_t unit_bytes, std::size_t units) {
  const auto text = output_of(fmt::format(
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {} --name=kvlease --filename='{}' --rw={} --bs={} --size={} "
      "--io_size={} --direct=1 --ioengine=io_uring --fixedbufs=1 --iodepth={} --randrepeat=0 "
      "--output-format=json 2> /dev/null",
      o.fio, file, writes ? "randwrite" : "randread", unit_bytes, total / unit_bytes * unit_bytes,
      units * unit_bytes, o.depth));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return fail(errc::io, fmt::format("{} failed on '{}'", o.fio, file));
  return json.at("jobs").at(0).at(writes ? "write" : "read").at("bw_bytes").get<double>() / 1e9;
}

result<std::vector<std::size_t>> sizes_of(const std::string& text, std::size_t total) {
  std::vector<std::size_t> sizes;
  for (std::size_t from = 0; from <= text.size();) {
    const auto comma = std::min(text.find(',', from), text.size());
    const auto size = parse_size(text.substr(from, comma - from));
    if (!size) return fail(errc::invalid, "--sizes: " + size.error().text);
    if (*size % disk_block != 0 || *size > total / 16)
      return fail(errc::invalid, fmt::format("--sizes is '{}', must be multiples of 4K, and 1/16 of --bytes "
                                             "at most",
                                             text));
    sizes.push_back(*size);
    from = comma + 1;
  }
  return sizes;
}

/// Both in turn, and who is first in turn too.
result<void> measure(const segment_bench_options& o, const work_directory& work, std::size_t total,
                     std::size_t unit_bytes, segment_bench_report& report) {
  const auto open = parse_segment_options(
      fmt::format("{}?bytes={}&depth={}&engine={}&eviction=lru", work / "store", total, o.depth, o.engine));
  if (!open) return tl::unexpected{open.error()};
  const auto store = segment_store::open(*open);
  if (!store) return tl::unexpected{store.error()};
  const pool memory{unit_bytes};
  segment_provider p{*store, {memory.resolver, nullptr, nullptr}};
  const auto handle = p.register_pool(reinterpret_cast<std::uintptr_t>(memory.memory.get()), memory.bytes);
  const auto& g = (*store)->files().geometry();
  const auto units = std::size_t{g.slots(unit_bytes_for(unit_bytes))} * g.segments;
  report.provider = p.describe();
  std::vector<double> store_writes, store_reads, fio_writes, fio_reads;
  std::mt19937_64 random{2};
  std::size_t failed_before_files_were_written = 0;
  for (std::size_t round = 0; round <= o.rounds;
       ++round) {  // the first lays the files out, and does not count
    std::vector<std::string> names;
    for (std::size_t i = 0; i < units; ++i) names.push_back(fmt::format("{}.{}", round, i));
    std::shuffle(names.begin(), names.end(), random);
    auto& failed = round == 0 ? failed_before_files_were_written : report.failed_units;
    for (const bool writes : {true, false})
      for (const bool ours : {round % 2 == 0, round % 2 != 0}) {
        if (!ours && o.fio == "off") continue;
        if (ours && !writes) std::shuffle(names.begin(), names.end(), random);
        const auto rate = ours ? result<double>{pass(p, writes, names, unit_bytes, failed)}
                               : fio_pass(o, work / "fio", writes, total, unit_bytes, units);
        if (!rate) return tl::unexpected{rate.error()};
        if (round > 0)
          (ours ? (writes ? store_writes : store_reads) : (writes ? fio_writes : fio_reads)).push_back(*rate);
      }
  }
  report.failed_units += failed_before_files_were_written;
  report.lines.push_back({unit_bytes, units, true, spread_of(store_writes), spread_of(fio_writes)});
  report.lines.push_back({unit_bytes, units, false, spread_of(store_reads), spread_of(fio_reads)});
  return {};
}

}  // namespace

result<segment_bench_report> run_segment_bench(const segment_bench_options& o) {
  const auto total = parse_size(o.bytes);
  if (!total) return fail(errc::invalid, "--bytes: " + total.error().text);
  if (*total < (std::size_t{4} << 20))
    return fail(errc::invalid, "--bytes is '" + o.bytes + "', must be 4M or more");
  if (o.rounds == 0) return fail(errc::invalid, "--rounds is 0, must be 1 or more");
  const auto sizes = sizes_of(o.sizes, *total);
  if (!sizes) return tl::unexpected{sizes.error()};
  segment_bench_report report;
  if (o.fio != "off") {
    report.fio_version = output_of(o.fio + " --version 2> /dev/null");
    while (!report.fio_version.empty() && report.fio_version.back() == '\n') report.fio_version.pop_back();
    if (report.fio_version.empty())
      return fail(errc::invalid, fmt::format("--fio: there is no '{}': apt-get install fio, or --fio off to "
                                             "measure the store alone",
                                             o.fio));
  }
  report.checksum_gb_s = checksum_rate();
  const auto work = work_directory::make(o.directory);
  if (!work) return tl::unexpected{work.error()};
  for (const auto size : *sizes) {
    if (const auto ok = measure(o, **work, *total, size, report); !ok) return tl::unexpected{ok.error()};
    std::error_code ignored;
    for (const auto* made : {"store", "fio"}) std::filesystem::remove_all(**work / made, ignored);
  }
  return report;
}

void print(const segment_bench_report& r, std::ostream& out) {
  fmt::print(out, "{}\n{}GB/s: median (p10-p90)\n", r.provider,
             r.fio_version.empty() ? "" : "beside " + r.fio_version + ", the same pattern, in turns\n");
  for (const auto& l : r.lines) {
    fmt::print(out, "  {:>4} {:<5} {:>6} units  store {:.3f} ({:.3f}-{:.3f})", size_text(l.unit_bytes),
               l.writes ? "write" : "read", l.units, l.store.median, l.store.p10, l.store.p90);
    if (l.fio.samples > 0)
      fmt::print(out, "  fio {:.3f} ({:.3f}-{:.3f})  {:.0f} %", l.fio.median, l.fio.p10, l.fio.p90,
                 100 * l.store.median / l.fio.median);
    fmt::print(out, "\n");
  }
  fmt::print(out, "  one pass of the checksum over memory: {:.3f}\n", r.checksum_gb_s);
  if (r.failed_units > 0)
    fmt::print(out, "WRONG: {} units were not accepted or not served\n", r.failed_units);
}

nlohmann::ordered_json to_json(const segment_bench_report& r) {
  const auto of = [](const spread& s) {
    return nlohmann::ordered_json{
        {"median", s.median}, {"p10", s.p10}, {"p90", s.p90}, {"samples", s.samples}};
  };
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const auto& l : r.lines) {
    nlohmann::ordered_json line{{"unit_bytes", l.unit_bytes},
                                {"units", l.units},
                                {"way", l.writes ? "write" : "read"},
                                {"store_gb_s", of(l.store)}};
    if (l.fio.samples > 0) {
      line["fio_gb_s"] = of(l.fio);
      line["ratio"] = l.store.median / l.fio.median;
    }
    lines.push_back(std::move(line));
  }
  return {{"schema_version", 1},           {"bench", "segment"}, {"provider", r.provider},
          {"fio", r.fio_version},          {"lines", lines},     {"checksum_gb_s", r.checksum_gb_s},
          {"failed_units", r.failed_units}};
}

}  // namespace kvlease::bench
