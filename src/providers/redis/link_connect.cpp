// From a name to a connection that is ready, and what becomes of the commands when it is not any more.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/providers/redis/cluster.hpp"
#include "src/providers/redis/link.hpp"

namespace kvlease::redis {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds first_backoff{20};
constexpr milliseconds last_backoff{1000};

}  // namespace

/// One command of the beginning of a connection. Any error reply ends it.
class link::greeting final : public command {
 public:
  greeting(link& of, const char* name, std::string bytes, bool last)
      : of_{of}, name_{name}, bytes_{std::move(bytes)}, last_{last} {}

  bool wanted() const noexcept override { return true; }
  outgoing encode() override { return {.head = bytes_}; }
  expectation expects() const override {
    return last_ && of_.options_.cluster ? slot_map::limits() : value_limits{};
  }
  void replied(reply r, link&) override {
    const auto& v = std::get<value>(r);
    if (v.what == value::kind::error) {
      of_.problem_ = fmt::format("{}: {}", name_, v.text);
    } else if (last_) {
      if (of_.options_.cluster)
        if (const auto ok = of_.host_.learned(v, of_); !ok) {
          of_.problem_ = ok.error().text;
          return;
        }
      of_.greeted();
    }
  }
  void dropped(const std::string&) override {}

 private:
  link& of_;
  const char* const name_;
  const std::string bytes_;
  const bool last_;
};

void link::begin_connecting() {
  due_ = clock::now() + options_.connect_timeout;
  phase_ = phase::resolving;
  next_address_ = 0;
  lookup_.emplace(to_, [w = waker_] { w->wake(); });
  if (lookup_->done()) connect_next();
}

void link::connect_next() {
  const auto& all = lookup_->addresses();
  if (all.empty()) return connect_failed(lookup_->why());
  int problem = 0;
  while (next_address_ < all.size()) {
    const auto& a = all[next_address_++];
    socket_ = start_connecting(a.storage, a.size);
    if (socket_.get() >= 0) {
      phase_ = phase::connecting;
      return;
    }
    problem = errno;
  }
  connect_failed(std::strerror(problem));
}

void link::connected() {
  if (const int problem = connect_error(socket_.get()); problem != 0) {
    if (next_address_ < lookup_->addresses().size()) return connect_next();
    return connect_failed(std::strerror(problem));
  }
  stream_ = tls_ ? tls_->wrap(std::move(socket_), to_.host) : plain_stream(std::move(socket_));
  socket_ = owned_fd{};
  if (!stream_) return connect_failed("TLS: no memory, or the host's name is none");
  phase_ = phase::shaking;
  shake();
}

void link::shake() {
  const auto m = stream_->handshake();
  if (m.what == moved::kind::over) return connect_failed(m.why);
  wants_write_ = m.what == moved::kind::wants_write;
  if (m.what == moved::kind::some) greet();
}

void link::greet() {
  phase_ = phase::greeting;
  const auto send = [this](const char* name, std::initializer_list<std::string_view> arguments,
                           bool last = false) {
    auto c = std::make_shared<greeting>(*this, name, encode_command(arguments), last);
    out_.push_back({c, c->expects(), c->encode()});
    out_.back().ours = true;
    out_bytes_ += out_.back().bytes.size();
  };
  const auto db = std::to_string(options_.database);
  if (!options_.user.empty()) {
    send("AUTH", {"AUTH", options_.user, options_.password});
  } else if (!options_.password.empty()) {
    send("AUTH", {"AUTH", options_.password});
  }
  if (options_.database != 0) send("SELECT", {"SELECT", db});
  if (options_.cluster) {
    send("CLUSTER SLOTS", {"CLUSTER", "SLOTS"}, true);
  } else {
    send("PING", {"PING"}, true);
  }
  write_some();
}

void link::greeted() {
  phase_ = phase::ready;
  ready_since_ = clock::now();
  down_.store(false, std::memory_order_release);
  progress_ = ready_since_;
  if (!options_.cluster) return;
  std::deque<std::shared_ptr<command>> stay;
  for (auto& c : std::exchange(waiting_, {})) {
    if (host_.rehome(c, *this)) {
      release();
    } else {
      stay.push_back(std::move(c));
    }
  }
  waiting_ = std::move(stay);
}

/// When to try again: pauses grow, with jitter so that many clients of one server do not come back together.
link::clock::time_point link::after_pause() {
  backoff_ = std::clamp(2 * backoff_, first_backoff, last_backoff);
  return clock::now() + std::uniform_int_distribution<int>{50, 100}(jitter_)*backoff_ / 100;
}

/// The connection can't be used any more, or never could.
void link::broken(const std::string& why) {
  if (phase_ == phase::ready) {
    lose(why);
  } else {
    connect_failed(why);
  }
}

/// Whoever waits hears why.
void link::connect_failed(const std::string& why) {
  const auto text = fmt::format("{}: {}", to_string(to_), why);
  {
    const std::lock_guard lock{mutex_};
    why_down_ = text;
  }
  down_.store(true, std::memory_order_release);
  lose(why);
  drop_waiting(text);
  due_ = after_pause();
  host_.unreachable(*this);
}

/// Closes the socket, which ends all access to what it carried. Commands of which nothing was written wait
/// for the next connection; the others can't be told apart from those that the server carried out.
void link::lose(const std::string& why) {
  const auto text = fmt::format("connection to {} lost: {}", to_string(to_), why);
  stream_.reset();
  socket_ = owned_fd{};
  lookup_.reset();
  reader_.reset();
  begin_ = end_ = 0;
  wants_write_ = readable_ = false;
  problem_.clear();
  // One that lasted comes back at once; one that is closed again and again does not.
  if (std::exchange(phase_, phase::down) == phase::ready) {
    const bool lasted = clock::now() - ready_since_ >= last_backoff;
    if (lasted) backoff_ = milliseconds{0};
    due_ = lasted ? clock::now() : after_pause();
  }
  auto written = std::exchange(due_replies_, {});
  auto half = std::exchange(out_, {});
  out_bytes_ = 0;
  for (auto s = half.rbegin(); s != half.rend(); ++s)
    if (s->what && !s->ours && !s->tried) waiting_.push_front(std::exchange(s->what, nullptr));
  for (const auto& a : written) drop(a.what, a.ours, text);
  for (const auto& s : half) drop(s.what, s.ours, text);
}

void link::drop_waiting(const std::string& why) {
  for (const auto& c : std::exchange(waiting_, {})) drop(c, false, why);
}

}  // namespace kvlease::redis
