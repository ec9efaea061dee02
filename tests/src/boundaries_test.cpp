// What may include what (docs/guide.md), read from the sources: the core knows no actor and no device, values
// know no CAF, and only *_cuda.cpp and *.cu know CUDA.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/names.hpp"

namespace {

namespace fs = std::filesystem;

/// Files of a folder (not below it) with these endings.
std::vector<fs::path> files(const std::string& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator{fs::path{KVLEASE_SOURCE_DIR} / folder})
    if (entry.path().extension() == ".hpp" || entry.path().extension() == ".cpp")
      found.push_back(entry.path());
  REQUIRE_FALSE(found.empty());
  return found;
}

std::vector<std::string> includes(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream in{file};
  REQUIRE(in.good());
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("#include")) lines.push_back(line);
  return lines;
}

void none_includes(const std::string& folder, const std::vector<std::string>& forbidden,
                   const std::vector<std::string>& but = {}) {
  for (const auto& file : files(folder)) {
    if (std::ranges::find(but, file.filename().string()) != but.end()) continue;
    for (const auto& line : includes(file))
      for (const auto& text : forbidden) {
        CAPTURE(file.string());
        CHECK_MESSAGE(line.find(text) == std::string::npos, line);
      }
  }
}

}  // namespace

TEST_CASE("PS-07 a name is 54 bytes wide in every place") {
  static_assert(kvlease::block_name_size == 54);
  static_assert(sizeof(kvlease::block_name) == 54);
  CHECK(true);
}

TEST_CASE("PS-08 the core includes no CAF, no actor and no device") {
  none_includes("src",
                {"<caf/", "\"actors/", "\"cuda/", "cuda_runtime", "messages/caf.hpp", "messages/common.hpp"},
                {"runtime.cpp"});
}
TEST_CASE("PS-09 public headers include no CAF and no actor") {
  none_includes("src/include/kvlease",
                {"<caf/", "\"actors/", "\"cuda/", "messages/caf.hpp", "messages/common.hpp"});
}
TEST_CASE("PS-10 the values of the contract include no CAF") {
  for (const auto* header : {"contract.hpp", "copies.hpp", "error.hpp", "ids.hpp", "operation.hpp",
                             "pages.hpp", "report.hpp", "retirement.hpp", "staging.hpp"})
    for (const auto& line : includes(fs::path{KVLEASE_SOURCE_DIR} / "messages" / header)) {
      CAPTURE(header);
      CHECK_MESSAGE(line.find("caf") == std::string::npos, line);
    }
}
TEST_CASE("PS-11 messages include nothing of the core, the actors or the devices") {
  none_includes("messages", {"\"src/", "\"actors/", "\"cuda/"});
}
TEST_CASE("PS-12 CAF's spellings that differ between versions stand in one header") {
  for (const auto* folder : {"actors", "cuda", "messages"})
    none_includes(folder,
                  {"<caf/typed_", "<caf/stateful_actor", "<caf/atom", "<caf/allowed_unsafe", "<caf/all.hpp"},
                  {"caf.hpp", "errors.cpp"});
}
