#include "tools/replay/trace.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace kvlease::replay {
namespace {

using json = nlohmann::json;

constexpr std::size_t max_file_bytes = std::size_t{4} << 30;  // read whole; a pipe must not eat all memory
constexpr std::uint64_t max_id = std::numeric_limits<std::uint64_t>::max() - 1;
constexpr std::uint64_t no_block = max_id + 1;  // stands for "nothing before it"
constexpr std::uint64_t max_tokens = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t max_millis = std::uint64_t{1} << 53;  // doubles count milliseconds exactly below it
constexpr std::uint64_t max_block_tokens = 65536;
constexpr std::uint32_t mooncake_block_tokens = 512;
constexpr std::uint32_t qwen_block_tokens = 16;
constexpr int max_nesting = 16;  // of subagents: the walk below recurses
constexpr std::size_t max_quoted = 48;

/// Where a record stands. The path is "" for a line's own fields, else as "requests[3].".
struct place {
  const std::string& file;
  std::size_t line;
  std::string path;

  tl::unexpected<error> refuse(const std::string& text) const {
    return fail(errc::invalid, file + ":" + std::to_string(line) + ": " + text);
  }
  tl::unexpected<error> refuse(std::string_view name, std::string_view value, std::string_view rule) const {
    std::string text{path};
    return refuse(text.append(name).append(" is ").append(value).append(", must be ").append(rule));
  }
};

/// A value as the file has it, cut: it may be a whole array.
std::string quoted(const json& value) {
  std::string text = value.is_structured() ? std::string{value.type_name()}
                                           : value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > max_quoted) text = text.substr(0, max_quoted) + "...";
  return text;
}

std::string range_rule(std::uint64_t least, std::uint64_t most) {
  return "an integer from " + std::to_string(least) + " to " + std::to_string(most);
}

result<std::uint64_t> as_integer(const json& value, std::string_view name, const place& at,
                                 std::uint64_t least, std::uint64_t most) {
  if (!value.is_number_unsigned()) return at.refuse(name, quoted(value), range_rule(least, most));
  const auto number = value.get<std::uint64_t>();
  if (number < least || number > most) return at.refuse(name, quoted(value), range_rule(least, most));
  return number;
}

result<std::uint64_t> integer_field(const json& object, const char* name, const place& at,
                                    std::uint64_t least, std::uint64_t most) {
  const auto found = object.find(name);
  if (found == object.end()) return at.refuse(name, "missing", range_rule(least, most));
  return as_integer(*found, name, at, least, most);
}

result<std::chrono::milliseconds> seconds_field(const json& object, const char* name, const place& at) {
  const std::string rule = "a number of seconds, 0 or more and below 2^53 ms";
  const auto found = object.find(name);
  if (found == object.end()) return at.refuse(name, "missing", rule);
  if (!found->is_number()) return at.refuse(name, quoted(*found), rule);
  const double millis = found->get<double>() * 1000.0;
  if (!(millis >= 0) || millis >= static_cast<double>(max_millis)) {
    return at.refuse(name, quoted(*found), rule);
  }
  return std::chrono::milliseconds{std::llround(millis)};
}

result<const json*> array_field(const json& object, const char* name, const place& at) {
  const auto found = object.find(name);
  if (found == object.end()) return at.refuse(name, "missing", "an array");
  if (!found->is_array()) return at.refuse(name, quoted(*found), "an array");
  return &*found;
}

result<std::vector<std::uint64_t>> ids_field(const json& object, const place& at) {
  const auto array = array_field(object, "hash_ids", at);
  if (!array) return tl::unexpected{array.error()};
  std::vector<std::uint64_t> ids;
  ids.reserve((*array)->size());  // as many as the parser has already stored
  for (const json& value : **array) {
    if (!value.is_number_unsigned()) {  // the name is only built for an error: this loop is the load's cost
      return at.refuse("hash_ids[" + std::to_string(ids.size()) + "]", quoted(value), range_rule(0, max_id));
    }
    const auto id = value.get<std::uint64_t>();
    if (id > max_id) {
      return at.refuse("hash_ids[" + std::to_string(ids.size()) + "]", quoted(value), range_rule(0, max_id));
    }
    ids.push_back(id);
  }
  return ids;
}

