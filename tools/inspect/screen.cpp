#include "tools/inspect/screen.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace kvlease::inspect {

namespace {

constexpr std::string_view enter_screen = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";
constexpr std::string_view leave_screen = "\x1b[0m\x1b[?25h\x1b[?1049l";

// For signal handlers: what they may touch is static, and plain or without locks.
std::atomic<bool> told_to_end{false}, size_changed{false};
static_assert(std::atomic<bool>::is_always_lock_free);
int saved_in = -1, saved_out = -1;
termios saved_mode{};

constexpr std::array ending{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array fatal{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
std::array<struct sigaction, ending.size()> old_ending;
std::array<struct sigaction, fatal.size()> old_fatal;
struct sigaction old_resize, old_stop;

void on_ending(int) { told_to_end = true; }
void on_resize(int) { size_changed = true; }

void restore_terminal() {
  if (saved_out < 0) return;
  [[maybe_unused]] const auto n = ::write(saved_out, leave_screen.data(), leave_screen.size());
  ::tcsetattr(saved_in, TCSANOW, &saved_mode);
  saved_out = -1;
}

void on_crash(int signal) {
  restore_terminal();
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal, &plain, nullptr);
  ::raise(signal);
}

void handle(int signal, void (*handler)(int), struct sigaction& old) {
  struct sigaction a {};
  a.sa_handler = handler;
  ::sigaction(signal, &a, &old);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

struct sequence {
  std::string_view bytes;
  key_kind kind;
};
constexpr std::array sequences{
    sequence{"\x1b[A", key_kind::up},       sequence{"\x1bOA", key_kind::up},
    sequence{"\x1b[B", key_kind::down},     sequence{"\x1bOB", key_kind::down},
    sequence{"\x1b[5~", key_kind::page_up}, sequence{"\x1b[6~", key_kind::page_down},
    sequence{"\x1b[H", key_kind::home},     sequence{"\x1bOH", key_kind::home},
    sequence{"\x1b[1~", key_kind::home},    sequence{"\x1b[F", key_kind::end},
    sequence{"\x1bOF", key_kind::end},      sequence{"\x1b[4~", key_kind::end},
};

/// Bytes of the control sequence at the front; 0 while it is unfinished.
std::size_t sequence_length(std::string_view b) {
  if (b.size() < 2) return 0;
  if (b[1] == 'O') return b.size() < 3 ? 0 : 3;
  for (std::size_t i = 2; i < b.size(); ++i)
    if (b[i] >= '@' && b[i] <= '~') return i + 1;
  return b.size() > 16 ? b.size() : 0;
}

key plain_key(char c) {
  switch (c) {
    case '\r':
    case '\n':
      return {key_kind::enter, 0};
    case '\t':
      return {key_kind::tab, 0};
    case 0x08:
    case 0x7F:
      return {key_kind::backspace, 0};
    case 0x03:
      return {key_kind::interrupt, 0};
    default:
      return {key_kind::character, c};
  }
}

}  // namespace

std::vector<key> take_keys(std::string& bytes, bool complete) {
  std::vector<key> keys;
  std::string_view b{bytes};
  while (!b.empty()) {
    if (b[0] != 0x1b) {
      keys.push_back(plain_key(b[0]));
      b.remove_prefix(1);
      continue;
    }
    if (b.size() > 1 && b[1] != '[' && b[1] != 'O') {
      keys.push_back({key_kind::escape, 0});
      b.remove_prefix(1);
      continue;
    }
    const auto n = sequence_length(b);
    if (n == 0) {
      if (!complete) break;
      keys.push_back({key_kind::escape, 0});
      b.remove_prefix(1);
      continue;
    }
    for (const auto& s : sequences)
      if (s.bytes == b.substr(0, n)) keys.push_back({s.kind, 0});
    b.remove_prefix(n);  // an unknown one means nothing
  }
  bytes.erase(0, bytes.size() - b.size());
  return keys;
}

result<std::unique_ptr<screen>> screen::open(int in, int out) {
  if (::isatty(in) != 1 || ::isatty(out) != 1 || ::tcgetattr(in, &saved_mode) != 0)
    return fail(errc::unsupported, "top needs a terminal; --json, or a pipe, shows the same once");
  auto raw = saved_mode;
  ::cfmakeraw(&raw);
  raw.c_oflag |= OPOST;  // "\n" stays a whole new line
  saved_in = in;
  saved_out = out;
  told_to_end = false;
  for (std::size_t i = 0; i < ending.size(); ++i) handle(ending[i], on_ending, old_ending[i]);
  for (std::size_t i = 0; i < fatal.size(); ++i) handle(fatal[i], on_crash, old_fatal[i]);
  handle(SIGWINCH, on_resize, old_resize);
  handle(SIGTSTP, SIG_IGN, old_stop);
  ::tcsetattr(in, TCSANOW, &raw);
  write_all(out, enter_screen);
  return std::unique_ptr<screen>{new screen{in, out}};
}

screen::~screen() {
  restore_terminal();
  for (std::size_t i = 0; i < ending.size(); ++i) ::sigaction(ending[i], &old_ending[i], nullptr);
  for (std::size_t i = 0; i < fatal.size(); ++i) ::sigaction(fatal[i], &old_fatal[i], nullptr);
  ::sigaction(SIGWINCH, &old_resize, nullptr);
  ::sigaction(SIGTSTP, &old_stop, nullptr);
}

screen_size screen::size() const {
  winsize w{};
  if (::ioctl(out_, TIOCGWINSZ, &w) != 0 || w.ws_col == 0 || w.ws_row == 0) return {};
  return {w.ws_col, w.ws_row};
}

void screen::draw(const std::vector<std::string>& lines) {
  const auto now = size();
  const bool anew = now.width != drawn_size_.width || now.height != drawn_size_.height;
  std::string out = anew ? "\x1b[2J" : "";
  for (std::size_t i = 0; i < now.height; ++i) {
    const std::string& line = i < lines.size() ? lines[i] : std::string{};
    if (!anew && i < drawn_.size() && drawn_[i] == line) continue;
    out += fmt::format("\x1b[{};1H{}\x1b[0m\x1b[K", i + 1, line);
  }
  drawn_ = lines;
  drawn_.resize(now.height);
  drawn_size_ = now;
  write_all(out_, out);
}

std::vector<key> screen::keys(std::chrono::milliseconds patience) {
  std::vector<key> got;
  if (!closed_) {
    pollfd p{in_, POLLIN, 0};
    if (::poll(&p, 1, static_cast<int>(patience.count())) > 0) {
      char buffer[256];
      const auto n = ::read(in_, buffer, sizeof buffer);
      if (n > 0)
        pending_.append(buffer, static_cast<std::size_t>(n));
      else if (n == 0 || errno != EINTR)
        closed_ = true;  // the terminal is gone
    }
    got = take_keys(pending_, false);
    if (!pending_.empty()) {
      // The rest of an escape sequence follows at once, or it is the escape key.
      pollfd more{in_, POLLIN, 0};
      if (::poll(&more, 1, 25) == 0)
        for (const auto& k : take_keys(pending_, true)) got.push_back(k);
    }
  }
  if (size_changed.exchange(false)) {
    got.push_back({key_kind::resized, 0});
  }
  if (told_to_end || closed_) got.push_back({key_kind::interrupt, 0});
  return got;
}

}  // namespace kvlease::inspect
