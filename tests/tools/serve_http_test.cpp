// The HTTP server: what it refuses, and that no client holds up another.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/tools/fake_inspection.hpp"
#include "tools/inspect/http_client.hpp"
#include "tools/serve/addresses.hpp"
#include "tools/serve/http_server.hpp"
#include "tools/serve/inspection_routes.hpp"

namespace {

using namespace kvlease;
using namespace kvlease::serve;
using test::fake_inspection;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

struct served {
  explicit served(http_options o = {}, http_handler handler = nullptr) {
    o.socket_path = directory.file("s");
    path = o.socket_path;
    routes = std::make_unique<inspection_routes>(std::vector<std::shared_ptr<inspection_port>>{port});
    if (!handler)
      handler = [this](const http_request& r, const http_reply& reply) { reply(routes->answer(r)); };
    auto started = http_server::start(std::move(o), std::move(handler));
    REQUIRE_MESSAGE(started.has_value(), (started ? "" : started.error().text));
    server = *std::move(started);
  }
  test::scratch_directory directory;
  std::string path;
  std::shared_ptr<fake_inspection> port = std::make_shared<fake_inspection>();
  std::unique_ptr<inspection_routes> routes;
  std::unique_ptr<http_server> server;
};

int connected(const std::string& path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  std::memcpy(where.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
  return fd;
}

/// Sends all of `text`, as far as the other side takes it, and reads until the end; closes. A connection that
/// is kept has its end behind the first answer, unless `all`.
std::string exchange(int fd, std::string_view text, std::chrono::milliseconds within = 5s, bool all = false) {
  std::string answer;
  const bool kept = !all && text.find("Connection: close") == std::string_view::npos;
  const auto until = steady::now() + within;
  while (steady::now() < until) {
    pollfd p{fd, static_cast<short>(POLLIN | (text.empty() ? 0 : POLLOUT)), 0};
    if (::poll(&p, 1, 100) <= 0) continue;
    if ((p.revents & POLLOUT) != 0 && !text.empty()) {
      const auto n =
          ::send(fd, text.data(), std::min<std::size_t>(text.size(), 65536), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0)
        text.remove_prefix(static_cast<std::size_t>(n));
      else
        text = {};
    }
    if ((p.revents & (POLLIN | POLLHUP)) != 0) {
      char buffer[4096];
      const auto n = ::recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      answer.append(buffer, static_cast<std::size_t>(n));
      if (kept && answer.ends_with("}")) break;
    }
  }
  ::close(fd);
  return answer;
}

unsigned status_of(const std::string& answer) {
  return answer.size() > 12 ? static_cast<unsigned>(std::stoul(answer.substr(9, 3))) : 0;
}
unsigned ask(const served& s, std::string_view text) { return status_of(exchange(connected(s.path), text)); }

unsigned get(const served& s, std::string_view target) {
  const auto a = inspect::http_get(s.path, target, 5s);
  return a ? a->status : 0;
}

TEST_CASE("serve http: the socket is its owner's alone, replaces an abandoned one and nothing else") {
  test::scratch_directory d;
  const auto path = d.file("s");
  const http_handler none = [](const http_request&, const http_reply& reply) { reply({}); };
  {
    const auto first = http_server::start({.socket_path = path}, none);
    REQUIRE(first.has_value());
    struct stat st {};
    REQUIRE(::stat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 0777U) == 0600U);
    const auto second = http_server::start({.socket_path = path}, none);
    REQUIRE(!second.has_value());
    CHECK(second.error().code == errc::state);
  }
  CHECK(!std::filesystem::exists(path));
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  std::memcpy(where.sun_path, path.data(), path.size());
  const int abandoned = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(abandoned, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
  ::close(abandoned);
  CHECK(http_server::start({.socket_path = path}, none).has_value());
  std::ofstream{path} << "a file";
  const auto file = http_server::start({.socket_path = path}, none);
  REQUIRE(!file.has_value());
  CHECK(file.error().code == errc::invalid);
  CHECK(std::filesystem::is_regular_file(path));
  CHECK(!http_server::start({.socket_path = std::string(200, 'x')}, none).has_value());
}

TEST_CASE("serve http: only loopback addresses are listened on") {
  for (const auto* good : {"127.0.0.1:0", "localhost:80", "[::1]:9000"})
    CHECK(parse_loopback(good).has_value());
  for (const auto* bad : {"0.0.0.0:80", "192.168.1.5:80", ":80", "80", "[::]:80", "example.com:80",
                          "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1.evil.com:80"})
    CHECK_MESSAGE(!parse_loopback(bad).has_value(), bad);
  const auto refused = http_server::start({.socket_path = "/tmp/kvlease-never", .tcp = "0.0.0.0:0"},
                                          [](const http_request&, const http_reply&) {});
  REQUIRE(!refused.has_value());
  CHECK(refused.error().text.find("0.0.0.0") != std::string::npos);
}

TEST_CASE("serve http: every path answers, each with its type") {
  served s;
  s.port->happens("exposed", actor_kind::deadline_arbiter, {test::id_of<operation_id>(7).value, 0, 0, 0});
  for (const auto* path : {"/", "/snapshot", "/why/lease/1.5", "/why/slot/kvlease-part-0/2", "/metrics",
                           "/health", "/trace", "/events?after=0&live=0", "/snapshot?limit=1&explain=2",
                           "/runtime/0/snapshot", "/metrics?format=json"})
    CHECK_MESSAGE(get(s, path) == 200, path);
  const auto snapshot = inspect::http_get(s.path, "/snapshot?limit=1&explain=2", 5s);
  REQUIRE(snapshot.has_value());
  const auto j = nlohmann::json::parse(snapshot->body);
  CHECK(j.at("schema_version") == 1);
  CHECK(j.at("operations").size() == 1);
  CHECK(j.at("operations_total") == 2);
  CHECK(j.at("explanations").size() == 1);
}

TEST_CASE("serve http: health turns") {
  served s;
  s.port->set(health::healthy);
  CHECK(get(s, "/health") == 200);
  s.port->set(health::held);
  CHECK(get(s, "/health") == 200);
  s.port->set(health::unproven);
  CHECK(get(s, "/health") == 503);
}

TEST_CASE("serve http: what is malformed, unknown or huge gets a 4xx, and the next client is served") {
  served s;
  const std::string long_target(3000, 'a');
  const std::string fields(20000, 'b');
  const std::vector<std::pair<std::string, unsigned>> bad{
      {"\r\n\r\n\x01\x02\x03garbage\r\n\r\n", 400},
      {std::string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11} + std::string(300, 'z'), 400},
      {"GET\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"GET %2 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET http://x/snapshot HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /" + long_target + " HTTP/1.1\r\nHost: x\r\n\r\n", 414},
      {"GET / HTTP/1.1\r\nHost: x\r\nX: " + fields + "\r\n\r\n", 431},
      {"POST /snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n" + std::string(10000, 'c'), 413},
      {"POST /snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000000\r\n\r\n", 413},
      {"POST /snapshot HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n" +
           std::string(0x2000, 'd') + "\r\n0\r\n\r\n",
       413},
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400},
      {"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST /x HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /x HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nContent-Length: 2\r\n\r\nab", 417},
      {"DELETE /snapshot HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"POST /snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405},
      {"GET /snapshot HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n", 403},
      {"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /why HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /why/lease/ HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /why/dog/1.5 HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /why/lease/99.99 HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /why/lease/" + std::string(500, '1') + " HTTP/1.1\r\nHost: x\r\n\r\n", 414},
      {"GET /runtime/7/snapshot HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /snapshot?limit=-1 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /snapshot?limit=99999999999999999999 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /events?after=x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /trace?last=1e9 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
  };
  for (const auto& [text, status] : bad) {
    CHECK_MESSAGE(ask(s, text) == status, text.substr(0, 80));
    CHECK(get(s, "/health") == 200);
  }
  // Random bytes: a 4xx or a closed connection, never an answer that means success.
  std::uint32_t seed = 1;
  for (int round = 0; round < 200; ++round) {
    std::string noise;
    for (int i = 0; i < 200; ++i) noise += static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    const auto status = ask(s, noise + "\r\n\r\n");
    CHECK((status == 0 || (status >= 400 && status < 500)));
  }
  CHECK(get(s, "/snapshot") == 200);
}

TEST_CASE("serve http: one path takes large bodies, whole or in chunks, up to its own bound") {
  served s{{.posts = "/request", .max_post_bytes = 100'000},
           [](const http_request& r, const http_reply& reply) {
             reply({r.path == "/request" && r.method == "POST" ? 200U : 404U, std::to_string(r.body.size())});
           }};
  const auto post = [&s](const char* path, std::size_t n) {
    return exchange(connected(s.path),
                    "POST " + std::string{path} + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                        "Content-Length: " + std::to_string(n) + "\r\n\r\n" + std::string(n, 'x'));
  };
  CHECK(post("/request", 100'000).ends_with("100000"));
  CHECK(status_of(post("/request", 100'001)) == 413);
  CHECK(status_of(post("/other", 4'096)) == 404);
  CHECK(status_of(post("/other", 4'097)) == 413);
  const auto chunked = [&s](const char* path, std::size_t n) {
    std::string text = "POST " + std::string{path} +
                       " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (std::size_t i = 0; i < n; ++i) text += "3e8\r\n" + std::string(1000, 'y') + "\r\n";
    return exchange(connected(s.path), text + "0\r\n\r\n");
  };
  CHECK(chunked("/request", 100).ends_with("100000"));
  CHECK(status_of(chunked("/request", 101)) == 413);
  CHECK(status_of(chunked("/other", 5)) == 413);
  const auto expected = exchange(connected(s.path),
                                 "POST /request HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                 "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab");
  CHECK(expected.starts_with("HTTP/1.1 100"));
  CHECK(expected.ends_with("\r\n\r\n2"));
}

TEST_CASE("serve http: a name that merely resolves to the loopback is not served over TCP") {
  served s{{.tcp = "127.0.0.1:0"}};
  const auto over_tcp = [&s](std::string_view text) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(s.server->tcp_port());
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
    return status_of(exchange(fd, text));
  };
  CHECK(over_tcp("GET /health HTTP/1.1\r\nHost: localhost:80\r\nConnection: close\r\n\r\n") == 200);
  CHECK(over_tcp("GET /health HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n") == 200);
  CHECK(over_tcp("GET /health HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n") == 403);
  CHECK(over_tcp("GET /health HTTP/1.0\r\n\r\n") == 403);
}

TEST_CASE("serve http: events come as they happen, and a stream has an end") {
  served s;
  s.port->happens("exposed", actor_kind::deadline_arbiter, {test::id_of<operation_id>(7).value, 0, 0, 0});
  std::vector<std::string> lines;
  bool told = false;
  const auto status = inspect::http_lines(s.path, "/events?after=0", [&](std::string_view line) {
    if (!line.empty()) lines.emplace_back(line);
    if (lines.size() == 1 && !told) {
      told = true;
      s.port->happens("settled", actor_kind::deadline_arbiter, {test::id_of<operation_id>(7).value, 0, 0, 0});
    }
    return lines.size() < 2;
  });
  REQUIRE(status.has_value());
  REQUIRE(lines.size() == 2);
  CHECK(nlohmann::json::parse(lines[0]).at("what") == "exposed");
  CHECK(nlohmann::json::parse(lines[1]).at("operation") == "1.7");
  CHECK(nlohmann::json::parse(lines[1]).at("sequence") == 2);

  // Streams are bounded; those that were left make room again. A few more than the bound: a question below
  // holds a stream for a moment too, and may have taken one's place.
  std::vector<int> open;
  for (std::size_t i = 0; i < http_options{}.max_streams + 4; ++i) {
    open.push_back(connected(s.path));
    const std::string_view text = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n";
    REQUIRE(::send(open.back(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  const auto until = steady::now() + 5s;
  while (get(s, "/events?live=0") != 503 && steady::now() < until) std::this_thread::sleep_for(5ms);
  CHECK(get(s, "/events?live=0") == 503);
  CHECK(get(s, "/health") == 200);
  for (const int fd : open) ::close(fd);
  while (get(s, "/events?live=0") != 200 && steady::now() < until) std::this_thread::sleep_for(5ms);
  CHECK(get(s, "/events?live=0") == 200);
}

TEST_CASE("serve http: a connection is kept, and requests may queue on it") {
  served s;
  const auto both = exchange(connected(s.path),
                             "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
                             "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  CHECK(both.find("HTTP/1.1 200", 20) != std::string::npos);
  const auto head =
      exchange(connected(s.path), "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  CHECK(head.ends_with("\r\n\r\n"));
  CHECK(head.find("Content-Length: 0") == std::string::npos);
}

TEST_CASE("serve http: ten thousand slow clients hold up nobody, and few stay") {
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  const auto before = files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 12'000);
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto clients = std::min<std::size_t>(10'000, files.rlim_cur - 600);
  MESSAGE("slow clients: ", clients);
  served s;
  std::vector<int> slow;
  const std::string_view part = "GET /snapshot HTTP/1.1\r\nHost: ";
  auto slowest = 0ms;
  for (std::size_t i = 0; i < clients; ++i) {
    slow.push_back(connected(s.path));
    static_cast<void>(::send(slow.back(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    if (i % 500 != 499) continue;
    const auto from = steady::now();
    CHECK(get(s, "/snapshot") == 200);
    slowest = std::max(slowest, std::chrono::duration_cast<std::chrono::milliseconds>(steady::now() - from));
    CHECK(s.server->figures().open <= http_options{}.max_connections);
  }
  MESSAGE("slowest answer among them: ", slowest.count(), " ms");
  CHECK(slowest < 2s);
  CHECK(s.server->figures().evicted >= clients - http_options{}.max_connections);
  for (const int fd : slow) ::close(fd);
  CHECK(get(s, "/health") == 200);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("serve http: clients that do not read their answers make room too") {
  served s{{.max_connections = 8}};
  auto big = test::some_snapshot();
  for (int i = 0; i < 20'000; ++i) big.operations.push_back(big.operations[0]);
  s.port->set(big);
  std::vector<int> deaf;
  const std::string_view text = "GET /snapshot?limit=100000 HTTP/1.1\r\nHost: x\r\n\r\n";
  for (int i = 0; i < 12; ++i) {
    deaf.push_back(connected(s.path));
    // Fails for one that has made room already.
    static_cast<void>(::send(deaf.back(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  const auto until = steady::now() + 10s;
  while (get(s, "/health") != 200 && steady::now() < until) std::this_thread::sleep_for(10ms);
  CHECK(get(s, "/health") == 200);
  for (const int fd : deaf) ::close(fd);
}

TEST_CASE("serve http: a silent client is let go, and a slow handler delays no other") {
  std::atomic<bool> enter{false};
  std::mutex mutex;
  std::vector<http_reply> waiting;
  served s{{.workers = 1, .request_within = 100ms}, [&](const http_request& r, const http_reply& reply) {
             if (r.path != "/slow") return reply({});
             const std::lock_guard lock{mutex};
             waiting.push_back(reply);  // answered later, from another thread
             enter = true;
           }};
  const auto from = steady::now();
  CHECK(exchange(connected(s.path), "").empty());  // nothing has come: it is just closed
  CHECK(status_of(exchange(connected(s.path), "GET / HT")) == 408);
  CHECK(status_of(exchange(connected(s.path), "GET / HTTP/1.1\r\nHost: x\r\nContent-Le")) == 408);
  CHECK(status_of(exchange(connected(s.path),
                           "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")) == 408);
  CHECK(steady::now() - from < 5s);
  std::thread later{[&] {
    while (!enter) std::this_thread::sleep_for(1ms);
    CHECK(get(s, "/quick") == 200);
    const std::lock_guard lock{mutex};
    waiting.front()({201});
    waiting.front()({202});  // does nothing
  }};
  CHECK(get(s, "/slow") == 201);
  later.join();
}

/// The client says all that it will, and reads on.
std::string broken_off(const std::string& path, std::string_view text) {
  const int fd = connected(path);
  REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  REQUIRE(::shutdown(fd, SHUT_WR) == 0);
  return exchange(fd, "", 5s, true);
}

TEST_CASE("serve http: what breaks off gets a 400") {
  served s{{.posts = "/request"}};
  for (const auto* text : {"G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n",
                           "POST /request HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
                           "POST /request HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"})
    CHECK_MESSAGE(status_of(broken_off(s.path, text)) == 400, text);
  const auto both = broken_off(s.path, "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea");
  CHECK(status_of(both) == 200);
  CHECK(both.find("HTTP/1.1 400") != std::string::npos);
  CHECK(broken_off(s.path, "").empty());
  CHECK(get(s, "/health") == 200);
}

TEST_CASE("serve http: a 405 says what is allowed there") {
  served s{{.posts = "/request"}, [&s](const http_request& r, const http_reply& reply) {
             reply(r.path == "/request" && r.method != "POST" ? wrong_method("POST", "requests are posted")
                                                              : s.routes->answer(r));
           }};
  const auto allowed = [&s](const char* method, const char* path) {
    const auto answer = exchange(connected(s.path), std::string{method} + " " + path +
                                                        " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    CHECK(status_of(answer) == 405);
    const auto at = answer.find("\r\nAllow: ");
    return at == std::string::npos ? "" : answer.substr(at + 9, answer.find("\r\n", at + 2) - at - 9);
  };
  CHECK(allowed("POST", "/snapshot") == "GET, HEAD");
  CHECK(allowed("DELETE", "/snapshot") == "GET, HEAD");
  CHECK(allowed("DELETE", "/request") == "POST");
  CHECK(allowed("GET", "/request") == "POST");
}

TEST_CASE("serve http: who makes room hears why, where a request had begun") {
  served s{{.max_connections = 2}};
  const int first = connected(s.path);
  REQUIRE(::send(first, "GET / HT", 8, 0) == 8);
  const auto until = steady::now() + 5s;
  while (s.server->figures().open < 1 && steady::now() < until) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // its first bytes are read
  std::vector<int> more;
  for (int i = 0; i < 2; ++i) more.push_back(connected(s.path));
  CHECK(status_of(exchange(first, "")) == 408);
  for (const int fd : more) ::close(fd);
}

TEST_CASE("serve http: a host that drains is held, and tells for how long") {
  test::scratch_directory d;
  const auto port = std::make_shared<fake_inspection>();
  port->set(health::healthy);
  std::atomic<bool> draining{false};
  const inspection_routes routes{{port}, [&]() -> std::optional<inspect::drain_note> {
                                   if (!draining) return std::nullopt;
                                   return inspect::drain_note{"requests", 2, 1500ms};
                                 }};
  const auto ask_for = [&](const char* path) { return routes.answer({"GET", path, "", ""}); };
  CHECK(nlohmann::json::parse(ask_for("/health").body)["drain"].is_null());
  draining = true;
  const auto h = nlohmann::json::parse(ask_for("/health").body);
  CHECK(ask_for("/health").status == 200);
  CHECK(h["health"] == "held");
  CHECK(h["drain"] ==
        nlohmann::json{{"waits_for", "requests"}, {"requests_open", 2}, {"deadline_in_seconds", 1.5}});
  CHECK(nlohmann::json::parse(ask_for("/snapshot").body)["health"] == "held");
  CHECK(nlohmann::json::parse(ask_for("/snapshot").body)["drain"] == h["drain"]);
  CHECK(ask_for("/metrics").body.find("kvlease_health{runtime=\"0\"} 1") != std::string::npos);
  port->set(health::unproven);
  CHECK(ask_for("/health").status == 503);
}

TEST_CASE("serve http: where no answer comes in time, the client hears so") {
  served s{{.answer_within = 100ms}, [](const http_request& r, const http_reply& reply) {
             if (r.path != "/never") reply({});
           }};
  CHECK(get(s, "/never") == 504);
  CHECK(get(s, "/") == 200);
}

}  // namespace
