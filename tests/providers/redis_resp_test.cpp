// The pure parts of the redis provider: RESP2, the reading of a unit, slots of a cluster.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "src/providers/redis/cluster.hpp"
#include "src/providers/redis/reply_reader.hpp"
#include "tests/fuzz/fuzz_resp.hpp"
#include "tests/providers/redis_unit.hpp"

namespace kvlease::test {
namespace {

using redis::endpoint;
using redis::value;
using kind = redis::unit_answer::kind;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

/// Read in pieces of that size.
result<value> read(std::string_view text, redis::value_limits most = {}, std::size_t piece = 1 << 20) {
  redis::value_reader r{most};
  const auto in = bytes_of(text);
  std::size_t taken = 0;
  for (std::size_t there = 0; !r.done();) {
    const auto took = r.feed(in.subspan(taken, there - taken));
    if (!took) return tl::unexpected{took.error()};
    taken += *took;
    if (r.done()) break;
    if (there == in.size()) return fail(errc::state, "more is needed");
    there = std::min(in.size(), there + piece);
  }
  CHECK(taken == text.size());
  return r.get();
}

TEST_CASE("redis: commands are arrays of strings, binary or empty") {
  CHECK(redis::encode_command({"GET", std::string_view{"a\0\r\n", 4}}) ==
        std::string("*2\r\n$3\r\nGET\r\n$4\r\na\0\r\n\r\n", 23));
  CHECK(redis::encode_command({"PING", ""}) == "*2\r\n$4\r\nPING\r\n$0\r\n\r\n");
}

TEST_CASE("redis: replies are read whatever their cut") {
  const redis::value_limits arrays{.items = 10, .depth = 3};
  const std::pair<const char*, value> each[] = {
      {"+OK\r\n", {value::kind::simple, 0, "OK", {}}},
      {"-ERR no\r\n", {value::kind::error, 0, "ERR no", {}}},
      {":-17\r\n", {value::kind::integer, -17, "", {}}},
      {"$-1\r\n", {}},
      {"*-1\r\n", {}},
      {"$0\r\n\r\n", {value::kind::bulk, 0, "", {}}},
      {"$4\r\n\r\n\r\n\r\n", {value::kind::bulk, 0, "\r\n\r\n", {}}},
      {"*0\r\n", {value::kind::array, 0, "", {}}},
      {"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
       {value::kind::array,
        0,
        "",
        {{value::kind::array, 0, "", {{value::kind::integer, 1, "", {}}}},
         {value::kind::bulk, 0, "a", {}}}}}};
  for (const auto& [text, expected] : each) {
    CAPTURE(text);
    for (std::size_t piece = 1; piece < 30; ++piece) {
      const auto got = read(text, arrays, piece);
      REQUIRE(got);
      CHECK(*got == expected);
    }
  }
}

TEST_CASE(
    "F13 redis: what is no reply, or has more than was asked for, is a typed error; no length is trusted") {
  const redis::value_limits arrays{.bulk = 8, .text = 12, .items = 4, .depth = 2};
  const std::string long_line = "+" + std::string(redis::line_limit, 'x');
  for (const std::string& bad : {std::string{"hello\r\n"},
                                 std::string{"\r\n"},
                                 std::string{"%1\r\n"},
                                 std::string{"$x\r\n"},
                                 std::string{"$\r\n"},
                                 std::string{"$-2\r\n"},
                                 std::string{"$9\r\n"},
                                 std::string{"$9223372036854775807\r\n"},
                                 std::string{"$99999999999999999999\r\n"},
                                 std::string{"$1\r\nab\r\n"},
                                 std::string{"$1\r\na\rb"},
                                 std::string{"*5\r\n"},
                                 std::string{"*-3\r\n"},
                                 std::string{"*9223372036854775807\r\n"},
                                 std::string{"*1\r\n*1\r\n*1\r\n"},
                                 std::string{"*2\r\n*2\r\n:1\r\n:2\r\n*2\r\n"},
                                 std::string{"*2\r\n$8\r\n12345678\r\n$8\r\n"},
                                 std::string{": 1\r\n"},
                                 std::string{":1x\r\n"},
                                 long_line}) {
    CAPTURE(bad);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{1} << 20}) {
      const auto got = read(bad, arrays, piece);
      REQUIRE_FALSE(got);
      CHECK(got.error().code == errc::provider);
    }
  }
  CHECK(read("*1\r\n:1\r\n").error().code == errc::provider);  // by default no array at all
  for (const char* half : {"", "+OK", "+OK\r", "$3\r\nab", "$3\r\nabc\r", "*2\r\n:1\r\n"})
    CHECK(read(half, arrays).error().code == errc::state);
}

