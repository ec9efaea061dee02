// libFuzzer target: whatever bytes a peer sends, reading them neither crashes nor yields something that could
// not be written again. Also run by tests/providers/ucx_message_test.cpp, over random inputs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "src/providers/ucx/message.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvlease;
  const auto in = std::as_bytes(std::span{data, size});
  if (const auto q = decode_question(in)) {
    const auto again = encode_question(*q);
    if (!again || again->size() != size || decode_question(*again) != q) std::abort();
  }
  // The length of the data that a reply comes with is the peer's word as well: take it from the input's end.
  std::uint64_t claimed = 0;
  for (std::size_t i = 0; i < 8 && i < size; ++i) claimed = claimed << 8 | data[size - 1 - i];
  for (const std::uint64_t length : {std::uint64_t{0}, claimed, claimed & 0xff})
    if (const auto r = decode_reply(in, length)) {
      const auto again = encode_reply(*r);
      if (!again || decode_reply(*again, length) != r) std::abort();
    }
  return 0;
}
