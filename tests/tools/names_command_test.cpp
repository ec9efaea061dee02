// `kvlease names`: exit codes, what a mismatch is called, what is computed, and how bad input is refused.
#include "tools/names_command.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/temporary_directory.hpp"

namespace {

using namespace kvlease;
using nlohmann::json;

struct run_result {
  int code = 0;
  std::string out;
  std::string err;  ///< without the path of the directory
};

/// Runs the command over a file of its own, gone afterwards.
run_result run(const std::string& text, bool as_json = false) {
  const kvlease::test::temporary_directory directory{"kvlease-names"};
  const auto made = directory.path().string();
  const std::string path = made + "/v.json";
  std::ofstream{path, std::ios::binary} << text;
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_names({path, as_json}, out, err);
  std::string line = err.str();
  if (const auto at = line.find(made + "/"); at != std::string::npos) line.erase(at, made.size() + 1);
  return {code, out.str(), line};
}
run_result run(const json& document, bool as_json = false) { return run(document.dump(), as_json); }

/// From names.json, with all that it may hold.
json vector() {
  return json::parse(R"({
    "id": "mm-two-runs", "what": "one item in two runs",
    "scope_hex": "6d6f64656c",
    "layout_id_hex": "0d13233b73d5533e3e49b1c581feadb2a7469967b5a78c55fbd3b5eade0b12d1",
    "layers": [[0]], "shards": [[1, 0]], "tokens_per_block": 4,
    "reuse_scope": {"lora_id": null, "salt": null, "cache_salt": null, "bytes_hex": "00"},
    "vocab_size": 1000,
    "multimodal_items": [{
      "hash_words": [16909060, 84281096, 286397204, 353769240, 555885348, 623257384, 825373492, 892745528],
      "digest_hex": "0102030405060708111213141516171821222324252627283132333435363738",
      "runs": [[1, 1], [3, 1]]}],
    "prompt_tokens": [11, 999, 77, 999, 12, 13, 14, 15],
    "key_tokens": [11, "digest:0102030405060708111213141516171821222324252627283132333435363738",
                   77, 1001, 12, 13, 14, 15],
    "expected": {
      "namespace_hex": "49d1341ab572a45aae4c0f76c04ad288", "canonical": [0],
      "root_key_hex": "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
      "block_keys_hex": ["633e5e06c03dce78de818b089752853b3ac38f00d88d5d3f8139dd1f3f796ce5",
                         "a4ed1b4d1769d060668eb512863846c7139447f13190123a978d8e88b8d44813"],
      "names_hex": [[
        "49d1341ab572a45aae4c0f76c04ad288633e5e06c03dce78de818b089752853b3ac38f00d88d5d3f8139dd1f3f796ce5000000010000",
        "49d1341ab572a45aae4c0f76c04ad288a4ed1b4d1769d060668eb512863846c7139447f13190123a978d8e88b8d44813000000010000"]],
      "part_name_per_group": ["0d13233b73d5533e:lg0"], "part_name_all_groups": "0d13233b73d5533e:lg0"}})");
}

/// The three kinds of pin; the first two are upstream's.
json pins() {
  return json::parse(R"([
    {"id": "name", "layer_group": 0, "layers": [[4, 5], [0, 1, 2, 3]], "shards": [[4, 3], [1, 0]],
     "scope_hex": "1a3a86f2ce5c55b257fc3af4f8bc886f968394e3533e47644088aae9a75a0336",
     "layout_id_hex": "94ede4f3bb6ba356921f266190dc66280f21fe93edaa7f7c717fddc9d815670d",
     "key_hex": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
     "expected_name_hex": "ac0cbcea5a240bde17f6bac29386876a000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f000100040003"},
    {"id": "parts", "layers": [[4, 5], [0, 1, 2, 3]],
     "layout_id_hex": "94ede4f3bb6ba356921f266190dc66280f21fe93edaa7f7c717fddc9d815670d",
     "expected": [{"groups": [0], "part": "94ede4f3bb6ba356:lg1"},
                  {"groups": [1, 0, 0], "part": "94ede4f3bb6ba356:lg0+1"}]},
    {"id": "layout", "document": "abc",
     "expected_layout_id_hex": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}])");
}

