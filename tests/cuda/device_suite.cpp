#include "tests/cuda/device_suite.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

namespace kvlease::test {

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::byte* host(std::uintptr_t at) { return reinterpret_cast<std::byte*>(at); }

std::vector<std::byte> noise(std::size_t nbytes, std::uint32_t seed) {
  std::vector<std::byte> out(nbytes);
  std::mt19937 draw{seed};
  for (std::size_t i = 0; i + 4 <= nbytes; i += 4) {
    const std::uint32_t word = draw();
    std::memcpy(out.data() + i, &word, 4);
  }
  return out;
}

/// Queues the batch and records behind it.
device_event run(device_bench& bench, std::shared_ptr<const copy_batch> batch) {
  const auto kind = batch->kind;
  const auto queued = bench.port()->enqueue(std::move(batch));
  INFO((queued ? std::string{} : to_string(queued.error())));
  REQUIRE(queued);
  CHECK(*queued >= 1);
  const auto e = bench.port()->record(kind);
  INFO((e ? std::string{} : to_string(e.error())));
  REQUIRE(e);
  return *e;
}

void finish(device_bench& bench, device_event e) {
  REQUIRE(wait_for(bench, e));
  bench.port()->recycle(e);
}

std::shared_ptr<copy_batch> batch_of(copy_kind kind, std::vector<copy_row> rows, event_handle after = 0) {
  auto b = std::make_shared<copy_batch>();
  b->kind = kind;
  b->rows = std::move(rows);
  b->after = after;
  return b;
}

struct memories {
  memories(device_bench& bench, std::size_t nbytes) {
    REQUIRE(bench.port()->bind_thread());
    auto d = bench.port()->allocate_device(nbytes), h = bench.port()->allocate_staging(nbytes);
    REQUIRE(d);
    REQUIRE(h);
    device = *d;
    staging = *h;
  }
  std::shared_ptr<memory_block> device, staging;
};

/// Places of rows that do not overlap, on both sides, with gaps and odd alignments.
struct layout {
  layout(std::mt19937& draw, std::size_t room) {
    const bool large = draw() % 3 == 0, gaps = draw() % 2 == 0, aligned = draw() % 2 == 0;
    std::size_t staging = aligned ? 0 : draw() % 17, device = 0;
    const auto count = draw() % 300 + 1;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::size_t nbytes = large ? draw() % 200'000 + 1 : draw() % 5'000 + 1;
      if (aligned) nbytes = (nbytes + 255) / 256 * 256;
      if (gaps && draw() % 4 == 0) staging += aligned ? 512 : draw() % 40;
      device += aligned ? 256 * (draw() % 3) : draw() % 33;
      if (staging + nbytes > room || device + nbytes > room) break;
      places.push_back({device, staging, nbytes});
      staging += nbytes;
      device += nbytes;
    }
    // Pages of a request lie anywhere.
    std::vector<std::size_t> order(places.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, draw);
    auto shuffled = places;
    for (std::size_t i = 0; i < places.size(); ++i)
      if (places[order[i]].nbytes == places[i].nbytes)
        std::swap(shuffled[i].device, shuffled[order[i]].device);
    places = std::move(shuffled);
  }
  struct place {
    std::size_t device, staging, nbytes;
  };
  std::vector<place> places;
};

}  // namespace

void rows_land_where_they_belong(device_bench& bench, std::uint32_t seed, int rounds) {
  constexpr std::size_t room = 12 * mib;
  const memories m{bench, room};
  std::mt19937 draw{seed};
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const layout l{draw, room};
    const auto content = noise(room, draw());
    // In: only the rows change.
    std::memcpy(host(m.staging->address()), content.data(), room);
    bench.fill(m.device->address(), std::byte{0xee}, room);
    std::vector<copy_row> in, out;
    for (const auto& p : l.places) {
      in.push_back({m.device->address() + p.device, m.staging->address() + p.staging, p.nbytes});
      out.push_back({m.staging->address() + p.staging, m.device->address() + p.device, p.nbytes});
    }
    finish(bench, run(bench, batch_of(copy_kind::host_to_device, std::move(in))));
    std::vector<std::byte> wanted(room, std::byte{0xee});
    for (const auto& p : l.places)
      std::memcpy(wanted.data() + p.device, content.data() + p.staging, p.nbytes);
    REQUIRE(bench.read(m.device->address(), room) == wanted);
    // Out: likewise.
    std::memset(host(m.staging->address()), 0xdd, room);
    finish(bench, run(bench, batch_of(copy_kind::device_to_host, std::move(out))));
    std::vector<std::byte> back(room, std::byte{0xdd});
    for (const auto& p : l.places) std::memcpy(back.data() + p.staging, content.data() + p.staging, p.nbytes);
    REQUIRE(std::memcmp(host(m.staging->address()), back.data(), room) == 0);
  }
}

