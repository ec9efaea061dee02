// What a segment store keeps, over restarts and damage: restart, torn units, a cut journal, damaged blocks,
// eviction, durability, owners, a full disk. The process that is killed: segment_kill_test.cpp.
#include <sys/stat.h>
#include <unistd.h>

#include "src/include/kvlease/provider_uri.hpp"
#include "tests/child_process.hpp"
#include "tests/providers/segment_fixture.hpp"

namespace kvlease::test {
namespace {

std::vector<std::string> journal_names(const temporary_directory& d) {
  std::vector<std::string> lines;
  const auto all = file_bytes(d / "journal");
  const auto reading = read_segment_journal(
      all, [&](const segment_record& r) { lines.push_back(r.added ? "+" + r.name : "-"); });
  REQUIRE(reading);
  REQUIRE(reading->whole);
  return lines;
}

TEST_CASE("segment: units of every size and alignment are found after a restart, by journal and by scan") {
  for (const auto engine : {engine_choice::threads, engine_choice::automatic})
    for (const bool direct : {true, false})
      for (const auto& [size, shift] : {std::pair<std::size_t, std::size_t>{256, 0},
                                        {1000, 0},
                                        {4096, 0},
                                        {16384, 0},
                                        {16384, 512},
                                        {20480, 0}}) {
        CAPTURE(size);
        CAPTURE(shift);
        const temporary_directory d;
        auto o = small_store(d);
        o.engine = engine;
        o.direct = direct;
        const staging s{size, shift};
        {
          opened store{o, s};
          CHECK(store.publish("a"));
          CHECK(store.publish("b"));
          CHECK(store.fetch("a") == found::right);
          CHECK(store.fetch("b") == found::right);
          CHECK(store.fetch("c") == found::miss);
        }
        {
          opened store{o, s};
          CHECK_FALSE(store.store->look().recovered_by_scan);
          CHECK(store.subject->probe("extent", {"a", "b", "c"}) == std::set<bytes>{"a", "b"});
          for (int twice = 0; twice < 2; ++twice) {  // bounced, then straight
            CHECK(store.fetch("a") == found::right);
            CHECK(store.fetch("b") == found::right);
          }
          CHECK(store.fetch("c") == found::miss);
        }
        std::filesystem::remove(d / "journal");
        opened store{o, s};
        CHECK(store.store->look().recovered_by_scan);
        CHECK(store.fetch("a") == found::right);
        CHECK(store.fetch("b") == found::right);
        CHECK(store.store->check() == "");
        CHECK(s.touches->exposure_bytes() == 0);
      }
}

TEST_CASE(
    "F13 segment: a unit whose write was cut at any 512 bytes is a miss, and its slot stays untouched") {
  const temporary_directory d;
  const auto o = small_store(d);
  const staging s{16384};
  const std::size_t slot = 4096 + 16384;
  const auto file = d / "segment.0000";
  {
    opened store{o, s};
    REQUIRE(store.publish("old"));
  }
  const auto before = file_bytes(file);
  {
    opened store{o, s};
    // The next writing goes into the same place.
    store.store->remove({"extent", "old"}, *store.store->find({"extent", "old"}));
    REQUIRE(store.publish("new"));
    REQUIRE(store.store->find({"extent", "new"})->place == disk_place{0, 0});
  }
  const auto after = file_bytes(file), journal = file_bytes(d / "journal");
  for (const bool with_journal : {true, false})
    for (std::size_t cut = 0; cut <= slot; cut += 512) {
      CAPTURE(cut);
      CAPTURE(with_journal);
      overwrite(file, 4096, std::span{after}.subspan(4096, cut));
      overwrite(file, 4096 + cut, std::span{before}.subspan(4096 + cut, slot - cut));
      if (with_journal)
        replace_file(d / "journal", journal);
      else
        std::filesystem::remove(d / "journal");
      opened store{o, s};
      CHECK(store.fetch("new") == (cut == slot ? found::right : found::miss));
      const auto old = store.fetch("old");
      CHECK((old == found::miss || (old == found::right && cut == 0)));
      CHECK(store.fetch("new") == (cut == slot ? found::right : found::miss));
      CHECK(store.store->check() == "");
    }
}

TEST_CASE("F13 segment: with the journal cut at every byte, every unit is right or a miss") {
  const temporary_directory d;
  const auto o = small_store(d);
  const staging s{4096};
  {
    opened store{o, s};
    for (const auto* name : {"a", "b", "c"}) REQUIRE(store.publish(name));
  }
  const auto journal = file_bytes(d / "journal");
  int by_scan = 0, missed = 0;
  for (std::size_t cut = 0; cut <= journal.size(); ++cut) {
    CAPTURE(cut);
    replace_file(d / "journal", std::span{journal}.first(cut));
    opened store{o, s};
    const bool scanned = store.store->look().recovered_by_scan;
    by_scan += scanned;
    for (const auto* name : {"a", "b", "c"}) {
      const auto got = store.fetch(name);
      CHECK((got == found::right || (got == found::miss && !scanned)));
      missed += got == found::miss;
    }
    CHECK(store.store->check() == "");
  }
  CHECK(by_scan == static_cast<int>(journal.size()) + 1 - 4);  // all but those that end with a record
  CHECK(missed == 3 + 2 + 1);                                  // cut behind 0, 1 and 2 records
}

TEST_CASE("F13 segment: flipped bits on disk: right or a miss, never other bytes, never a crash") {
  const temporary_directory d;
  const auto o = small_store(d);
  const staging s{4096};
  {
    opened store{o, s};
    for (const auto* name : {"a", "b", "c"}) REQUIRE(store.publish(name));
  }
  std::map<std::string, std::vector<std::byte>> good;
  for (const auto* file : {"journal", "segment.0000"}) good[file] = file_bytes(d / file);
  int misses = 0;
  for (std::uint64_t n = 0; n < 60; ++n) {
    CAPTURE(n);
    for (const auto& [name, bytes] : good) replace_file(d / name, bytes);
    const auto* file = n % 3 == 0 ? "journal" : "segment.0000";
    // Of the segment: its head, or a place that is used.
    const auto within = n % 3 == 0 ? good[file].size() : n % 3 == 1 ? 40 : 4096 + 3 * 8192;
    const auto bit = mix64(n) % (8 * within);
    const std::byte damaged[] = {good[file][bit / 8] ^ (std::byte{1} << (bit % 8))};
    overwrite(d / file, bit / 8, damaged);
    opened store{o, s};
    for (const auto* name : {"a", "b", "c"}) {
      const auto got = store.fetch(name);
      CHECK((got == found::right || got == found::miss));
      misses += got == found::miss;
    }
    CHECK(store.publish("d"));
    CHECK(store.fetch("d") == found::right);
    CHECK(store.store->check() == "");
  }
  CHECK(misses > 0);
}

TEST_CASE("segment: bytes that change on disk under a running store fail the fetch, then are a miss") {
  const temporary_directory d;
  const staging s{4096};
  opened store{small_store(d), s};
  REQUIRE(store.publish("a"));
  overwrite(d / "segment.0000", 4096 + 4096 + 100, std::vector<std::byte>(1, std::byte{1}));
  CHECK(store.fetch("a") == found::other);
  CHECK(store.fetch("a") == found::miss);
  CHECK(store.publish("a"));
  CHECK(store.fetch("a") == found::right);
}

TEST_CASE(
    "segment: a full store gives units up and never serves a wrong byte, in every policy and durability") {
  for (const auto policy : {eviction::slru, eviction::s3fifo, eviction::lru})
    for (const bool durable : {false, true}) {
      const temporary_directory d;
      auto o = small_store(d);
      o.policy = policy;
      o.durable = durable;
      const staging s{16384};
      opened store{o, s};
      for (int n = 0; n < 100; ++n) REQUIRE(store.publish("u" + std::to_string(n)));
      int right = 0;
      for (int n = 0; n < 100; ++n) {
        const auto got = store.fetch("u" + std::to_string(n));
        CHECK((got == found::right || got == found::miss));
        right += got == found::right;
      }
      CHECK(right == 48);  // 4 segments of 12 places
      CHECK(store.store->look().evictions == 52);
      CHECK(store.store->check() == "");
      // A segment is taken over for another size.
      const staging other{65536};
      const auto more = std::make_unique<segment_provider>(store.store, other.context);
      const auto pool =
          more->register_pool(reinterpret_cast<std::uintptr_t>(other.all().data()), other.all().size());
      write_content("big", other.slot(0));
      const auto a = more->publish(extent_of({at("big", 0, 0)}));
      more->settle({&a, 1});
      CHECK(served_of(a->poll()).contains("big"));
      CHECK(store.store->look().units == 37);
      CHECK(store.store->check() == "");
    }
}

TEST_CASE("segment: one extent with many more units than the store has places is served by turns") {
  for (const bool durable : {false, true}) {
    const temporary_directory d;
    auto o = small_store(d);
    o.durable = durable;
    o.depth = 64;
    const staging s{65536};  // 3 places in each of 4 segments
    opened store{o, s};
    std::vector<unit> units;
    for (int n = 0; n < 16; ++n) {
      write_content("u" + std::to_string(n), s.slot(n));
      units.push_back(at(("u" + std::to_string(n)).c_str(), 0, n));
    }
    CHECK(served_of(store.finish(store.subject->publish(extent_of(units)))).size() == 16);
    CHECK(store.store->look().units == 12);
    CHECK(store.store->check() == "");
  }
}

TEST_CASE("segment: durable: what is delivered stands in the journal, and is found after a restart") {
  const temporary_directory d;
  auto o = small_store(d);
  o.durable = true;
  const staging s{4096};
  {
    opened store{o, s};
    REQUIRE(store.publish("a"));
    CHECK(journal_names(d) == std::vector<std::string>{"+a"});
    REQUIRE(store.publish("b"));
    CHECK(journal_names(d) == std::vector<std::string>{"+a", "+b"});
  }
  opened store{o, s};
  CHECK(store.fetch("a") == found::right);
  CHECK(store.fetch("b") == found::right);
}

TEST_CASE("segment: durable: the removal is in the journal before the place is overwritten") {
  const temporary_directory d;
  auto o = small_store(d);
  o.durable = true;
  const staging s{65536};
  slow_disk disk;
  opened store{o, s, disk.engine()};
  for (int n = 0; n < 12; ++n) {
    write_content("u" + std::to_string(n), s.slot(0));
    const auto a = store.subject->publish(extent_of({at(("u" + std::to_string(n)).c_str(), 0, 0)}));
    REQUIRE(disk.begin() == 1);
    disk.complete();
    store.finish(a);
  }
  const auto a = store.subject->publish(extent_of({at("more", 0, 0)}));
  CHECK(disk.begin() == 0);  // it has to wait for the journal
  REQUIRE(eventually([&] { return disk.submitted() == 1; }));
  CHECK(journal_names(d).back() == "-");
  CHECK_FALSE(store.store->find({"extent", "u0"}));
  REQUIRE(disk.begin() == 1);
  CHECK(disk.transfer(0).which == disk_transfer::way::write);
  disk.complete();
  CHECK(served_of(store.finish(a)).contains("more"));
  CHECK(journal_names(d).back() == "+more");
}

TEST_CASE("segment: a unit is visible after the completion of its write, and not before") {
  const temporary_directory d;
  const staging s{4096};
  slow_disk disk;
  opened store{small_store(d), s, disk.engine()};
  write_content("a", s.slot(0));
  const auto a = store.subject->publish(extent_of({at("a", 0, 0)}));
  REQUIRE(disk.begin() == 1);
  CHECK(disk.transfer(0).count == 2);  // header and payload in one
  disk.land();
  CHECK(store.subject->probe("extent", {"a"})->empty());
  CHECK(store.subject->poll_access(*a).state == access_state::running);
  disk.end(0);
  CHECK(served_of(store.finish(a)).contains("a"));
  CHECK(store.subject->probe("extent", {"a"})->size() == 1);
}

TEST_CASE("segment: a write that the disk refuses fails the publish with its reason, and leaves nothing") {
  const temporary_directory d;
  const staging s{4096};
  slow_disk disk;
  opened store{small_store(d), s, disk.engine()};
  for (int n = 0; n < 200; ++n) {  // more often than there are places
    const auto a = store.subject->publish(extent_of({at("a", 0, 0)}));
    REQUIRE(disk.begin() == 1);
    disk.end(ENOSPC);
    CHECK(reason_of(store.finish(a)).find("No space left") != std::string::npos);
  }
  CHECK(store.store->look().units == 0);
  CHECK(store.store->check() == "");
  const auto b = store.subject->publish(extent_of({at("a", 0, 0)}));
  disk.drain();
  REQUIRE(served_of(store.finish(b)).contains("a"));
  const auto c = store.subject->fetch(extent_of({at("a", 0, 1)}));
  REQUIRE(disk.begin() == 1);
  disk.end(EIO);
  CHECK(reason_of(store.finish(c)).find("Input/output error") != std::string::npos);
}

TEST_CASE("segment: a disk without room is a clear error, and what was made for it is gone") {
  const temporary_directory d;
  auto o = small_store(d);
  o.bytes = std::uint64_t{1} << 50;
  const auto refused = segment_store::open(o);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::io);
  CHECK(refused.error().text.find("No space left") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(d / "segment.0000"));
  o = small_store(d);
  o.segment = std::uint64_t{2} << 20;
  CHECK(segment_store::open(o).error().code == errc::invalid);
  o.directory = "/proc/no/such/place";
  CHECK(segment_store::open(o).error().code == errc::io);
}

TEST_CASE("segment: a directory has one owner; who comes second hears its pid") {
  const temporary_directory d;
  const auto uri = "segment:" + d.path().string() + "?bytes=1M";
  {
    const auto first = provider_from_uri(uri);
    REQUIRE(first.has_value());
    const auto second = provider_from_uri(uri);
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == errc::state);
    CHECK(second.error().text.find(std::to_string(::getpid())) != std::string::npos);
  }
  CHECK(provider_from_uri(uri).has_value());
}

