#include "src/providers/redis/unit_value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvlease::redis {

std::string unit_key(std::string_view prefix, const bytes& extent, const bytes& name) {
  std::string key;
  key.reserve(prefix.size() + 8 + extent.size() + name.size());
  key.append(prefix).append(std::to_string(extent.size())).append(1, ':').append(extent).append(name);
  return key;
}

result<unit_frame> check_frame(std::span<const std::byte> in, const expected_unit& expected) {
  auto frame = decode_frame(in);
  if (!frame) return frame;
  if (frame->extent != expected.extent || frame->name != expected.name)
    return fail(errc::invalid,
                fmt::format("the frame names {} of {}, asked was {} of {}", name_text(frame->name),
                            name_text(frame->extent), name_text(expected.name), name_text(expected.extent)));
  return frame;
}

unit_reader::unit_reader(expected_unit expected) : expected_{std::move(expected)} {}

result<std::size_t> unit_reader::feed(std::span<const std::byte> in) {
  std::size_t taken = 0;
  for (;;) {
    const auto rest = in.subspan(taken);
    const auto of_string = static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), remaining_));
    switch (step_) {
      case step::line: {
        const auto line = read_line(rest);
        if (!line) return tl::unexpected{line.error()};
        if (!*line) return taken;
        if (const auto ok = begin(**line); !ok) return tl::unexpected{ok.error()};
        taken += (*line)->size;
        break;
      }
      case step::frame: {
        const auto n = std::min(of_string, expected_.frame() - frame_.size());
        if (n == 0) return taken;
        frame_.append(reinterpret_cast<const char*>(rest.data()), n);
        remaining_ -= n;
        taken += n;
        if (frame_.size() == expected_.frame()) finish_frame();
        break;
      }
      case step::payload:
        if (of_string == 0) return taken;
        std::memcpy(slot_.data(), rest.data(), of_string);
        taken += of_string;
        took(of_string);
        break;
      case step::drop:
        remaining_ -= of_string;
        taken += of_string;
        if (remaining_ > 0) return taken;
        step_ = step::end;
        break;
      case step::end:
        if (rest.empty()) return taken;
        if (static_cast<char>(rest.front()) != "\r\n"[end_seen_])
          return fail(errc::provider, "malformed reply: a string does not end where it should");
        ++taken;
        if (++end_seen_ == 2) step_ = step::done;
        break;
      case step::slot:
      case step::done:
        return taken;
    }
  }
}

result<void> unit_reader::begin(const reply_line& line) {
  if (line.type == '-') {
    answer_.what = unit_answer::kind::error;
    answer_.text = line.text;
    step_ = step::done;
    return {};
  }
  if (line.type != '$')
    return fail(errc::provider, fmt::format("malformed reply: a reply to GET begins with '{}'", line.type));
  if (line.number < 0) {
    answer_.what = unit_answer::kind::absent;
    step_ = step::done;
    return {};
  }
  remaining_ = static_cast<std::uint64_t>(line.number);
  if (remaining_ > value_limit)
    return fail(errc::provider, fmt::format("malformed reply: a string of {} bytes, possible are {}",
                                            remaining_, value_limit));
  if (remaining_ >= expected_.frame() && !withdrawn_) {
    step_ = step::frame;
    return {};
  }
  answer_.what = withdrawn_ ? unit_answer::kind::unwanted : unit_answer::kind::foreign;
  answer_.text = fmt::format("a value of {} bytes is no unit", remaining_);
  step_ = step::drop;
  return {};
}

void unit_reader::finish_frame() {
  step_ = step::drop;
  const auto frame = check_frame(std::as_bytes(std::span{frame_}), expected_);
  if (!frame || frame->length != remaining_) {
    answer_.what = unit_answer::kind::foreign;
    answer_.text = frame ? fmt::format("the frame promises {} bytes, {} follow", frame->length, remaining_)
                         : frame.error().text;
  } else if (frame->length != expected_.length) {
    answer_.what = unit_answer::kind::other_size;
    answer_.length = frame->length;
  } else {
    checksum_ = frame->checksum;
    step_ = step::slot;
  }
}

void unit_reader::give(std::span<std::byte> slot) {
  if (slot.size() != expected_.length || withdrawn_) return withdraw();
  slot_ = slot;
  sum_.emplace();
  step_ = step::payload;
  if (slot.empty()) advance_payload({});
}

std::span<std::byte> unit_reader::direct() const noexcept {
  return step_ == step::payload ? slot_ : std::span<std::byte>{};
}

void unit_reader::took(std::size_t bytes) { advance_payload(slot_.first(bytes)); }

void unit_reader::advance_payload(std::span<const std::byte> fresh) {
  sum_->update(fresh);
  slot_ = slot_.subspan(fresh.size());
  remaining_ -= fresh.size();
  if (remaining_ > 0) return;
  const bool good = sum_->value() == checksum_;
  answer_.what = good ? unit_answer::kind::served : unit_answer::kind::damaged;
  if (!good) answer_.text = "its checksum differs";
  slot_ = {};
  step_ = step::end;
}

void unit_reader::withdraw() noexcept {
  withdrawn_ = true;
  slot_ = {};
  if (step_ != step::frame && step_ != step::slot && step_ != step::payload) return;
  answer_.what = unit_answer::kind::unwanted;
  step_ = step::drop;
}

}  // namespace kvlease::redis