void odd_sizes(device_bench& bench) {
  constexpr std::size_t room = 4 * mib;
  const memories m{bench, room};
  const auto content = noise(room, 3);
  for (const std::size_t nbytes :
       {std::size_t{1}, std::size_t{7}, std::size_t{15}, std::size_t{16}, std::size_t{17}, std::size_t{511},
        std::size_t{4097}, 16 * std::size_t{1024}, std::size_t{16385}, std::size_t{999'983}})
    for (const std::size_t to : {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{8}})
      for (const std::size_t from : {std::size_t{0}, std::size_t{3}, std::size_t{8}}) {
        CAPTURE(nbytes);
        CAPTURE(to);
        CAPTURE(from);
        std::memcpy(host(m.staging->address()), content.data(), nbytes + 64);
        bench.fill(m.device->address(), std::byte{0xee}, nbytes + 64);
        // Two rows that are not contiguous, so that no path may take them for one copy.
        const std::size_t far = 2 * mib;
        finish(bench,
               run(bench, batch_of(copy_kind::host_to_device,
                                   {{m.device->address() + to, m.staging->address() + from, nbytes},
                                    {m.device->address() + far + to, m.staging->address() + from, nbytes}})));
        for (const auto at : {std::size_t{0}, far}) {
          const auto got = bench.read(m.device->address() + at + to, nbytes);
          CHECK(std::memcmp(got.data(), content.data() + from, nbytes) == 0);
        }
        CHECK(bench.read(m.device->address() + to + nbytes, 1) == std::vector{std::byte{0xee}});
        if (to > 0) CHECK(bench.read(m.device->address() + to - 1, 1) == std::vector{std::byte{0xee}});
      }
}

void bad_batches_queue_nothing(device_bench& bench) {
  const memories m{bench, 4096};
  auto& d = *bench.port();
  CHECK(d.enqueue(nullptr).error().code == errc::invalid);
  const auto null_row = batch_of(copy_kind::host_to_device, {{m.device->address(), m.staging->address(), 1},
                                                             {m.device->address(), 0, 1}});
  CHECK(d.enqueue(null_row).error() == error{errc::invalid, "copy batch: row 1 has a null address"});
  const auto empty = d.enqueue(batch_of(copy_kind::host_to_device, {{0, 0, 0}}));
  CHECK(empty);
  const auto e = d.record(copy_kind::host_to_device);
  REQUIRE(e);
  finish(bench, *e);
  CHECK(d.allocate_device(0).error().code == errc::invalid);
  CHECK(d.allocate_staging(0).error().code == errc::invalid);
  CHECK(d.register_staging(0, 64).error().code == errc::invalid);
  CHECK(d.register_staging(m.staging->address(), 0).error().code == errc::invalid);
  const auto huge = d.allocate_device(std::size_t{1} << 60);
  REQUIRE_FALSE(huge);
  CHECK(huge.error().code == errc::no_memory);
  CHECK(huge.error().text.find(std::to_string(std::size_t{1} << 60)) != std::string::npos);
}

void events_complete_in_order(device_bench& bench) {
  const memories m{bench, 9 * mib};
  auto& d = *bench.port();
  bench.hold();
  std::vector<device_event> events;
  for (std::size_t i = 0; i < 20; ++i) {
    const auto big = i % 3 == 0 ? mib : std::size_t{100};
    events.push_back(
        run(bench, batch_of(copy_kind::host_to_device,
                            {{m.device->address() + (i % 4) * 2 * mib, m.staging->address(), big},
                             {m.device->address() + (i % 4) * 2 * mib + mib + 5,
                              m.staging->address() + 3 * mib, big}})));
  }
  for (const auto e : events) CHECK(d.query(e).value() == event_state::pending);
  bench.open();
  // Whenever one is complete, all before it are.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  std::size_t done = 0;
  while (done < events.size()) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    const bool last_done = d.query(events.back()).value() == event_state::complete;
    if (last_done)
      for (const auto e : events) CHECK(d.query(e).value() == event_state::complete);
    while (done < events.size() && d.query(events[done]).value() == event_state::complete) ++done;
  }
  for (const auto e : events) d.recycle(e);
  CHECK(d.query(events.front()).error().code == errc::unknown);
  CHECK(d.query(events.back()).error().code == errc::unknown);
  // Recycled events are used again, and are others.
  const auto again =
      run(bench, batch_of(copy_kind::host_to_device, {{m.device->address(), m.staging->address(), 8}}));
  CHECK(again.value != events.front().value);
  finish(bench, again);
}

void copies_wait_for_the_stream(device_bench& bench, int rounds) {
  constexpr std::size_t page = 64 * 1024, count = 4;
  const memories m{bench, 2 * page * count};
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto value = static_cast<std::byte>(i % 251 + 1);
    std::vector<copy_row> rows;
    for (std::size_t p = 0; p < count; ++p) {
      bench.compute(m.device->address() + p * 2 * page, value, page);
      rows.push_back({m.staging->address() + p * page, m.device->address() + p * 2 * page, page});
    }
    // By the stream's order, and by an event of the host's, in turn.
    const auto after = i % 2 == 0 ? event_handle{0} : bench.mark();
    finish(bench, run(bench, batch_of(copy_kind::device_to_host, std::move(rows), after)));
    for (std::size_t p = 0; p < count; ++p)
      if (*host(m.staging->address() + p * page) != value ||
          *host(m.staging->address() + p * page + page - 1) != value)
        ++wrong;
  }
  CHECK(wrong == 0);
}

void the_stream_waits_for_copies(device_bench& bench) {
  // Large enough that work which does not wait is done first.
  constexpr std::size_t page = 64 * 1024, count = 512;
  const memories m{bench, 2 * page * count};
  std::vector<copy_row> out, in;
  for (std::size_t p = 0; p < count; ++p) {
    out.push_back({m.staging->address() + p * page, m.device->address() + p * 2 * page, page});
    in.push_back({m.device->address() + p * 2 * page, m.staging->address() + p * page, page});
  }
  const auto last_page = m.device->address() + (count - 1) * 2 * page;
  const auto last_slot = m.staging->address() + (count - 1) * page;
  SUBCASE("what overwrites a page comes behind the copy that reads it") {
    bench.fill(m.device->address(), std::byte{0x11}, 2 * page * count);
    const auto e = run(bench, batch_of(copy_kind::device_to_host, out));
    bench.compute(last_page, std::byte{0x22}, page);
    finish(bench, e);
    const auto overwritten = run(bench, batch_of(copy_kind::device_to_host, {out.front()}));
    CHECK(*host(last_slot) == std::byte{0x11});
    CHECK(*host(last_slot + page - 1) == std::byte{0x11});
    finish(bench, overwritten);  // the manager's work has ended too
  }
  SUBCASE("what writes a page comes behind the copy that writes it") {
    std::memset(host(m.staging->address()), 0x33, page * count);
    const auto e = run(bench, batch_of(copy_kind::host_to_device, in));
    bench.compute(last_page, std::byte{0x44}, page);
    const auto behind = run(bench, batch_of(copy_kind::device_to_host, {out.back()}));
    finish(bench, e);
    finish(bench, behind);
    CHECK(bench.read(last_page, 1) == std::vector{std::byte{0x44}});
    CHECK(*host(last_slot) == std::byte{0x44});
  }
}

void no_call_waits(device_bench& bench) {
  constexpr std::size_t page = 64 * 1024;
  const memories m{bench, 64 * page};
  auto& d = *bench.port();
  // What is loaded or allocated once comes before.
  for (const auto kind : {copy_kind::host_to_device, copy_kind::device_to_host}) {
    const copy_row row = kind == copy_kind::host_to_device
                             ? copy_row{m.device->address(), m.staging->address(), page}
                             : copy_row{m.staging->address(), m.device->address(), page};
    finish(bench, run(bench, batch_of(kind, {row, {row.to + 2 * page, row.from + 4 * page, page}})));
  }
  bench.hold();
  std::vector<device_event> events;
  std::weak_ptr<const copy_batch> watch;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < 16; ++i)
    for (const auto kind : {copy_kind::host_to_device, copy_kind::device_to_host}) {
      std::vector<copy_row> rows;
      for (std::size_t p = 0; p < 8; ++p) {
        const auto page_at = m.device->address() + p * 2 * page, slot = m.staging->address() + p * page;
        rows.push_back(kind == copy_kind::host_to_device ? copy_row{page_at, slot, page}
                                                         : copy_row{slot, page_at, page});
      }
      auto b = batch_of(kind, std::move(rows));
      watch = b;
      events.push_back(run(bench, std::move(b)));
      CHECK(d.query(events.back()).value() == event_state::pending);
      d.recycle(events.back());  // not seen complete: stays
      CHECK(d.query(events.back()).value() == event_state::pending);
      CHECK_FALSE(d.lost());
    }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{2});
  CHECK(d.query(events.front()).value() == event_state::pending);
  CHECK_FALSE(watch.expired());
  bench.open();
  for (const auto e : events) finish(bench, e);
  CHECK(watch.expired());
}