TEST_CASE("segment: runtimes that are given one factory share the store") {
  const temporary_directory d;
  const auto factory = provider_from_uri("segment:" + d.path().string() + "?bytes=1M");
  REQUIRE(factory.has_value());
  const staging one{4096}, other{4096};
  const auto from = (*factory)(one.context), to = (*factory)(other.context);
  const auto pool =
      from->as_registers_pools()->register_pool(reinterpret_cast<std::uintptr_t>(one.all().data()), 65536);
  const auto more =
      to->as_registers_pools()->register_pool(reinterpret_cast<std::uintptr_t>(other.all().data()), 65536);
  write_content("n", one.slot(0));
  const auto a = from->as_publishes()->publish(extent_of({at("n", 0, 0)}));
  from->as_publishes()->settle({&a, 1});
  const auto b = to->as_fetches()->fetch(extent_of({at("n", 0, 3)}));
  to->as_fetches()->settle({&b, 1});
  CHECK(served_of(b->poll()) == std::set<bytes>{"n"});
  CHECK(has_content("n", other.slot(3)));
}

TEST_CASE("segment: it is opened again with more and with fewer bytes; other segments are refused by name") {
  const temporary_directory d;
  auto o = small_store(d);
  const staging s{16384};
  {
    opened store{o, s};
    for (int n = 0; n < 48; ++n) REQUIRE(store.publish("u" + std::to_string(n)));
  }
  const auto right = [&](opened& store) {
    int count = 0;
    for (int n = 0; n < 48; ++n) {
      const auto got = store.fetch("u" + std::to_string(n));
      CHECK((got == found::right || got == found::miss));
      count += got == found::right;
    }
    return count;
  };
  o.bytes *= 2;
  {
    opened store{o, s};
    CHECK(store.store->files().geometry().segments == 8);
    CHECK(right(store) == 48);
  }
  o.bytes /= 4;
  {
    opened store{o, s};
    CHECK(store.store->files().geometry().segments == 2);
    CHECK(right(store) == 24);
    CHECK_FALSE(std::filesystem::exists(d / "segment.0002"));
  }
  o.segment = 64 << 10;
  CHECK(segment_store::open(o).error().text.find("262144") != std::string::npos);
}

