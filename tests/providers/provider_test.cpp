#include "kvlease/provider.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace kvlease::test {
namespace {

TEST_CASE("provider port: a unit's memory is its slot, and nothing outside the part") {
  const std::vector<part> parts{
      {.name = "p", .address = 0x1000, .nbytes = 250, .slot_bytes = 100, .slots = 3},  // the third is cut off
      {.name = "q", .address = 0x9000, .nbytes = 4096, .slot_bytes = 16, .slots = 4},
      {.name = "none", .address = 0xf000, .nbytes = 64, .slot_bytes = 0, .slots = 4}};
  const local_resolver r{parts, {1, 0, 2, 3}};
  const auto address = [&](std::int64_t group, std::int64_t local) -> std::uintptr_t {
    const auto span = r.resolve(group, local);
    return span ? reinterpret_cast<std::uintptr_t>(span->data()) : 0;
  };
  CHECK(address(0, 0) == 0x9000);
  CHECK(address(0, 3) == 0x9030);
  CHECK(r.resolve(0, 3)->size() == 16);
  CHECK(address(1, 1) == 0x1000 + 100);
  CHECK(r.resolve(1, 1)->size() == 100);
  CHECK(address(0, 4) == 0);
  CHECK(address(1, 2) == 0);
  CHECK(address(2, 0) == 0);  // a part without slots
  CHECK(address(3, 0) == 0);  // a group of an unknown part
  CHECK(address(4, 0) == 0);
  CHECK(address(-1, 0) == 0);
  CHECK(address(0, -1) == 0);
  CHECK(address(0, std::numeric_limits<std::int64_t>::max()) == 0);
  CHECK(address(std::numeric_limits<std::int64_t>::max(), 0) == 0);
}

struct plain_attempt : attempt {
  std::optional<outcome> poll() override { return {}; }
};
struct stoppable_attempt final : plain_attempt, cancellable_attempt {
  cancel_disposition request_cancel() override {
    ++asked;
    return cancel_disposition::requested;
  }
  int asked = 0;
};

TEST_CASE("provider port: 2.12 any attempt can be asked to stop") {
  plain_attempt plain;
  CHECK(request_cancel(plain) == cancel_disposition::unsupported);
  stoppable_attempt stoppable;
  CHECK(request_cancel(static_cast<attempt&>(stoppable)) == cancel_disposition::requested);
  CHECK(stoppable.asked == 1);
}

}  // namespace
}  // namespace kvlease::test
