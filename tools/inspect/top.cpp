#include "tools/inspect/top.hpp"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tools/inspect/top_model.hpp"

namespace kvlease::inspect {

namespace {

constexpr std::size_t most_rows = 1000;

/// Looks at the target on a thread of its own, so that a slow answer delays no key.
class poller {
 public:
  poller(const target& t, std::chrono::duration<double> interval)
      : target_{t},
        interval_{std::chrono::duration_cast<std::chrono::milliseconds>(interval)},
        thread_{[this] { run(); }} {}
  ~poller() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;

  void ask(bool paused, std::optional<subject> about) {
    const std::lock_guard lock{mutex_};
    const bool now = about && about != about_;
    paused_ = paused;
    about_ = std::move(about);
    if (now) {
      hurry_ = true;
      changed_.notify_all();
    }
  }
  /// Hands over what is new.
  void deliver(top_model& to) {
    const std::lock_guard lock{mutex_};
    if (snapshot_) to.show(*std::exchange(snapshot_, std::nullopt));
    if (why_) to.show_why(*std::exchange(why_, std::nullopt));
    if (problem_) to.trouble(*problem_);
  }

 private:
  void run() {
    std::unique_lock lock{mutex_};
    while (!stop_) {
      const bool paused = paused_;
      const auto about = about_;
      hurry_ = false;
      lock.unlock();
      std::optional<result<nlohmann::json>> s, w;
      if (!paused) s = target_.snapshot(most_rows);
      if (about) w = target_.why(*about);
      lock.lock();
      if (s && *s) snapshot_ = **std::move(s);
      if (s) problem_ = *s ? std::nullopt : std::optional{(*s).error().text + ": trying again"};
      if (w && *w) why_ = **std::move(w);
      changed_.wait_for(lock, interval_, [this] { return stop_ || hurry_; });
    }
  }

  const target& target_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false, paused_ = false, hurry_ = false;
  std::optional<subject> about_;
  std::optional<nlohmann::json> snapshot_, why_;
  std::optional<std::string> problem_;
  std::thread thread_;
};

}  // namespace

result<void> run_top(const target& t, const inspect_options& o, int in, int out) {
  auto first = t.snapshot(most_rows);
  if (!first) return tl::unexpected{first.error()};
  top_model model;
  model.show(*std::move(first));
  // Goes last: an answer that is late must not keep the terminal.
  poller poll{t, std::chrono::duration<double>{o.interval}};
  auto opened = screen::open(in, out);
  if (!opened) return tl::unexpected{opened.error()};
  auto& terminal = **opened;
  const char* plain = std::getenv("NO_COLOR");
  const bool colour = plain == nullptr || *plain == 0;
  for (;;) {
    terminal.draw(model.draw(terminal.size(), colour));
    for (const auto& k : terminal.keys(std::chrono::milliseconds{50}))
      if (!model.press(k)) return {};
    poll.ask(model.paused(), model.wanted());
    poll.deliver(model);
  }
}

}  // namespace kvlease::inspect
