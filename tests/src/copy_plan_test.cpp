// src/copy_plan.hpp and src/copy_path.hpp: cutting batches for a GPU, and the choice of a path.
#include "src/copy_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "src/copy_path.hpp"

namespace kvlease {
namespace {

constexpr std::size_t kib = 1024, mib = kib * kib;
constexpr copy_kind both_kinds[] = {copy_kind::host_to_device, copy_kind::device_to_host};

/// Rows of `nbytes` from contiguous staging, pages apart.
std::vector<copy_row> scattered(copy_kind kind, std::size_t count, std::size_t nbytes) {
  std::vector<copy_row> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uintptr_t staging = (std::uintptr_t{1} << 30) + i * nbytes;
    const std::uintptr_t page = (std::uintptr_t{1} << 40) + i * 3 * nbytes;
    rows.push_back(kind == copy_kind::host_to_device ? copy_row{page, staging, nbytes}
                                                     : copy_row{staging, page, nbytes});
  }
  return rows;
}

constexpr std::uintptr_t bounce = std::uintptr_t{1} << 44;

std::size_t total_of(const std::vector<copy_row>& rows) {
  return sum_of(copy_kind::host_to_device, rows).total_bytes;
}

struct cut_chunk : bulk_chunk {
  std::vector<copy_piece> pieces;
};

/// Each chunk is cut when the one behind it is known, as a copy to the device does it.
std::vector<cut_chunk> chunks_of(copy_kind kind, const std::vector<copy_row>& rows, std::size_t chunk_bytes,
                                 bool bus_is_busy = false) {
  bulk_plan plan{kind, rows, total_of(rows), chunk_bytes, bus_is_busy};
  std::vector<cut_chunk> chunks;
  const auto cut_last = [&] {
    if (chunks.empty()) return;
    auto& last = chunks.back();
    last.pieces.resize(last.most_pieces);
    const auto* end = plan.cut(last, last.pieces.data());
    last.pieces.resize(static_cast<std::size_t>(end - last.pieces.data()));
  };
  for (bulk_chunk chunk; plan.next(chunk, bounce); chunks.push_back({chunk, {}})) cut_last();
  cut_last();
  return chunks;
}

/// Every byte of the rows goes through exactly one place of one chunk; nothing overlaps inside a chunk.
void check_bulk(copy_kind kind, const std::vector<copy_row>& rows, std::size_t chunk_bytes) {
  const bool in = kind == copy_kind::host_to_device;
  std::vector<copy_row> moved;  // page ↔ staging, piece by piece
  for (const auto& chunk : chunks_of(kind, rows, chunk_bytes)) {
    REQUIRE(chunk.nbytes > 0);
    std::size_t bus_bytes = 0, inner_bytes = 0;
    auto end = bounce;
    for (const auto& run : chunk.bus) {
      const auto at = in ? run.to : run.from;
      CHECK(at >= end);
      end = at + run.nbytes;
      bus_bytes += run.nbytes;
    }
    CHECK(end <= bounce + chunk_bytes);
    for (const auto& piece : chunk.pieces) {
      const auto at = in ? piece.from() : piece.to();
      inner_bytes += piece.nbytes();
      // The run that carries it.
      const auto run = std::ranges::find_if(chunk.bus, [&](const copy_row& r) {
        const auto first = in ? r.to : r.from;
        return at >= first && at + piece.nbytes() <= first + r.nbytes;
      });
      REQUIRE(run != chunk.bus.end());
      const auto within = at - (in ? run->to : run->from);
      moved.push_back(in ? copy_row{piece.to(), run->from + within, piece.nbytes()}
                         : copy_row{run->to + within, piece.from(), piece.nbytes()});
    }
    CHECK(bus_bytes == chunk.nbytes);
    CHECK(inner_bytes == chunk.nbytes);
  }
  CHECK(merge_rows(moved) == merge_rows(rows));
}

TEST_CASE("copy plan: contiguous neighbours become one row, empty rows go, the order stays") {
  const std::vector<copy_row> rows{{100, 10, 5}, {105, 15, 5}, {200, 20, 0},
                                   {110, 21, 4}, {114, 25, 1}, {90, 1, 2}};
  CHECK(merge_rows(rows) == std::vector<copy_row>{{100, 10, 10}, {110, 21, 5}, {90, 1, 2}});
  CHECK(merge_rows({}).empty());
}

TEST_CASE("copy plan: a row is cut into pieces of 16 KiB") {
  std::vector<copy_piece> pieces(3);
  CHECK(cut({1000, 2000, 2 * piece_bytes + 1}, pieces.data()) == pieces.data() + 3);
  CHECK(pieces.size() == pieces_of(2 * piece_bytes + 1));
  CHECK(pieces[1] == copy_piece{1000 + piece_bytes, 2000 + piece_bytes, piece_bytes});
  CHECK(pieces[2] == copy_piece{1000 + 2 * piece_bytes, 2000 + 2 * piece_bytes, 1});
  CHECK(pieces_of(0) == 0);
}

TEST_CASE("copy plan: a piece holds any user address and every size up to 16 KiB") {
  const std::uint64_t highest = (std::uint64_t{1} << 57) - 1;
  for (const std::uint64_t at : {std::uint64_t{1}, std::uint64_t{0x7fffdeadbeef}, highest})
    for (std::size_t nbytes = 1; nbytes <= piece_bytes; ++nbytes) {
      const copy_piece piece{at, highest - at, nbytes};
      REQUIRE(piece.to() == at);
      REQUIRE(piece.from() == highest - at);
      REQUIRE(piece.nbytes() == nbytes);
    }
}

TEST_CASE("copy plan: the sum of a batch finds the first row with a null address") {
  const auto sum = [](const std::vector<copy_row>& rows) { return sum_of(copy_kind::host_to_device, rows); };
  CHECK(sum({{1, 100, 5}, {2, 90, 7}}).total_bytes == 12);
  CHECK(sum({{1, 100, 5}, {2, 90, 7}}).staging_begin == 90);
  CHECK(sum({{1, 100, 5}, {2, 90, 7}}).staging_end == 105);
  CHECK(sum({{0, 0, 0}, {2, 2, 7}}).bad_row == SIZE_MAX);
  CHECK(sum({{1, 1, 5}, {0, 2, 0}, {2, 0, 1}, {0, 2, 1}}).bad_row == 2);
}

TEST_CASE("copy plan: the shape counts rows, bytes and runs of staging, of many rows by a sample") {
  for (const auto kind : both_kinds) {
    auto rows = scattered(kind, 4, 100);
    CHECK(shape_of(kind, device_load::idle, rows).runs == 1);
    rows.erase(rows.begin() + 1);
    const auto shape = shape_of(kind, device_load::idle, rows);
    CHECK(shape.runs == 2);
    CHECK(shape.rows == 3);
    CHECK(shape.total_bytes == 300);
    const auto many = shape_of(kind, device_load::idle, scattered(kind, 20'000, 100));
    CHECK(many.rows == 20'000);
    CHECK(many.total_bytes == 2'000'000);
    CHECK(many.runs == 1);
  }
}

std::vector<std::size_t> sizes_of(copy_kind kind, std::size_t count, std::size_t nbytes,
                                  bool bus_is_busy = false) {
  std::vector<std::size_t> sizes;
  for (const auto& chunk : chunks_of(kind, scattered(kind, count, nbytes), 32 * mib, bus_is_busy))
    sizes.push_back(chunk.nbytes);
  return sizes;
}

TEST_CASE("copy plan: chunks are small where nothing overlaps them, and few otherwise") {
  using sizes = std::vector<std::size_t>;
  const auto in = copy_kind::host_to_device, out = copy_kind::device_to_host;
  CHECK(sizes_of(in, 1024, 64 * kib) == sizes{32 * mib, 29 * mib, 3 * mib});
  CHECK(sizes_of(in, 16'384, 4 * kib) == sizes{4 * mib, 32 * mib, 25 * mib, 3 * mib});
  CHECK(sizes_of(in, 256, 64 * kib) == sizes{14 * mib, 2 * mib});
  CHECK(sizes_of(in, 64, 64 * kib) == sizes{4 * mib});
  CHECK(sizes_of(out, 1024, 64 * kib) == sizes{mib, 8 * mib, 24 * mib, 31 * mib});
  CHECK(sizes_of(out, 16'384, 4 * kib) == sizes{mib, 3 * mib, 8 * mib, 24 * mib, 28 * mib});
  CHECK(sizes_of(out, 64, 64 * kib) == sizes{mib, 3 * mib});
  for (const auto kind : both_kinds) CHECK(sizes_of(kind, 4096, 64 * kib, true).front() == 32 * mib);
}

TEST_CASE("copy plan: every byte takes one way through a bounce buffer, whatever the rows are") {
  for (const auto kind : both_kinds) {
    check_bulk(kind, scattered(kind, 1, 1), 64 * kib);
    check_bulk(kind, scattered(kind, 3, 5 * mib + 7), mib);
    check_bulk(kind, scattered(kind, 5000, 4 * kib), 2 * mib);
    std::mt19937 draw{7};
    for (int round = 0; round < 30; ++round) {
      std::vector<copy_row> rows;
      std::uintptr_t staging = 4096, page = std::uintptr_t{1} << 40;
      const auto count = draw() % 200 + 1;
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::size_t nbytes = draw() % (draw() % 8 == 0 ? 300'000 : 300) + 1;
        if (draw() % 3 == 0) staging += draw() % 100 + 1;
        page += draw() % 50;
        rows.push_back(kind == copy_kind::host_to_device ? copy_row{page, staging, nbytes}
                                                         : copy_row{staging, page, nbytes});
        staging += nbytes;
        page += nbytes;
      }
      check_bulk(kind, merge_rows(rows), 64 * kib);
    }
  }
}

TEST_CASE("copy plan: a null page is told with its chunk") {
  const auto kind = copy_kind::host_to_device;
  auto rows = scattered(kind, 16'384, 4 * kib);
  rows[5000].to = 0;
  std::size_t before = 0, bad = 0;
  for (const auto& chunk : chunks_of(kind, rows, 32 * mib)) {
    bad += chunk.null_page ? 1 : 0;
    if (bad == 0) before += chunk.pieces.size();
  }
  CHECK(bad == 1);
  CHECK(before <= 5000);
}

TEST_CASE("copy plan: an estimate of the total that is wrong loses nothing") {
  for (const auto kind : both_kinds)
    for (const std::size_t estimate : {std::size_t{1}, mib, 900 * mib}) {
      const auto rows = scattered(kind, 3000, 64 * kib);
      bulk_plan plan{kind, rows, estimate, 16 * mib};
      std::size_t total = 0;
      for (bulk_chunk chunk; plan.next(chunk, bounce);) total += chunk.nbytes;
      CHECK(total == total_of(rows));
    }
}

TEST_CASE("copy plan: contiguous rows of a chunk become one piece") {
  const std::vector<copy_row> rows{{1000, 50'000, 100}, {1100, 50'100, 100}, {1200, 50'200, 0},
                                   {1200, 50'200, 50},  {9000, 50'250, 7},   {9007, 70'000, 7}};
  const auto chunks = chunks_of(copy_kind::host_to_device, rows, 64 * kib);
  REQUIRE(chunks.size() == 1);
  REQUIRE(chunks[0].bus.size() == 2);
  REQUIRE(chunks[0].pieces.size() == 3);
  CHECK(chunks[0].pieces[0].nbytes() == 250);
  CHECK(chunks[0].pieces[1].to() == 9000);
  CHECK(chunks[0].pieces[2].to() == 9007);
}

TEST_CASE("copy plan: rows lie in the bounce buffer as far from a 16-byte boundary as their pages") {
  for (const auto kind : both_kinds) {
    auto rows = scattered(kind, 40, 4 * kib);
    for (auto& row : rows) (kind == copy_kind::host_to_device ? row.to : row.from) += 5;
    for (std::size_t i = 0; i < rows.size(); i += 7) {  // gaps in staging that are not aligned
      auto& staging = kind == copy_kind::host_to_device ? rows[i].from : rows[i].to;
      staging += (std::uintptr_t{1} << 32) + 3;
    }
    for (const auto& chunk : chunks_of(kind, rows, mib))
      for (const auto& piece : chunk.pieces) CHECK((piece.to() ^ piece.from()) % 16 == 0);
  }
}

TEST_CASE("copy table: text and back; errors name the line, the value and the rule") {
  const copy_table table{"NVIDIA H200",
                         {{copy_kind::host_to_device, device_load::busy, 4096, mib, copy_path::kernel},
                          {copy_kind::device_to_host, device_load::idle, 65536, 64 * mib, copy_path::bulk}}};
  const auto back = copy_table::parse(table.text());
  REQUIRE(back);
  CHECK(back->device() == "NVIDIA H200");
  CHECK(back->choices() == table.choices());
  const auto refused = [](const std::string& text) { return copy_table::parse(text).error().text; };
  CHECK(refused("device X\nup busy 1 1 bulk") ==
        "copy table, line 2: direction is \"up\", must be h2d or d2h");
  CHECK(refused("h2d hot 1 1 bulk") == "copy table, line 1: load is \"hot\", must be idle or busy");
  CHECK(refused("h2d idle 0 1 bulk") ==
        "copy table, line 1: size is \"0\", must be a whole number of bytes, 1 or more");
  CHECK(refused("h2d idle 1 1x bulk").find("\"1x\"") != std::string::npos);
  CHECK(refused("h2d idle 1 1 fast") ==
        "copy table, line 1: copy path is \"fast\", must be rows, batch, kernel or bulk");
  CHECK(refused("h2d idle 1 1") ==
        "copy table, line 1: 4 words, must be 5: direction, load, row bytes, total bytes, path");
  CHECK(refused("# nothing\n\ndevice  ") == "copy table, line 3: the device has no name");
}

TEST_CASE("copy table: the nearest measured shape of the same direction and load decides") {
  const copy_table table{"x",
                         {{copy_kind::host_to_device, device_load::busy, 4 * kib, mib, copy_path::kernel},
                          {copy_kind::host_to_device, device_load::busy, 64 * kib, 64 * mib, copy_path::bulk},
                          {copy_kind::host_to_device, device_load::idle, 4 * kib, mib, copy_path::batch},
                          {copy_kind::device_to_host, device_load::busy, 4 * kib, mib, copy_path::rows}}};
  const auto choose = [&](copy_kind kind, device_load load, std::size_t row, std::size_t total) {
    return table.choose({kind, load, total / row, total, 1});
  };
  CHECK(choose(copy_kind::host_to_device, device_load::busy, 4 * kib, 2 * mib) == copy_path::kernel);
  CHECK(choose(copy_kind::host_to_device, device_load::busy, 64 * kib, 256 * mib) == copy_path::bulk);
  CHECK(choose(copy_kind::host_to_device, device_load::idle, 64 * kib, 256 * mib) == copy_path::batch);
  CHECK(choose(copy_kind::device_to_host, device_load::busy, 64 * kib, 256 * mib) == copy_path::rows);
  // One large run needs no kernel, whatever was measured.
  CHECK(choose(copy_kind::host_to_device, device_load::busy, 64 * mib, 64 * mib) == copy_path::rows);
  // Staging in small runs: its copies would be as small as the rows.
  CHECK(table.choose({copy_kind::host_to_device, device_load::busy, 1024, 64 * mib, 512}) != copy_path::bulk);
}

TEST_CASE("copy table: the measured devices have both directions, idle and busy") {
  const auto table = copy_table::for_device("NVIDIA H200");
  CHECK(table.device() == "NVIDIA H200");
  for (const auto kind : both_kinds)
    for (const auto load : {device_load::idle, device_load::busy})
      CHECK(std::ranges::count_if(table.choices(), [&](const copy_choice& c) {
              return c.kind == kind && c.load == load;
            }) >= 20);
  CHECK(copy_table::parse(table.text())->choices() == table.choices());
}

TEST_CASE("copy table: a device that nobody measured gets a path for every shape") {
  const auto table = copy_table::for_device("a device of tomorrow");
  CHECK(table.choose({copy_kind::host_to_device, device_load::busy, 16, mib, 1}) == copy_path::kernel);
  CHECK(table.choose({copy_kind::device_to_host, device_load::busy, 1024, 64 * mib, 1}) == copy_path::bulk);
  CHECK(table.choose({copy_kind::device_to_host, device_load::idle, 4, 64 * mib, 1}) == copy_path::rows);
  CHECK(table.choose({copy_kind::device_to_host, device_load::idle, 0, 0, 0}) == copy_path::rows);
}

}  // namespace
}  // namespace kvlease
