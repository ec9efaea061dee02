// A terminal as a screen: raw keys in, whole pictures out, and the terminal as it was afterwards, however the
// process ends. One at a time in a process; one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/error.hpp"

namespace kvlease::inspect {

enum class key_kind : unsigned char {
  character,
  up,
  down,
  page_up,
  page_down,
  home,
  end,
  enter,
  escape,
  backspace,
  tab,
  interrupt,  ///< Ctrl-C
  resized,
};

struct key {
  key_kind kind = key_kind::character;
  char character = 0;
  friend bool operator==(const key&, const key&) = default;
};

/// Takes keys off the front of what the terminal sent; leaves the start of an unfinished one there.
/// `complete`: nothing more is coming for now, so a lone escape is the key.
std::vector<key> take_keys(std::string& bytes, bool complete);

struct screen_size {
  std::size_t width = 80, height = 24;
};

class screen {
 public:
  /// Errors: unsupported where `in` or `out` is no terminal.
  static result<std::unique_ptr<screen>> open(int in, int out);
  ~screen();
  screen(const screen&) = delete;
  screen& operator=(const screen&) = delete;

  screen_size size() const;
  /// Lines with escapes for colour; what was there and is not now is cleared.
  void draw(const std::vector<std::string>& lines);
  /// What was typed within `patience`. `interrupt` also once the process is told to end.
  std::vector<key> keys(std::chrono::milliseconds patience);

 private:
  screen(int in, int out) : in_{in}, out_{out} {}
  int in_, out_;
  std::string pending_;
  std::vector<std::string> drawn_;
  screen_size drawn_size_{0, 0};
  bool closed_ = false;
};

}  // namespace kvlease::inspect
