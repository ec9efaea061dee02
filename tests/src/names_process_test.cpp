// F11: names derived in other processes, under other locales, seeds and memory maps.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "src/mix.hpp"
#include "src/names.hpp"

using namespace kvlease;

namespace {

/// One hash over the names of 1,000 blocks of a prompt with text and an image.
std::string digest_of_names() {
  std::vector<std::uint32_t> ids(16000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint32_t>(mix64(i) % 128000);
  multimodal_item image;
  image.hash = sha256(std::as_bytes(std::span{"image", 5}));
  image.runs = {{100, 400}, {700, 50}};
  const auto tokens = apply_multimodal(std::move(ids), std::span{&image, 1}, 128000);
  REQUIRE(tokens.has_value());
  const auto keys = block_keys(root_key({.lora_id = 7, .salt = salt_from_string("tenant")}), *tokens, 16);
  REQUIRE(keys.has_value());
  const std::string scope = "model", layout = "layout";
  const auto who = identity::make(std::as_bytes(std::span{scope}), std::as_bytes(std::span{layout}),
                                  {{4, 5}, {0, 1}}, {{4, 3}, {1, 0}});
  REQUIRE(who.has_value());
  sha256_stream all;
  for (const auto& key : *keys)
    for (const std::int64_t group : {0, 1}) all.update(who->name(group, key)->bytes);
  return to_hex(all.finish());
}

constexpr const char* marker = "names-digest:";

std::string in_child(const std::string& environment) {
  std::array<char, 4096> self{};
  const auto n = readlink("/proc/self/exe", self.data(), self.size() - 1);
  REQUIRE(n > 0);
  const auto command = environment + " KVLEASE_F11_CHILD=1 " + self.data() + " '-tc=F11 the child*'";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe{popen(command.c_str(), "r"), pclose};
  REQUIRE(pipe != nullptr);
  std::string output;
  std::array<char, 512> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) output += buffer.data();
  const auto at = output.find(marker);
  REQUIRE(at != std::string::npos);
  return output.substr(at + std::string{marker}.size(), 64);
}

}  // namespace

TEST_CASE("F11 the child's side: names of a fixed prompt") {
  std::setlocale(LC_ALL, "");
  const auto digest = digest_of_names();
  if (std::getenv("KVLEASE_F11_CHILD") != nullptr) std::printf("%s%s\n", marker, digest.c_str());
  CHECK(digest.size() == 64);
}

TEST_CASE("F11 processes with other locales, seeds and memory maps derive the same names") {
  const auto mine = digest_of_names();
  for (const auto* environment : {"LC_ALL=C MALLOC_PERTURB_=17", "LC_ALL=C.UTF-8 MALLOC_ARENA_MAX=1",
                                  "LC_ALL=tr_TR.UTF-8", "LC_ALL=ar_EG.UTF-8 GLIBCXX_TUNABLES=1"}) {
    CAPTURE(environment);
    CHECK(in_child(std::string{"env "} + environment) == mine);
  }
}
