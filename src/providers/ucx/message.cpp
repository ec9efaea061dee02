#include "src/providers/ucx/message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvlease {

static_assert(std::endian::native == std::endian::little, "messages are written as they lie in memory");

namespace {

constexpr std::uint32_t question_magic = 0x7178766b;  // "kvxq"
constexpr std::uint32_t reply_magic = 0x7278766b;     // "kvxr"
constexpr std::uint16_t message_version = 1;

struct question_head {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t ask;
  std::uint64_t id;
  std::uint32_t units;
  std::uint32_t extent_size;
};
static_assert(sizeof(question_head) == 24);

constexpr std::size_t wanted_head = sizeof(std::uint64_t) + sizeof(std::uint32_t);

struct reply_head {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t verdict;
  std::uint64_t id;
  std::uint32_t unit;
  std::uint32_t rest;
  std::uint64_t length;
};
static_assert(sizeof(reply_head) == 32);

template <class T>
void put(std::byte*& at, const T& value) {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

void put(std::byte*& at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  at += text.size();
}

/// Takes the next bytes off `in`; false when there are too few.
template <class T>
bool take(std::span<const std::byte>& in, T& value) {
  if (in.size() < sizeof value) return false;
  std::memcpy(&value, in.data(), sizeof value);
  in = in.subspan(sizeof value);
  return true;
}

bool take(std::span<const std::byte>& in, std::size_t size, bytes& text) {
  if (in.size() < size) return false;
  text.assign(reinterpret_cast<const char*>(in.data()), size);
  in = in.subspan(size);
  return true;
}

bool names_fit(std::size_t extent, std::size_t name) {
  return extent <= frame_names && name <= frame_names - extent;
}

template <class Head>
result<Head> checked_head(std::span<const std::byte>& in, std::uint32_t magic) {
  Head h;
  const auto size = in.size();
  if (!take(in, h)) return fail(errc::invalid, fmt::format("{} bytes are too few for a message", size));
  if (h.magic != magic) return fail(errc::invalid, fmt::format("no message: it begins with {:#x}", h.magic));
  if (h.version != message_version)
    return fail(errc::invalid,
                fmt::format("a message of version {}, known is {}", h.version, message_version));
  return h;
}

}  // namespace

std::size_t ucx_question_room(std::string_view name) noexcept { return wanted_head + name.size(); }
std::size_t ucx_question_head(std::string_view extent) noexcept {
  return sizeof(question_head) + extent.size();
}

result<std::vector<std::byte>> encode_question(const ucx_question& q) {
  if (q.units.size() > ucx_question_units)
    return fail(errc::invalid,
                fmt::format("a question for {} units, the most is {}", q.units.size(), ucx_question_units));
  auto size = ucx_question_head(q.extent);
  for (const auto& u : q.units) {
    if (!names_fit(q.extent.size(), u.name.size()))
      return fail(errc::invalid,
                  fmt::format("the names of an extent and its unit have {} bytes together, must "
                              "have at most {}",
                              q.extent.size() + u.name.size(), frame_names));
    size += ucx_question_room(u.name);
  }
  if (size > ucx_question_bytes)
    return fail(errc::invalid,
                fmt::format("a question of {} bytes, the most is {}", size, ucx_question_bytes));
  std::vector<std::byte> out(size);
  auto* at = out.data();
  put(at,
      question_head{question_magic, message_version, static_cast<std::uint16_t>(q.ask), q.id,
                    static_cast<std::uint32_t>(q.units.size()), static_cast<std::uint32_t>(q.extent.size())});
  put(at, std::string_view{q.extent});
  for (const auto& u : q.units) {
    put(at, u.length);
    put(at, static_cast<std::uint32_t>(u.name.size()));
    put(at, std::string_view{u.name});
  }
  return out;
}

result<ucx_question> decode_question(std::span<const std::byte> in) {
  if (in.size() > ucx_question_bytes)
    return fail(errc::invalid,
                fmt::format("a question of {} bytes, the most is {}", in.size(), ucx_question_bytes));
  const auto h = checked_head<question_head>(in, question_magic);
  if (!h) return tl::unexpected{h.error()};
  ucx_question q;
  q.ask = static_cast<ucx_ask>(h->ask);
  q.id = h->id;
  if (q.ask != ucx_ask::fetch && q.ask != ucx_ask::probe)
    return fail(errc::invalid, fmt::format("a question of kind {}, there are 1 and 2", h->ask));
  if (!names_fit(h->extent_size, 0) || !take(in, h->extent_size, q.extent))
    return fail(errc::invalid, fmt::format("an extent's name of {} bytes does not fit", h->extent_size));
  if (h->units > ucx_question_units || h->units > in.size() / wanted_head)
    return fail(errc::invalid,
                fmt::format("{} units do not fit a question with {} bytes for them, nor {} any", h->units,
                            in.size(), ucx_question_units + 1));
  q.units.resize(h->units);
  for (auto& u : q.units) {
    std::uint32_t size = 0;
    if (!take(in, u.length) || !take(in, size) || !names_fit(q.extent.size(), size) ||
        !take(in, size, u.name))
      return fail(errc::invalid, "a unit's name does not fit the question");
  }
  if (!in.empty()) return fail(errc::invalid, fmt::format("{} bytes stand behind the question", in.size()));
  return q;
}

result<std::vector<std::byte>> encode_reply(const ucx_reply& r) {
  std::size_t rest = 0;
  if (r.verdict == ucx_verdict::served) rest = frame_size(r.frame);
  if (r.verdict == ucx_verdict::probed) rest = r.here.size();
  if (r.here.size() > ucx_question_units)
    return fail(errc::invalid,
                fmt::format("a probe of {} units, the most is {}", r.here.size(), ucx_question_units));
  if (rest > ucx_reply_bytes - sizeof(reply_head))
    return fail(errc::invalid, fmt::format("a frame of {} bytes, the most is {}", rest,
                                           ucx_reply_bytes - sizeof(reply_head)));
  std::vector<std::byte> out(sizeof(reply_head) + rest);
  auto* at = out.data();
  put(at, reply_head{reply_magic, message_version, static_cast<std::uint16_t>(r.verdict), r.id, r.unit,
                     static_cast<std::uint32_t>(rest), r.length});
  if (r.verdict == ucx_verdict::served)
    if (const auto ok = encode_frame(r.frame, std::span{out}.subspan(sizeof(reply_head))); !ok)
      return tl::unexpected{ok.error()};
  if (r.verdict == ucx_verdict::probed)
    for (const bool here : r.here) *at++ = std::byte{here};
  return out;
}

result<ucx_reply> decode_reply(std::span<const std::byte> in, std::uint64_t data_length) {
  if (in.size() > ucx_reply_bytes)
    return fail(errc::invalid,
                fmt::format("a reply of {} bytes, the most is {}", in.size(), ucx_reply_bytes));
  const auto h = checked_head<reply_head>(in, reply_magic);
  if (!h) return tl::unexpected{h.error()};
  ucx_reply r;
  r.verdict = static_cast<ucx_verdict>(h->verdict);
  r.id = h->id;
  r.unit = h->unit;
  r.length = h->length;
  if (h->rest != in.size())
    return fail(errc::invalid, fmt::format("a reply says that {} bytes follow, {} do", h->rest, in.size()));
  if (data_length != (r.verdict == ucx_verdict::served ? r.length : 0))
    return fail(errc::invalid, fmt::format("a reply for {} bytes came with {}", r.length, data_length));
  switch (r.verdict) {
    case ucx_verdict::served: {
      auto frame = decode_frame(in);
      if (!frame) return tl::unexpected{frame.error()};
      if (frame_size(*frame) != in.size() || frame->length != r.length)
        return fail(errc::invalid,
                    fmt::format("a frame for {} bytes in a reply for {}", frame->length, r.length));
      r.frame = *std::move(frame);
      return r;
    }
    case ucx_verdict::absent:
    case ucx_verdict::other_size:
      if (!in.empty()) return fail(errc::invalid, fmt::format("{} bytes stand behind a reply", in.size()));
      if (r.verdict == ucx_verdict::absent && r.length != 0)
        return fail(errc::invalid, fmt::format("an absent unit of {} bytes", r.length));
      return r;
    case ucx_verdict::probed:
      if (in.size() > ucx_question_units || r.unit != 0 || r.length != 0)
        return fail(errc::invalid, fmt::format("a probe's reply for {} units", in.size()));
      r.here.reserve(in.size());
      for (const std::byte b : in) {
        if (std::to_integer<unsigned>(b) > 1)
          return fail(errc::invalid, "a probe's reply is neither yes nor no");
        r.here.push_back(b == std::byte{1});
      }
      return r;
  }
  return fail(errc::invalid, fmt::format("a reply of kind {}, there are 1 to 4", h->verdict));
}

}  // namespace kvlease
