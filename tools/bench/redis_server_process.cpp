#include "tools/bench/redis_server_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tools/bench/free_port.hpp"
#include "tools/bench/redis_raw_client.hpp"

extern char** environ;

namespace kvlease::bench {

result<std::unique_ptr<redis_server_process>> redis_server_process::start() {
  std::unique_ptr<redis_server_process> p{new redis_server_process};
  auto name = (std::filesystem::temp_directory_path() / "kvlease-bench.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    return fail(errc::io, std::string{"no temporary directory: "} + std::strerror(errno));
  p->directory_ = name;
  p->port_ = free_port();
  std::vector<std::string> words{"redis-server",
                                 "--port",
                                 std::to_string(p->port_),
                                 "--bind",
                                 "127.0.0.1",
                                 "--dir",
                                 name,
                                 "--unixsocket",
                                 p->socket(),
                                 "--save",
                                 "",
                                 "--appendonly",
                                 "no"};
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int problem = ::posix_spawnp(&p->pid_, argv[0], &quiet, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&quiet);
  if (problem != 0) {
    p->pid_ = -1;
    return fail(errc::io, std::string{"redis-server can't be started: "} + std::strerror(problem));
  }
  for (int tries = 0; tries < 1000; ++tries) {
    if (redis_raw_client::open(p->socket())) return p;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  return fail(errc::io, "redis-server does not answer");
}

redis_server_process::~redis_server_process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

}  // namespace kvlease::bench
