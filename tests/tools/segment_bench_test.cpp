// `kvlease bench segment` on a small store: what it reports, and what it says without fio.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/temporary_directory.hpp"
#include "tools/command_line.hpp"

using namespace kvlease;

namespace {

std::pair<int, std::string> bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"kvlease", "bench", "segment"});
  std::vector<const char*> argv;
  for (const auto& a : arguments) argv.push_back(a.c_str());
  std::ostringstream out, err;
  const int status = run_command_line(static_cast<int>(argv.size()), argv.data(), out, err, false);
  return {status, out.str() + err.str()};
}

}  // namespace

TEST_CASE("bench segment: each size is written and read, every unit is served, and nothing stays behind") {
  const test::temporary_directory d;
  const auto json = (d / "out.json").string();
  const auto [status, text] = bench({"--fio", "off", "--bytes", "8M", "--sizes", "64K,128K", "--rounds", "2",
                                     "--directory", d.path().string(), "--json", json});
  CAPTURE(text);
  CHECK(status == 0);
  const auto report = nlohmann::json::parse(std::ifstream{json});
  CHECK(report.at("lines").size() == 4);
  for (const auto& line : report.at("lines")) {
    CHECK(line.at("store_gb_s").at("median") > 0);
    CHECK(line.at("store_gb_s").at("samples") == 2);
    CHECK_FALSE(line.contains("ratio"));
  }
  CHECK(report.at("failed_units") == 0);
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator{d.path()}) ++left;
  CHECK(left == 1);  // the report
}

TEST_CASE("bench segment: without fio it says how to get it; what it can't do names the option") {
  const auto [status, text] = bench({"--fio", "/no/such/fio"});
  CHECK(status == 2);
  CHECK(text.find("apt-get install fio") != std::string::npos);
  for (const auto& [option, value] : {std::pair{"--bytes", "1M"},
                                      {"--sizes", "1000"},
                                      {"--sizes", "1G"},
                                      {"--rounds", "0"},
                                      {"--directory", "/no/such/place"},
                                      {"--engine", "tape"}}) {
    CAPTURE(option);
    const auto refused = bench({"--fio", "off", option, value});
    CHECK(refused.first != 0);
    CHECK_FALSE(refused.second.empty());
  }
}
