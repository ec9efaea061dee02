// The pure parts of the UCX provider: its options, the walk from source to source, the export pool.
#include <doctest/doctest.h>

#include <fstream>
#include <thread>

#include "src/providers/ucx/export_pool.hpp"
#include "src/providers/ucx/options.hpp"
#include "src/providers/ucx/source_walk.hpp"
#include "src/providers/unit_frame.hpp"
#include "tests/temporary_directory.hpp"

namespace kvlease::test {
namespace {

using indices = std::vector<std::size_t>;

// ---- Options

TEST_CASE("ucx: the URI's options and their defaults") {
  const auto plain = parse_ucx_options("//127.0.0.1:0");
  REQUIRE(plain);
  CHECK(plain->listen == host_port{"127.0.0.1", 0});
  CHECK(plain->peers.empty());
  CHECK(plain->pool_bytes == std::uint64_t{1} << 30);
  CHECK(plain->tls == "tcp");
  CHECK(plain->net_device == "lo");
  CHECK(plain->segment_bytes == 256 * 1024);
  CHECK_FALSE(plain->force_close);
  CHECK(parse_ucx_options("//10.0.0.1:7000")->net_device == "all");
  const auto all = parse_ucx_options(
      "//[::1]:7000?peers=a:1,b:2,a:1,self&bytes=4K&tls=tcp,self&net_device=eth0&segment=64K&spin=0&window=2&"
      "connections=3&probe_timeout=4&force_close=on");
  REQUIRE(all);
  CHECK(to_string(all->listen) == "[::1]:7000");
  CHECK(all->peers == std::vector<host_port>{{"a", 1}, {"b", 2}});
  CHECK(all->ask_self);
  CHECK(all->pool_bytes == 4096);
  CHECK(all->tls == "tcp,self");
  CHECK(all->net_device == "eth0");
  CHECK(all->segment_bytes == 65536);
  CHECK(all->spin_us == 0);
  CHECK(all->window == 2);
  CHECK(all->connections == 3);
  CHECK(all->probe_timeout_ms == 4);
  CHECK(all->force_close);
}

TEST_CASE("ucx: what a URI may not say is a clear error") {
  for (const auto* bad : {"",
                          "127.0.0.1:0",
                          "//",
                          "//:1",
                          "//host",
                          "//host:",
                          "//host:70000",
                          "//host:-1",
                          "//ho st:1",
                          "//::1:7000",
                          "//h:0?peers=a",
                          "//h:0?peers=a:0",
                          "//h:0?peers=a:1,,b:2",
                          "//h:0?bytes=0",
                          "//h:0?segment=1K",
                          "//h:0?segment=1G",
                          "//h:0?spin=x",
                          "//h:0?window=0",
                          "//h:0?connections=0",
                          "//h:0?probe_timeout=0",
                          "//h:0?force_close=maybe",
                          "//h:0?tls=",
                          "//h:0?tls=tcp;rm",
                          "//h:0?colour=red"}) {
    CAPTURE(bad);
    const auto got = parse_ucx_options(bad);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == errc::invalid);
    CHECK(got.error().text.starts_with("ucx"));
  }
}

TEST_CASE("ucx: peers from a file, with comments; a bad line is named") {
  const temporary_directory dir;
  const auto path = (dir / "peers").string();
  std::ofstream{path} << "# decoders\n\n  node-1:7000  # rack 4\r\nnode-2:7001\n";
  const auto got = parse_ucx_options("//h:0?peers_file=" + path);
  REQUIRE(got);
  CHECK(got->peers == std::vector<host_port>{{"node-1", 7000}, {"node-2", 7001}});
  std::ofstream{path} << "node-1:7000\nnode-2\n";
  const auto bad = parse_ucx_options("//h:0?peers_file=" + path);
  REQUIRE_FALSE(bad);
  CHECK(bad.error().text.find("line 2") != std::string::npos);
  const auto none = parse_ucx_options("//h:0?peers_file=" + (dir / "none").string());
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::io);
}

// ---- The walk