TEST_CASE("redis: a unit is read into its slot, whatever the cut, and only behind its own frame") {
  const auto good = unit_value("extent", "name", 40, 7);
  const auto text = reply_of(good);
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    unit_read r{"extent", "name", 40};
    REQUIRE(r.read(text, piece));
    CHECK(r.answer().what == kind::served);
    CHECK(r.slot_is(7));
    CHECK(r.guards_stand());
  }
  unit_read absent{"extent", "name", 40};
  REQUIRE(absent.read("$-1\r\n", 1));
  CHECK(absent.answer().what == kind::absent);
  CHECK(absent.untouched());
}

TEST_CASE("redis: what is not this unit touches no slot") {
  auto torn = unit_value("extent", "name", 40, 7);
  torn[20] ^= 1;  // in the frame
  const auto shorter = unit_value("extent", "name", 40, 7);
  const std::pair<std::string, kind> each[] = {{"", kind::foreign},
                                               {"hello", kind::foreign},
                                               {std::string(300, 'x'), kind::foreign},
                                               {torn, kind::foreign},
                                               {shorter.substr(0, shorter.size() - 1), kind::foreign},
                                               {unit_value("extent", "eman", 40, 7), kind::foreign},
                                               {unit_value("tnetxe", "name", 40, 7), kind::foreign},
                                               {unit_value("extent", "name", 41, 7), kind::other_size},
                                               {unit_value("extent", "name", 0, 7), kind::other_size}};
  for (const auto& [stored, expected] : each)
    for (const std::size_t piece : {1, 13, 1000}) {
      CAPTURE(stored.size());
      unit_read r{"extent", "name", 40};
      REQUIRE(r.read(reply_of(stored), piece));
      CHECK(r.answer().what == expected);
      CHECK(r.untouched());
    }
  auto damaged = unit_value("extent", "name", 40, 7);
  damaged.back() ^= 1;
  unit_read r{"extent", "name", 40};
  REQUIRE(r.read(reply_of(damaged), 5));
  CHECK(r.answer().what == kind::damaged);
}

TEST_CASE(
    "F19 redis: a slot that was withdrawn at any byte is written no more, and the reply is read to its end") {
  const auto text = reply_of(unit_value("extent", "name", 40, 7));
  for (std::size_t at = 0; at < text.size(); ++at) {
    unit_read r{"extent", "name", 40};
    REQUIRE(r.read(text.substr(0, at), 1 << 20));
    REQUIRE_FALSE(r.done());
    r.withdraw_and_paint();
    REQUIRE(r.read(text, 3));
    CHECK(r.untouched());
    const bool all_was_there = at >= text.size() - 2;
    CHECK(r.answer().what == (all_was_there ? kind::served : kind::unwanted));
  }
}

TEST_CASE("F13 redis: no reply to GET is taken for one that it is not, cut at every byte") {
  for (const char* bad :
       {"+OK\r\n", ":1\r\n", "*1\r\n$1\r\na\r\n", "$536870913\r\n", "$9223372036854775807\r\n", "?"}) {
    CAPTURE(bad);
    unit_read r{"extent", "name", 40};
    CHECK_FALSE(r.read(bad, 1));
    CHECK(r.untouched());
  }
  const auto text = reply_of(unit_value("extent", "name", 40, 7));
  for (std::size_t n = 0; n < text.size(); ++n) {
    unit_read r{"extent", "name", 40};
    REQUIRE(r.read(text.substr(0, n), 1));
    CHECK_FALSE(r.done());
  }
}

TEST_CASE("redis: the fuzzer's function holds over its corpus, and over damaged replies") {
  std::vector<std::vector<std::uint8_t>> corpus;
  const std::filesystem::path where{KVLEASE_SOURCE_DIR "/tests/fuzz/corpus/resp"};
  for (const auto& file : std::filesystem::directory_iterator{where}) {
    std::ifstream in{file.path(), std::ios::binary};
    corpus.emplace_back(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{});
  }
  REQUIRE(corpus.size() >= 8);
  for (const char mode : {'\1', '\3'}) {
    const auto unit = mode + reply_of(unit_value("extent", "name", fuzz_slot, 7));
    corpus.emplace_back(unit.begin(), unit.end());
  }
  std::mt19937 random{11};
  for (const auto& seed : corpus) {
    fuzz_resp(seed);
    for (int n = 0; n < 400; ++n) {
      auto changed = seed;
      for (unsigned k = 0; k <= random() % 4 && !changed.empty(); ++k) {
        const auto at = random() % changed.size();
        switch (random() % 4) {
          case 0:
            changed[at] = static_cast<std::uint8_t>(random());
            break;
          case 1:
            changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(at));
            break;
          case 2:
            changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(at),
                           static_cast<std::uint8_t>("0123456789$*:+-\r\n"[random() % 17]));
            break;
          default:
            changed.resize(at);
            break;
        }
      }
      fuzz_resp(changed);
    }
  }
}

