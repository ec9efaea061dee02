// `kvlease inspect top`: each key on its own, and all of it on a pseudo-terminal.
#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/tools/fake_inspection.hpp"
#include "tools/inspect/render_json.hpp"
#include "tools/inspect/top.hpp"
#include "tools/inspect/top_model.hpp"
#include "tools/serve/http_server.hpp"
#include "tools/serve/inspection_routes.hpp"

namespace {

using namespace kvlease;
using namespace kvlease::inspect;
using nlohmann::json;
using namespace std::chrono_literals;

key typed(char c) { return {key_kind::character, c}; }

std::string text_of_model(const top_model& m, screen_size size = {120, 30}) {
  std::string all;
  for (const auto& l : m.draw(size, false)) all += l + "\n";
  return all;
}
/// The row that is shown reversed.
std::string selected(const top_model& m) {
  for (const auto& l : m.draw({120, 30}, false))
    if (l.starts_with("\x1b[7m")) return l.substr(4, 3);
  return "";
}

top_model model() {
  top_model m;
  m.show(json::parse(snapshot_json(test::some_snapshot(), health::held)));
  return m;
}

TEST_CASE("inspect top: bytes of a terminal become keys, in pieces too") {
  std::string b = "j\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~\r\t\x7f\x03\x1b[99;5u?";
  const auto keys = take_keys(b, false);
  REQUIRE(keys.size() == 11);
  CHECK(keys[0] == typed('j'));
  CHECK(keys[1].kind == key_kind::up);
  CHECK(keys[2].kind == key_kind::down);
  CHECK(keys[3].kind == key_kind::up);
  CHECK(keys[4].kind == key_kind::page_up);
  CHECK(keys[5].kind == key_kind::page_down);
  CHECK(keys[6].kind == key_kind::enter);
  CHECK(keys[7].kind == key_kind::tab);
  CHECK(keys[8].kind == key_kind::backspace);
  CHECK(keys[9].kind == key_kind::interrupt);
  CHECK(keys[10] == typed('?'));
  b = "\x1b";
  CHECK(take_keys(b, false).empty());
  b += "[";
  CHECK(take_keys(b, false).empty());
  b += "A";
  CHECK(take_keys(b, false).size() == 1);
  b = "\x1b";
  CHECK(take_keys(b, true) == std::vector<key>{{key_kind::escape, 0}});
}

TEST_CASE("inspect top: arrows and jk move, and stop at the ends") {
  auto m = model();
  CHECK(selected(m) == "1.7");
  m.press({key_kind::down, 0});
  CHECK(selected(m) == "1.9");
  m.press({key_kind::down, 0});
  CHECK(selected(m) == "1.9");
  m.press({key_kind::up, 0});
  CHECK(selected(m) == "1.7");
  m.press(typed('j'));
  CHECK(selected(m) == "1.9");
  m.press(typed('k'));
  m.press(typed('k'));
  CHECK(selected(m) == "1.7");
  m.press({key_kind::end, 0});
  CHECK(selected(m) == "1.9");
  m.press({key_kind::home, 0});
  CHECK(selected(m) == "1.7");
}

TEST_CASE("inspect top: s sorts by the next column, r reverses, and the selected row stays selected") {
  auto m = model();
  const auto first = [&] {
    const auto lines = m.draw({120, 30}, false);
    auto l = lines[5];
    return l.starts_with("\x1b[7m") ? l.substr(4, 3) : l.substr(0, 3);
  };
  CHECK(first() == "1.7");
  m.press(typed('r'));
  CHECK(first() == "1.9");
  CHECK(selected(m) == "1.7");
  m.press(typed('r'));
  std::set<std::string> seen;
  for (int i = 0; i < 6; ++i) {
    seen.insert(m.draw({120, 30}, false)[3]);
    m.press(typed('s'));
  }
  CHECK(seen.size() == 6);
  CHECK(text_of_model(m).find("by age") != std::string::npos);
}

TEST_CASE("inspect top: / filters as it is typed, escape drops it, enter keeps it") {
  auto m = model();
  for (const char c : std::string{"/publish"}) m.press(typed(c));
  CHECK(selected(m) == "1.9");
  CHECK(text_of_model(m).find("1.7") == std::string::npos);
  CHECK(text_of_model(m).find("/publish_") != std::string::npos);
  m.press({key_kind::enter, 0});
  CHECK(text_of_model(m).find("with 'publish'") != std::string::npos);
  m.press({key_kind::escape, 0});
  CHECK(text_of_model(m).find("1.7") != std::string::npos);
  for (const char c : std::string{"/qqq"}) m.press(typed(c));  // q is text here
  CHECK(text_of_model(m).find("nothing holds 'qqq'") != std::string::npos);
  m.press({key_kind::backspace, 0});
  CHECK(text_of_model(m).find("'qq'") != std::string::npos);
  m.press({key_kind::escape, 0});
  CHECK(text_of_model(m).find("1.7") != std::string::npos);
}

TEST_CASE("inspect top: enter asks why, escape goes back, tab shows leases, space pauses, ? helps, q quits") {
  auto m = model();
  CHECK(!m.wanted());
  m.press({key_kind::enter, 0});
  CHECK(m.wanted() == subject{subject_kind::operation, "1.7"});
  CHECK(text_of_model(m).find("asking") != std::string::npos);
  m.show_why(json::parse(why_json(test::some_explanation({subject_kind::operation, "1.7"}))));
  CHECK(text_of_model(m).find("access end of attempt 1.12") != std::string::npos);
  m.press({key_kind::escape, 0});
  CHECK(!m.wanted());
  m.press({key_kind::tab, 0});
  CHECK(text_of_model(m).find("lent_not_submitted") != std::string::npos);
  m.press({key_kind::enter, 0});
  CHECK(m.wanted()->kind == subject_kind::lease);
  m.press({key_kind::escape, 0});
  m.press(typed(' '));
  CHECK(m.paused());
  CHECK(text_of_model(m).find("PAUSED") != std::string::npos);
  m.press(typed(' '));
  CHECK(!m.paused());
  m.press(typed('?'));
  CHECK(text_of_model(m).find("reverse the order") != std::string::npos);
  m.press(typed('?'));
  CHECK(text_of_model(m).find("reverse the order") == std::string::npos);
  CHECK(m.press(typed('z')));
  CHECK(!m.press(typed('q')));
  CHECK(!m.press({key_kind::interrupt, 0}));
}

TEST_CASE("inspect top: every picture fits its terminal") {
  auto m = model();
  for (const auto press : {key{key_kind::escape, 0}, typed('?'), typed('?'), key{key_kind::enter, 0}}) {
    m.press(press);
    for (const std::size_t w : {30U, 80U, 200U})
      for (const std::size_t h : {8U, 24U, 60U}) {
        const auto lines = m.draw({w, h}, false);
        CHECK(lines.size() == h);
      }
  }
  top_model empty;
  CHECK(text_of_model(empty).find("no answer yet") != std::string::npos);
  for (const auto k : {typed('j'), key{key_kind::enter, 0}, typed('s'), typed('r'), key{key_kind::tab, 0}})
    CHECK(empty.press(k));
}

/// A pseudo-terminal with `top` on its other side.
class terminal {
 public:
  explicit terminal(const std::string& socket) {
    winsize size{30, 120, 0, 0};
    REQUIRE(::openpty(&master_, &slave_, nullptr, nullptr, &size) == 0);
    REQUIRE(::tcgetattr(slave_, &before_) == 0);
    options_.socket = socket;
    options_.interval = 0.05;
    target_ = *target::open(options_);
    thread_ = std::thread{[this] {
      ended_ = run_top(target_, options_, slave_, slave_).has_value();
      done_ = true;
    }};
  }
  ~terminal() {
    if (thread_.joinable()) {
      type("\x03");
      thread_.join();
    }
    ::close(master_);
    ::close(slave_);
  }
  void type(std::string_view keys) { REQUIRE(::write(master_, keys.data(), keys.size()) > 0); }
  /// Whether `text` is drawn within two seconds, from now on.
  bool shows(std::string_view text) {
    std::string seen;
    const auto until = std::chrono::steady_clock::now() + 2s;
    while (std::chrono::steady_clock::now() < until) {
      pollfd p{master_, POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      char buffer[8192];
      const auto n = ::read(master_, buffer, sizeof buffer);
      if (n > 0) all_.append(buffer, static_cast<std::size_t>(n));
      if (n > 0) seen.append(buffer, static_cast<std::size_t>(n));
      if (seen.find(text) != std::string::npos) return true;
    }
    MESSAGE("not shown: ", std::string{text});
    return false;
  }
  /// Ends by itself, and leaves the terminal as it was.
  void ends() {
    const bool left = shows("\x1b[?1049l");
    CHECK(left);
    thread_.join();
    CHECK(ended_);
    termios after{};
    REQUIRE(::tcgetattr(slave_, &after) == 0);
    CHECK(after.c_lflag == before_.c_lflag);
    CHECK(after.c_iflag == before_.c_iflag);
    CHECK(after.c_oflag == before_.c_oflag);
    CHECK(all_.find("\x1b[?25h") != std::string::npos);
  }
  void resize(unsigned short rows, unsigned short columns) {
    winsize size{rows, columns, 0, 0};
    REQUIRE(::ioctl(master_, TIOCSWINSZ, &size) == 0);
  }

 private:
  int master_ = -1, slave_ = -1;
  termios before_{};
  inspect_options options_;
  target target_;
  std::string all_;
  std::thread thread_;
  std::atomic<bool> done_{false}, ended_{false};
};

struct world {
  world() {
    routes = std::make_unique<serve::inspection_routes>(std::vector<std::shared_ptr<inspection_port>>{port});
    start();
  }
  void start() {
    server = *serve::http_server::start(
        {.socket_path = directory.file("s")},
        [this](const serve::http_request& r, const serve::http_reply& reply) { reply(routes->answer(r)); });
  }
  test::scratch_directory directory;
  std::shared_ptr<test::fake_inspection> port = std::make_shared<test::fake_inspection>();
  std::unique_ptr<serve::inspection_routes> routes;
  std::unique_ptr<serve::http_server> server;
};

TEST_CASE("inspect top: on a pseudo-terminal, each key") {
  world w;
  terminal t{w.directory.file("s")};
  CHECK(t.shows("HELD BECAUSE"));
  t.type("j");
  CHECK(t.shows("\x1b[7m1.9"));
  t.type("\x1b[A");
  CHECK(t.shows("\x1b[7m1.7"));
  t.type("\x1b[B");
  CHECK(t.shows("\x1b[7m1.9"));
  t.type("k");
  CHECK(t.shows("\x1b[7m1.7"));
  t.type("\r");
  CHECK(t.shows("access end of attempt 1.12"));
  t.type("\x1b");
  CHECK(t.shows("HELD BECAUSE"));
  t.type("s");
  CHECK(t.shows("by fatal in"));
  t.type("r");
  CHECK(t.shows("reversed"));
  t.type("/pub");
  CHECK(t.shows("/pub_"));
  t.type("\r");
  CHECK(t.shows("enter why"));
  t.type(" ");
  CHECK(t.shows("PAUSED"));
  const int looks = w.port->looks;
  std::this_thread::sleep_for(300ms);
  CHECK(w.port->looks <= looks + 1);
  t.type(" ");
  t.type("?");
  CHECK(t.shows("reverse the order"));
  t.type("?\t");
  CHECK(t.shows("leases, by"));
  t.type("q");
  t.ends();
}

TEST_CASE("inspect top: what changes is shown, and a server that goes and comes") {
  world w;
  terminal t{w.directory.file("s")};
  CHECK(t.shows("HELD BECAUSE"));
  auto s = test::some_snapshot();
  s.exposure_bytes = 77;
  w.port->set(s);
  CHECK(t.shows("exposure 77 bytes"));
  w.server.reset();
  CHECK(t.shows("trying again"));
  w.start();
  CHECK(t.shows("backend stuck"));
  t.type("\x03");
  t.ends();
}

TEST_CASE("inspect top: told to end by a signal, the terminal is as it was") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    world w;
    terminal t{w.directory.file("s")};
    CHECK(t.shows("HELD BECAUSE"));
    ::kill(::getpid(), signal);
    t.ends();
  }
}

TEST_CASE("inspect top: no terminal, no top") {
  world w;
  inspect_options o;
  o.socket = w.directory.file("s");
  const auto t = *target::open(o);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const auto r = run_top(t, o, pipe[0], pipe[1]);
  REQUIRE(!r.has_value());
  CHECK(r.error().code == errc::unsupported);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
