// The entry of libFuzzer. The tests run the same function over the corpus
// (tests/providers/redis_resp_test.cpp).
#include "tests/fuzz/fuzz_resp.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvlease::test::fuzz_resp({data, size});
  return 0;
}
