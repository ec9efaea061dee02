#include "tests/providers/redis_servers.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>

#include "src/providers/redis/cluster.hpp"
#include "src/providers/redis/stream.hpp"

namespace kvlease::test {

namespace {

redis::owned_fd connected_to(int port) {
  redis::owned_fd s{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return s;
}

void openssl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "openssl");
  child_process p{arguments};
  const auto status = p.wait();
  INFO(p.output());
  REQUIRE(status == 0);
}

}  // namespace

redis_server::redis_server(std::vector<std::string> more, kind k) : more_{std::move(more)}, kind_{k} {
  for (int attempt = 0; attempt < 10; ++attempt) {
    port_ = free_port();
    if (start()) return;
  }
  FAIL("no redis-server starts: " << process_->output());
}

std::unique_ptr<redis_server> redis_server::on(int port, std::vector<std::string> more) {
  std::unique_ptr<redis_server> s{new redis_server{port, std::move(more)}};
  return s->start() ? std::move(s) : nullptr;
}

bool redis_server::start() {
  const auto p = std::to_string(port_);
  std::vector<std::string> argv{"redis-server", "--bind",     "127.0.0.1",    "--dir", directory_.path(),
                                "--save",       "",           "--appendonly", "no",    "--unixsocket",
                                socket(),       "--loglevel", "notice"};
  const auto add = [&](std::initializer_list<std::string> some) { argv.insert(argv.end(), some); };
  if (kind_ == kind::tls) {
    const auto& c = shared_certificates();
    add({"--port", "0", "--tls-port", p, "--tls-cert-file", c.cert(), "--tls-key-file", c.key(),
         "--tls-ca-cert-file", c.ca(), "--tls-auth-clients", "optional"});
  } else {
    add({"--port", p});
  }
  argv.insert(argv.end(), more_.begin(), more_.end());
  process_ = std::make_unique<child_process>(argv);
  const auto answers = [&] {
    return process_->output().find("Ready to accept connections") != std::string::npos;
  };
  eventually([&] { return answers() || !process_->running(); });
  return answers();
}

void redis_server::restart() {
  process_->kill();
  REQUIRE(eventually([this] { return start(); }));
}

redis::value redis_server::ask(std::initializer_list<std::string_view> arguments) const {
  const auto s = connected_to(port_);
  const auto text = redis::encode_command(arguments);
  REQUIRE(::send(s.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  redis::value_reader reader{{.bulk = 64u << 20, .text = 64u << 20, .items = 1u << 20, .depth = 5}};
  std::vector<std::byte> in;
  std::array<std::byte, 4096> some;
  while (!reader.done()) {
    const auto n = ::recv(s.get(), some.data(), some.size(), 0);
    REQUIRE(n > 0);
    in.insert(in.end(), some.begin(), some.begin() + n);
    const auto took = reader.feed(in);
    REQUIRE(took);
    in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(*took));
  }
  return reader.get();
}

certificates::certificates() {
  const auto at = [this](const char* name) { return (directory / name).string(); };
  const auto self_signed = [&](const char* key, const char* crt, const char* subject) {
    openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "2", "-keyout", at(key), "-out", at(crt), "-subj", subject});
  };
  self_signed("ca.key", "ca.crt", "/CN=kvlease test authority");
  self_signed("other.key", "other.crt", "/CN=somebody else");
  openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
           at("server.key"), "-out", at("server.csr"), "-subj", "/CN=kvlease test server"});
  std::ofstream{at("server.ext")} << "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
  openssl({"x509", "-req", "-in", at("server.csr"), "-CA", at("ca.crt"), "-CAkey", at("ca.key"),
           "-CAcreateserial", "-days", "2", "-extfile", at("server.ext"), "-out", at("server.crt")});
}

redis_cluster::redis_cluster() {
  for (int attempt = 0; attempt < 10; ++attempt)
    if (start()) return;
  FAIL("no cluster starts");
}

/// A new master takes no write in its first two seconds, and every test case is a process. So each server
/// starts as the replica of a master that never was, which holds the slots, and takes its place.
bool redis_cluster::start() {
  nodes_.clear();
  const std::array<const char*, size> slots{"0-5460", "5461-10922", "10923-16383"};
  std::array<int, size> ports, bus;
  std::string all;
  for (std::size_t i = 0; i < size; ++i) {
    ports[i] = free_port();
    bus[i] = free_port();
    const std::string id(40, static_cast<char>('1' + i)), master(40, static_cast<char>('a' + i));
    all += fmt::format(
        "{0} 127.0.0.1:{1}@{2} slave {3} 0 0 {4} connected\n{3} 127.0.0.1:1@2 master - 0 0 {4} connected "
        "{5}\n",
        id, ports[i], bus[i], master, i + 1, slots[i]);
  }
  for (std::size_t i = 0; i < size; ++i) {
    const auto file = (directory_ / fmt::format("nodes-{}.conf", i)).string();
    auto mine = all;
    mine.insert(mine.find(fmt::format("@{} slave", bus[i])) + fmt::format("@{} ", bus[i]).size(), "myself,");
    std::ofstream{file} << mine << "vars currentEpoch 3 lastVoteEpoch 0\n";
    auto node = redis_server::on(ports[i],
                                 {"--cluster-enabled", "yes", "--cluster-config-file", file, "--cluster-port",
                                  std::to_string(bus[i]), "--cluster-node-timeout", "15000"});
    if (!node) return false;
    nodes_.push_back(std::move(node));
  }
  for (const auto& n : nodes_) REQUIRE(n->ask({"CLUSTER", "FAILOVER", "TAKEOVER"}).text == "OK");
  const auto live = [&](const redis::value& range) {
    return std::ranges::count(ports, static_cast<int>(range.items.at(2).items.at(1).number)) == 1;
  };
  return eventually([&] {
    return std::ranges::all_of(nodes_, [&](const auto& n) {
      const auto map = n->ask({"CLUSTER", "SLOTS"});
      return n->ask({"CLUSTER", "INFO"}).text.find("cluster_state:ok") != std::string::npos &&
             map.items.size() == size && std::ranges::all_of(map.items, live);
    });
  });
}

redis_server& redis_cluster::owner(std::uint16_t slot) {
  return *nodes_[slot < 5461 ? 0 : slot < 10923 ? 1 : 2];
}

std::string redis_cluster::id(std::size_t i) const { return nodes_[i]->ask({"CLUSTER", "MYID"}).text; }

redis_server& shared_redis() {
  static redis_server one;
  return one;
}
redis_server& shared_tls_redis() {
  static redis_server one{{}, redis_server::kind::tls};
  return one;
}
redis_cluster& shared_redis_cluster() {
  static redis_cluster one;
  return one;
}
const certificates& shared_certificates() {
  static const certificates one;
  return one;
}

std::string fresh_prefix() {
  static int count = 0;
  return fmt::format("bench-{}-{}:", ::getpid(), ++count);
}

std::string with_servers(std::string uri) {
  const std::pair<const char*, std::function<std::string()>> words[] = {
      {"$tcp", [] { return shared_redis().address(); }},
      {"$socket", [] { return shared_redis().socket(); }},
      {"$tls", [] { return shared_tls_redis().address(); }},
      {"$ca", [] { return shared_certificates().ca(); }},
      {"$cluster", [] { return shared_redis_cluster()[0].address(); }},
      {"$bench", fresh_prefix}};
  for (const auto& [word, meaning] : words)
    if (const auto at = uri.find(word); at != std::string::npos)
      uri.replace(at, std::string_view{word}.size(), meaning());
  return uri;
}

}  // namespace kvlease::test
