#include "src/journal.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/journal_file.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

const auto start = std::chrono::steady_clock::time_point{} + 5s;

struct temporary_file {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("kvlease-journal-" + std::to_string(::getpid()) + "-" + std::to_string(++made)))
                         .string();
  ~temporary_file() { std::remove(path.c_str()); }
  static inline int made = 0;
};

}  // namespace

TEST_CASE("journal: every kind has a name of its own") {
  std::set<std::string_view> names;
  for (std::size_t k = 0; k < journal_kind_count; ++k) names.insert(to_string(static_cast<journal_kind>(k)));
  CHECK(names.size() == journal_kind_count);
  CHECK(to_string(static_cast<journal_kind>(journal_kind_count)) == "unknown");
}

TEST_CASE("journal: records are numbered from 1 and read in order") {
  journal j{incarnation{7}, 64, start};
  for (std::uint64_t i = 1; i <= 10; ++i)
    j.write(start + std::chrono::nanoseconds{i}, {.kind = journal_kind::lease_ready, .lease = i * 3});
  std::uint64_t lost = 0;
  const auto all = j.read(0, 100, lost);
  REQUIRE(all.size() == 10);
  CHECK(lost == 0);
  for (std::uint64_t i = 0; i < 10; ++i) {
    CHECK(all[i].sequence == i + 1);
    CHECK(all[i].at == static_cast<std::int64_t>(i + 1));
    CHECK(all[i].lease == (i + 1) * 3);
  }
  CHECK(j.read(4, 3, lost).front().sequence == 5);
  CHECK(j.read(4, 3, lost).size() == 3);
  CHECK(j.read(10, 3, lost).empty());
  CHECK(lost == 0);
}

TEST_CASE("journal: what was overwritten is counted") {
  journal j{incarnation{7}, 64, start};
  for (std::uint64_t i = 0; i < 200; ++i) j.write(start, {.value = i});
  std::uint64_t lost = 0;
  const auto some = j.read(0, 1000, lost);
  CHECK(lost == 136);
  REQUIRE(some.size() == 64);
  CHECK(some.front().sequence == 137);
  CHECK(some.front().value == 136);
  lost = 0;
  CHECK(j.read(100, 1000, lost).size() == 64);
  CHECK(lost == 36);
}

TEST_CASE("journal: many writers, one reader, nothing torn and nothing uncounted") {
  constexpr std::uint64_t writers = 4, each = 50'000;
  journal j{incarnation{7}, 1024, start};
  std::atomic<bool> over{false};
  std::uint64_t lost = 0, seen = 0, after = 0, torn = 0, disorder = 0;
  std::map<std::uint64_t, std::uint64_t> last_of;
  std::thread reader{[&] {
    for (;;) {
      const bool last = over;
      for (const auto& r : j.read(after, 256, lost)) {
        torn += r.operation != r.lease * 2 || r.value != r.lease + r.other;
        disorder += r.lease <= last_of[r.other] || r.sequence <= after;
        last_of[r.other] = r.lease;
        after = r.sequence;
        ++seen;
      }
      if (last && after >= j.last()) return;
      if (last) {
        std::uint64_t rest = 0;
        if (j.read(after, 1, rest).empty()) {
          lost += rest;
          return;
        }
      }
    }
  }};
  std::vector<std::thread> threads;
  for (std::uint64_t w = 1; w <= writers; ++w)
    threads.emplace_back([&j, w] {
      for (std::uint64_t i = 1; i <= each; ++i)
        j.write(start, {.operation = i * 2, .lease = i, .other = w, .value = i + w});
    });
  for (auto& t : threads) t.join();
  over = true;
  reader.join();
  CHECK(torn == 0);
  CHECK(disorder == 0);
  CHECK(seen + lost >= writers * each - 1024);
  CHECK(seen + lost <= writers * each);
  CHECK(j.last() == writers * each);
}

