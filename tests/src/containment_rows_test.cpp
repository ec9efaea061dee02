// Scenarios 7.H, RC-03 to RC-15: what happens around fatal expiry. The reference ends a process group;
// kvlease calls the host's containment callback, and the host ends its process (4.8). Every wait is bounded.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "src/containment.hpp"
#include "src/session.hpp"
#include "tests/seconds.hpp"
#include "tests/src/refused.hpp"
#include "tests/world.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

constexpr request_id request{7};

using kvlease::test::at;

/// One worker's sessions with a fatal at 15: an operation that was cancelled at 10 and never proven.
struct lost_worker {
  explicit lost_worker(std::uint32_t life = 1)
      : clocks{std::make_unique<retirement>(incarnation{life})},
        table{*session_table::make(clocks.get(), 5s, incarnation{life})},
        session{
            *table->open_send(at(10), {.request = request, .take_slot = nullptr, .enroll = nullptr}, {1})} {
    auto held = std::make_shared<int>(1);
    root = held;
    REQUIRE(session->queue(at(10), 1, piece_kind::kv, last_piece::yes));
    piece = *session->next(at(10));
    REQUIRE(session->submit(at(10), piece, std::move(held)));
    REQUIRE(session->submitted(at(10), piece, [] { return true; }));
    session->cancel(at(10), cancelled_by::local);
  }
  /// What a host does with the events: contain first.
  int expire(containment& contain, double now = 15) {
    int fatals = 0;
    table->advance(at(now));
    for (const auto& e : table->take_events())
      if (const auto* f = std::get_if<fatal_record>(&e)) {
        contain.trigger(*f);
        ++fatals;
      }
    return fatals;
  }

  std::unique_ptr<retirement> clocks;
  std::unique_ptr<session_table> table;
  std::shared_ptr<send_session> session;
  piece_id piece;
  std::weak_ptr<int> root;
};

template <class F>
bool soon(F holds, int milliseconds = 5000) {
  for (int i = 0; i < milliseconds && !holds(); ++i) std::this_thread::sleep_for(1ms);
  return holds();
}

void say(const char* line) {
  const std::string text = std::string{line} + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) return;
}

/// The child of RC-06, RC-14 and RC-15: two runtimes in one process, which ends on the first's fatal.
void end_on_fatal() {
  std::atexit([] { say("rc-destructors"); });
  std::printf("rc-flushed");
  static containment contain{[](const fatal_record&) {
    say("rc-fatal");
    _exit(70);
  }};
  lost_worker first{1}, second{2};
  std::thread{[] {
    for (int i = 0; i < 10000; ++i) std::this_thread::sleep_for(1ms);
    _exit(1);
  }}.detach();
  first.expire(contain);
  second.expire(contain);
  for (int i = 0; i < 10000; ++i) std::this_thread::sleep_for(1ms);
  _exit(1);  // it has survived
}

struct ended {
  int status = -1;
  std::string output;
  std::size_t count(const std::string& line) const {
    std::size_t n = 0;
    for (auto i = output.find(line); i != std::string::npos; i = output.find(line, i + 1)) ++n;
    return n;
  }
};

ended run_child(const std::string& mode, const std::string& redirect = "") {
  std::array<char, 4096> self{};
  REQUIRE(readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  const auto command =
      "KVLEASE_RC_CHILD=" + mode + " exec '" + self.data() + "' '-tc=RC-14 the child*' " + redirect;
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  ended e;
  std::array<char, 512> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) e.output += buffer.data();
  const int status = pclose(pipe);
  if (WIFEXITED(status)) e.status = WEXITSTATUS(status);
  return e;
}

}  // namespace

TEST_CASE("RC-03 the containment callback is the one that was given at start, whatever thread runs it") {
  std::string current = "first host";
  std::promise<std::pair<std::string, std::thread::id>> called;
  containment contain{[&called, captured = current](const fatal_record&) {
    called.set_value({captured, std::this_thread::get_id()});
  }};
  current = "another host";  // what a look-up at the time of the fatal would find
  lost_worker w;
  CHECK(w.expire(contain) == 1);
  auto got = called.get_future();
  REQUIRE(got.wait_for(5s) == std::future_status::ready);
  const auto [whose, thread] = got.get();
  CHECK(whose == "first host");
  CHECK(thread != std::this_thread::get_id());
}

TEST_CASE("RC-04 dispatching the containment takes no time of its caller's, and happens once") {
  for (const std::string how : {"returns", "throws", "blocks"}) {
    CAPTURE(how);
    const auto calls = std::make_shared<std::atomic<int>>(0);
    const auto gate = std::make_shared<std::promise<void>>();
    {
      containment contain{[how, calls, open = gate->get_future().share()](const fatal_record&) {
        ++*calls;
        if (how == "throws") throw std::runtime_error{"no log"};
        if (how == "blocks") static_cast<void>(open.wait_for(10s));
      }};
      lost_worker w;
      const auto before = std::chrono::steady_clock::now();
      CHECK(w.expire(contain) == 1);
      CHECK(w.expire(contain) == 0);
      contain.trigger(*w.clocks->fatal());
      CHECK(std::chrono::steady_clock::now() - before < 500ms);
      CHECK(soon([&] { return *calls == 1; }));
    }
    gate->set_value();
    CHECK(*calls == 1);
  }
}