json errors() {
  return json::parse(R"([
    {"id": "empty-layout", "scope_hex": "6d", "layout_id_hex": "", "error": "value"},
    {"id": "scope-65536", "scope_len": 65536, "layout_id_hex": "6c", "error": "value"},
    {"id": "shard", "shards": [[2, -1]], "error": "value"},
    {"id": "shards", "layers": [[0], [1]], "shards": [[1, 0]], "error": "value"},
    {"id": "group", "layers": [[0]], "layer_group": 1, "error": "value"},
    {"id": "token", "prompt_tokens": [1, -1], "error": "value"},
    {"id": "block", "prompt_tokens": [1], "tokens_per_block": 0, "error": "value"}])");
}

json all() { return {{"description", "x"}, {"vectors", {vector()}}, {"pins", pins()}, {"errors", errors()}}; }

TEST_CASE("kvlease names: all equal") {
  const auto r = run(all());
  CHECK(r.code == 0);
  CHECK(r.out == "names: 1 vectors, 3 pins, 7 errors: all equal\n");
  CHECK(r.err.empty());
  const auto j = json::parse(run(all(), true).out);
  CHECK(j["schema_version"] == 1);
  CHECK(j["counts"] == json{{"vectors", 1}, {"pins", 3}, {"errors", 7}, {"mismatches", 0}, {"computed", 0}});
  CHECK(j["mismatches"].empty());
}

TEST_CASE("kvlease names: each changed value is a mismatch of its own, by id and field") {
  // What is changed, and how the mismatch is called.
  const std::pair<const char*, const char*> changes[] = {
      {"/vectors/0/expected/namespace_hex", "mm-two-runs: expected.namespace_hex: "},
      {"/vectors/0/expected/canonical/0", "mm-two-runs: expected.canonical[0]: "},
      {"/vectors/0/expected/root_key_hex", "mm-two-runs: expected.root_key_hex: "},
      {"/vectors/0/expected/block_keys_hex/1", "mm-two-runs: expected.block_keys_hex[1]: "},
      {"/vectors/0/expected/names_hex/0/1", "mm-two-runs: expected.names_hex[0][1]: "},
      {"/vectors/0/expected/part_name_per_group/0", "mm-two-runs: expected.part_name_per_group[0]: "},
      {"/vectors/0/expected/part_name_all_groups", "mm-two-runs: expected.part_name_all_groups: "},
      {"/vectors/0/key_tokens/3", "mm-two-runs: key_tokens[3]: "},
      {"/vectors/0/reuse_scope/bytes_hex", "mm-two-runs: reuse_scope.bytes_hex: "},
      {"/vectors/0/multimodal_items/0/digest_hex", "mm-two-runs: multimodal_items[0].digest_hex: "},
      {"/pins/0/expected_name_hex", "name: expected_name_hex: "},
      {"/pins/1/expected/1/part", "parts: part of groups [1,0,0]: "},
      {"/pins/2/expected_layout_id_hex", "layout: expected_layout_id_hex: "}};
  for (const auto& [where, called] : changes) {
    json document = all();
    document[json::json_pointer{where}] = "00ff";
    const auto r = run(document);
    const std::string shown = std::string{where} + " " + r.out + r.err;
    INFO(shown);
    CHECK(r.code == 1);
    CHECK(r.out.starts_with("names: 1 vectors, 3 pins, 7 errors: 1 mismatch\n" + std::string{called}));
    CHECK(std::count(r.out.begin(), r.out.end(), '\n') == 2);
  }
}