std::uint64_t ceil_div(std::uint64_t tokens, std::uint64_t per_block) {
  return tokens / per_block + (tokens % per_block != 0 ? 1 : 0);
}

/// Checks that an id always follows the same id, where the format promises it.
class chain_check {
 public:
  result<void> add(const std::vector<std::uint64_t>& ids, const place& at) {
    std::uint64_t before = no_block;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto [known, is_new] = before_.try_emplace(ids[i], before, at.line);
      if (!is_new && known->second.first != before) {
        return at.refuse("hash_ids[" + std::to_string(i) + "]",
                         std::to_string(ids[i]) + " after " + name(before),
                         "after " + name(known->second.first) + " as in line " +
                             std::to_string(known->second.second) + " (ids are prefix-chained)");
      }
      before = ids[i];
    }
    return {};
  }

 private:
  static std::string name(std::uint64_t id) { return id == no_block ? "nothing" : std::to_string(id); }

  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::size_t>> before_;
};

/// Renumbers ids by (predecessor, id): chained by construction, and equal only where the whole prefix is.
class chain_map {
 public:
  /// Forgets the ids of one session; those given out are never given again.
  void new_scope() { known_.clear(); }
  std::uint64_t fresh() { return next_++; }

  void renumber(std::vector<std::uint64_t>& ids) {
    std::uint64_t before = no_block;
    for (auto& id : ids) {
      const auto [known, is_new] = known_.try_emplace(key{before, id}, next_);
      if (is_new) ++next_;
      id = before = known->second;
    }
  }

 private:
  struct key {
    std::uint64_t before;
    std::uint64_t id;
    bool operator==(const key&) const = default;
  };
  struct hash {
    std::size_t operator()(const key& k) const noexcept {
      return static_cast<std::size_t>((k.before * 0x9E3779B97F4A7C15ULL) ^ (k.id + (k.before >> 32)));
    }
  };
  std::unordered_map<key, std::uint64_t, hash> known_;
  std::uint64_t next_ = 0;
};

/// A request whose time may still have to be moved by those of the subagent entries around it.
struct pending_request {
  trace_request request;
  std::chrono::milliseconds entries_at{0};
};

/// Takes the records of one file, in file order, and yields the trace.
class loader {
 public:
  loader(const std::string& path, trace_format format) : file_{path}, format_{format} {
    if (format == trace_format::mooncake) tokens_per_block_ = mooncake_block_tokens;
    if (format == trace_format::qwen) tokens_per_block_ = qwen_block_tokens;
  }

  result<void> add(const json& record, std::size_t line) {
    const place at{file_, line, ""};
    if (!record.is_object()) return at.refuse("the record", quoted(record), "a JSON object");
    return format_ == trace_format::weka ? add_session(record, at) : add_request(record, at);
  }

  trace finish(std::optional<std::size_t> limit) {
    for (auto& each : pending_) {
      if (subagents_relative_) each.request.at += each.entries_at;
    }
    std::stable_sort(
        pending_.begin(), pending_.end(),
        [](const pending_request& a, const pending_request& b) { return a.request.at < b.request.at; });
    const std::size_t kept = std::min(limit.value_or(pending_.size()), pending_.size());
    trace out{format_name(), file_, tokens_per_block_, {}};
    out.requests.reserve(kept);
    for (std::size_t i = 0; i < kept; ++i) out.requests.push_back(std::move(pending_[i].request));
    return out;
  }

  bool empty() const { return pending_.empty(); }

 private:
  std::string format_name() const {
    if (format_ == trace_format::mooncake) return "mooncake";
    return format_ == trace_format::qwen ? "qwen" : "weka";
  }

  result<void> add_request(const json& record, const place& at) {
    trace_request request;
    if (format_ == trace_format::mooncake) {
      const auto millis = integer_field(record, "timestamp", at, 0, max_millis);
      if (!millis) return tl::unexpected{millis.error()};
      request.at = std::chrono::milliseconds{*millis};
    } else {
      const auto time = seconds_field(record, "timestamp", at);
      if (!time) return tl::unexpected{time.error()};
      request.at = *time;
    }
    if (auto read = read_prompt(record, "input_length", "output_length", at, request); !read) return read;
    const std::uint64_t due = ceil_div(request.input_tokens, tokens_per_block_);
    if (request.blocks.size() != due) {
      return at.refuse("len(hash_ids)", std::to_string(request.blocks.size()),
                       std::to_string(due) + " = ceil(input_length " + std::to_string(request.input_tokens) +
                           " / " + std::to_string(tokens_per_block_) + ")");
    }
    if (format_ == trace_format::qwen) {
      ids_.renumber(request.blocks);
    } else if (auto chained = chain_.add(request.blocks, at); !chained) {
      return chained;
    }
    pending_.push_back({std::move(request)});
    return {};
  }

