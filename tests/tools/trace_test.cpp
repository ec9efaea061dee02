// The loaders: what they accept, and each refusal with the line it names. The generator: the same promises.
#include "tools/replay/trace.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <unordered_map>

#include "tests/temporary_directory.hpp"
#include "tools/replay/generate.hpp"

namespace {

using namespace kvlease;
using namespace kvlease::replay;
using std::chrono::milliseconds;
using ids = std::vector<std::uint64_t>;

/// A directory of its own, gone at the end of the test case.
class temp_file {
 public:
  explicit temp_file(const std::string& text) { std::ofstream{path(), std::ios::binary} << text; }
  std::string path() const { return (directory_ / "t.jsonl").string(); }
  std::string directory() const { return directory_.path().string(); }

 private:
  kvlease::test::temporary_directory directory_{"kvlease-trace"};
};

result<trace> load(const std::string& text, trace_format format = trace_format::automatic,
                   std::optional<std::size_t> limit = {}) {
  const temp_file file{text};
  return load_trace(file.path(), format, limit);
}

/// The error's text after the directory, e.g. "t.jsonl:2: ...".
std::string refusal(const std::string& text, trace_format format = trace_format::automatic) {
  const temp_file file{text};
  const auto loaded = load_trace(file.path(), format, {});
  REQUIRE_FALSE(loaded.has_value());
  CHECK(loaded.error().code == errc::invalid);
  const std::string prefix = file.directory() + "/";
  REQUIRE(loaded.error().text.starts_with(prefix));
  return loaded.error().text.substr(prefix.size());
}

const std::string good = R"({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]})"
                         "\n";

std::string session(const std::string& requests, const std::string& block_size = "64") {
  return R"({"id": "s", "block_size": )" + block_size + R"(, "hash_id_scope": "local", "requests": [)" +
         requests + "]}\n";
}

/// Whether every id always follows the same id, and every prompt has its number of ids.
bool is_chained(const trace& t) {
  std::unordered_map<std::uint64_t, std::uint64_t> before;
  for (const auto& request : t.requests) {
    const std::size_t due = (request.input_tokens + t.tokens_per_block - 1) / t.tokens_per_block;
    if (request.blocks.size() != due) return false;
    std::uint64_t last = ~std::uint64_t{0};
    for (const auto id : request.blocks) {
      if (before.try_emplace(id, last).first->second != last) return false;
      last = id;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("trace: formats by name") {
  CHECK(parse_format("auto") == trace_format::automatic);
  CHECK(parse_format("mooncake") == trace_format::mooncake);
  CHECK(parse_format("qwen") == trace_format::qwen);
  CHECK(parse_format("weka") == trace_format::weka);
  const auto wrong = parse_format("csv");
  REQUIRE_FALSE(wrong.has_value());
  CHECK(wrong.error() ==
        error{errc::invalid, "trace format is \"csv\", must be auto, mooncake, qwen or weka"});
}

TEST_CASE("trace: mooncake keeps ids and sorts by time, equal times in file order") {
  const auto t = load(R"({"timestamp": 20, "input_length": 512, "output_length": 0, "hash_ids": [7]})"
                      "\r\n\n"
                      R"({"timestamp": 10, "input_length": 513, "output_length": 2, "hash_ids": [7, 9]})"
                      "\n"
                      R"({"timestamp": 10, "input_length": 1, "output_length": 3, "hash_ids": [8]})");
  REQUIRE(t.has_value());
  CHECK(t->format == "mooncake");
  CHECK(t->source.ends_with("t.jsonl"));
  CHECK(t->tokens_per_block == 512);
  REQUIRE(t->requests.size() == 3);
  CHECK(t->requests[0].at == milliseconds{10});
  CHECK(t->requests[0].input_tokens == 513);
  CHECK(t->requests[0].output_tokens == 2);
  CHECK(t->requests[0].blocks == ids{7, 9});
  CHECK(t->requests[1].blocks == ids{8});
  CHECK(t->requests[2].at == milliseconds{20});
}

TEST_CASE("trace: the limit keeps the earliest requests") {
  const std::string late = R"({"timestamp": 5, "input_length": 1, "output_length": 1, "hash_ids": [3]})"
                           "\n";
  const auto t = load(late + good, trace_format::mooncake, 1);
  REQUIRE(t.has_value());
  REQUIRE(t->requests.size() == 1);
  CHECK(t->requests[0].at == milliseconds{0});
  CHECK(load(good, trace_format::mooncake, 9)->requests.size() == 1);
  const auto none = load(good, trace_format::mooncake, 0);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error() == error{errc::invalid, "trace limit is 0, must be 1 or more"});
}

TEST_CASE("trace: qwen has 16-token blocks, seconds, and ids that need not be chained") {
  const auto t = load(
      R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.1144, "input_length": 33, "output_length": 4, )"
      R"("type": "text", "turn": 1, "hash_ids": [5, 6, 7]})"
      "\n"
      R"({"chat_id": 2, "parent_chat_id": 1, "timestamp": 62, "input_length": 48, "output_length": 4, )"
      R"("type": "text", "turn": 2, "hash_ids": [5, 6, 9]})"
      "\n"
      R"({"chat_id": 3, "parent_chat_id": -1, "timestamp": 63, "input_length": 32, "output_length": 4, )"
      R"("type": "text", "turn": 1, "hash_ids": [9, 6]})"
      "\n");
  REQUIRE(t.has_value());
  CHECK(t->format == "qwen");
  CHECK(t->tokens_per_block == 16);
  CHECK(t->requests[0].at == milliseconds{61114});
  CHECK(t->requests[0].blocks == ids{0, 1, 2});
  CHECK(t->requests[1].blocks == ids{0, 1, 3});
  CHECK(t->requests[2].blocks == ids{4, 5});  // 9 and 6 stand in other places here: other blocks
}

TEST_CASE("trace: weka ids are local to the session, and subagents hold requests") {
  const std::string first =
      session(R"({"t": 0.0, "type": "n", "in": 128, "out": 3, "hash_ids": [1, 2]},)"
              R"({"t": 2.5, "type": "subagent", "agent_id": "a", "requests": [)"
              R"({"t": 3.0, "type": "s", "in": 192, "out": 0, "hash_ids": [1, 2, 8]}]},)"
              R"({"t": 2.75, "type": "n", "in": 150, "out": 3, "hash_ids": [1, 2]})");
  const auto t = load(first + session(R"({"t": 1, "in": 64, "out": 1, "hash_ids": [1]})"));
  REQUIRE(t.has_value());
  CHECK(t->format == "weka");
  CHECK(t->tokens_per_block == 64);
  REQUIRE(t->requests.size() == 4);
  CHECK(t->requests[0].blocks == ids{0, 1});
  CHECK(t->requests[1].at == milliseconds{1000});
  CHECK(t->requests[1].blocks == ids{4});        // the other session's 1
  CHECK(t->requests[2].blocks == ids{0, 1, 3});  // 150 tokens: the partial block has no id in the file
  CHECK(t->requests[3].at == milliseconds{3000});
  CHECK(t->requests[3].blocks == ids{0, 1, 2});
  CHECK(is_chained(*t));
}

TEST_CASE("trace: weka times of nested subagents may count from the entry around them") {
  const auto t = load(session(R"({"t": 10, "type": "subagent", "requests": [)"
                              R"({"t": 1, "in": 64, "out": 1, "hash_ids": [1]},)"
                              R"({"t": 4, "type": "subagent", "requests": [)"
                              R"({"t": 20, "in": 64, "out": 1, "hash_ids": [1]}]}]})"));
  REQUIRE(t.has_value());
  CHECK(t->requests[0].at == milliseconds{11'000});
  CHECK(t->requests[1].at == milliseconds{34'000});
}

TEST_CASE("trace: a weka session may be written over several lines") {
  const std::string pretty =
      "{\n \"block_size\": 64,\n \"hash_id_scope\": \"local\",\n \"requests\": [\n"
      "  {\"t\": 0, \"in\": 65, \"out\": 1, \"hash_ids\": [4, 5]}\n ]\n}\n";
  for (const auto format : {trace_format::automatic, trace_format::weka}) {
    const auto t = load(pretty, format);
    REQUIRE(t.has_value());
    CHECK(t->requests.size() == 1);
    CHECK(t->requests[0].blocks == ids{0, 1});
  }
  const std::string broken = pretty.substr(0, pretty.rfind("]\n}"));
  CHECK(refusal(broken, trace_format::weka).starts_with("t.jsonl:6: the record at byte "));
}

TEST_CASE("trace: each mooncake refusal names its line, the value and the rule") {
  const auto second = [](const std::string& line) { return refusal(good + line + "\n" + good); };
  const std::string integer = ", must be an integer from ";
  CHECK(second(R"({"input_length": 1, "output_length": 1, "hash_ids": [0]})") ==
        "t.jsonl:2: timestamp is missing" + integer + "0 to 9007199254740992");
  CHECK(second(R"({"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [0]})") ==
        "t.jsonl:2: timestamp is -1" + integer + "0 to 9007199254740992");
  CHECK(second(R"({"timestamp": 1.5, "input_length": 1, "output_length": 1, "hash_ids": [0]})") ==
        "t.jsonl:2: timestamp is 1.5" + integer + "0 to 9007199254740992");
  CHECK(second(R"({"timestamp": 1, "output_length": 1, "hash_ids": [0]})") ==
        "t.jsonl:2: input_length is missing" + integer + "1 to 4294967295");
  CHECK(second(R"({"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []})") ==
        "t.jsonl:2: input_length is 0" + integer + "1 to 4294967295");
  CHECK(second(R"({"timestamp": 1, "input_length": 4294967296, "output_length": 1, "hash_ids": []})") ==
        "t.jsonl:2: input_length is 4294967296" + integer + "1 to 4294967295");
  CHECK(second(R"({"timestamp": 1, "input_length": "9", "output_length": 1, "hash_ids": [0]})") ==
        "t.jsonl:2: input_length is \"9\"" + integer + "1 to 4294967295");
  CHECK(second(R"({"timestamp": 1, "input_length": 1, "output_length": -3, "hash_ids": [0]})") ==
        "t.jsonl:2: output_length is -3" + integer + "0 to 4294967295");
  CHECK(second(R"({"timestamp": 1, "input_length": 1, "output_length": 1})") ==
        "t.jsonl:2: hash_ids is missing, must be an array");
  CHECK(second(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 7})") ==
        "t.jsonl:2: hash_ids is 7, must be an array");
  CHECK(second(R"({"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [0, -1]})") ==
        "t.jsonl:2: hash_ids[1] is -1" + integer + "0 to 18446744073709551614");
  CHECK(
      second(
          R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [18446744073709551615]})") ==
      "t.jsonl:2: hash_ids[0] is 18446744073709551615" + integer + "0 to 18446744073709551614");
  CHECK(second(R"({"timestamp": 1, "input_length": 513, "output_length": 1, "hash_ids": [0]})") ==
        "t.jsonl:2: len(hash_ids) is 1, must be 2 = ceil(input_length 513 / 512)");
  CHECK(second(R"({"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [0, 1]})") ==
        "t.jsonl:2: len(hash_ids) is 2, must be 1 = ceil(input_length 512 / 512)");
  CHECK(second(R"({"timestamp": 1, "input_length": 1000, "output_length": 1, "hash_ids": [2, 1]})") ==
        "t.jsonl:2: hash_ids[1] is 1 after 2, must be after 0 as in line 1 (ids are prefix-chained)");
  CHECK(second(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1]})") ==
        "t.jsonl:2: hash_ids[0] is 1 after nothing, must be after 0 as in line 1 (ids are prefix-chained)");
}