TEST_CASE("ucx: units go from source to source until one has them") {
  source_walk w{3, 2};
  auto q = w.take_questions();
  REQUIRE(q.size() == 1);
  CHECK(q[0].source == 0);
  CHECK(q[0].units == indices{0, 1, 2});
  CHECK(w.take_questions().empty());
  w.served(0);
  w.absent(1);
  CHECK(w.take_questions().empty());  // unit 2 is open at source 0: one question for both
  w.absent(2);
  q = w.take_questions();
  REQUIRE(q.size() == 1);
  CHECK(q[0].source == 1);
  CHECK(q[0].units == indices{1, 2});
  w.served(1);
  CHECK_FALSE(w.done());
  w.absent(2);
  CHECK(w.done());
  CHECK(w.failure().empty());
  CHECK(w.is_served(0));
  CHECK(w.is_served(1));
  CHECK_FALSE(w.is_served(2));
}

TEST_CASE("1.5 ucx: a source that could not be asked is a failure only where no other had the unit") {
  source_walk w{2, 2};
  w.take_questions();
  w.lost(0, "broken off");
  w.lost(1, "broken off");
  w.take_questions();
  w.served(0);
  CHECK(w.failure().empty());
  w.absent(1);
  CHECK(w.done());
  CHECK(w.failure() == "broken off");
}

TEST_CASE("ucx: without sources each unit is a miss") {
  source_walk w{2, 0};
  CHECK(w.take_questions().empty());
  CHECK(w.done());
  CHECK(w.failure().empty());
  source_walk none{0, 2};
  CHECK(none.done());
}

// ---- The export pool

std::vector<std::byte> block(unsigned char value, std::size_t size = 100) {
  return std::vector<std::byte>(size, std::byte{value});
}

TEST_CASE("2.8 ucx: the export pool keeps the first content of a name, with its checksum") {
  export_pool p{1000};
  using put = export_pool::put_result;
  CHECK(p.put("e", "a", block(1)) == put::added);
  CHECK(p.put("e", "a", block(2)) == put::kept);
  CHECK(p.put("e", "a", block(2, 99)) == put::other_size);
  CHECK(p.put("ea", "", block(3)) == put::added);  // other names, however they are joined
  const auto got = p.get("e", "a");
  REQUIRE(got);
  CHECK(std::ranges::equal(got->bytes(), block(1)));
  CHECK(got->checksum == checksum_of(block(1)));
  CHECK(p.find("e", "a") == 100);
  CHECK_FALSE(p.find("e", "b"));
  CHECK_FALSE(p.get("f", "a"));
  CHECK(p.bytes() == 200);
  CHECK(p.units() == 2);
}

TEST_CASE("2.8 ucx: a full export pool drops what was used longest ago, never what is pinned") {
  export_pool p{300};
  using put = export_pool::put_result;
  for (const auto* name : {"a", "b", "c"}) CHECK(p.put("e", name, block(1)) == put::added);
  auto pinned = p.get("e", "a");
  p.get("e", "c");
  CHECK(p.put("e", "d", block(4, 200)) == put::added);  // b and c go, a stays
  CHECK(p.find("e", "a"));
  CHECK_FALSE(p.find("e", "b"));
  CHECK_FALSE(p.find("e", "c"));
  CHECK(p.put("e", "f", block(5, 201)) == put::full);
  CHECK(p.put("e", "f", block(5, 301)) == put::full);
  CHECK(std::ranges::equal(pinned->bytes(), block(1)));
  pinned.reset();
  CHECK(p.put("e", "f", block(5, 300)) == put::added);
  CHECK(p.bytes() == 300);
  CHECK(p.units() == 1);
}

TEST_CASE("2.8 ucx: the export pool keeps within its bound, whoever publishes and reads at once") {
  export_pool p{64 * 100};
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const auto name = std::to_string((i * 7 + t) % 200);
        const auto value = static_cast<unsigned char>(name.back());
        p.put("e", name, block(value));
        const auto got = p.get("e", name);
        if (got && (got->bytes().front() != std::byte{value} || got->bytes().back() != std::byte{value}))
          ++wrong;
        if (p.bytes() > p.capacity()) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(p.bytes() == p.units() * 100);
}

}  // namespace
}  // namespace kvlease::test
