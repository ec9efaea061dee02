#include "src/providers/redis/resp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

namespace kvlease::redis {

namespace {

constexpr std::string_view line_end = "\r\n";

std::string_view text_of(std::span<const std::byte> in) {
  return {reinterpret_cast<const char*>(in.data()), in.size()};
}

tl::unexpected<error> malformed(std::string why) {
  return fail(errc::provider, "malformed reply: " + std::move(why));
}

}  // namespace

// ---- Commands --------------------------------------------------------------------------------------------

void append_count(std::string& to, std::size_t arguments) {
  fmt::format_to(std::back_inserter(to), "*{}\r\n", arguments);
}

void append_size(std::string& to, std::size_t bytes) {
  fmt::format_to(std::back_inserter(to), "${}\r\n", bytes);
}

void append_argument(std::string& to, std::string_view argument) {
  append_size(to, argument.size());
  to.append(argument).append(line_end);
}

std::string encode_command(std::initializer_list<std::string_view> arguments) {
  std::string out;
  append_count(out, arguments.size());
  for (const auto a : arguments) append_argument(out, a);
  return out;
}

// ---- Lines -----------------------------------------------------------------------------------------------

result<std::optional<reply_line>> read_line(std::span<const std::byte> in) {
  if (in.empty()) return std::nullopt;
  const auto text = text_of(in);
  const char type = text.front();
  if (std::string_view{"+-:$*"}.find(type) == std::string_view::npos)
    return malformed(fmt::format("it begins with byte {:#04x}", static_cast<unsigned char>(type)));
  const auto end = text.substr(0, line_limit).find(line_end);
  if (end == std::string_view::npos) {
    if (text.size() >= line_limit) return malformed(fmt::format("a line of more than {} bytes", line_limit));
    return std::nullopt;
  }
  const auto body = text.substr(1, end - 1);
  reply_line line{type, 0, body, end + line_end.size()};
  if (type == '+' || type == '-') return line;
  const auto [last, problem] = std::from_chars(body.data(), body.data() + body.size(), line.number);
  if (problem != std::errc{} || last != body.data() + body.size())
    return malformed(fmt::format("a number of {} byte(s) that is none", body.size()));
  if (type != ':' && line.number < -1) return malformed(fmt::format("a length of {}", line.number));
  return line;
}

// ---- Whole replies ---------------------------------------------------------------------------------------

result<std::size_t> value_reader::feed(std::span<const std::byte> in) {
  std::size_t taken = 0;
  while (!done_) {
    const auto rest = in.subspan(taken);
    if (bulk_ != nullptr) {
      if (rest.empty()) return taken;
      const std::size_t body = bulk_missing_ > line_end.size() ? bulk_missing_ - line_end.size() : 0;
      if (body > 0) {
        const auto n = std::min(body, rest.size());
        bulk_->text.append(text_of(rest.first(n)));
        bulk_missing_ -= n;
        taken += n;
        continue;
      }
      if (text_of(rest).front() != line_end[line_end.size() - bulk_missing_])
        return malformed("a string does not end where it should");
      ++taken;
      if (--bulk_missing_ == 0) {
        bulk_ = nullptr;
        close_value();
      }
      continue;
    }
    const auto line = read_line(rest);
    if (!line) return tl::unexpected{line.error()};
    if (!*line) return taken;
    if (const auto ok = begin(**line); !ok) return tl::unexpected{ok.error()};
    taken += (*line)->size;
  }
  return taken;
}

value& value_reader::place() {
  if (!rooted_) {
    rooted_ = true;
    return root_;
  }
  return open_.back().of->items.emplace_back();
}

/// A value is whole: so is each array that it was the last of.
void value_reader::close_value() {
  while (!open_.empty() && --open_.back().missing == 0) open_.pop_back();
  done_ = open_.empty();
}

result<void> value_reader::begin(const reply_line& line) {
  if (line.type == '$') return begin_bulk(line.number);
  if (line.type == '*') return begin_array(line.number);
  text_ += line.text.size();
  if (text_ > most_.text) return malformed(fmt::format("more than {} bytes of text", most_.text));
  value& v = place();
  if (line.type == ':') {
    v.what = value::kind::integer;
    v.number = line.number;
  } else {
    v.what = line.type == '+' ? value::kind::simple : value::kind::error;
    v.text = line.text;
  }
  close_value();
  return {};
}

result<void> value_reader::begin_bulk(std::int64_t size) {
  if (size < 0) {
    place().what = value::kind::nil;
    close_value();
    return {};
  }
  const auto bytes = static_cast<std::uint64_t>(size);
  if (bytes > most_.bulk || bytes > most_.text - text_)
    return malformed(fmt::format("a string of {} bytes, awaited are at most {}", bytes, most_.bulk));
  text_ += bytes;
  bulk_ = &place();
  bulk_->what = value::kind::bulk;
  bulk_missing_ = bytes + line_end.size();
  return {};
}

result<void> value_reader::begin_array(std::int64_t size) {
  if (size < 0) {
    place().what = value::kind::nil;
    close_value();
    return {};
  }
  const auto count = static_cast<std::uint64_t>(size);
  if (open_.size() >= most_.depth) return malformed(fmt::format("arrays nested deeper than {}", most_.depth));
  if (count > most_.items - items_)
    return malformed(fmt::format("an array of {} items, awaited are at most {} in all", count, most_.items));
  items_ += count;
  value& v = place();
  v.what = value::kind::array;
  if (count == 0) {
    close_value();
    return {};
  }
  open_.push_back({&v, count});
  return {};
}

}  // namespace kvlease::redis