TEST_CASE("RC-05 a log that blocks delays no containment") {
  std::promise<void> called, unblock;
  containment contain{[&](const fatal_record&) { called.set_value(); }};
  lost_worker w;
  auto host = std::async(std::launch::async, [&] {
    w.expire(contain);
    return unblock.get_future().wait_for(10s) == std::future_status::ready;  // its log line about it
  });
  CHECK(called.get_future().wait_for(5s) == std::future_status::ready);
  unblock.set_value();
  CHECK(host.get());
}

TEST_CASE("RC-06 nothing is logged or flushed before the containment: a full disk stops no end") {
  CHECK(run_child("fatal", ">/dev/full 2>&1").status == 70);
  CHECK(run_child("fatal", ">&- 2>&-").status == 70);
}

TEST_CASE("RC-09 a containment that returns or throws reopens nothing") {
  for (const bool throws : {false, true}) {
    CAPTURE(throws);
    std::atomic<int> calls{0};
    containment contain{[&](const fatal_record&) {
      ++calls;
      if (throws) throw std::runtime_error{"nobody was killed"};
    }};
    lost_worker w;
    CHECK(w.expire(contain) == 1);
    CHECK(soon([&] { return calls == 1 && contain.failed() == throws; }));
    CHECK(w.expire(contain, 100) == 0);
    contain.trigger(*w.clocks->fatal());
    CHECK_FALSE(w.session->backend_done(at(100), w.piece));
    CHECK_FALSE(w.session->close(at(100)));
    test::check_refused(
        w.table->open_send(at(100), {.request = request, .take_slot = nullptr, .enroll = nullptr}, {1}),
        errc::state, "admission is closed");
    CHECK_FALSE(w.table->shutdown(at(100)).has_value());
    CHECK_FALSE(w.root.expired());
    CHECK(calls == 1);
  }
}

TEST_CASE("RC-10 after a fatal the roots outlive every reference, and so does a callback that runs") {
  for (const bool runs : {false, true}) {
    CAPTURE(runs);
    auto kept = std::make_shared<int>(1);
    const std::weak_ptr<int> captured = kept;
    const auto gate = std::make_shared<std::promise<void>>();
    const auto entered = std::make_shared<std::promise<void>>();
    std::weak_ptr<int> root;
    {
      containment contain{[runs, kept, entered, open = gate->get_future().share()](const fatal_record&) {
        entered->set_value();
        if (runs) static_cast<void>(open.wait_for(10s));
      }};
      kept.reset();
      lost_worker w;
      root = w.root;
      CHECK(w.expire(contain) == 1);
      REQUIRE(entered->get_future().wait_for(5s) == std::future_status::ready);
    }
    CHECK_FALSE(root.expired());
    if (runs) CHECK_FALSE(captured.expired());
    gate->set_value();
    CHECK(soon([&] { return captured.expired(); }));  // the callback has returned: what it held is its host's
    CHECK_FALSE(root.expired());
  }
}

TEST_CASE("RC-10 the roots of what is proven go with it") {
  std::weak_ptr<int> root;
  {
    lost_worker w;
    root = w.root;
    CHECK(w.session->backend_done(at(14), w.piece));
    CHECK(root.expired());
  }
  CHECK(root.expired());
}

TEST_CASE("RC-13 after a worker's death what was pending has failed, and new operations are refused") {
  test::world w;
  const auto req = w.admit(13);
  const auto op = w.fetch(req);
  w.kill(actor_kind::backend);
  CHECK(w.of(op).value == outcome{failed{"backend is down"}});
  CHECK(w.of(op).releases == 0);  // the backend's access is nobody's to deny
  const auto other = w.admit(13, 100);
  const auto lease = w.lend(direction::fetch, other, {0, 4});
  REQUIRE(lease.has_value());
  test::check_refused(w.submit(direction::fetch, *lease, other), errc::state, "down");
}

TEST_CASE("RC-14 the child's side: a process with two runtimes, one of them fatal") {
  const auto* mode = std::getenv("KVLEASE_RC_CHILD");
  if (mode != nullptr && std::string{mode} == "fatal") end_on_fatal();
  if (mode != nullptr) say("rc-fresh");
  CHECK(true);
}

TEST_CASE("RC-14 a host that ends its process leaves nobody, and a fresh process starts") {
  const auto dead = run_child("fatal");
  CHECK(dead.status == 70);
  CHECK(dead.count("rc-destructors") == 0);
  CHECK(dead.count("rc-flushed") == 0);
  const auto fresh = run_child("fresh");
  CHECK(fresh.status == 0);
  CHECK(fresh.count("rc-fresh") == 1);
}

TEST_CASE("RC-15 two runtimes of one process share its end, which comes once") {
  const auto dead = run_child("fatal");
  CHECK(dead.status == 70);
  CHECK(dead.count("rc-fatal") == 1);
}