// ---- Clusters --------------------------------------------------------------------------------------------

TEST_CASE("redis: the slot of a key, with hash tags as the server takes them") {
  // The values are the specification's, and a server's answers to CLUSTER KEYSLOT.
  CHECK(redis::crc16("123456789") == 0x31c3);
  CHECK(redis::key_slot("123456789") == 12739);
  CHECK(redis::key_slot("") == 0);
  CHECK(redis::key_slot("foo") == 12182);
  CHECK(redis::key_slot("{foo}bar") == 12182);
  CHECK(redis::key_slot("bar{foo}{zap}") == 12182);
  CHECK(redis::key_slot("a}b{foo}") == 12182);
  CHECK(redis::key_slot("foo{}{bar}") == redis::crc16("foo{}{bar}") % 16384);
  CHECK(redis::key_slot("foo{{bar}}zap") == redis::key_slot("{bar"));
  CHECK(redis::key_slot("foo{bar") == redis::crc16("foo{bar") % 16384);
}

TEST_CASE("redis: the map of a cluster is what CLUSTER SLOTS says; one that is none is refused") {
  const endpoint asked{"10.0.0.9", 7009};
  const auto limits = redis::slot_map::limits();
  const auto reply = read(
      "*2\r\n*3\r\n:0\r\n:100\r\n*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n$2\r\nid\r\n*0\r\n"
      "*4\r\n:200\r\n:16383\r\n*2\r\n$-1\r\n:7002\r\n*2\r\n$8\r\n10.0.0.3\r\n:7003\r\n",
      limits);
  REQUIRE(reply);
  auto map = redis::slot_map::from_reply(*reply, asked);
  REQUIRE(map);
  CHECK(*map->owner(0) == endpoint{"10.0.0.1", 7001});
  CHECK(*map->owner(100) == endpoint{"10.0.0.1", 7001});
  CHECK(map->owner(101) == nullptr);
  CHECK(*map->owner(16383) == endpoint{"10.0.0.9", 7002});  // no host: the one that was asked
  CHECK(map->owner(16384) == nullptr);
  CHECK(map->nodes().size() == 2);  // replicas hold nothing for us
  map->move(101, {"10.0.0.4", 7004});
  CHECK(*map->owner(101) == endpoint{"10.0.0.4", 7004});
  for (const char* bad :
       {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n", "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:0\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:65536\r\n", "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n:1\r\n:1\r\n",
        "-ERR This instance has cluster support disabled\r\n"}) {
    CAPTURE(bad);
    const auto got = read(bad, limits);
    REQUIRE(got);
    CHECK(redis::slot_map::from_reply(*got, asked).error().code == errc::provider);
  }
}

TEST_CASE("redis: redirects") {
  const endpoint asked{"10.0.0.9", 7009};
  CHECK(redis::parse_redirect("MOVED 3999 127.0.0.1:6381", asked) ==
        redis::redirect{false, 3999, {"127.0.0.1", 6381}});
  CHECK(redis::parse_redirect("ASK 16383 ::1:6381", asked) == redis::redirect{true, 16383, {"::1", 6381}});
  CHECK(redis::parse_redirect("MOVED 1 :6381", asked) == redis::redirect{false, 1, {"10.0.0.9", 6381}});
  for (const char* none :
       {"ERR", "MOVED", "MOVED 1", "MOVED 16384 a:1", "MOVED -1 a:1", "MOVED x a:1", "MOVED 1 a:0",
        "MOVED 1 a:65536", "MOVED 1 a:", "MOVED 1:1 a", "moved 1 a:1", "ASK 1 a:99999999999"}) {
    CAPTURE(none);
    CHECK_FALSE(redis::parse_redirect(none, asked));
  }
}

TEST_CASE("redis: a key keeps extents and names apart, and has the prefix in front") {
  CHECK(redis::unit_key("p:", "ab", "c") == "p:2:abc");
  CHECK(redis::unit_key("p:", "a", "bc") == "p:1:abc");
  CHECK(redis::unit_key("", std::string("\0{", 2), "}") == std::string("2:\0{}", 5));
}

}  // namespace
}  // namespace kvlease::test