TEST_CASE("journal: a writer pays less than 100 ns an event") {
  using clock = std::chrono::steady_clock;
  constexpr int n = 5'000;  // short enough to be let run in one go on a machine that is busy
  journal j{incarnation{7}, 65'536, clock::now()};
  double best = 1e9;
  for (int round = 0; round < 200; ++round) {
    const auto began = clock::now();
    for (int i = 0; i < n; ++i)
      j.write(clock::now(), {.kind = journal_kind::exposed, .operation = 1, .value = 2});
    best = std::min(best, std::chrono::duration<double, std::nano>(clock::now() - began).count() / n);
  }
  MESSAGE("a record costs its writer " << best << " ns, the look at the clock in it");
  CHECK(best < 100);
}

TEST_CASE("journal file: what was written is read") {
  temporary_file f;
  auto j = std::make_shared<journal>(incarnation{7}, 4096, std::chrono::steady_clock::now());
  {
    auto writer = journal_file_writer::open(j, f.path);
    REQUIRE(writer.has_value());
    for (std::uint64_t i = 1; i <= 3000; ++i) {
      j->write(std::chrono::steady_clock::now(), {.operation = i});
      if (i % 1000 == 0) CHECK((*writer)->flush());
    }
    j->write(std::chrono::steady_clock::now(), {.operation = 3001});
  }
  const auto got = read_journal_file(f.path);
  REQUIRE(got.has_value());
  CHECK(got->runtime == incarnation{7});
  CHECK(got->lost == 0);
  CHECK(got->cut_bytes == 0);
  REQUIRE(got->records.size() == 3001);
  for (std::uint64_t i = 0; i < 3001; ++i) CHECK(got->records[i].operation == i + 1);
  std::uint64_t lost = 0;
  CHECK(j->read(0, 5000, lost) == got->records);
}

TEST_CASE("journal file: a tail that was cut off costs the last block only") {
  temporary_file f;
  auto j = std::make_shared<journal>(incarnation{7}, 4096, std::chrono::steady_clock::now());
  {
    auto writer = journal_file_writer::open(j, f.path);
    REQUIRE(writer.has_value());
    for (std::uint64_t block = 0; block < 3; ++block) {
      for (std::uint64_t i = 0; i < 10; ++i) j->write(std::chrono::steady_clock::now(), {.value = i});
      REQUIRE((*writer)->flush());
    }
  }
  std::string whole;
  {
    std::ifstream in{f.path, std::ios::binary};
    whole.assign(std::istreambuf_iterator<char>{in}, {});
  }
  const auto write = [&f](const std::string& text) {
    std::ofstream{f.path, std::ios::binary | std::ios::trunc} << text;
  };
  for (std::size_t cut = 1; cut < 64 + 24; cut += 7) {
    write(whole.substr(0, whole.size() - cut));
    const auto got = read_journal_file(f.path);
    REQUIRE(got.has_value());
    CHECK(got->records.size() >= 10);
    CHECK(got->records.size() < 30);
    CHECK(got->cut_bytes > 0);
  }
  SUBCASE("damage in the last block is no cut: all of it is there") {
    auto text = whole;
    text.back() = static_cast<char>(text.back() ^ 1);
    write(text);
    const auto got = read_journal_file(f.path);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().text.find("is damaged: records 21 to 30") != std::string::npos);
  }
  SUBCASE("damage before it is not") {
    auto text = whole;
    text[64 + 24 + 5] = static_cast<char>(text[64 + 24 + 5] ^ 1);
    write(text);
    const auto got = read_journal_file(f.path);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::invalid);
    CHECK(got.error().text.find("the block at byte 64 is damaged: records 1 to 10") != std::string::npos);
  }
  SUBCASE("a block that is gone is not counted as lost") {
    write(whole.substr(0, 64 + 24 + 640) + whole.substr(64 + 2 * (24 + 640)));
    const auto got = read_journal_file(f.path);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().text.find("record 11 is missing, and the block at byte 728") != std::string::npos);
  }
  SUBCASE("what is no block") {
    write(whole + std::string(24, 'x'));
    CHECK(read_journal_file(f.path).error().text.find("no block begins at byte 2056, behind record 30") !=
          std::string::npos);
  }
  SUBCASE("two journals in one file") {
    write(whole + whole);
    CHECK(read_journal_file(f.path).error().text.find(
              "another journal begins at byte 2056, behind record 30") != std::string::npos);
  }
  SUBCASE("through a pipe it reads as well") {
    const auto pipe = f.path + ".pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    std::thread writer{[&] { std::ofstream{pipe, std::ios::binary} << whole; }};
    const auto got = read_journal_file(pipe);
    writer.join();
    std::remove(pipe.c_str());
    REQUIRE(got.has_value());
    CHECK(got->records.size() == 30);
    CHECK(got->cut_bytes == 0);
  }
  SUBCASE("what can't be read") {
    const auto got = read_journal_file(std::filesystem::temp_directory_path().string());
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code == errc::io);
  }
  SUBCASE("what is no journal, or another version") {
    write("hello");
    CHECK(read_journal_file(f.path).error().text.find("is no journal") != std::string::npos);
    auto text = whole;
    text[8] = 9;
    write(text);
    CHECK(read_journal_file(f.path).error().text.find("version 9") != std::string::npos);
    text = whole;
    text[20] = 9;
    write(text);
    CHECK(read_journal_file(f.path).error().text.find("header is damaged") != std::string::npos);
  }
}

TEST_CASE("journal file: errors name the path") {
  auto j = std::make_shared<journal>(incarnation{7}, 64, std::chrono::steady_clock::now());
  const auto none = journal_file_writer::open(j, "/no/such/place");
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().code == errc::io);
  CHECK(none.error().text.find("/no/such/place") != std::string::npos);
  CHECK(read_journal_file("/no/such/place").error().code == errc::io);
}

TEST_CASE("journal file: what its writer missed is counted") {
  temporary_file f;
  auto j = std::make_shared<journal>(incarnation{7}, 64, std::chrono::steady_clock::now());
  for (std::uint64_t i = 0; i < 200; ++i) j->write(std::chrono::steady_clock::now(), {.value = i});
  { REQUIRE(journal_file_writer::open(j, f.path).has_value()); }
  const auto got = read_journal_file(f.path);
  REQUIRE(got.has_value());
  CHECK(got->lost == 136);
  CHECK(got->records.size() == 64);
  CHECK(j->lost() == 136);
}
