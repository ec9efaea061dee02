// A directory of a test's own, gone with it.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace kvlease::test {

class temporary_directory {
 public:
  explicit temporary_directory(const std::string& name = "kvlease") {
    auto made = (std::filesystem::temp_directory_path() / (name + ".XXXXXX")).string();
    REQUIRE(::mkdtemp(made.data()) != nullptr);
    path_ = made;
  }
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace kvlease::test
