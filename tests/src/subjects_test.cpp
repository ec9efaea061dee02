#include "src/subjects.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "src/slot_map.hpp"

using namespace kvlease;

namespace {

const std::vector<part> one{{"kv-0", 0x1000, 1024, 64, 16}};
const std::vector<part> two{{"kv-0", 0x1000, 1024, 64, 16}, {"kv/1", 0x8000, 200, 50, 4}};

}  // namespace

TEST_CASE("subjects: ids as they are printed") {
  CHECK(parse_id("1.7") == (std::uint64_t{1} << 40) + 7);
  CHECK(parse_id(to_string(lease_id{0xabcdef123456})) == 0xabcdef123456);
  CHECK(parse_id("42") == 42);
  CHECK(parse_id("0x2a") == 42);
  for (const auto* bad :
       {"", ".", "1.", ".7", "1.7.2", "x", "-1", "1.-7", " 1.7", "16777216.1", "1.1099511627776", "0x"})
    CHECK_FALSE(parse_id(bad).has_value());
}

TEST_CASE("subjects: slots and addresses") {
  CHECK(*parse_slot("7", one) == std::pair<std::size_t, std::int64_t>{0, 7});
  CHECK(*parse_slot("kv-0/15", one) == std::pair<std::size_t, std::int64_t>{0, 15});
  CHECK(*parse_slot("kv/1/3", two) == std::pair<std::size_t, std::int64_t>{1, 3});
  CHECK(parse_slot("7", two).error().text == "slot '7' names no part, and there are 2: say PART/INDEX");
  CHECK(parse_slot("kv-0/16", one).error().text == "part kv-0 has 16 slots, there is no slot 16");
  CHECK(parse_slot("kv-9/1", one).error().code == errc::unknown);
  CHECK(parse_slot("kv-0/x", one).error().code == errc::invalid);
  CHECK(parse_slot(std::string(10'000, 'x') + "/1", one).error().text.size() < 200);
  CHECK(*slot_of_address("0x1000", two) == std::pair<std::size_t, std::int64_t>{0, 0});
  CHECK(*slot_of_address("4223", two) == std::pair<std::size_t, std::int64_t>{0, 1});
  CHECK(*slot_of_address("0x80c7", two) == std::pair<std::size_t, std::int64_t>{1, 3});
  CHECK(slot_of_address("0xfff", two).error().text == "address 0xfff is in no staging slot of this runtime");
  CHECK(slot_of_address("0x80c8", two).error().code == errc::unknown);
  CHECK(slot_of_address("zebra", two).error().code == errc::invalid);
}

TEST_CASE("7.10 slot map: the four states add up, and a map shows the worst of each run") {
  slot_map m{one};
  const auto run = [](std::int64_t start, std::int64_t count) {
    return std::vector<part_run>{{0, {start, count}}};
  };
  m.set(run(0, 4), slot_state::lent, lease_id{1}, time_point{std::chrono::seconds{1}});
  m.set(run(8, 4), slot_state::lent, lease_id{2}, time_point{std::chrono::seconds{1}});
  m.set(run(8, 4), slot_state::awaiting_proof, lease_id{2}, time_point{std::chrono::seconds{1}});
  m.set(run(15, 1), slot_state::quarantined, lease_id{3}, time_point{std::chrono::seconds{1}});
  CHECK(m.text(0) == "LLLL....AAAA...Q");
  CHECK(m.text(0, 4) == "L.AQ");
  CHECK(m.text(0, 5) == "L.AQ");
  CHECK(m.at(0, 9)->lease == lease_id{2});
  CHECK(m.at(0, 16) == nullptr);
  CHECK(m.at(1, 0) == nullptr);
  const auto& c = m.of(0);
  CHECK(c.free + c.lent + c.awaiting_proof + c.quarantined == 16);
  m.set(run(0, 4), slot_state::free, {}, time_point{std::chrono::seconds{9}});
  CHECK(m.at(0, 0)->since == time_point{std::chrono::seconds{9}});
  CHECK(m.at(0, 9)->since == time_point{std::chrono::seconds{1}});
  CHECK_FALSE(m.at(0, 5)->since.has_value());
  CHECK(m.of(0).free == 11);
  CHECK(m.of(0).lent == 0);
}
