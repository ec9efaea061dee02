// RESP2, the protocol of Redis: commands out, replies in. Pure: no socket, no clock. Whatever a server sends,
// nothing is allocated from a length that was not checked (F13).
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.hpp"

namespace kvlease::redis {

/// One whole command of these arguments.
std::string encode_command(std::initializer_list<std::string_view> arguments);
/// "*COUNT\r\n", which so many arguments must follow.
void append_count(std::string& to, std::size_t arguments);
void append_argument(std::string& to, std::string_view argument);
/// "$SIZE\r\n", which so many bytes and "\r\n" must follow.
void append_size(std::string& to, std::size_t bytes);

/// A line longer than this is no reply to anything that we ask.
inline constexpr std::size_t line_limit = 1024;

/// What a reply begins with: its type, and its text or number. A length is -1 (nothing) or more.
struct reply_line {
  char type;              ///< one of + - : $ *
  std::int64_t number;    ///< of : $ *
  std::string_view text;  ///< of + and -; points into the input
  std::size_t size;       ///< bytes of the line, its end included
};

/// The line that `in` begins with; empty when it is not all there. Errors: provider, for what no server says.
result<std::optional<reply_line>> read_line(std::span<const std::byte> in);

/// A whole reply.
struct value {
  enum class kind : std::uint8_t { simple, error, integer, nil, bulk, array };
  kind what = kind::nil;
  std::int64_t number = 0;
  std::string text;
  std::vector<value> items;
  friend bool operator==(const value&, const value&) = default;
};

/// What a reply may have at most. By default: one that is no array.
struct value_limits {
  std::size_t bulk = 4096;  ///< bytes of one bulk string
  std::size_t text = 8192;  ///< bytes of all strings together
  std::size_t items = 0;    ///< of all arrays together
  std::size_t depth = 0;    ///< arrays in arrays
  friend bool operator==(const value_limits&, const value_limits&) = default;
};

/// Reads one reply from pieces, cut anywhere.
class value_reader {
 public:
  explicit value_reader(value_limits most) : most_{most} {}
  /// How many bytes of `in` it took. It leaves a line that is not all there: offer it again with more behind
  /// it. Takes nothing once done. Errors: provider, for what is no reply or passes a limit.
  result<std::size_t> feed(std::span<const std::byte> in);
  bool done() const noexcept { return done_; }
  /// Precondition: done().
  value& get() noexcept { return root_; }

 private:
  struct open_array {
    value* of;
    std::size_t missing;
  };
  result<void> begin(const reply_line& line);
  result<void> begin_bulk(std::int64_t size);
  result<void> begin_array(std::int64_t size);
  value& place();
  void close_value();

  const value_limits most_;
  value root_;
  bool rooted_ = false;
  std::vector<open_array> open_;  ///< from the outermost to the innermost
  value* bulk_ = nullptr;         ///< the string under way
  std::size_t bulk_missing_ = 0;  ///< bytes of it, its end included
  std::size_t text_ = 0, items_ = 0;
  bool done_ = false;
};

}  // namespace kvlease::redis