TEST_CASE("kvlease names: mismatches of length, of a salt, and of what is refused or accepted") {
  json document = all();
  document["vectors"][0]["expected"]["block_keys_hex"].push_back("");
  CHECK(run(document).out ==
        "names: 1 vectors, 3 pins, 7 errors: 1 mismatch\n"
        "mm-two-runs: expected.block_keys_hex (length): the file has 3, computed 2\n");
  document = {{"errors", {{{"id", "good"}, {"shards", {{2, 1}}}, {"error", "value"}}}}};
  CHECK(run(document).out ==
        "names: 0 vectors, 0 pins, 1 errors: 1 mismatch\n"
        "good: error: the file has \"value\", computed \"accepted\"\n");
  document = {{"vectors", {vector()}}};
  document["vectors"][0]["shards"] = json::parse("[[0, 0]]");
  auto r = run(document, true);
  CHECK(r.code == 1);
  const auto mismatch = json::parse(r.out)["mismatches"][0];
  CHECK(mismatch["id"] == "mm-two-runs");
  CHECK(mismatch["computed"].get<std::string>().starts_with("shard of layer group 0"));
  document = {{"vectors", {vector()}}};
  document["vectors"][0].erase("expected");
  document["vectors"][0]["reuse_scope"] = {{"salt", "1"}, {"cache_salt", "tenant-a"}};
  CHECK(run(document).out.starts_with(
      "names: 0 vectors, 0 pins, 0 errors: 1 mismatch; 1 computed\n"
      "mm-two-runs: reuse_scope.salt: the file has \"1\", computed \"16248643848220682112\"\n"));
}

TEST_CASE("kvlease names: what has no expected is computed, in the file's form") {
  json bare = vector();
  for (const char* derived : {"expected", "key_tokens"}) bare.erase(derived);
  bare["reuse_scope"] = {{"lora_id", nullptr}};
  bare["multimodal_items"][0].erase("digest_hex");
  json whole = vector();
  whole["reuse_scope"] = {{"lora_id", nullptr}, {"bytes_hex", "00"}};
  const json document{{"vectors", {bare}}};
  const auto r = run(document);
  CHECK(r.code == 0);
  const std::string first = "names: 0 vectors, 0 pins, 0 errors: nothing to compare; 1 computed\n";
  REQUIRE(r.out.starts_with(first));
  const std::string printed = r.out.substr(first.size());
  CHECK(json::parse(printed) == json{{"vectors", {whole}}});
  CHECK(run(printed).out == "names: 1 vectors, 0 pins, 0 errors: all equal\n");
  CHECK(json::parse(run(document, true).out)["computed"] == json{whole});
}

TEST_CASE("kvlease names: the inputs that may be left out or written otherwise") {
  json document{{"vectors", {vector()}}};
  json& v = document["vectors"][0];
  v.erase("expected"), v.erase("key_tokens"), v.erase("reuse_scope"), v.erase("scope_hex");
  v["scope_repeat"] = {{"byte_hex", "6d"}, {"count", 3}};
  v["multimodal_items"] = json::parse(R"([{"position": 1, "length": 2}])");
  v["vocab_size"] = nullptr;  // without a hash it is not needed
  const auto r = run(document, true);
  CHECK(r.code == 0);
  const auto done = json::parse(r.out)["computed"][0];
  CHECK(done["key_tokens"] == v["prompt_tokens"]);
  v.erase("scope_repeat");
  v["scope_hex"] = "6d6d6d";
  v.erase("multimodal_items"), v.erase("vocab_size");
  CHECK(json::parse(run(document, true).out)["computed"][0]["expected"] == done["expected"]);
}

