// A segment store and other processes: one that is killed while it publishes, one that may lock little
// memory, one that may not use io_uring, one that may not enter the directory.
//
// KVLEASE_SEGMENT_KILLS=200 kills that often; 30 times when not set.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <thread>

#include "tests/child_process.hpp"
#include "tests/providers/segment_fixture.hpp"

namespace kvlease::test {
namespace {

std::string variable(const char* name, const std::string& otherwise = {}) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

void say(const std::string& line) {
  const auto text = line + "\n";
  REQUIRE(::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

/// The lines that begin with `what`, without that; a cut last line is none.
std::vector<std::string> said(const std::string& output, const std::string& what) {
  std::vector<std::string> lines;
  std::size_t from = 0;
  for (auto end = output.find('\n'); end != std::string::npos; end = output.find('\n', from)) {
    if (output.compare(from, what.size(), what) == 0)
      lines.push_back(output.substr(from + what.size(), end - from - what.size()));
    from = end + 1;
  }
  return lines;
}

segment_options options_of(const std::string& directory, int life) {
  segment_options o;
  o.directory = directory;
  o.bytes = std::uint64_t{256} << 20;
  o.durable = life % 2 == 0;
  o.engine = life % 4 < 2 ? engine_choice::automatic : engine_choice::threads;
  return o;
}

/// Two sizes: one goes straight, the other through bounce buffers.
std::size_t size_of(int life) { return life % 3 == 0 ? 5000 : 16384; }

std::string name_of(int life, int n) { return std::to_string(life) + "." + std::to_string(n); }

// ---- Killed

TEST_CASE("role: publishes to a segment store until it is killed" * doctest::skip()) {
  const auto directory = variable("KVLEASE_ROLE_DIRECTORY");
  if (directory.empty()) return;
  const int life = std::stoi(variable("KVLEASE_ROLE_LIFE"));
  const staging s{size_of(life)};
  opened store{options_of(directory, life), s};
  say("open");
  for (int n = 0; n < 64; n += 4) {
    std::vector<unit> units;
    for (int i = 0; i < 4; ++i) {
      write_content(name_of(life, n + i), s.slot(i));
      units.push_back(at(name_of(life, n + i).c_str(), 0, i));
    }
    for (const auto& name : served_of(store.finish(store.subject->publish(extent_of(units)))))
      say("visible " + name);
  }
  say("done");
  ::pause();
}

TEST_CASE("F9 segment: killed while it publishes: what it reported durable is found, and no byte is wrong") {
  const int kills = std::stoi(variable("KVLEASE_SEGMENT_KILLS", "30"));
  const temporary_directory d;
  int reported = 0, found_right = 0, missed = 0, wrong = 0, lost = 0, in_time = 0;
  for (int life = 0; life < kills; ++life) {
    CAPTURE(life);
    child_process child = child_process::again(
        "role: publishes to a segment store until it is killed",
        {{"KVLEASE_ROLE_DIRECTORY", d.path().string()}, {"KVLEASE_ROLE_LIFE", std::to_string(life)}});
    REQUIRE(eventually([&] { return !said(child.output(), "open").empty(); }));
    std::this_thread::sleep_for(std::chrono::microseconds{mix64(static_cast<std::uint64_t>(life)) % 12'000});
    child.kill();
    const auto output = child.output();
    in_time += said(output, "done").empty();
    const staging s{size_of(life)};
    opened store{options_of(d.path().string(), life), s};
    std::set<std::string> visible;
    for (const auto& name : said(output, "visible ")) visible.insert(name);
    reported += static_cast<int>(visible.size());
    for (int n = 0; n < 64; ++n) {
      const auto got = store.fetch(name_of(life, n));
      found_right += got == found::right;
      missed += got == found::miss;
      wrong += got != found::right && got != found::miss;
      lost += got != found::right && visible.contains(name_of(life, n)) && life % 2 == 0;
    }
    // Of the life before, which a whole restart lies between now.
    if (life >= 3)
      for (int n = 0; n < 64; ++n) {
        const auto got = store.fetch(name_of(life - 3, n));
        wrong += got != found::right && got != found::miss;
      }
    REQUIRE(store.store->check() == "");
  }
  CHECK(wrong == 0);
  CHECK(lost == 0);
  CHECK(in_time > kills / 10);  // killed while there was something to do
  CHECK(reported > 0);
  MESSAGE(kills << " kills, " << in_time << " while it published: " << reported << " units reported, "
                << found_right << " found right, " << missed << " missed, " << wrong << " wrong, " << lost
                << " lost of those that were durable");
}

// ---- With fewer rights

TEST_CASE("role: uses a segment store" * doctest::skip()) {
  const auto directory = variable("KVLEASE_ROLE_DIRECTORY");
  if (directory.empty()) return;
  if (!variable("KVLEASE_ROLE_MEMLOCK").empty()) {
    const rlimit little{65536, 65536};
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
  }
  if (!variable("KVLEASE_ROLE_NO_URING").empty()) {
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(steps), steps};
    REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  }
  segment_options o;
  o.directory = directory + "/store";
  o.bytes = std::uint64_t{8} << 20;
  if (variable("KVLEASE_ROLE_ENGINE") == "uring") o.engine = engine_choice::uring;
  if (const auto made = segment_store::open(o); !made) return say("refused " + made.error().text);
  const staging s{std::size_t{256} << 10};  // 4 MiB together
  opened store{o, s};
  say("describes " + store.subject->describe());
  for (int n = 0; n < 16; ++n) {
    REQUIRE(store.publish("u" + std::to_string(n), n));
    REQUIRE(store.fetch("u" + std::to_string(n), 15 - n) == found::right);
  }
  say("works");
}

/// As nobody, where the test is root.
std::string run_role(const temporary_directory& d, std::map<std::string, std::string> environment) {
  environment["KVLEASE_ROLE_DIRECTORY"] = d.path().string();
  std::array<char, 4096> self{};
  REQUIRE(::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  std::vector<std::string> argv{self.data(), "--test-case=role: uses a segment store", "--no-skip"};
  if (::geteuid() == 0) {
    for (const auto* word : {"--clear-groups", "--regid=65534", "--reuid=65534", "setpriv"})
      argv.insert(argv.begin(), word);
  }
  child_process child{argv, environment};
  REQUIRE(child.wait());
  return child.output();
}

bool can_be_nobody() {
  if (::geteuid() != 0 || std::system("command -v setpriv > /dev/null 2>&1") == 0) return true;
  MESSAGE("SKIP: as root this proves nothing, and setpriv (util-linux) is missing");
  return false;
}

void open_to_all(const temporary_directory& d) { REQUIRE(::chmod(d.path().c_str(), 0777) == 0); }

TEST_CASE("segment: with little memlock the kernel takes no buffer, and transfers go without") {
  if (!can_be_nobody()) return;
  const temporary_directory d;
  open_to_all(d);
  const auto output = run_role(d, {{"KVLEASE_ROLE_MEMLOCK", "1"}});
  CAPTURE(output);
  CHECK(said(output, "works").size() == 1);
  REQUIRE(said(output, "describes ").size() == 1);
  const auto text = said(output, "describes ")[0];
  if (text.find("io_uring,") == std::string::npos) {
    MESSAGE("SKIP: io_uring is refused here");
    return;
  }
  CHECK(text.find("0 of 1 buffers registered") != std::string::npos);
  // And with enough, it takes it.
  const temporary_directory more;
  const staging s{std::size_t{256} << 10};
  auto o = small_store(more);
  o.bytes = std::uint64_t{8} << 20;
  o.engine = engine_choice::uring;
  opened store{o, s};
  CHECK(store.subject->describe().find("1 of 1 buffers registered") != std::string::npos);
}

TEST_CASE("segment: where io_uring is refused threads do it, and engine=uring is an error with the reason") {
  const temporary_directory d;
  open_to_all(d);
  auto output = run_role(d, {{"KVLEASE_ROLE_NO_URING", "1"}});
  CAPTURE(output);
  CHECK(said(output, "works").size() == 1);
  REQUIRE(said(output, "describes ").size() == 1);
  CHECK(said(output, "describes ")[0].find("16 threads") != std::string::npos);
  CHECK(said(output, "describes ")[0].find("io_uring is refused: Operation not permitted") !=
        std::string::npos);
  output = run_role(d, {{"KVLEASE_ROLE_NO_URING", "1"}, {"KVLEASE_ROLE_ENGINE", "uring"}});
  REQUIRE(said(output, "refused ").size() == 1);
  CHECK(said(output, "refused ")[0].find("io_uring is refused") != std::string::npos);
}

TEST_CASE("segment: its files are its user's alone, and a directory that may not be entered is an error") {
  if (!can_be_nobody()) return;
  const temporary_directory d;
  auto output = run_role(d, {});  // 0700, of whoever runs the tests
  if (::geteuid() == 0) {
    REQUIRE(said(output, "refused ").size() == 1);
    CHECK(said(output, "refused ")[0].find("Permission denied") != std::string::npos);
    CHECK(said(output, "refused ")[0].find(d.path().string()) != std::string::npos);
  }
  open_to_all(d);
  output = run_role(d, {});
  CAPTURE(output);
  CHECK(said(output, "works").size() == 1);
  for (const auto* name : {"store", "store/segment.0000", "store/journal", "store/lock"}) {
    struct stat info {};
    CAPTURE(name);
    REQUIRE(::stat((d / name).c_str(), &info) == 0);
    CHECK((info.st_mode & 077) == 0);
  }
}

}  // namespace
}  // namespace kvlease::test
