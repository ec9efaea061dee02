#include "tests/child_process.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "tools/bench/free_port.hpp"

namespace kvlease::test {

using namespace std::chrono_literals;

bool eventually(const std::function<bool()>& is_so, std::chrono::seconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (is_so()) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
}

int free_port() {
  const int port = bench::free_port();
  REQUIRE(port != 0);
  return port;
}

child_process::child_process(std::vector<std::string> argv, std::map<std::string, std::string> environment) {
  REQUIRE_FALSE(argv.empty());
  output_ = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (output_ < 0) {
    char name[] = "/tmp/kvlease-output.XXXXXX";
    output_ = ::mkostemp(name, O_CLOEXEC);
    REQUIRE(output_ >= 0);
    ::unlink(name);
  }
  // All that allocates is done before the fork: other threads may hold the allocator's lock then.
  std::vector<char*> arguments;
  for (auto& a : argv) arguments.push_back(a.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v)
    if (const std::string variable = *v; !environment.contains(variable.substr(0, variable.find('='))))
      variables.push_back(variable);
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> pointers;
  for (auto& v : variables) pointers.push_back(v.data());
  pointers.push_back(nullptr);

  const auto parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    ::dup2(output_, STDOUT_FILENO);
    ::dup2(output_, STDERR_FILENO);
    ::execvpe(arguments[0], arguments.data(), pointers.data());
    ::_exit(127);
  }
  REQUIRE(pid_ > 0);
}

child_process child_process::again(const std::string& test_case,
                                   std::map<std::string, std::string> environment) {
  std::array<char, 4096> self{};
  REQUIRE(::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  return child_process{{self.data(), "--test-case=" + test_case, "--no-skip"}, std::move(environment)};
}

child_process::child_process(child_process&& other) noexcept
    : pid_{std::exchange(other.pid_, -1)},
      output_{std::exchange(other.output_, -1)},
      status_{std::exchange(other.status_, std::nullopt)} {}

child_process::~child_process() {
  if (pid_ > 0) kill();
  if (output_ >= 0) ::close(output_);
}

void child_process::signal(int number) const {
  if (!status_) REQUIRE(::kill(pid_, number) == 0);
}

void child_process::stop() {
  signal(SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
  REQUIRE(WIFSTOPPED(status));
}

void child_process::resume() const { signal(SIGCONT); }

void child_process::kill() {
  if (status_) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  status_ = status;
}

bool child_process::running() {
  if (status_) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return !status_;
}

std::optional<int> child_process::wait(std::chrono::seconds patience) {
  eventually([this] { return !running(); }, patience);
  return status_;
}

std::string child_process::output() const {
  std::string text;
  std::array<char, 4096> part{};
  off_t at = 0;
  for (ssize_t n = 0; (n = ::pread(output_, part.data(), part.size(), at)) > 0; at += n)
    text.append(part.data(), static_cast<std::size_t>(n));
  return text;
}

}  // namespace kvlease::test