  static result<void> read_prompt(const json& record, const char* input, const char* output, const place& at,
                                  trace_request& into) {
    const auto in = integer_field(record, input, at, 1, max_tokens);
    if (!in) return tl::unexpected{in.error()};
    const auto out = integer_field(record, output, at, 0, max_tokens);
    if (!out) return tl::unexpected{out.error()};
    auto ids = ids_field(record, at);
    if (!ids) return tl::unexpected{ids.error()};
    into.input_tokens = static_cast<std::uint32_t>(*in);
    into.output_tokens = static_cast<std::uint32_t>(*out);
    into.blocks = std::move(*ids);
    return {};
  }

  result<void> add_session(const json& session, const place& at) {
    const auto block = integer_field(session, "block_size", at, 1, max_block_tokens);
    if (!block) return tl::unexpected{block.error()};
    if (tokens_per_block_ == 0) tokens_per_block_ = static_cast<std::uint32_t>(*block);
    if (*block != tokens_per_block_) {
      return at.refuse("block_size", std::to_string(*block),
                       std::to_string(tokens_per_block_) + " as in the sessions before it");
    }
    const auto scope = session.find("hash_id_scope");
    if (scope == session.end()) return at.refuse("hash_id_scope", "missing", "\"local\"");
    if (*scope != "local") return at.refuse("hash_id_scope", quoted(*scope), "\"local\"");
    ids_.new_scope();
    return add_entries(session, at, {}, 0);
  }

  /// When a subagent entry began: as written, and if all times count from the entry around them.
  struct entry_time {
    std::chrono::milliseconds written{0};
    std::chrono::milliseconds summed{0};
  };

  /// The requests of a session or of a subagent entry; entries nest.
  result<void> add_entries(const json& holder, const place& at, entry_time began, int depth) {
    const auto entries = array_field(holder, "requests", at);
    if (!entries) return tl::unexpected{entries.error()};
    for (std::size_t i = 0; i < (*entries)->size(); ++i) {
      const json& entry = (**entries)[i];
      const std::string here = at.path + "requests[" + std::to_string(i) + "]";
      const place inside{file_, at.line, here + "."};
      if (!entry.is_object())
        return at.refuse("requests[" + std::to_string(i) + "]", quoted(entry), "an object");
      const auto time = seconds_field(entry, "t", inside);
      if (!time) return tl::unexpected{time.error()};
      if (*time < began.written) subagents_relative_ = true;
      const auto type = entry.find("type");
      const bool nested = entry.contains("requests") || (type != entry.end() && *type == "subagent");
      if (nested && depth == max_nesting) {
        return inside.refuse("depth", std::to_string(depth + 1), std::to_string(max_nesting) + " or less");
      }
      auto added = nested ? add_entries(entry, inside, {*time, began.summed + *time}, depth + 1)
                          : add_call(entry, inside, *time, began.summed);
      if (!added) return added;
    }
    return {};
  }

  result<void> add_call(const json& entry, const place& at, std::chrono::milliseconds time,
                        std::chrono::milliseconds entries_at) {
    trace_request request;
    request.at = time;
    if (auto read = read_prompt(entry, "in", "out", at, request); !read) return read;
    const std::uint64_t whole = request.input_tokens / tokens_per_block_;
    const std::uint64_t due = ceil_div(request.input_tokens, tokens_per_block_);
    const std::size_t given = request.blocks.size();
    if (given != whole && given != due) {
      const std::string either = whole == due ? "" : std::to_string(whole) + " or ";
      return at.refuse("len(hash_ids)", std::to_string(given),
                       either + std::to_string(due) + " = in " + std::to_string(request.input_tokens) +
                           " / " + std::to_string(tokens_per_block_) + ", rounded down or up");
    }
    ids_.renumber(request.blocks);
    if (given < due) request.blocks.push_back(ids_.fresh());
    pending_.push_back({std::move(request), entries_at});
    return {};
  }

