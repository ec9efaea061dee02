#include "src/providers/redis/link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

namespace kvlease::redis {

namespace {

/// What is read beyond a unit's own bytes. Units' bytes that come with it are copied, the others are not.
constexpr std::size_t buffer_bytes = std::size_t{16} << 10;
static_assert(buffer_bytes > line_limit);

}  // namespace

link::link(link_host& host, const options& o, endpoint to, std::shared_ptr<const tls_context> tls)
    : host_{host},
      options_{o},
      to_{std::move(to)},
      tls_{std::move(tls)},
      jitter_{std::random_device{}()},
      buffer_(buffer_bytes),
      thread_{[this] { run(); }} {}

link::~link() {
  stop();
  join();
}

void link::join() {
  if (thread_.joinable()) thread_.join();
}

// ---- Any thread ------------------------------------------------------------------------------------------

bool link::reserve() noexcept {
  if (open_.fetch_add(1, std::memory_order_relaxed) < options_.queue) return true;
  release();
  return false;
}

bool link::push(std::shared_ptr<command> c) {
  bool first = false;
  {
    const std::lock_guard lock{mutex_};
    if (stop_) return false;
    first = incoming_.empty();
    incoming_.push_back(std::move(c));
  }
  if (first) waker_->wake();  // it takes all at once
  return true;
}

std::string link::why_down() const {
  const std::lock_guard lock{mutex_};
  return why_down_;
}

void link::sweep() {
  {
    const std::lock_guard lock{mutex_};
    sweep_ = true;
  }
  waker_->wake();
}

void link::stop() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  waker_->wake();
}

void link::stop_when_idle() {
  {
    const std::lock_guard lock{mutex_};
    retire_ = true;
  }
  waker_->wake();
}

// ---- The thread ------------------------------------------------------------------------------------------

void link::run() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the host's own business
  ::pthread_setname_np(::pthread_self(), "kvlease-redis");
  short events = 0;
  while (take_orders()) {
    try {
      advance(events);
    } catch (const std::exception& e) {
      broken(e.what());  // out of memory, say
    }
    wait(events);
  }
  lose("the provider was closed");
  drop_waiting("the provider was closed");
  ended_.store(true, std::memory_order_release);
}

/// False when the thread shall end.
bool link::take_orders() {
  std::vector<std::shared_ptr<command>> fresh;
  bool look = false, stopped = false;
  {
    const std::lock_guard lock{mutex_};
    fresh.swap(incoming_);
    look = std::exchange(sweep_, false);
    retiring_ = retire_;
    if (retire_ && open() == 0) stop_ = true;
    stopped = stop_;
  }
  for (auto& c : fresh) {
    if (c->wanted()) {
      waiting_.push_back(std::move(c));
    } else {
      drop(c, false, "withdrawn");  // a sweep came before it, from another thread
    }
  }
  if (look) sweep_now();
  if (!stopped && down() && !waiting_.empty()) drop_waiting(why_down());
  return !stopped;
}

void link::drop(const std::shared_ptr<command>& c, bool ours, const std::string& why) {
  if (!c) return;
  if (!ours) release();
  c->dropped(why);
}

void link::sweep_now() {
  const std::string why = "withdrawn";
  std::vector<std::shared_ptr<command>> gone;
  const auto unwanted = [](const std::shared_ptr<command>& c) { return c && !c->wanted(); };
  for (auto& w : waiting_)
    if (unwanted(w)) gone.push_back(std::exchange(w, nullptr));
  std::erase(waiting_, nullptr);
  for (auto& s : out_) {
    if (!unwanted(s.what)) continue;
    if (s.tried) set_aside(s);
    gone.push_back(std::exchange(s.what, nullptr));
  }
  std::erase_if(out_, [this](const sending& s) {
    if (s.what || s.tried) return false;
    out_bytes_ -= s.bytes.size();
    return true;
  });
  for (auto& a : due_replies_) {
    if (!unwanted(a.what)) continue;
    if (&a == &due_replies_.front() && reader_ && a.preludes == 0) reader_->withdraw();
    gone.push_back(std::exchange(a.what, nullptr));
  }
  for (const auto& c : gone) drop(c, false, why);
}

/// A command that is written in part must be written to its end. Its owner's memory is needed no longer.
void link::set_aside(sending& s) {
  if (s.bytes.payload.empty()) return;
  const auto head = std::min(s.written, s.bytes.head.size());
  const auto payload = std::min(s.written - head, s.bytes.payload.size());
  const auto tail = s.written - head - payload;
  const auto rest = s.bytes.payload.subspan(payload);
  s.aside.assign(rest.begin(), rest.end());
  s.bytes.head.erase(0, head);
  s.bytes.payload = s.aside;
  s.bytes.tail.erase(0, tail);
  s.written = 0;
}

void link::advance(short events) {
  const auto now = clock::now();
  if (const auto due = deadline(); due && now >= *due) {
    if (phase_ == phase::down) return begin_connecting();
    return broken(phase_ == phase::ready
                      ? fmt::format("no byte moved for {} ms", options_.timeout.count())
                      : fmt::format("not ready within {} ms", options_.connect_timeout.count()));
  }
  switch (phase_) {
    case phase::down:
      return;
    case phase::resolving:
      if (lookup_->done()) connect_next();
      return;
    case phase::connecting:
      if (events != 0) connected();
      return;
    case phase::shaking:
      if (events != 0) shake();
      return;
    case phase::greeting:
    case phase::ready:
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 || readable_) read_some();
      if (stream_) write_some();
      return;
  }
}

std::optional<link::clock::time_point> link::deadline() const {
  if (phase_ != phase::ready) return due_;
  if (out_.empty() && due_replies_.empty()) return std::nullopt;
  return progress_ + options_.timeout;
}

void link::wait(short& events) {
  std::array<pollfd, 2> fds{pollfd{waker_->fd(), POLLIN, 0}, pollfd{-1, POLLIN, 0}};
  if (stream_) {
    fds[1].fd = stream_->fd();
    if (wants_write_) fds[1].events = POLLIN | POLLOUT;
  } else if (phase_ == phase::connecting) {
    fds[1] = {socket_.get(), POLLOUT, 0};
  }
  int patience = -1;
  if (const auto due = deadline()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - clock::now()).count();
    patience = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }
  if (readable_ || (retiring_ && open() == 0)) patience = 0;
  events = 0;
  if (::poll(fds.data(), fds.size(), patience) <= 0) return;
  events = fds[1].revents;
  if (fds[0].revents != 0) waker_->quiet();
}

}  // namespace kvlease::redis
