#include "src/journal_file.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

namespace kvlease {

namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::array<char, 8> file_magic{'K', 'V', 'L', 'J', 'R', 'N', 'L', '\n'};
constexpr std::uint32_t block_magic = 0x4b4c424b;  // "KBLK"
constexpr std::size_t most_in_block = 1024;
constexpr std::chrono::milliseconds busy_pause{5}, idle_pause{100};
constexpr std::chrono::seconds flush_bound{2};

struct file_header {
  std::array<char, 8> magic = file_magic;
  std::uint32_t version = journal_file_version;
  std::uint32_t record_size = sizeof(journal_record);
  std::uint32_t runtime = 0;
  std::uint32_t reserved = 0;
  std::int64_t started = 0;
  std::array<std::uint64_t, 3> later{};
  std::uint64_t checksum = 0;
};
static_assert(sizeof(file_header) == 64);

struct block_header {
  std::uint32_t magic = block_magic;
  std::uint32_t count = 0;
  std::uint64_t lost = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(block_header) == 24);

std::uint64_t checksum_of(const file_header& h) { return XXH3_64bits(&h, offsetof(file_header, checksum)); }

std::uint64_t checksum_of(const block_header& b, const journal_record* records) {
  const auto seed = XXH3_64bits(&b, offsetof(block_header, checksum));
  return XXH3_64bits_withSeed(records, b.count * sizeof(journal_record), seed);
}

struct closer {
  void operator()(std::FILE* f) const noexcept { std::fclose(f); }
};
using file = std::unique_ptr<std::FILE, closer>;

error io_error(const std::string& path, const char* what) {
  return {errc::io, fmt::format("journal file {}: {}: {}", path, what, std::strerror(errno))};
}

}  // namespace

// ---- writing

struct journal_file_writer::body {
  std::shared_ptr<journal> from;
  file to;
  std::mutex mutex;
  std::condition_variable wake, written;
  std::uint64_t next_after = 0;  ///< written up to here; the thread's, read under the mutex
  std::uint64_t wanted = 0;      ///< flush up to here
  bool stop = false, broken = false;
  std::thread thread;

  /// Writes all that is in the ring. Answers whether there was anything.
  bool drain() {
    bool any = false;
    for (;;) {
      std::uint64_t lost = 0;
      const auto records = from->read(next_after, most_in_block, lost);
      if (records.empty()) return any;
      any = true;
      from->count_lost(lost);
      block_header b{.count = static_cast<std::uint32_t>(records.size()), .lost = lost};
      b.checksum = checksum_of(b, records.data());
      const bool good =
          std::fwrite(&b, sizeof b, 1, to.get()) == 1 &&
          std::fwrite(records.data(), sizeof(journal_record), records.size(), to.get()) == records.size() &&
          std::fflush(to.get()) == 0;
      const std::lock_guard lock{mutex};
      next_after = records.back().sequence;
      if (!good) broken = true;
      written.notify_all();
      if (broken) return any;
    }
  }

  void run() {
    std::unique_lock lock{mutex};
    while (!broken) {
      const bool last = stop;
      lock.unlock();
      const bool any = drain();
      lock.lock();
      if (last || broken) break;
      wake.wait_for(lock, any ? busy_pause : idle_pause, [this] { return stop || wanted > next_after; });
    }
    if (broken) std::fprintf(stderr, "kvlease: the journal file can't be written any more\n");
    broken = true;  // nobody waits for what is not written
    written.notify_all();
  }
};

journal_file_writer::journal_file_writer(std::unique_ptr<body> b) : body_{std::move(b)} {
  body_->thread = std::thread{[raw = body_.get()] { raw->run(); }};
}

result<std::unique_ptr<journal_file_writer>> journal_file_writer::open(std::shared_ptr<journal> from,
                                                                       const std::string& path) {
  auto b = std::make_unique<body>();
  b->to.reset(std::fopen(path.c_str(), "wb"));
  if (b->to == nullptr) return tl::unexpected{io_error(path, "can't be made")};
  file_header h{.runtime = from->runtime().value};
  const auto age = std::chrono::steady_clock::now() - from->start();
  h.started = std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::system_clock::now().time_since_epoch() - age)
                  .count();
  h.checksum = checksum_of(h);
  if (std::fwrite(&h, sizeof h, 1, b->to.get()) != 1 || std::fflush(b->to.get()) != 0)
    return tl::unexpected{io_error(path, "can't be written")};
  b->from = std::move(from);
  return std::unique_ptr<journal_file_writer>{new journal_file_writer{std::move(b)}};
}

