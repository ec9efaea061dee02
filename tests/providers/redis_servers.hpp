// Redis servers that tests start for themselves, on free loopback ports and in temporary directories, and
// that end with the test's process.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/providers/redis/resp.hpp"
#include "tests/child_process.hpp"
#include "tests/temporary_directory.hpp"

namespace kvlease::test {

/// One redis-server, answering.
class redis_server {
 public:
  enum class kind { plain, tls };
  /// `more`: options of redis-server, e.g. {"--requirepass", "secret"}. Fails the test when none starts.
  explicit redis_server(std::vector<std::string> more = {}, kind k = kind::plain);
  /// On that port. Null when it does not start there: somebody else has taken it.
  static std::unique_ptr<redis_server> on(int port, std::vector<std::string> more);

  int port() const noexcept { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string socket() const { return directory_ / "s.sock"; }
  child_process& process() { return *process_; }
  /// Kills it, and starts it again on the same port, empty.
  void restart();
  /// One command over a connection of its own, not of the code under test. Not of a TLS server.
  redis::value ask(std::initializer_list<std::string_view> arguments) const;

 private:
  redis_server(int port, std::vector<std::string> more) : more_{std::move(more)}, port_{port} {}
  bool start();
  temporary_directory directory_{"kvlease-redis"};
  std::vector<std::string> more_;
  kind kind_ = kind::plain;
  int port_ = 0;
  std::unique_ptr<child_process> process_;
};

/// A certificate authority, and what it has signed: a server that is localhost and 127.0.0.1, and a client.
struct certificates {
  certificates();
  temporary_directory directory{"kvlease-ca"};
  std::string ca() const { return directory / "ca.crt"; }
  std::string other_ca() const { return directory / "other.crt"; }
  std::string cert() const { return directory / "server.crt"; }
  std::string key() const { return directory / "server.key"; }
};

/// Three servers that share the slots.
class redis_cluster {
 public:
  redis_cluster();
  redis_server& operator[](std::size_t i) { return *nodes_[i]; }
  /// The one that holds the slot.
  redis_server& owner(std::uint16_t slot);
  std::string id(std::size_t i) const;
  static constexpr std::size_t size = 3;

 private:
  bool start();
  temporary_directory directory_{"kvlease-cluster"};
  std::vector<std::unique_ptr<redis_server>> nodes_;
};

// Shared by the tests of one process, started when first asked for.
redis_server& shared_redis();
redis_server& shared_tls_redis();
redis_cluster& shared_redis_cluster();
const certificates& shared_certificates();

/// A prefix of keys that nobody else has.
std::string fresh_prefix();

/// `uri` with $tcp, $socket, $tls, $ca, $cluster and $bench (a fresh prefix) filled in. Starts only what it
/// names.
std::string with_servers(std::string uri);

}  // namespace kvlease::test