void registered_memory_is_staging(device_bench& bench) {
  const memories m{bench, mib};
  std::vector<std::byte> own(3 * 4096 + mib, std::byte{0x5a});
  const auto at = (reinterpret_cast<std::uintptr_t>(own.data()) + 4095) / 4096 * 4096;
  {
    const auto lent = bench.port()->register_staging(at, mib);
    REQUIRE(lent);
    CHECK((*lent)->address() == at);
    CHECK((*lent)->size() == mib);
    CHECK(bench.port()->reaches(at, mib));
    CHECK(bench.port()->reaches(at + 100, mib - 100));
    finish(bench, run(bench, batch_of(copy_kind::host_to_device, {{m.device->address(), at, mib}})));
    CHECK(bench.read(m.device->address() + mib - 1, 1) == std::vector{std::byte{0x5a}});
  }
  CHECK(own[0] == std::byte{0x5a});  // the memory itself is the host's
  const auto again = bench.port()->register_staging(at, mib);
  CHECK(again);
}

void both_directions_at_once(device_bench& bench) {
  constexpr std::size_t page = 64 * 1024, count = 64;
  const memories in{bench, 2 * page * count}, out{bench, 2 * page * count};
  const auto content = noise(page * count, 5);
  std::vector<device_event> events;
  std::memcpy(host(in.staging->address()), content.data(), page * count);
  bench.fill(out.device->address(), std::byte{0x77}, 2 * page * count);
  const auto after = bench.mark();
  for (int i = 0; i < 8; ++i) {
    std::vector<copy_row> rows_in, rows_out;
    for (std::size_t p = 0; p < count; ++p) {
      rows_in.push_back({in.device->address() + p * 2 * page, in.staging->address() + p * page, page});
      rows_out.push_back({out.staging->address() + p * page, out.device->address() + p * 2 * page, page});
    }
    events.push_back(run(bench, batch_of(copy_kind::host_to_device, std::move(rows_in), after)));
    events.push_back(run(bench, batch_of(copy_kind::device_to_host, std::move(rows_out), after)));
  }
  for (const auto e : events) finish(bench, e);
  for (std::size_t p = 0; p < count; ++p) {
    const auto got = bench.read(in.device->address() + p * 2 * page, page);
    CHECK(std::memcmp(got.data(), content.data() + p * page, page) == 0);
    CHECK(*host(out.staging->address() + p * page + page / 2) == std::byte{0x77});
  }
}

}  // namespace kvlease::test