journal_file_writer::~journal_file_writer() {
  {
    const std::lock_guard lock{body_->mutex};
    body_->stop = true;
  }
  body_->wake.notify_all();
  body_->thread.join();
}

bool journal_file_writer::flush() {
  std::unique_lock lock{body_->mutex};
  const auto upto = body_->from->last();
  body_->wanted = std::max(body_->wanted, upto);
  body_->wake.notify_all();
  body_->written.wait_for(lock, flush_bound, [&] { return body_->next_after >= upto || body_->broken; });
  return body_->next_after >= upto;
}

// ---- reading

namespace {

/// "records 12 to 19", or where nothing tells how many "what follows record 11".
std::string records_of(const block_header& b, std::uint64_t before) {
  if (b.count == 0 || b.count > most_in_block || b.lost > 0)
    return before == 0 ? "the first records" : fmt::format("what follows record {}", before);
  return fmt::format("records {} to {}", before + 1, before + b.count);
}

/// The first record that is missing, and that the block does not count as lost; empty when all are told of.
std::optional<std::uint64_t> uncounted(const block_header& b, const std::vector<journal_record>& records,
                                       std::uint64_t before) {
  std::uint64_t missing = 0;
  std::optional<std::uint64_t> first;
  for (const auto& r : records) {
    if (r.sequence <= before) return std::nullopt;  // the checker says so, with the record
    if (r.sequence > before + 1 && !first) first = before + 1;
    missing += r.sequence - before - 1;
    before = r.sequence;
  }
  return missing > b.lost ? first : std::nullopt;
}

}  // namespace

result<journal_on_file> read_journal_file(const std::string& path) {
  const file opened{path == "-" ? nullptr : std::fopen(path.c_str(), "rb")};
  if (path != "-" && opened == nullptr) return tl::unexpected{io_error(path, "can't be opened")};
  auto* from = path == "-" ? stdin : opened.get();  // a pipe as well: nothing goes back
  const auto bad = [&path](const std::string& what) {
    return fail(errc::invalid, fmt::format("journal file {}: {}", path, what));
  };
  file_header h;
  const auto began = std::fread(&h, 1, sizeof h, from);
  if (std::ferror(from) != 0) return tl::unexpected{io_error(path, "can't be read")};
  if (began != sizeof h || h.magic != file_magic) return bad("is no journal of kvlease");
  if (h.version != journal_file_version || h.record_size != sizeof(journal_record))
    return bad(fmt::format("has version {} and records of {} bytes, this program reads version {} and {}",
                           h.version, h.record_size, journal_file_version, sizeof(journal_record)));
  if (h.checksum != checksum_of(h)) return bad("its header is damaged");
  journal_on_file out;
  out.runtime = {h.runtime};
  out.started = std::chrono::system_clock::time_point{
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds{h.started})};

  for (std::uint64_t offset = sizeof h;;) {
    const auto before = out.records.empty() ? 0 : out.records.back().sequence;
    block_header b;
    const auto headed = std::fread(&b, 1, sizeof b, from);
    std::vector<journal_record> records;
    std::size_t got = 0;
    if (headed == sizeof b) {
      if (std::memcmp(&b, file_magic.data(), file_magic.size()) == 0)
        return bad(
            fmt::format("another journal begins at byte {}, behind record {}: each runtime has a file "
                        "of its own",
                        offset, before));
      if (b.magic != block_magic || b.count > most_in_block)
        return bad(fmt::format("no block begins at byte {}, behind record {}", offset, before));
      records.resize(b.count);
      got = std::fread(static_cast<void*>(records.data()), 1, b.count * sizeof(journal_record), from);
    }
    if (std::ferror(from) != 0) return tl::unexpected{io_error(path, "can't be read")};
    if (headed < sizeof b || got < b.count * sizeof(journal_record)) {  // its writer was stopped within it
      out.cut_bytes = headed + got;
      return out;
    }
    // All of it is there, so it is not a writer that was stopped.
    if (b.checksum != checksum_of(b, records.data()))
      return bad(fmt::format("the block at byte {} is damaged: {}", offset, records_of(b, before)));
    if (const auto first = uncounted(b, records, before))
      return bad(fmt::format("record {} is missing, and the block at byte {} does not count it as lost",
                             *first, offset));
    out.lost += b.lost;
    out.records.insert(out.records.end(), records.begin(), records.end());
    offset += sizeof b + got;
  }
}

}  // namespace kvlease