TEST_CASE("kvlease names: bad input is one line that says what and where, and exit code 2") {
  const auto refusal = [](const auto& input) {
    const auto r = run(input);
    CHECK(r.code == 2);
    CHECK(r.out.empty());
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    return r.err;
  };
  const auto changed = [&](const char* where, const json& to) {
    json document = all();
    document[json::json_pointer{where}] = to;
    return refusal(document);
  };
  const auto without = [&](const char* object, const char* name) {
    json document = all();
    document[json::json_pointer{object}].erase(name);
    return refusal(document);
  };
  CHECK(refusal(std::string{"{\n\"vectors\": [\n}"})
            .starts_with("names: v.json:3: malformed JSON at byte 16: "));
  CHECK(refusal(std::string{"{\"pins\": [1e999]}"}).starts_with("names: v.json: malformed JSON: "));
  CHECK(refusal(std::string{}).starts_with("names: v.json:1: malformed JSON at byte "));
  CHECK(refusal(json::array()) == "names: v.json: the file is [], must be an object\n");
  CHECK(refusal(json::object()) == "names: v.json: holds no vectors, pins or errors\n");
  CHECK(changed("/vektors", json::array()) == "names: v.json: vektors is no known field\n");
  CHECK(changed("/vectors", 1) == "names: v.json: vectors is 1, must be an array\n");
  CHECK(without("/vectors/0", "id") == "names: v.json: vectors[0].id is missing\n");
  CHECK(without("/vectors/0", "shards") == "names: v.json: vectors[0] (mm-two-runs): shards is missing\n");
  CHECK(without("/vectors/0", "scope_hex") ==
        "names: v.json: vectors[0] (mm-two-runs): scope_repeat is missing\n");
  CHECK(without("/vectors/0/expected", "canonical") ==
        "names: v.json: vectors[0] (mm-two-runs): expected.canonical is missing\n");
  CHECK(changed("/vectors/0/expected/more", 1) ==
        "names: v.json: vectors[0] (mm-two-runs): expected.more is no known field\n");
  CHECK(changed("/vectors/0/salt", 1) == "names: v.json: vectors[0] (mm-two-runs): salt is no known field\n");
  CHECK(changed("/vectors/0/layers/0/0", -1) ==
        "names: v.json: vectors[0] (mm-two-runs): layers[0][0] is -1, must be an integer from 0 to "
        "4294967295\n");
  CHECK(changed("/vectors/0/layout_id_hex", "0")
            .ends_with("layout_id_hex is no hex: hex text has 1 digits, must be two a byte\n"));
  CHECK(changed("/vectors/0/reuse_scope/salt", "-1")
            .ends_with(
                "reuse_scope.salt is \"-1\", must be an unsigned 64-bit number or its decimal string\n"));
  CHECK(changed("/vectors/0/multimodal_items/0/hash_words", json::array({1}))
            .ends_with("hash_words is [1], must be an array of 8 integers\n"));
  CHECK(changed("/vectors/0/prompt_tokens/2", 1.5).find("prompt_tokens[2] is 1.5, must be an integer") !=
        std::string::npos);
  CHECK(without("/pins/0", "shards") == "names: v.json: pins[0] (name): shards is missing\n");
  CHECK(without("/pins/1", "layers") == "names: v.json: pins[1] (parts): layers is missing\n");
  CHECK(without("/pins/2", "expected_layout_id_hex")
            .starts_with("names: v.json: pins[2] (layout): unknown kind of pin"));
  CHECK(changed("/pins/2/expected", json::array()).find("unknown kind of pin") != std::string::npos);
  CHECK(changed("/errors/0/error", "type")
            .starts_with("names: v.json: errors[0] (empty-layout): error is \"type\", must be \"value\""));
  CHECK(without("/errors/0", "error") == "names: v.json: errors[0] (empty-layout): error is missing\n");
  json bad{{"vectors", {vector()}}};
  bad["vectors"][0].erase("expected");
  bad["vectors"][0]["vocab_size"] = -1;
  CHECK(refusal(bad) ==
        "names: v.json: vectors[0] (mm-two-runs): vocab_size is -1, must be from 0 to below 2^31\n");
}

TEST_CASE("kvlease names: a file that cannot be read") {
  std::ostringstream out;
  std::ostringstream err;
  CHECK(run_names({"/nonexistent/v.json", true}, out, err) == 2);
  CHECK(err.str() == "names: /nonexistent/v.json: cannot be read: No such file or directory\n");
  CHECK(run_names({"/", false}, out, err) == 2);
  CHECK(out.str().empty());
}

}  // namespace