TEST_CASE("trace: refusals of the text itself") {
  CHECK(refusal(good + "\n{\"timestamp\": 1,\n") ==
        "t.jsonl:3: the record at byte 17 is not valid JSON, must be one JSON object");
  CHECK(refusal(good + "[1]\n") == "t.jsonl:2: the record is array, must be a JSON object");
  CHECK(refusal(good + "{\"timestamp\": 1e999}\n") ==
        "t.jsonl:2: a number is out of range, must be a number that a double can hold");
  CHECK(refusal("") == "t.jsonl:1: the file is empty, must be of one request or more");
  CHECK(refusal("\n \r\n") == "t.jsonl:1: the file is empty, must be of one request or more");
  CHECK(refusal("\n{\"a\": 1}\n") ==
        "t.jsonl:2: the format is unknown, must be told by the field `requests` (weka), `chat_id` (qwen) or "
        "`hash_ids` (mooncake), or be named");
  CHECK(refusal("timestamp,input_length\n") ==
        "t.jsonl:1: the record at byte 2 is not valid JSON, must be one JSON object");
  const std::string long_value(500, 'x');
  CHECK(refusal(R"({"timestamp": ")" + long_value + R"(", "hash_ids": []})").size() < 200);
}

TEST_CASE("trace: refusals of qwen lines") {
  const auto at = [](const std::string& time) {
    return refusal(R"({"chat_id": 1, "timestamp": )" + time +
                   R"(, "input_length": 16, "output_length": 1, "hash_ids": [1]})");
  };
  const std::string rule = ", must be a number of seconds, 0 or more and below 2^53 ms";
  CHECK(at("-0.5") == "t.jsonl:1: timestamp is -0.5" + rule);
  CHECK(at("1e300") == "t.jsonl:1: timestamp is 1e+300" + rule);
  CHECK(at("null") == "t.jsonl:1: timestamp is null" + rule);
  CHECK(refusal(R"({"chat_id": 1, "input_length": 16, "output_length": 1, "hash_ids": [1]})") ==
        "t.jsonl:1: timestamp is missing" + rule);
  CHECK(
      refusal(R"({"chat_id": 1, "timestamp": 0, "input_length": 17, "output_length": 1, "hash_ids": [1]})") ==
      "t.jsonl:1: len(hash_ids) is 1, must be 2 = ceil(input_length 17 / 16)");
}