  const std::string& file_;
  trace_format format_;
  std::uint32_t tokens_per_block_ = 0;
  std::vector<pending_request> pending_;
  chain_check chain_;
  chain_map ids_;
  bool subagents_relative_ = false;
};

result<std::string> read_file(const std::string& path) {
  const auto failed = [&] { return fail(errc::io, "trace " + path + ": " + std::strerror(errno)); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "rb"), &std::fclose};
  if (!file) return failed();
  std::string text;
  std::vector<char> chunk(std::size_t{1} << 20);
  while (true) {
    const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    if (got < chunk.size() && std::ferror(file.get()) != 0) return failed();  // a directory ends here
    text.append(chunk.data(), got);
    if (text.size() > max_file_bytes) {
      return fail(errc::capacity, "trace " + path + ": has more than " + std::to_string(max_file_bytes) +
                                      " bytes, must have at most that many");
    }
    if (got < chunk.size()) return text;
  }
}

/// One JSON text whose first line is `line`; an error names the line it lies on.
result<json> parse_json(std::string_view text, const std::string& file, std::size_t line) {
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::parse_error& e) {
    const std::size_t upto = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const auto skipped = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(upto), '\n');
    return place{file, line + static_cast<std::size_t>(skipped), ""}.refuse(
        "the record at byte " + std::to_string(e.byte), "not valid JSON", "one JSON object");
  } catch (const json::exception&) {  // the only other one that a parse throws: out of range
    return place{file, line, ""}.refuse("a number", "out of range", "a number that a double can hold");
  }
}

/// Splits off the next line that is not blank. False at the end.
bool next_line(std::string_view& rest, std::string_view& line, std::size_t& number) {
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return true;
  }
  return false;
}

result<trace_format> detect(const json& first, const std::string& file, std::size_t line) {
  if (first.is_object()) {
    if (first.contains("requests")) return trace_format::weka;
    if (first.contains("chat_id")) return trace_format::qwen;
    if (first.contains("hash_ids") || first.contains("input_length")) return trace_format::mooncake;
  }
  return place{file, line, ""}.refuse(
      "the format", "unknown",
      "told by the field `requests` (weka), `chat_id` (qwen) or `hash_ids` (mooncake), or be named");
}

}  // namespace

result<trace_format> parse_format(std::string_view name) {
  if (name == "auto") return trace_format::automatic;
  if (name == "mooncake") return trace_format::mooncake;
  if (name == "qwen") return trace_format::qwen;
  if (name == "weka") return trace_format::weka;
  return fail(errc::invalid,
              "trace format is \"" + std::string{name} + "\", must be auto, mooncake, qwen or weka");
}

result<trace> load_trace(const std::string& path, trace_format format, std::optional<std::size_t> limit) {
  if (limit == std::size_t{0}) return fail(errc::invalid, "trace limit is 0, must be 1 or more");
  const auto text = read_file(path);
  if (!text) return tl::unexpected{text.error()};

  std::string_view rest = *text;
  std::string_view line;
  std::size_t number = 0;
  if (!next_line(rest, line, number))
    return place{path, 1, ""}.refuse("the file", "empty", "of one request or more");
  auto record = parse_json(line, path, number);
  const bool may_be_session = format == trace_format::automatic || format == trace_format::weka;
  if (!record &&
      may_be_session) {  // a session written over several lines: then all of the file is one record
    auto whole = parse_json(*text, path, 1);
    if (whole || format == trace_format::weka) {
      record = std::move(whole);
      rest = {};
    }
  }
  if (!record) return tl::unexpected{record.error()};
  if (format == trace_format::automatic) {
    const auto told = detect(*record, path, number);
    if (!told) return tl::unexpected{told.error()};
    format = *told;
  }

  loader into{path, format};
  while (true) {
    if (auto added = into.add(*record, number); !added) return tl::unexpected{added.error()};
    if (!next_line(rest, line, number)) break;
    record = parse_json(line, path, number);
    if (!record) return tl::unexpected{record.error()};
  }
  if (into.empty())
    return place{path, number, ""}.refuse("the trace", "without requests", "of one request or more");
  return into.finish(limit);
}

}  // namespace kvlease::replay
