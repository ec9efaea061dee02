// The pure parts of the segment store: sizes, index, eviction, journal, blocks. And the fuzz targets over
// random and damaged input.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/providers/segment/index.hpp"
#include "src/providers/segment/journal.hpp"
#include "src/providers/segment/options.hpp"
#include "tools/replay/trace.hpp"

#define LLVMFuzzerTestOneInput fuzz_segment_header
#include "tests/fuzz/fuzz_segment_header.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_segment_journal
#include "tests/fuzz/fuzz_segment_journal.cpp"
#undef LLVMFuzzerTestOneInput

using namespace kvlease;

namespace {

constexpr segment_geometry four{std::uint64_t{64} << 10, 4};  // 7 slots of 4 KiB each, or 1 of 32 KiB

stored_unit unit_at(const segment_index::reservation& r, std::uint64_t length = 4096) {
  return {r.place, r.generation, length, 7, true};
}

/// Reserves and inserts.
segment_index::inserted add(segment_index& index, const std::string& name, std::uint64_t length = 4096) {
  const auto r = index.reserve(length, true);
  REQUIRE(r.has_value());
  return index.insert({"e", name}, unit_at(*r, length));
}

std::vector<std::byte> journal_of(const std::vector<segment_record>& records, std::uint64_t epoch = 3) {
  std::vector<std::byte> out;
  begin_segment_journal(epoch, out);
  for (const auto& r : records) append_segment_record(r, out);
  return out;
}

std::vector<segment_record> sample_records() {
  return {{true, {0, 1}, 5, 4096, 77, "extent", "one"},
          {true, {1, 0}, 6, 1000, 78, "extent", bytes("\0two", 4)},
          {false, {0, 1}, 5, 0, 0, {}, {}},
          {true, {0, 1}, 7, 4000, 79, "", ""}};
}

int fuzz(int (*target)(const std::uint8_t*, std::size_t), std::vector<std::byte> input) {
  return target(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

// ---- Sizes and blocks

TEST_CASE("segment: a unit's size class wastes at most an eighth, or less than 4 KiB") {
  for (std::uint64_t n : {1ul, 256ul, 4096ul, 4097ul, 65536ul, 65537ul, 100'000ul, 1ul << 20, (1ul << 20) + 1,
                          5'000'000ul, ~0ul}) {
    CAPTURE(n);
    const auto c = unit_bytes_for(n);
    if (n == ~0ul) {
      CHECK(four.slots(c) == 0);
      continue;
    }
    CHECK(c >= n);
    CHECK(c % disk_block == 0);
    CHECK((c - n < disk_block || c - n <= n / 8));
    CHECK(unit_bytes_for(c) == c);
  }
  CHECK(unit_bytes_for(0) == 4096);
  CHECK(four.slots(4096) == 7);
  CHECK(four.slots(61440) == 0);
  CHECK(segment_geometry::offset(2, 4096) == 4096 + 2 * 8192);
}

TEST_CASE(
    "F13 segment: a damaged head block is none: each flipped bit, another number, sizes that do not fit") {
  std::array<std::byte, disk_block> block{};
  const segment_head head{2, 4096, 9};
  encode_head(head, block);
  CHECK(decode_head(block, 2, four) == head);
  CHECK_FALSE(decode_head(block, 1, four));
  CHECK_FALSE(decode_head(block, 2, {4096, 4}));  // no slot would fit
  for (std::size_t bit = 0; bit < 8 * 40; ++bit) {
    auto damaged = block;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK_FALSE(decode_head(damaged, 2, four));
  }
  CHECK_FALSE(decode_head(std::span{block}.first(20), 2, four));
}

TEST_CASE("F13 segment: a header of another use of its file, of another size, or damaged tells of no unit") {
  std::array<std::byte, disk_block> block{};
  const unit_frame f{"e", "n", 4000, 9, 1};
  REQUIRE(encode_frame(f, block));
  CHECK(unit_in(block, {0, 4096, 9}) == f);
  CHECK_FALSE(unit_in(block, {0, 4096, 10}));
  CHECK_FALSE(unit_in(block, {0, 8192, 1}));
  block[49] ^= std::byte{1};
  CHECK_FALSE(unit_in(block, {0, 4096, 9}));
}

// ---- Index

TEST_CASE("segment index: what is inserted is found, a second writing of the name is kept out") {
  segment_index index{four, eviction::slru};
  CHECK(add(index, "a") == segment_index::inserted::added);
  CHECK(add(index, "a") == segment_index::inserted::kept);
  CHECK(add(index, "a", 4095) == segment_index::inserted::other_size);
  CHECK(index.find({"e", "a"})->length == 4096);
  CHECK_FALSE(index.find({"", "ea"}));
  CHECK(index.units() == 1);
  CHECK(index.check() == "");
}

TEST_CASE("segment index: what is read is not evicted, and a place is overwritten only after its readers") {
  segment_index index{four, eviction::lru};
  for (int i = 0; i < 28; ++i) add(index, std::to_string(i));
  std::vector<stored_unit> read;
  for (int i = 0; i < 28; ++i) read.push_back(*index.begin_read({"e", std::to_string(i)}));
  CHECK(index.reserve(4096, true).error() == segment_index::refusal::busy);
  CHECK(index.reserve(32768, true).error() == segment_index::refusal::busy);  // nor is a segment taken over
  CHECK(index.reserve(1 << 20, true).error() == segment_index::refusal::too_large);
  index.remove({"e", "3"}, read[3].generation);  // found damaged: its place waits for its reader
  CHECK(index.reserve(4096, true).error() == segment_index::refusal::busy);
  CHECK(index.check() == "");
  index.end_read(read[3], false);
  const auto r = index.reserve(4096, false);
  REQUIRE(r.has_value());
  CHECK(r->place == read[3].place);
  index.cancel(r->place);
  index.end_read(read[5], true);
  REQUIRE(add(index, "x") == segment_index::inserted::added);
  CHECK(index.reserve(4096, false).error() == segment_index::refusal::needs_eviction);
  const auto evicting = index.reserve(4096, true);
  REQUIRE(evicting.has_value());
  CHECK(evicting->evicted.at(0).first == read[5].place);
  CHECK(index.check() == "");
}

TEST_CASE("segment index: a size that comes late takes over an idle segment, and its units go") {
  segment_index index{four, eviction::slru};
  for (int i = 0; i < 28; ++i) add(index, std::to_string(i));
  const auto r = index.reserve(32768, true);
  REQUIRE(r.has_value());
  CHECK(r->evicted.size() == 7);
  REQUIRE(r->head);
  CHECK(r->head->unit_bytes == 32768);
  CHECK(r->head->since == r->generation);
  CHECK(index.units() == 21);
  CHECK(index.check() == "");
  REQUIRE(index.insert({"e", "big"}, unit_at(*r, 32768)) == segment_index::inserted::added);
  for (int i = 0; i < 40; ++i) add(index, "n" + std::to_string(i));
  CHECK(index.units() == 22);
  CHECK(index.find({"e", "big"}));
  CHECK(index.check() == "");
}

TEST_CASE("segment index: conservation over random steps, with every policy") {
  for (const auto policy : {eviction::slru, eviction::s3fifo, eviction::lru}) {
    std::mt19937 random{7};
    segment_index index{four, policy};
    std::vector<stored_unit> reading;
    std::vector<std::pair<std::string, segment_index::reservation>> writing;
    for (int step = 0; step < 20'000; ++step) {
      const auto name = std::to_string(random() % 60);
      switch (random() % 5) {
        case 0:
          if (auto u = index.begin_read({"e", name})) reading.push_back(*u);
          break;
        case 1:
          if (reading.empty()) break;
          index.end_read(reading.back(), random() % 2 == 0);
          reading.pop_back();
          break;
        case 2:
          if (auto r = index.reserve(random() % 50 == 0 ? 32768 : 4096, true)) {
            for (const auto& [place, generation] : r->evicted)
              for (const auto& u : reading) REQUIRE((u.place != place || u.generation != generation));
            writing.emplace_back(name, *r);
          }
          break;
        case 3:
          if (writing.empty()) break;
          if (random() % 4 == 0)
            index.cancel(writing.back().second.place);
          else
            index.insert({"e", writing.back().first},
                         unit_at(writing.back().second, writing.back().second.unit_bytes));
          writing.pop_back();
          break;
        default:
          if (auto u = index.find({"e", name}); u && random() % 10 == 0)
            index.remove({"e", name}, u->generation);
      }
      if (step % 100 == 0) REQUIRE(index.check() == "");
    }
    CHECK(index.evictions() > 0);
  }
}

TEST_CASE("segment index: recovery keeps the later of two, ignores what fits nothing, and is unverified") {
  segment_index index{four, eviction::slru};
  index.adopt({0, 4096, 10});
  index.restore({"e", "a"}, {{0, 0}, 12, 4096, 1, true});
  index.restore({"e", "a"}, {{0, 1}, 11, 4096, 1, true});   // older, same name
  index.restore({"e", "b"}, {{0, 0}, 11, 4096, 1, true});   // older, same place
  index.restore({"e", "c"}, {{0, 2}, 9, 4096, 1, true});    // of an earlier use of the file
  index.restore({"e", "d"}, {{0, 99}, 12, 4096, 1, true});  // no such slot
  index.restore({"e", "d"}, {{9, 0}, 12, 4096, 1, true});   // no such segment
  index.restore({"e", "d"}, {{1, 0}, 12, 4096, 1, true});   // never used
  index.restore({"e", "d"}, {{0, 3}, 12, 9000, 1, true});   // of another size
  index.restore({"e", "f"}, {{0, 4}, 13, 100, 1, true});
  index.drop({0, 4}, 12);  // another writing of it
  index.drop({99, 4}, 12);
  CHECK(index.units() == 2);
  index.drop({0, 4}, 13);
  index.recovered(100);
  CHECK(index.check() == "");
  CHECK(index.units() == 1);
  const auto a = index.find({"e", "a"});
  REQUIRE(a);
  CHECK_FALSE(a->verified);
  // What nothing is sure of is replaced by a new writing, and becomes sure by a good reading.
  const auto read = *index.begin_read({"e", "a"});
  index.end_read(read, true);
  CHECK(index.find({"e", "a"})->verified);
  CHECK(index.reserve(4096, true)->generation == 101);
}

TEST_CASE("segment index: a recovered unit is replaced by a new writing, also while it is read") {
  segment_index index{four, eviction::slru};
  index.adopt({0, 4096, 1});
  index.restore({"e", "a"}, {{0, 0}, 2, 4096, 1, false});
  index.recovered(10);
  const auto old = *index.begin_read({"e", "a"});
  CHECK(add(index, "a") == segment_index::inserted::added);
  CHECK(index.find({"e", "a"})->place != old.place);
  CHECK(index.check() == "");
  index.end_read(old, true);
  CHECK(index.check() == "");
}

// ---- Journal

TEST_CASE("segment journal: what was appended is what is read") {
  std::vector<segment_record> seen;
  const auto all = journal_of(sample_records());
  const auto reading = read_segment_journal(all, [&](const segment_record& r) { seen.push_back(r); });
  REQUIRE(reading);
  CHECK(reading->whole);
  CHECK(reading->epoch == 3);
  CHECK(seen == sample_records());
}

TEST_CASE("F13 segment journal: cut at every byte and with every bit flipped, what stands before counts") {
  const auto all = journal_of(sample_records());
  std::vector<std::size_t> ends{24};
  for (const auto& r : sample_records()) ends.push_back(ends.back() + journal_of({r}).size() - 24);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    std::size_t seen = 0;
    const auto reading = read_segment_journal(std::span{all}.first(cut), [&](const auto&) { ++seen; });
    CAPTURE(cut);
    CHECK(reading.has_value() == (cut >= 24));
    if (!reading) continue;
    const auto whole =
        static_cast<std::size_t>(std::ranges::count_if(ends, [cut](std::size_t end) { return end <= cut; }));
    CHECK(seen == whole - 1);
    CHECK(reading->whole == (ends[whole - 1] == cut));
  }
  for (std::size_t bit = 0; bit < 8 * all.size(); ++bit) {
    auto damaged = all;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    std::vector<segment_record> seen;
    const auto reading = read_segment_journal(damaged, [&](const segment_record& r) { seen.push_back(r); });
    CHECK_FALSE((reading && reading->whole));
    for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == sample_records()[i]);
  }
}

TEST_CASE("F13 segment journal: sizes that can't be are damage, whatever the checksum says") {
  auto all = journal_of({sample_records()[0]});
  for (const std::uint32_t size : {0u, 1u, 55u, 0x7fffffffu, 0xffffffffu}) {
    auto damaged = all;
    std::memcpy(damaged.data() + 24 + 8, &size, sizeof size);
    const auto checksum = checksum_of(std::span{damaged}.subspan(24 + 8));
    std::memcpy(damaged.data() + 24, &checksum, sizeof checksum);
    const auto reading = read_segment_journal(damaged, [](const auto&) { FAIL("accepted"); });
    REQUIRE(reading);
    CHECK_FALSE(reading->whole);
    CHECK(reading->good_bytes == 24);
  }
}

TEST_CASE("F13 segment: the fuzz targets over random and damaged input") {
  std::mt19937 random{11};
  std::array<std::byte, disk_block> header{}, head{};
  REQUIRE(encode_frame({"extent", "name", 4096, 5, 6}, header));
  encode_head({0, 65536, 3}, head);
  const auto journal = journal_of(sample_records());
  for (int n = 0; n < 5000; ++n) {
    std::vector<std::byte> noise(random() % 5000);
    for (auto& b : noise) b = static_cast<std::byte>(random());
    fuzz(fuzz_segment_header, noise);
    fuzz(fuzz_segment_journal, noise);
    for (const auto& [target, good] :
         {std::pair{&fuzz_segment_header, std::vector<std::byte>(header.begin(), header.end())},
          {&fuzz_segment_header, std::vector<std::byte>(head.begin(), head.end())},
          {&fuzz_segment_journal, journal}}) {
      auto damaged = good;
      for (auto hits = random() % 4; hits > 0; --hits)
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      damaged.resize(damaged.size() - (random() % 3 == 0 ? random() % damaged.size() : 0));
      fuzz(target, damaged);
    }
  }
}

// ---- Options

TEST_CASE("segment: options that are refused name the value and the rule") {
  for (const auto* bad :
       {"", "?bytes=1G", "/tmp/x?bytes=1000", "/tmp/x?segment=1K", "/tmp/x?durable=maybe",
        "/tmp/x?engine=aio", "/tmp/x?depth=0", "/tmp/x?depth=1025", "/tmp/x?queue=0", "/tmp/x?bounce=1",
        "/tmp/x?eviction=random", "/tmp/x?colour=red", "/tmp/x?bytes=1G&bytes=2G"}) {
    CAPTURE(bad);
    const auto o = parse_segment_options(bad);
    REQUIRE_FALSE(o.has_value());
    CHECK(o.error().code == errc::invalid);
  }
  const auto o =
      parse_segment_options("/tmp/x?bytes=2G&segment=64M&durable=on&engine=threads&depth=8&eviction=lru");
  REQUIRE(o.has_value());
  CHECK(o->directory == "/tmp/x");
  CHECK(o->bytes == std::uint64_t{2} << 30);
  CHECK(o->durable);
  CHECK(o->engine == engine_choice::threads);
  CHECK(o->policy == eviction::lru);
}

// ---- Eviction on the trace

namespace {

/// Hits in per cent of all block references when a request reads the longest prefix that is there and stores
/// the rest.
double hit_ratio(const replay::trace& t, eviction kind, std::size_t places) {
  const auto policy = make_eviction(kind);
  std::map<std::uint64_t, place_id> at;
  std::vector<std::uint64_t> holds;
  std::uint64_t hits = 0, references = 0;
  for (const auto& r : t.requests) {
    std::size_t i = 0;
    references += r.blocks.size();
    for (; i < r.blocks.size() && at.contains(r.blocks[i]); ++i) policy->used(at[r.blocks[i]]);
    hits += i;
    for (; i < r.blocks.size(); ++i) {
      const auto block = r.blocks[i];
      if (const auto there = at.find(block); there != at.end()) {
        policy->used(there->second);
        continue;
      }
      place_id place = holds.size();
      if (holds.size() < places) {
        holds.push_back(block);
      } else {
        place = *policy->victim([](place_id) { return true; });
        at.erase(holds[place]);
        holds[place] = block;
      }
      at[block] = place;
      policy->added(place, block);
    }
  }
  return 100.0 * static_cast<double>(hits) / static_cast<double>(references);
}

}  // namespace

TEST_CASE("segment: slru hits more than LRU on the conversation trace, at every size that evicts much") {
  const char* named = std::getenv("KVLEASE_TRACE");
  const std::string path =
      named != nullptr ? named : KVLEASE_SOURCE_DIR "/../shared/traces/mooncake-conversation.jsonl";
  const auto t = replay::load_trace(path, replay::trace_format::mooncake, std::nullopt);
  if (!t) {
    MESSAGE("SKIP: there is no trace at " << path << " (KVLEASE_TRACE names another place)");
    return;
  }
  std::string table = "places     lru    slru  s3fifo   (block hits in % of 288,500 references)\n";
  for (const std::size_t places : {1000, 2000, 5000, 10'000, 20'000, 30'000, 50'000, 100'000}) {
    const auto lru = hit_ratio(*t, eviction::lru, places), slru = hit_ratio(*t, eviction::slru, places);
    table += fmt::format("{:>6}  {:>6.2f}  {:>6.2f}  {:>6.2f}\n", places, lru, slru,
                         hit_ratio(*t, eviction::s3fifo, places));
    CAPTURE(places);
    // With room for more than half of all blocks there is hardly a choice to make.
    if (places <= 50'000)
      CHECK(slru > lru);
    else
      CHECK(slru > lru - 0.1);
  }
  MESSAGE("\n" << table);
}