TEST_CASE("trace: refusals of weka sessions name the entry") {
  const std::string fine = session(R"({"t": 1, "in": 64, "out": 1, "hash_ids": [1]})");
  const auto entry = [&](const std::string& text) { return refusal(fine + session(text)); };
  const std::string integer = ", must be an integer from ";
  CHECK(entry(R"({"t": 1, "in": 0, "out": 1, "hash_ids": []})") ==
        "t.jsonl:2: requests[0].in is 0" + integer + "1 to 4294967295");
  CHECK(
      entry(
          R"({"t": 1, "type": "subagent", "requests": [{"t": 1, "in": 64, "out": -1, "hash_ids": [1]}]})") ==
      "t.jsonl:2: requests[0].requests[0].out is -1" + integer + "0 to 4294967295");
  CHECK(entry(R"({"t": 1, "type": "subagent"})") ==
        "t.jsonl:2: requests[0].requests is missing, must be an array");
  CHECK(entry(R"({"in": 64, "out": 1, "hash_ids": [1]})") ==
        "t.jsonl:2: requests[0].t is missing, must be a number of seconds, 0 or more and below 2^53 ms");
  CHECK(entry(R"({"t": 1, "in": 4000000000, "out": 1, "hash_ids": [1]})") ==
        "t.jsonl:2: requests[0].len(hash_ids) is 1, must be 62500000 = in 4000000000 / 64, "
        "rounded down or up");
  CHECK(entry(R"({"t": 1, "in": 65, "out": 1, "hash_ids": [1, 2, 3]})") ==
        "t.jsonl:2: requests[0].len(hash_ids) is 3, must be 1 or 2 = in 65 / 64, rounded down or up");
  CHECK(entry("7") == "t.jsonl:2: requests[0] is 7, must be an object");
  CHECK(refusal(fine + session("", "32")) ==
        "t.jsonl:2: block_size is 32, must be 64 as in the sessions before it");
  CHECK(refusal(session("", "0")) == "t.jsonl:1: block_size is 0" + integer + "1 to 65536");
  CHECK(refusal(R"({"block_size": 64, "requests": []})") ==
        "t.jsonl:1: hash_id_scope is missing, must be \"local\"");
  CHECK(refusal(R"({"block_size": 64, "hash_id_scope": "global", "requests": []})") ==
        "t.jsonl:1: hash_id_scope is \"global\", must be \"local\"");
  CHECK(refusal(session("")) == "t.jsonl:1: the trace is without requests, must be of one request or more");

  std::string deep = R"({"t": 1, "in": 64, "out": 1, "hash_ids": [1]})";
  for (int i = 0; i < 16; ++i) deep = R"({"t": 1, "requests": [)" + deep + "]}";
  CHECK(load(session(deep)).has_value());
  CHECK(entry(R"({"t": 1, "requests": [)" + deep + "]}").ends_with(".depth is 17, must be 16 or less"));
}

