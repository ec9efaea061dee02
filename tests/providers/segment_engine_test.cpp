// When a segment store's access to memory ends, and what does not end it: both engines on a real disk, and a
// disk that answers when the test says so (F6, F9, F10, F19).
#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/child_process.hpp"
#include "tests/providers/segment_fixture.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t read_size = std::size_t{4} << 20;
constexpr int reads = 32;

struct free_memory {
  void operator()(std::byte* p) const { std::free(p); }
};
using memory = std::unique_ptr<std::byte, free_memory>;

/// A file of `reads` times 4 MiB of 0x5a past the page cache, and as much memory.
struct big_file {
  big_file() {
    file = file_handle{::open((directory / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600)};
    direct = file.number() >= 0;
    if (!direct) file = file_handle{::open((directory / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    std::memset(into.get(), 0x5a, reads * read_size);
    for (int i = 0; i < reads; ++i)
      REQUIRE(::pwrite(file.number(), slot(i).data(), read_size, static_cast<off_t>(i * read_size)) ==
              static_cast<ssize_t>(read_size));
    clear();
  }
  std::span<std::byte> slot(int i) const { return {into.get() + i * read_size, read_size}; }
  void clear() const { std::memset(into.get(), 0xa5, reads * read_size); }
  bool landed(int i) const {
    return std::ranges::all_of(slot(i), [](std::byte b) { return b == std::byte{0x5a}; });
  }
  bool untouched_yet(int i) const {
    return std::ranges::all_of(slot(i), [](std::byte b) { return b == untouched; });
  }
  temporary_directory directory;
  memory into{static_cast<std::byte*>(std::aligned_alloc(4096, reads* read_size))};
  file_handle file;
  bool direct = false;
};

struct counted_read final : disk_operation {
  counted_read(const big_file& f, int i, std::shared_ptr<std::atomic<int>> e,
               std::shared_ptr<std::atomic<int>> m)
      : file{f}, index{i}, ended{std::move(e)}, most{std::move(m)} {}
  std::optional<disk_transfer> begin() override {
    const int running = ++now;
    for (int seen = *most; seen < running && !most->compare_exchange_weak(seen, running);) continue;
    return disk_transfer{disk_transfer::way::read,
                         file.file.number(),
                         index * read_size,
                         {iovec{file.slot(index).data(), read_size / 2},
                          iovec{file.slot(index).data() + read_size / 2, read_size / 2}},
                         2};
  }
  void end(int problem) override {
    --now;
    if (problem == 0 && file.landed(index)) ++*ended;
  }
  static inline std::atomic<int> now{0};
  const big_file& file;
  const int index;
  const std::shared_ptr<std::atomic<int>> ended, most;
};

std::vector<std::unique_ptr<disk_engine>> engines(unsigned depth) {
  std::vector<std::unique_ptr<disk_engine>> all;
  all.push_back(open_thread_engine(depth));
  if (auto ring = open_ring_engine(depth))
    all.push_back(*std::move(ring));
  else
    MESSAGE("SKIP: " << ring.error().text);
  return all;
}

int threads_now() {
  int n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator{"/proc/self/task"}) ++n;
  return n;
}
int files_now() {
  int n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator{"/proc/self/fd"}) ++n;
  return n;
}

// ---- The catalogue of calls that look final and are not

/// Runs `meanwhile` on a ring with all reads in flight; `size` of the ring is twice what they need.
struct raw_ring {
  raw_ring() {
    const int answer = io_uring_queue_init(2 * reads, &ring, 0);
    opened = answer == 0;
    if (!opened) MESSAGE("SKIP: io_uring is refused: " << std::strerror(-answer));
  }
  ~raw_ring() {
    if (opened) io_uring_queue_exit(&ring);
  }
  void read_all(const big_file& f) {
    for (int i = 0; i < reads; ++i) {
      auto* sqe = io_uring_get_sqe(&ring);
      io_uring_prep_read(sqe, f.file.number(), f.slot(i).data(), read_size, i * read_size);
      io_uring_sqe_set_data64(sqe, static_cast<std::uint64_t>(i + 1));
    }
    REQUIRE(io_uring_submit(&ring) == reads);
  }
  io_uring ring{};
  bool opened = false;
};

TEST_CASE(
    "segment: not final: a cancel of a running disk read is answered, and the read lands nevertheless") {
  const big_file f;
  raw_ring r;
  if (!r.opened) return;
  int answered_first = 0;
  for (int round = 0; round < 5 && answered_first == 0; ++round) {
    f.clear();
    r.read_all(f);
    for (int i = 0; i < reads; ++i) {
      auto* sqe = io_uring_get_sqe(&r.ring);
      io_uring_prep_cancel64(sqe, static_cast<std::uint64_t>(i + 1), 0);
      io_uring_sqe_set_data64(sqe, static_cast<std::uint64_t>(1000 + i + 1));
    }
    REQUIRE(io_uring_submit(&r.ring) == reads);
    std::vector<int> answer(reads, 1), result(reads, 1);
    for (int n = 0; n < 2 * reads; ++n) {
      io_uring_cqe* cqe = nullptr;
      REQUIRE(io_uring_wait_cqe(&r.ring, &cqe) == 0);
      const auto which = static_cast<std::size_t>(cqe->user_data % 1000 - 1);
      if (cqe->user_data >= 1000) {
        answer[which] = cqe->res;
        answered_first += result[which] == 1 && (cqe->res == -ENOENT || cqe->res == -EALREADY);
      } else {
        result[which] = cqe->res;
      }
      io_uring_cqe_seen(&r.ring, cqe);
    }
    for (int i = 0; i < reads; ++i) {
      CAPTURE(answer[static_cast<std::size_t>(i)]);
      // A read that was stopped before it began says so in its own CQE, which alone counts.
      if (result[static_cast<std::size_t>(i)] == -ECANCELED) continue;
      CHECK(result[static_cast<std::size_t>(i)] == static_cast<int>(read_size));
      CHECK(f.landed(i));
    }
  }
  if (answered_first == 0)
    MESSAGE("SKIP: in 5 rounds no cancel was answered before its read had completed: this disk is too quick");
}

TEST_CASE("segment: not final: a ring that was closed with reads in flight; their bytes land afterwards") {
  const big_file f;
  int late = 0;
  for (int round = 0; round < 5 && late == 0; ++round) {
    f.clear();
    {
      raw_ring r;
      if (!r.opened) return;
      r.read_all(f);
    }
    int not_yet = 0;  // a look at one byte each: all of them would take as long as the reads
    for (int i = reads; i-- > 0;)
      not_yet += *static_cast<volatile std::byte*>(&f.slot(i).back()) != std::byte{0x5a};
    // None of them is lost, and nothing tells when.
    for (int i = 0; i < reads; ++i) REQUIRE(eventually([&] { return f.landed(i); }));
    late = not_yet;
  }
  if (late == 0) MESSAGE("SKIP: in 5 rounds every read had landed when the ring was closed");
}

TEST_CASE("segment: a cancelled fetch is cancelled at once, and proven only by its own completion") {
  const temporary_directory d;
  const staging s{4096};
  slow_disk disk;
  opened store{small_store(d), s, disk.engine()};
  write_content("a", s.slot(0));
  const auto p = store.subject->publish(extent_of({at("a", 0, 0)}));
  disk.drain();
  store.finish(p);
  const auto a = store.subject->fetch(extent_of({at("a", 0, 1)}));
  REQUIRE(disk.begin() == 1);
  const auto queued = store.subject->fetch(extent_of({at("a", 0, 2), at("a2", 0, 3)}));
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK(store.subject->poll_access(*a).state == access_state::running);
  // What the kernel does not know of yet is dropped, and has ended.
  request_cancel(*queued);
  CHECK(store.subject->poll_access(*queued).state == access_state::ended);
  CHECK(disk.begin() == 1);
  disk.land();  // the read runs on whatever anybody asked
  CHECK(has_content("a", s.slot(1)));
  CHECK(store.subject->poll_access(*a).state == access_state::running);
  disk.end(0);
  CHECK(store.subject->poll_access(*a).state == access_state::ended);
  CHECK(a->poll() == outcome{cancelled{cancelled_by::local}});
  CHECK(s.untouched_at(2));
}

// ---- Engines

TEST_CASE(
    "segment: engines: every transfer ends once, whole, and at most `depth` run, and as many wait for their "
    "end") {
  const big_file f;
  for (auto& e : engines(4)) {
    f.clear();
    const auto ended = std::make_shared<std::atomic<int>>(0), most = std::make_shared<std::atomic<int>>(0);
    e->add_buffer({f.into.get(), reads * read_size});
    disk_operations all;
    for (int i = 0; i < reads; ++i) all.push_back(std::make_shared<counted_read>(f, i, ended, most));
    e->submit(std::move(all));
    CHECK(eventually([&] { return *ended == reads; }));
    CHECK(*most <= 8);
    CHECK(*most >= 1);
    e->remove_buffer({f.into.get(), reads * read_size});
    CHECK(e->buffers().accepted == 0);
  }
}

TEST_CASE(
    "segment: engines: destroyed with reads in flight they return at once, and each read ends by itself") {
  const big_file f;
  const auto threads = threads_now(), files = files_now();
  for (auto& e : engines(reads)) {
    f.clear();
    const auto ended = std::make_shared<std::atomic<int>>(0), most = std::make_shared<std::atomic<int>>(0);
    disk_operations all;
    for (int i = 0; i < reads; ++i) all.push_back(std::make_shared<counted_read>(f, i, ended, most));
    e->submit(std::move(all));
    e.reset();
    CHECK(eventually([&] { return *ended == reads; }));
  }
  CHECK(eventually([&] { return threads_now() == threads && files_now() == files; }));
}

TEST_CASE("segment: an idle store uses no processor time") {
  for (auto& e : engines(16)) {
    const auto cpu = [] {
      rusage u{};
      ::getrusage(RUSAGE_SELF, &u);
      return std::chrono::microseconds{(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1'000'000 +
                                       u.ru_utime.tv_usec + u.ru_stime.tv_usec};
    };
    const temporary_directory d;
    const staging s{4096};
    opened store{small_store(d), s, std::move(e)};
    REQUIRE(store.publish("a"));
    const auto before = cpu();
    std::this_thread::sleep_for(300ms);  // what is measured
    CHECK(cpu() - before < 30ms);
  }
}

TEST_CASE("segment: the rest of a short transfer begins where it ended") {
  std::array<std::byte, 100> m{};
  const disk_transfer t{
      disk_transfer::way::read, 1, 1000, {iovec{m.data(), 40}, iovec{m.data() + 40, 60}}, 2};
  CHECK(t.size() == 100);
  for (std::size_t done = 0; done < 100; ++done) {
    const auto rest = t.after(done);
    CHECK(rest.size() == 100 - done);
    CHECK(rest.offset == 1000 + done);
    CHECK(rest.parts[0].iov_base == m.data() + done);
    CHECK(rest.count == (done < 40 ? 2 : 1));
  }
}

// ---- F6, F9, F10, F19

/// A store that holds "0" to "7", over a disk that answers to the test.
struct held_store {
  held_store() {
    for (int i = 0; i < 8; ++i) {
      write_content(std::to_string(i), s.slot(0));
      const auto a = store->subject->publish(extent_of({at(std::to_string(i).c_str(), 0, 0)}));
      disk.drain();
      store->finish(a);
    }
    s.clear();
  }
  std::shared_ptr<attempt> fetch(int i) {
    return store->subject->fetch(extent_of({at(std::to_string(i).c_str(), 0, i)}));
  }
  temporary_directory d;
  staging s{4096};
  slow_disk disk;
  std::unique_ptr<opened> store = std::make_unique<opened>(small_store(d), s, disk.engine());
};

TEST_CASE("F6 segment: on a disk that never answers every call returns but quiesce, which says nothing") {
  held_store h;
  const auto a = h.fetch(0);
  REQUIRE(h.disk.begin() == 1);
  auto& p = *h.store->subject;
  // All of these come back, though the read does not.
  const auto b = h.fetch(1);
  const auto c = p.publish(extent_of({at("new", 0, 9)}));
  CHECK_FALSE(a->poll());
  CHECK(p.poll_access(*a).state == access_state::running);
  CHECK(p.probe("extent", {"0", "new"}) == std::set<bytes>{"0"});
  CHECK(p.counters().failures == 0);
  CHECK_FALSE(p.describe().empty());
  h.store->pool->close();
  CHECK(request_cancel(*a) == cancel_disposition::requested);
  CHECK(request_cancel(*b) == cancel_disposition::requested);
  CHECK(request_cancel(*c) == cancel_disposition::requested);
  p.settle(std::vector{a, b, c});
  CHECK(p.quiesce(std::vector{b, c}));  // the kernel never heard of them
  auto proof = std::async(std::launch::async, [&] { return p.quiesce({&a, 1}); });
  CHECK(proof.wait_for(50ms) == std::future_status::timeout);
  h.disk.complete();
  CHECK(proof.get());
  h.disk.drain();
}

TEST_CASE("F9 segment: destroyed with eight fetches in flight of which one never ends: each proves itself") {
  held_store h;
  std::vector<std::shared_ptr<attempt>> all;
  for (int i = 0; i < 8; ++i) all.push_back(h.fetch(i));
  REQUIRE(h.disk.begin() == 8);
  const auto pollable = std::shared_ptr<segment_provider>{std::move(h.store->subject)};
  const std::weak_ptr<segment_store> alive = h.store->store;
  h.store.reset();
  for (int i = 0; i < 7; ++i) h.disk.complete();
  for (int i = 0; i < 7; ++i) {
    CHECK(pollable->poll_access(*all[static_cast<std::size_t>(i)]).state == access_state::ended);
    CHECK(has_content(std::to_string(i), h.s.slot(i)));
  }
  CHECK(pollable->poll_access(*all[7]).state == access_state::running);
  CHECK(h.s.untouched_at(7));
  // The directory stays taken while a transfer of it may still land.
  const_cast<std::shared_ptr<segment_provider>&>(pollable).reset();
  CHECK_FALSE(alive.expired());
  CHECK(segment_store::open(small_store(h.d)).error().code == errc::state);
  CHECK_FALSE(all[7]->poll());
  h.disk.complete();
  CHECK(all[7]->poll());
  CHECK(alive.expired());
  CHECK(segment_store::open(small_store(h.d)).has_value());
}

TEST_CASE("F19 segment: slots repainted after a positive proof stay painted, whatever the disk does later") {
  held_store h;
  std::vector<std::shared_ptr<attempt>> all;
  for (int i = 0; i < 8; ++i) all.push_back(h.fetch(i));
  REQUIRE(h.disk.begin() == 8);
  // The deadline passes; the disk lives on and answers one by one.
  for (const auto& a : all) request_cancel(*a);
  std::set<int> proven;
  for (int answered = 0; answered <= 8; ++answered) {
    for (int i = 0; i < 8; ++i)
      if (h.store->subject->poll_access(*all[static_cast<std::size_t>(i)]).state == access_state::ended &&
          proven.insert(i).second)
        std::ranges::fill(h.s.slot(i), std::byte(i));
    CHECK(static_cast<int>(proven.size()) == answered);
    for (const int i : proven)
      CHECK(std::ranges::all_of(h.s.slot(i), [&](std::byte b) { return b == std::byte(i); }));
    if (answered < 8) h.disk.complete();
  }
  CHECK(h.s.touches->exposure_bytes() == 0);
}

TEST_CASE("8.1 segment: a slot that changes hands while its read runs is found") {
  held_store h;
  const auto a = h.fetch(0);
  REQUIRE(h.disk.begin() == 1);
  h.s.touches->grant(0, 0, lease_id{2}, true);  // too early
  h.disk.complete();
  h.store->finish(a);
  CHECK(h.s.touches->exposure_bytes() > 0);
}

TEST_CASE("F10 segment: opened and closed 100 times: threads and file descriptors return to the start") {
  const temporary_directory d;
  const staging s{4096};
  for (const auto engine : {engine_choice::threads, engine_choice::automatic}) {
    auto o = small_store(d);
    o.engine = engine;
    const auto threads = threads_now(), files = files_now();
    for (int n = 0; n < 100; ++n) {
      {
        opened store{o, s};
        REQUIRE(store.publish(std::to_string(n)));
        REQUIRE(store.fetch(std::to_string(n)) == found::right);
        if (n % 2 == 0) store.subject->fetch(extent_of({at("0", 0, 2)}));  // left in flight
      }
      REQUIRE(eventually([&] { return segment_store::open(o).has_value(); }));
    }
    CHECK(eventually([&] { return threads_now() == threads && files_now() == files; }));
  }
}

}  // namespace
}  // namespace kvlease::test