TEST_CASE("2.2 segment: what does not fit the queue is rejected before anything happened") {
  const temporary_directory d;
  auto o = small_store(d);
  o.queue = 3;
  const staging s{4096};
  slow_disk disk;
  opened store{o, s, disk.engine()};
  const auto extent = [](int from, int n) {
    std::vector<unit> units;
    for (int i = from; i < from + n; ++i) units.push_back(at(std::to_string(i).c_str(), 0, i));
    return extent_of(units);
  };
  CHECK_THROWS_AS(store.subject->publish(extent(0, 4)), submission_rejected);
  CHECK(disk.submitted() == 0);
  CHECK(s.touches->touched_bytes() == 0);
  const auto a = store.subject->publish(extent(0, 2));
  CHECK_THROWS_AS(store.subject->fetch(extent(2, 2)), submission_rejected);
  const auto b = store.subject->fetch(extent(2, 1));
  disk.drain();
  store.finish(a);
  store.finish(b);
  CHECK(eventually([&] { return store.store->look().queued == 0; }));
  const auto c = store.subject->publish(extent(0, 3));
  disk.drain();
  CHECK(served_of(store.finish(c)).size() == 3);
}

TEST_CASE("segment: bounce buffers stay within their bound, and who waits for one gets it") {
  const temporary_directory d;
  auto o = small_store(d);
  o.bounce = 64 << 10;
  o.depth = 16;
  const staging s{16000};
  opened store{o, s};
  std::vector<unit> units;
  for (int n = 0; n < 16; ++n) {
    write_content("u" + std::to_string(n), s.slot(n));
    units.push_back(at(("u" + std::to_string(n)).c_str(), 0, n));
  }
  CHECK(served_of(store.finish(store.subject->publish(extent_of(units)))).size() == 16);
  s.clear();
  CHECK(served_of(store.finish(store.subject->fetch(extent_of(units)))).size() == 16);
  for (int n = 0; n < 16; ++n) CHECK(has_content("u" + std::to_string(n), s.slot(n)));
  CHECK(store.store->buffers().bytes_out() == 0);
  CHECK(store.store->buffers().waiting() == 0);
}

TEST_CASE("segment: the journal is written anew when it has grown, and nothing is lost by that") {
  const temporary_directory d;
  const auto o = small_store(d);
  const staging s{256};
  const auto name = [](int n) { return std::to_string(n) + std::string(3900, 'x'); };
  std::vector<std::string> here;
  {
    opened store{o, s};
    std::uint64_t most = 0;
    bool shrank = false;
    for (int n = 0; n < 1400; ++n) {
      REQUIRE(store.publish(name(n)));
      const auto now = store.store->look().journal_bytes;
      shrank |= now < most;
      most = std::max(most, now);
    }
    CHECK(shrank);
    CHECK(most < (5 << 20));
    for (int n = 0; n < 1400; ++n)
      if (store.fetch(name(n)) == found::right) here.push_back(name(n));
  }
  CHECK(here.size() == 124);  // 31 places in each of 4 segments
  opened store{o, s};
  CHECK_FALSE(store.store->look().recovered_by_scan);
  for (const auto& n : here) CHECK(store.fetch(n) == found::right);
}

}  // namespace
}  // namespace kvlease::test