TEST_CASE("trace: a file that cannot be read is an io error with the system's reason") {
  const temp_file file{good};
  const auto missing = load_trace(file.directory() + "/none", trace_format::automatic, {});
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error() == error{errc::io, "trace " + file.directory() + "/none: No such file or directory"});
  const auto folder = load_trace(file.directory(), trace_format::automatic, {});
  REQUIRE_FALSE(folder.has_value());
  CHECK(folder.error() == error{errc::io, "trace " + file.directory() + ": Is a directory"});
}

TEST_CASE("generate: the same arguments give the same trace, another seed another one") {
  for (const char* workload : {"conversation", "agents"}) {
    CAPTURE(workload);
    const auto one = generate(workload, 500, 512, 7);
    const auto two = generate(workload, 500, 512, 7);
    const auto other = generate(workload, 500, 512, 8);
    REQUIRE((one.has_value() && two.has_value() && other.has_value()));
    CHECK(one->format == "generated");
    CHECK(one->source == std::string{workload} + " (seed 7)");
    REQUIRE(one->requests.size() == 500);
    bool same = true;
    bool same_as_other = true;
    for (std::size_t i = 0; i < 500; ++i) {
      const auto& a = one->requests[i];
      const auto& b = two->requests[i];
      same = same && a.at == b.at && a.input_tokens == b.input_tokens && a.output_tokens == b.output_tokens &&
             a.blocks == b.blocks;
      same_as_other = same_as_other && a.input_tokens == other->requests[i].input_tokens;
    }
    CHECK(same);
    CHECK_FALSE(same_as_other);
  }
}

