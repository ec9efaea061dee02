// F13: what peers send is checked before anything is allocated from it, and comes back byte for byte.
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "src/providers/ucx/message.hpp"

namespace fuzz {
#define LLVMFuzzerTestOneInput fuzz_ucx_message
#include "tests/fuzz/fuzz_ucx_message.cpp"
#undef LLVMFuzzerTestOneInput
}  // namespace fuzz

namespace kvlease::test {
namespace {

ucx_question some_question() {
  return {ucx_ask::fetch, 77, "extent", {{"a", 4096}, {std::string(54, '\0'), 1}, {"", 0}}};
}

ucx_reply some_reply() { return {ucx_verdict::served, 9, 3, 4096, {"extent", "a", 4096, 0, 42}, {}}; }

/// Encoded, then one field overwritten.
template <class T>
std::vector<std::byte> with(std::vector<std::byte> message, std::size_t at, T value) {
  std::memcpy(message.data() + at, &value, sizeof value);
  return message;
}

TEST_CASE("ucx: a question and each kind of reply come back as they were") {
  const auto q = encode_question(some_question());
  REQUIRE(q);
  CHECK(decode_question(*q) == some_question());
  const ucx_question probe{ucx_ask::probe, 1, "", {}};
  CHECK(decode_question(*encode_question(probe)) == probe);
  CHECK(decode_reply(*encode_reply(some_reply()), 4096) == some_reply());
  for (const ucx_reply& r :
       {ucx_reply{ucx_verdict::absent, 1, 2, 0, {}, {}}, ucx_reply{ucx_verdict::other_size, 1, 2, 77, {}, {}},
        ucx_reply{ucx_verdict::probed, 1, 0, 0, {}, {true, false, true}}})
    CHECK(decode_reply(*encode_reply(r), 0) == r);
}

TEST_CASE("F13 ucx: a question that is cut anywhere, or has a byte more, is refused") {
  auto whole = *encode_question(some_question());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    CHECK_FALSE(decode_question(std::span{whole}.first(n)));
  }
  whole.push_back(std::byte{0});
  CHECK_FALSE(decode_question(whole));
}

TEST_CASE("F13 ucx: huge counts and lengths are refused before anything is allocated from them") {
  const auto q = *encode_question(some_question());
  constexpr std::size_t units = 16, extent_size = 20, first_name = 24 + 6 + 8;
  for (const std::uint32_t huge : {0xffffffffu, 0x7fffffffu, 1025u, 4u, 2u}) {
    CAPTURE(huge);
    CHECK_FALSE(decode_question(with(q, units, huge)));
    CHECK_FALSE(decode_question(with(q, extent_size, huge)));
    CHECK_FALSE(decode_question(with(q, first_name, huge)));
  }
  CHECK_FALSE(decode_question(std::vector<std::byte>(ucx_question_bytes + 1)));
  const auto r = *encode_reply(some_reply());
  constexpr std::size_t rest = 20, length = 24;
  for (const std::uint32_t huge : {0xffffffffu, 4096u, 1u, 0u})
    CHECK_FALSE(decode_reply(with(r, rest, huge), 4096));
  for (const std::uint64_t huge : {~std::uint64_t{0}, std::uint64_t{4095}}) {
    CHECK_FALSE(decode_reply(with(r, length, huge), 4096));  // not what came with it
    CHECK_FALSE(decode_reply(with(r, length, huge), huge));  // not what its frame says
  }
  CHECK_FALSE(decode_reply(std::vector<std::byte>(ucx_reply_bytes + 1), 0));
}

TEST_CASE("F13 ucx: another magic, version or kind is refused, and each flipped byte of a frame") {
  const auto q = *encode_question(some_question());
  CHECK_FALSE(decode_question(with(q, 0, 'x')));
  CHECK_FALSE(decode_question(with(q, 4, std::uint16_t{2})));
  CHECK_FALSE(decode_question(with(q, 6, std::uint16_t{3})));
  const auto r = *encode_reply(some_reply());
  CHECK_FALSE(decode_reply(with(r, 0, 'x'), 4096));
  CHECK_FALSE(decode_reply(with(r, 4, std::uint16_t{2}), 4096));
  CHECK_FALSE(decode_reply(with(r, 6, std::uint16_t{5}), 4096));
  CHECK_FALSE(decode_reply(with(r, 6, std::uint16_t{2}), 0));  // absent, with a frame behind it
  for (std::size_t i = 32; i < r.size(); ++i) {
    CAPTURE(i);
    CHECK_FALSE(decode_reply(with(r, i, r[i] ^ std::byte{1}), 4096));
  }
  CHECK_FALSE(decode_reply(r, 4095));
  CHECK_FALSE(decode_reply(r, 0));
}

TEST_CASE("ucx: what is too long to be sent is refused by its sender") {
  CHECK_FALSE(encode_question({ucx_ask::fetch, 1, "", std::vector<ucx_wanted>(ucx_question_units + 1)}));
  CHECK_FALSE(encode_question({ucx_ask::fetch, 1, std::string(frame_names, 'e'), {{"n", 1}}}));
  CHECK_FALSE(
      encode_question({ucx_ask::fetch, 1, "", std::vector<ucx_wanted>(100, {std::string(4000, 'n'), 1})}));
  CHECK_FALSE(encode_reply({ucx_verdict::probed, 1, 0, 0, {}, std::vector<bool>(ucx_question_units + 1)}));
  CHECK_FALSE(
      encode_reply({ucx_verdict::served, 1, 0, 1, {std::string(frame_names, 'e'), "n", 1, 0, 0}, {}}));
}

TEST_CASE("F13 ucx: random messages and random damage to good ones") {
  std::mt19937_64 random{20260811};
  const auto feed = [](const std::vector<std::byte>& in) {
    fuzz::fuzz_ucx_message(reinterpret_cast<const std::uint8_t*>(in.data()), in.size());
  };
  const std::vector<std::byte> good[] = {*encode_question(some_question()), *encode_reply(some_reply()),
                                         *encode_reply({ucx_verdict::probed, 1, 0, 0, {}, {true, false}}),
                                         *encode_reply({ucx_verdict::other_size, 1, 2, 77, {}, {}})};
  int read = 0;
  for (int round = 0; round < 50'000; ++round) {
    auto message = good[random() % std::size(good)];
    for (auto hits = random() % 4; hits > 0; --hits) message[random() % message.size()] = std::byte(random());
    if (random() % 4 == 0) message.resize(random() % (message.size() + 8));
    if (random() % 8 == 0)
      for (auto& b : message) b = std::byte(random());
    feed(message);
    read += decode_question(message).has_value() ? 1 : 0;
  }
  CHECK(read > 100);  // some of them were questions
}

}  // namespace
}  // namespace kvlease::test
