#include "src/providers/unit_frame.hpp"

#include <doctest/doctest.h>

#include <array>

using namespace kvlease;

namespace {

unit_frame sample() { return {"extent", bytes("unit\0with zero", 14), 4096, 7, 0x1122334455667788}; }

}  // namespace

TEST_CASE("unit frame: what was encoded is what is decoded, and the rest is zeros") {
  std::array<std::byte, 4096> out;
  out.fill(std::byte{0xee});
  REQUIRE(encode_frame(sample(), out));
  CHECK(decode_frame(out) == sample());
  for (std::size_t i = frame_size(sample()); i < out.size(); ++i) REQUIRE(out[i] == std::byte{0});
  CHECK(decode_frame(std::span{out}.first(frame_size(sample()))) == sample());
}

TEST_CASE("unit frame: every flipped bit and every cut is found") {
  std::array<std::byte, 128> out{};
  REQUIRE(encode_frame(sample(), out));
  const auto size = frame_size(sample());
  for (std::size_t bit = 0; bit < 8 * size; ++bit) {
    auto damaged = out;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    CAPTURE(bit);
    CHECK_FALSE(decode_frame(damaged).has_value());
  }
  for (std::size_t cut = 0; cut < size; ++cut)
    CHECK_FALSE(decode_frame(std::span{out}.first(cut)).has_value());
}

TEST_CASE("unit frame: names up to 4 KiB, and no longer") {
  std::array<std::byte, 4096> out;
  unit_frame f{bytes(2000, 'e'), bytes(frame_names - 2000, 'n'), 1, 2, 3};
  REQUIRE(encode_frame(f, out));
  CHECK(decode_frame(out) == f);
  CHECK(encode_frame(f, std::span{out}.first(4095)).error().text.find("does not fit 4095") !=
        std::string::npos);
  f.name += 'n';
  CHECK(encode_frame(f, out).error().code == errc::invalid);
}

TEST_CASE("unit frame: a checksum over pieces is that over the whole") {
  std::array<std::byte, 1000> data;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  checksum_stream pieces;
  pieces.update(std::span{data}.first(13));
  pieces.update(std::span{data}.subspan(13, 700));
  pieces.update(std::span{data}.subspan(713));
  CHECK(pieces.value() == checksum_of(data));
}