TEST_CASE("generate: prompts are chained, in order of time and of real sizes") {
  for (const char* workload : {"conversation", "agents"}) {
    for (const std::uint32_t tokens_per_block : {16U, 512U}) {
      CAPTURE(workload);
      CAPTURE(tokens_per_block);
      const std::size_t count =
          tokens_per_block == 16 ? 2'000 : 12'000;  // enough for agents to reach their limit
      const auto t = generate(workload, count, tokens_per_block, 1);
      REQUIRE(t.has_value());
      CHECK(t->tokens_per_block == tokens_per_block);
      CHECK(is_chained(*t));
      std::uint64_t total = 0;
      std::uint32_t longest = 0;
      milliseconds last{0};
      bool in_order = true;
      bool plausible = true;
      for (const auto& request : t->requests) {
        in_order = in_order && request.at >= last;
        last = request.at;
        plausible = plausible && request.input_tokens >= 100 && request.input_tokens <= 100'000 &&
                    request.output_tokens >= 1 && request.output_tokens <= 2'000;
        total += request.input_tokens;
        longest = std::max(longest, request.input_tokens);
      }
      CHECK(in_order);
      CHECK(plausible);
      CHECK(longest > 40'000);
      CHECK(total / count > 5'000);
      CHECK(total / count < 25'000);
    }
  }
}

TEST_CASE("generate: refusals name the thing, the value and the rule") {
  const auto text = [](const result<trace>& r) {
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().code == errc::invalid);
    return r.error().text;
  };
  CHECK(text(generate("chat", 1, 16, 1)) == "workload is \"chat\", must be conversation or agents");
  CHECK(text(generate("agents", 0, 16, 1)) == "workload agents: requests is 0, must be 1 to 10000000");
  CHECK(text(generate("agents", 10'000'001, 16, 1)) ==
        "workload agents: requests is 10000001, must be 1 to 10000000");
  CHECK(text(generate("conversation", 1, 0, 1)) ==
        "workload conversation: tokens_per_block is 0, must be 1 to 65536");
  CHECK(text(generate("conversation", 1, 65'537, 1)) ==
        "workload conversation: tokens_per_block is 65537, must be 1 to 65536");
  CHECK(generate("conversation", 1, 65'536, 1).has_value());
}
