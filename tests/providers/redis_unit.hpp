// Values as the redis provider stores them, and the reading of one into a slot between guards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/providers/redis/reply_reader.hpp"
#include "tests/providers/provider_fixture.hpp"

namespace kvlease::test {

/// The value of a unit whose bytes are all `fill`.
inline std::string unit_value(const bytes& extent, const bytes& name, std::size_t length,
                              unsigned char fill) {
  const std::string payload(length, static_cast<char>(fill));
  const unit_frame f{extent, name, length, 0, checksum_of(std::as_bytes(std::span{payload}))};
  std::string out(frame_size(f), '\0');
  static_cast<void>(encode_frame(f, std::as_writable_bytes(std::span{out})));
  return out + payload;
}

/// A reply of that string.
inline std::string reply_of(const std::string& value) {
  return "$" + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}

/// Reads replies into a slot in the middle of guards.
class unit_read {
 public:
  unit_read(const bytes& extent, const bytes& name, std::size_t length)
      : reader_{redis::expectation{redis::expected_unit{extent, name, length}}}, length_{length} {}

  /// Goes on reading `text` where it was left, `piece` bytes at a time, as much as there is. False:
  /// malformed.
  bool read(const std::string& text, std::size_t piece) {
    const auto in = std::as_bytes(std::span{text});
    while (!reader_.done()) {
      const auto took = reader_.feed(in.subspan(taken_, there_ - taken_));
      if (!took) return false;
      taken_ += *took;
      if (reader_.wants_slot()) {
        reader_.give(slot());
        continue;
      }
      if (reader_.done() || there_ == in.size()) break;
      if (const auto direct = reader_.direct();
          !direct.empty()) {  // as the socket does: straight, every other time
        const auto n = std::min({piece, direct.size(), in.size() - there_});
        if ((straight_ = !straight_) && taken_ == there_) {
          std::ranges::copy(in.subspan(there_, n), direct.begin());
          reader_.took(n);
          there_ += n;
          taken_ = there_;
          continue;
        }
      }
      there_ = std::min(in.size(), there_ + piece);
    }
    return true;
  }
  bool done() const { return reader_.done(); }
  redis::unit_answer answer() { return std::get<redis::unit_answer>(reader_.take()); }
  void withdraw_and_paint() {
    reader_.withdraw();
    std::ranges::fill(memory_, kvlease::test::untouched);
  }
  bool slot_is(unsigned char fill) { return all(slot(), std::byte{fill}); }
  bool guards_stand() {
    return all(std::span{memory_}.first(guard), kvlease::test::untouched) &&
           all(std::span{memory_}.last(guard), kvlease::test::untouched);
  }
  bool untouched() { return all(memory_, kvlease::test::untouched); }

 private:
  static constexpr std::size_t guard = 32;
  static bool all(std::span<const std::byte> in, std::byte b) {
    return std::ranges::all_of(in, [b](std::byte x) { return x == b; });
  }
  std::span<std::byte> slot() { return std::span{memory_}.subspan(guard, length_); }

  redis::reply_reader reader_;
  const std::size_t length_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(length_ + 2 * guard, kvlease::test::untouched);
  std::size_t taken_ = 0, there_ = 0;
  bool straight_ = false;
};

}  // namespace kvlease::test
