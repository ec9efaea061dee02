// Another process that a test starts, stops, continues and kills: a server, or this test program again in
// another role. Whatever happens in the test, it ends with it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvlease::test {

/// True as soon as `is_so` answers true; false when it has not within `patience`.
bool eventually(const std::function<bool()>& is_so, std::chrono::seconds patience = std::chrono::seconds{60});

/// A TCP port of 127.0.0.1 that nobody uses now. Somebody may take it before you do: try again then.
int free_port();

class child_process {
 public:
  /// Runs argv[0] (looked up in PATH). What it writes to stdout and stderr is kept (see output()). It dies
  /// with the thread that made it. Fails the test when it can't be started.
  explicit child_process(std::vector<std::string> argv, std::map<std::string, std::string> environment = {});
  /// This test program, only the case named `test_case`, which otherwise does not run (decorate it with
  /// skip).
  static child_process again(const std::string& test_case,
                             std::map<std::string, std::string> environment = {});
  ~child_process();  ///< SIGKILL, and waits
  child_process(child_process&& other) noexcept;
  child_process& operator=(child_process&&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// SIGSTOP, and waits until it has stopped.
  void stop();
  void resume() const;
  /// SIGKILL, and waits for its end.
  void kill();
  bool running();
  /// Its wait status; empty when it has not ended within `patience`.
  std::optional<int> wait(std::chrono::seconds patience = std::chrono::seconds{60});
  /// What it has written so far.
  std::string output() const;

 private:
  pid_t pid_ = -1;
  int output_ = -1;  ///< an unlinked file
  std::optional<int> status_;
};

}  // namespace kvlease::test
