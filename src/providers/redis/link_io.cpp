// What a link does with its connection: commands out, replies in.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "src/providers/redis/link.hpp"

namespace kvlease::redis {

namespace {

/// Bytes that are made ready to be written together: a payload is in the caches still when it is written.
constexpr std::size_t write_ahead = std::size_t{256} << 10;
constexpr std::size_t pieces_at_once = 96;
/// Bytes read before what can be written gets its turn.
constexpr std::size_t read_turn = std::size_t{1} << 20;

}  // namespace

// ---- Out -------------------------------------------------------------------------------------------------

void link::fill_out() {
  if (phase_ != phase::ready) return;
  // Many together cost the server and us fewer calls. It has enough to do until half of them are answered.
  const auto under_way = out_.size() + due_replies_.size();
  const auto free = options_.pipeline - std::min(options_.pipeline, under_way);
  if (free < options_.pipeline / 2 && waiting_.size() > free) return;
  while (!waiting_.empty() && out_bytes_ < write_ahead &&
         out_.size() + due_replies_.size() < options_.pipeline) {
    const auto c = std::move(waiting_.front());
    waiting_.pop_front();
    if (!c->wanted()) {
      drop(c, false, "withdrawn");
      continue;
    }
    if (out_.empty() && due_replies_.empty()) progress_ = clock::now();
    try {
      out_.push_back({c, c->expects(), c->encode()});
      out_bytes_ += out_.back().bytes.size();
    } catch (const std::exception& e) {
      drop(c, false, e.what());
    }
  }
}

void link::write_some() {
  wants_write_ = false;
  for (;;) {
    if (out_.empty()) fill_out();
    if (out_.empty()) return;
    std::array<iovec, pieces_at_once> pieces;
    std::size_t count = 0;
    for (auto& s : out_) {
      if (count + 3 > pieces.size()) break;
      std::size_t skip = s.written;
      const auto add = [&](const void* data, std::size_t size) {
        const auto done = std::min(skip, size);
        skip -= done;
        if (size > done)
          pieces[count++] = {const_cast<char*>(static_cast<const char*>(data)) + done, size - done};
      };
      add(s.bytes.head.data(), s.bytes.head.size());
      add(s.bytes.payload.data(), s.bytes.payload.size());
      add(s.bytes.tail.data(), s.bytes.tail.size());
    }
    out_.front().tried = true;
    const auto m = stream_->write(std::span{pieces}.first(count));
    if (m.what == moved::kind::over) return broken(m.why);
    if (m.what != moved::kind::some) {
      wants_write_ = m.what == moved::kind::wants_write;
      fill_out();  // the checksums of what comes next, while the server takes what it has
      return;
    }
    progress_ = clock::now();
    wrote(m.bytes);
  }
}

void link::wrote(std::size_t bytes) {
  out_bytes_ -= bytes;
  while (!out_.empty()) {
    auto& s = out_.front();
    const auto n = std::min(bytes, s.bytes.size() - s.written);
    s.written += n;
    s.tried |= n > 0;
    bytes -= n;
    if (s.written < s.bytes.size()) return;
    due_replies_.push_back({std::move(s.what), std::move(s.expect), s.bytes.preludes, s.ours});
    out_.pop_front();
  }
}

// ---- In --------------------------------------------------------------------------------------------------

void link::read_some() {
  readable_ = false;
  std::size_t turn = 0;
  while (stream_ && turn < read_turn) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    const auto direct = reader_ ? reader_->direct() : std::span<std::byte>{};
    const auto room = buffer_.size() - end_;
    const std::array<iovec, 2> into{iovec{direct.data(), direct.size()}, iovec{buffer_.data() + end_, room}};
    const auto m = stream_->read(into);
    if (m.what == moved::kind::over) return broken(m.why);
    if (m.what != moved::kind::some) return;  // when a read wants to write, the next write does it
    progress_ = clock::now();
    turn += m.bytes;
    const auto straight = std::min(m.bytes, direct.size());
    if (straight > 0) reader_->took(straight);
    end_ += m.bytes - straight;
    if (!consume()) return;
    if (m.bytes < direct.size() + room && !stream_->buffers()) return;
  }
  readable_ = stream_ != nullptr;
}

/// Reads what is in the buffer. False when the connection was given up.
bool link::consume() {
  for (;;) {
    if (due_replies_.empty()) {
      if (begin_ == end_) return true;
      broken("the server sent what nobody asked for");
      return false;
    }
    auto& a = due_replies_.front();
    if (!reader_) {
      if (begin_ == end_) return true;
      reader_.emplace(a.preludes > 0 ? expectation{value_limits{}} : a.expect);
      if (!a.what && a.preludes == 0) reader_->withdraw();
    }
    const auto took = reader_->feed(std::span{buffer_}.subspan(begin_, end_ - begin_));
    if (!took) {
      broken(took.error().text);
      return false;
    }
    begin_ += *took;
    if (reader_->wants_slot()) {
      reader_->give(a.what && a.what->wanted() ? a.what->slot() : std::span<std::byte>{});
      continue;
    }
    if (!reader_->done()) return true;
    auto r = reader_->take();
    reader_.reset();
    if (a.preludes > 0) {
      --a.preludes;  // what it says shows in the reply that it is for
      continue;
    }
    auto whole = std::move(a);
    due_replies_.pop_front();
    hand_over(std::move(whole), std::move(r));
    if (!stream_) return false;
  }
}

void link::hand_over(awaiting a, reply r) {
  if (!a.what) return;
  if (!a.ours) release();
  a.what->replied(std::move(r), *this);
  if (phase_ == phase::greeting && !problem_.empty()) connect_failed(std::exchange(problem_, {}));
}

}  // namespace kvlease::redis
