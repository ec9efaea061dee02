#include "tests/providers/redis_bench.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "src/providers/redis/resp.hpp"

namespace kvlease::test {

namespace {

bool readable(int fd, int stop) {
  std::array<pollfd, 2> fds{pollfd{fd, POLLIN, 0}, pollfd{stop, POLLIN, 0}};
  ::poll(fds.data(), fds.size(), -1);
  return fds[1].revents == 0;
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

fake_redis::fake_redis(std::function<answer(const std::vector<std::string>&)> commands)
    : commands_{std::move(commands)}, listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), size) == 0);
  REQUIRE(::listen(listener_.get(), 64) == 0);
  REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &size) == 0);
  port_ = ntohs(any.sin_port);
  acceptor_ = std::thread{[this] { accept_all(); }};
}

fake_redis::~fake_redis() {
  stopping_ = true;
  stop_.wake();
  acceptor_.join();
  for (auto& s : servers_) s.join();
}

std::string fake_redis::uri(const std::string& options) const {
  return fmt::format("redis://127.0.0.1:{}{}", port_, options);
}

void fake_redis::say_the_rest() {
  rest_ = true;
  rest_waker_.wake();
}

void fake_redis::accept_all() {
  while (readable(listener_.get(), stop_.fd())) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) servers_.emplace_back([this, fd] { serve(fd); });
  }
}

void fake_redis::serve(int fd) {
  const redis::owned_fd owner{fd};
  constexpr redis::value_limits limits{.bulk = 64u << 20, .text = 64u << 20, .items = 100, .depth = 1};
  std::vector<std::byte> in;
  std::array<std::byte, 4096> some;
  auto reader = std::make_unique<redis::value_reader>(limits);
  while (!stopping_) {
    const auto took = reader->feed(in);
    if (!took) return;
    in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(*took));
    if (!reader->done()) {
      if (!readable(fd, stop_.fd())) return;
      const auto n = ::recv(fd, some.data(), some.size(), 0);
      if (n <= 0) return;
      in.insert(in.end(), some.begin(), some.begin() + n);
      continue;
    }
    std::vector<std::string> command;
    for (auto& item : reader->get().items) command.push_back(std::move(item.text));
    reader = std::make_unique<redis::value_reader>(limits);
    const auto a = command.at(0) == "PING" ? answer{"+PONG\r\n"} : commands_(command);
    if (!send_all(fd, a.bytes) || a.close) return;
    if (a.later.empty()) continue;
    while (!rest_ && readable(rest_waker_.fd(), stop_.fd())) continue;
    if (!rest_ || !send_all(fd, a.later)) return;
  }
}

}  // namespace kvlease::test
