#include "tools/names_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "src/names.hpp"

namespace kvlease {
namespace {

using json = nlohmann::ordered_json;  // computed vectors are printed with their fields as the file has them

constexpr int schema_version = 1;
constexpr std::size_t max_file_bytes = std::size_t{1} << 30;  // read whole; a device must not eat all memory
constexpr std::uint32_t max_repeat = 1 << 20;                 // enough to be past the scope's limit
constexpr std::size_t max_quoted = 160;

// ---- Reading ----
// What the file's form excludes is `bad_input` and ends the run. What the names' rules exclude comes from
// src/names.cpp as errc::invalid: that is an answer, which an entry of `errors` expects.

/// Only inside this file; run_names turns it into exit code 2.
struct bad_input {
  std::string text;
};

std::string quoted(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > max_quoted) text = text.substr(0, max_quoted) + "...";
  return text;
}

/// A value and where it stands, e.g. "vectors[3] (mm-two-runs): reuse_scope.salt".
class field {
 public:
  field(const json& value, std::string at) : value_{&value}, at_{std::move(at)} {}

  const json& value() const { return *value_; }
  const std::string& at() const { return at_; }
  bool has(const char* name) const { return value_->contains(name); }
  /// Whether it is there and not null.
  bool given(const char* name) const { return has(name) && !value_->at(name).is_null(); }

  field operator[](const char* name) const {
    if (!value_->is_object()) refuse("an object");
    if (!has(name)) throw bad_input{fmt::format("{}{} is missing", prefix(), name)};
    return {value_->at(name), prefix() + name};
  }
  std::vector<field> list() const {
    if (!value_->is_array()) refuse("an array");
    std::vector<field> out;
    for (const json& item : *value_) out.emplace_back(item, fmt::format("{}[{}]", at_, out.size()));
    return out;
  }
  /// A field that nobody reads would be a misspelt one, taken for absent or for equal.
  void only(std::initializer_list<std::string_view> names) const {
    if (!value_->is_object()) refuse("an object");
    for (const auto& [name, value] : value_->items())
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw bad_input{fmt::format("{}{} is no known field", prefix(), name)};
  }
  std::string text() const {
    if (!value_->is_string()) refuse("a string");
    return value_->get<std::string>();
  }
  /// Of a type of at most 64 signed bits.
  template <class T = std::int64_t>
  T integer(T least = std::numeric_limits<T>::min(), T most = std::numeric_limits<T>::max()) const {
    const auto in_range = [&](auto n) {
      return std::cmp_less_equal(least, n) && std::cmp_less_equal(n, most);
    };
    const bool fits = value_->is_number_unsigned()
                          ? in_range(value_->get<std::uint64_t>())
                          : value_->is_number_integer() && in_range(value_->get<std::int64_t>());
    if (!fits) refuse(fmt::format("an integer from {} to {}", least, most));
    return value_->get<T>();
  }
  /// A number, or a decimal string: most JSON readers lose the low bits of large numbers.
  std::uint64_t u64() const {
    if (value_->is_number_unsigned()) return value_->get<std::uint64_t>();
    const std::string digits = value_->is_string() ? value_->get<std::string>() : "";
    std::uint64_t out = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (digits.empty() || failed != std::errc{} || end != digits.data() + digits.size())
      refuse("an unsigned 64-bit number or its decimal string");
    return out;
  }
  std::vector<std::byte> hex() const {
    auto bytes = from_hex(text());
    if (!bytes) throw bad_input{fmt::format("{} is no hex: {}", at_, bytes.error().text)};
    return *std::move(bytes);
  }
  digest hex_digest() const {
    const auto bytes = hex();
    digest out;
    if (bytes.size() != out.size()) refuse("64 hexadecimal digits");
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
  }
  [[noreturn]] void refuse(std::string_view rule) const {
    throw bad_input{
        fmt::format("{} is {}, must be {}", at_.empty() ? "the file" : at_, quoted(*value_), rule)};
  }

 private:
  /// Of a member: entries end in ")", their members follow a colon.
  std::string prefix() const {
    if (at_.empty()) return {};
    return at_ + (at_.back() == ')' ? ": " : ".");
  }
  const json* value_;
  std::string at_;
};

std::pair<std::int64_t, std::int64_t> integer_pair(const field& of) {
  const auto both = of.list();
  if (both.size() != 2) of.refuse("an array of 2 integers");
  return {both[0].integer(), both[1].integer()};
}

// ---- Entries as values ----

std::vector<std::byte> read_scope(const field& entry) {
  if (entry.given("scope_hex")) return entry["scope_hex"].hex();
  if (entry.has("scope_len"))
    return std::vector<std::byte>(entry["scope_len"].integer<std::uint32_t>(0, max_repeat));
  const field repeat = entry["scope_repeat"];
  const auto byte = repeat["byte_hex"].hex();
  if (byte.size() != 1) repeat["byte_hex"].refuse("one byte");
  return std::vector<std::byte>(repeat["count"].integer<std::uint32_t>(0, max_repeat), byte[0]);
}

std::vector<std::vector<std::uint32_t>> read_layers(const field& layers) {
  std::vector<std::vector<std::uint32_t>> out;
  for (const field& group : layers.list()) {
    auto& ids = out.emplace_back();
    for (const field& id : group.list()) ids.push_back(id.integer<std::uint32_t>());
  }
  return out;
}

std::vector<shard> read_shards(const field& shards) {
  std::vector<shard> out;
  for (const field& pair : shards.list()) {
    const auto [count, index] = integer_pair(pair);
    out.push_back({count, index});
  }
  return out;
}

/// All four fields, unless `partial`: then what is not given is made up, and valid.
result<identity> read_identity(const field& entry, bool partial) {
  std::vector<std::byte> scope;
  if (!partial || entry.has("scope_hex") || entry.has("scope_len") || entry.has("scope_repeat"))
    scope = read_scope(entry);
  std::vector<std::byte> layout_id{std::byte{1}};
  if (entry.has("layout_id_hex") || !partial) layout_id = entry["layout_id_hex"].hex();
  std::vector<shard> shards;
  std::vector<std::vector<std::uint32_t>> layers;
  if (entry.has("shards") || !partial) shards = read_shards(entry["shards"]);
  if (entry.has("layers") || !partial) {
    layers = read_layers(entry["layers"]);
    if (!entry.has("shards")) shards.resize(layers.size());
  } else {
    if (!entry.has("shards")) shards.resize(1);
    layers.resize(shards.size());
  }
  return identity::make(scope, layout_id, layers, shards);
}

reuse_scope read_reuse_scope(const field& entry) {
  reuse_scope out;
  if (!entry.given("reuse_scope")) return out;
  const field scope = entry["reuse_scope"];
  scope.only({"lora_id", "salt", "cache_salt", "bytes_hex"});
  if (scope.given("lora_id")) out.lora_id = scope["lora_id"].u64();
  if (scope.given("salt")) out.salt = scope["salt"].u64();
  if (scope.given("cache_salt")) out.salt = salt_from_string(scope["cache_salt"].text());
  return out;
}

multimodal_item read_item(const field& item) {
  multimodal_item out;
  item.only({"hash_words", "digest_hex", "runs", "position", "length"});
  if (item.given("hash_words")) {
    const auto words = item["hash_words"].list();
    std::array<std::int32_t, 8> values{};
    if (words.size() != values.size()) item["hash_words"].refuse("an array of 8 integers");
    std::transform(words.begin(), words.end(), values.begin(),
                   [](const field& word) { return word.integer<std::int32_t>(); });
    out.hash = digest_from_words(values);
  } else if (item.given("digest_hex")) {
    out.hash = item["digest_hex"].hex_digest();
  }
  if (item.has("position") || item.has("length"))
    out.span = token_run{item["position"].integer(), item["length"].integer()};
  if (out.span && !item.has("runs")) return out;
  for (const field& run : item["runs"].list()) {
    const auto [position, length] = integer_pair(run);
    out.runs.push_back({position, length});
  }
  return out;
}

result<token_list> read_tokens(const field& entry) {
  std::vector<std::uint32_t> ids;
  for (const field& token : entry["prompt_tokens"].list()) {
    const std::int64_t id = token.integer();
    if (id < 0 || id >= token_id_limit)  // what does not fit below must be refused here
      return fail(errc::invalid,
                  fmt::format("token {} is id {}, must be 0 or more and below 2^31", ids.size(), id));
    ids.push_back(static_cast<std::uint32_t>(id));
  }
  std::vector<multimodal_item> items;
  bool hashed = false;  // only then is the vocabulary needed
  if (entry.given("multimodal_items"))
    for (const field& item : entry["multimodal_items"].list())
      hashed |= items.emplace_back(read_item(item)).hash.has_value();
  return apply_multimodal(std::move(ids), items, hashed ? entry["vocab_size"].integer() : 0);
}

// ---- Computing ----

json key_tokens(const token_list& tokens) {
  json out = tokens.ids;
  for (const token_digest& d : tokens.digests) out[d.position] = "digest:" + to_hex(d.value);
  return out;
}

json expected_fields(const identity& names, const digest& root, std::span<const digest> keys) {
  json keys_hex = json::array(), canonical = json::array(), all_names = json::array(), parts = json::array();
  for (const digest& key : keys) keys_hex.push_back(to_hex(key));
  std::vector<std::int64_t> groups(names.groups());
  std::iota(groups.begin(), groups.end(), 0);
  for (const std::int64_t g : groups) {
    canonical.push_back(names.canonical(g).value());
    parts.push_back(names.part_name(std::array{g}).value());
    json& of_group = all_names.emplace_back(json::array());
    for (const digest& key : keys) of_group.push_back(to_hex(names.name(g, key).value().bytes));
  }
  return {{"namespace_hex", to_hex(names.namespace_id())},
          {"canonical", std::move(canonical)},
          {"root_key_hex", to_hex(root)},
          {"block_keys_hex", std::move(keys_hex)},
          {"names_hex", std::move(all_names)},
          {"part_name_per_group", std::move(parts)},
          {"part_name_all_groups", groups.empty() ? json{} : json(names.part_name(groups).value())}};
}

/// The entry with all that follows from its inputs: salt, bytes and digests, key_tokens and expected.
result<json> completed(const field& entry) {
  const auto names = read_identity(entry, false);
  if (!names) return tl::unexpected{names.error()};
  const reuse_scope scope = read_reuse_scope(entry);
  const auto tokens = read_tokens(entry);
  if (!tokens) return tl::unexpected{tokens.error()};
  const digest root = root_key(scope);
  const auto keys = block_keys(root, *tokens, entry["tokens_per_block"].integer());
  if (!keys) return tl::unexpected{keys.error()};
  json out = entry.value();
  if (entry.given("reuse_scope")) {
    if (scope.salt) out["reuse_scope"]["salt"] = std::to_string(*scope.salt);
    out["reuse_scope"]["bytes_hex"] = to_hex(scope.serialized());
  }
  if (entry.given("multimodal_items")) {
    const auto items = entry["multimodal_items"].list();
    for (std::size_t i = 0; i < items.size(); ++i)
      if (const auto item = read_item(items[i]); item.hash)
        out["multimodal_items"][i]["digest_hex"] = to_hex(*item.hash);
  }
  out["key_tokens"] = key_tokens(*tokens);
  out["expected"] = expected_fields(*names, root, *keys);
  return out;
}

// ---- Comparing ----

struct report {
  std::size_t vectors = 0, pins = 0, errors = 0;  ///< compared
  std::string id;                                 ///< of the entry that is being compared
  json mismatches = json::array();
  json computed = json::array();

  void mismatch(std::string_view where, const json& file, const json& ours) {
    mismatches.push_back({{"id", id}, {"field", where}, {"file", file}, {"computed", ours}});
  }
  /// Adds the first difference between two values, at its own path.
  void compare(const std::string& where, const json& file, const json& ours) {
    if (file == ours) return;
    if (!file.is_array() || !ours.is_array()) return mismatch(where, file, ours);
    const std::size_t both = std::min(file.size(), ours.size());
    for (std::size_t i = 0; i < both; ++i)
      if (file[i] != ours[i]) return compare(fmt::format("{}[{}]", where, i), file[i], ours[i]);
    mismatch(where + " (length)", file.size(), ours.size());
  }
};

/// The derived values that may stand among a vector's inputs.
void compare_derived(const field& entry, const json& ours, report& to) {
  if (entry.given("key_tokens")) to.compare("key_tokens", entry["key_tokens"].value(), ours.at("key_tokens"));
  if (entry.given("reuse_scope")) {
    const field scope = entry["reuse_scope"];
    if (scope.given("salt"))  // as text, whichever way the file writes it
      to.compare("reuse_scope.salt", std::to_string(scope["salt"].u64()), ours["reuse_scope"]["salt"]);
    if (scope.given("bytes_hex"))
      to.compare("reuse_scope.bytes_hex", to_hex(scope["bytes_hex"].hex()), ours["reuse_scope"]["bytes_hex"]);
  }
  if (!entry.given("multimodal_items")) return;
  const auto items = entry["multimodal_items"].list();
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].given("digest_hex"))
      to.compare(fmt::format("multimodal_items[{}].digest_hex", i), to_hex(items[i]["digest_hex"].hex()),
                 ours["multimodal_items"][i]["digest_hex"]);
}

void check_vector(const field& entry, report& to) {
  entry.only({"id", "what", "basis", "scope_hex", "scope_len", "scope_repeat", "layout_id_hex", "layers",
              "shards", "tokens_per_block", "reuse_scope", "vocab_size", "multimodal_items", "prompt_tokens",
              "key_tokens", "expected"});
  const bool compared = entry.given("expected");
  auto ours = completed(entry);
  if (!ours && !compared) throw bad_input{entry.at() + ": " + ours.error().text};
  if (compared) {
    ++to.vectors;
    if (!ours) return to.mismatch("expected", "a value", ours.error().text);
    const field file = entry["expected"];
    file.only({"namespace_hex", "canonical", "root_key_hex", "block_keys_hex", "names_hex",
               "part_name_per_group", "part_name_all_groups"});
    for (const auto& [name, value] : ours->at("expected").items())
      to.compare("expected." + name, file[name.c_str()].value(), value);
  }
  compare_derived(entry, *ours, to);
  if (!compared) to.computed.push_back(*std::move(ours));
}

void check_part_names(const field& entry, const identity& names, report& to) {
  for (const field& part : entry["expected"].list()) {
    std::vector<std::int64_t> groups;
    for (const field& g : part["groups"].list()) groups.push_back(g.integer());
    const auto ours = names.part_name(groups);
    to.compare(fmt::format("part of groups {}", part["groups"].value().dump()), part["part"].text(),
               ours ? *ours : ours.error().text);
  }
}

/// Each kind of pin is told by the field that holds what is pinned.
void check_pin(const field& entry, report& to) {
  ++to.pins;
  const bool name = entry.has("expected_name_hex");
  const bool layout = entry.has("expected_layout_id_hex");
  const bool parts = entry.has("expected");
  if (name + layout + parts != 1)
    throw bad_input{
        entry.at() +
        ": unknown kind of pin, must have one of expected_name_hex, expected_layout_id_hex and expected"};
  if (layout) {
    const std::string document = entry["document"].text();
    return to.compare("expected_layout_id_hex", to_hex(entry["expected_layout_id_hex"].hex()),
                      to_hex(sha256(std::as_bytes(std::span{document}))));
  }
  for (const char* needed : {"layout_id_hex", "layers"}) (void)entry[needed];
  const auto names = read_identity(entry, parts);  // scope and shards have no say in part names
  if (!names) return to.mismatch("inputs", "valid", names.error().text);
  if (parts) return check_part_names(entry, *names, to);
  const auto ours = names->name(entry["layer_group"].integer(), entry["key_hex"].hex_digest());
  to.compare("expected_name_hex", to_hex(entry["expected_name_hex"].hex()),
             ours ? to_hex(ours->bytes) : ours.error().text);
}

/// The first refusal of an entry's inputs, as far as it has any.
result<void> try_error(const field& entry) {
  const auto names = read_identity(entry, true);
  if (!names) return tl::unexpected{names.error()};
  if (entry.has("layer_group"))
    if (auto ok = names->canonical(entry["layer_group"].integer()); !ok) return tl::unexpected{ok.error()};
  if (!entry.has("prompt_tokens")) return {};
  const auto tokens = read_tokens(entry);
  if (!tokens) return tl::unexpected{tokens.error()};
  const std::int64_t tokens_per_block =
      entry.has("tokens_per_block") ? entry["tokens_per_block"].integer() : 1;
  return block_keys(root_key(read_reuse_scope(entry)), *tokens, tokens_per_block).map([](const auto&) {});
}

void check_error(const field& entry, report& to) {
  ++to.errors;
  if (entry["error"].text() != "value") entry["error"].refuse("\"value\", the only class there is");
  const auto ours = try_error(entry);
  if (ours) return to.mismatch("error", "value", "accepted");
  if (ours.error().code != errc::invalid) to.mismatch("error", "value", ours.error().text);
}

// ---- The file ----

json parse(const std::string& file, const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(e.byte, text.size()));
    std::string_view why = e.what();  // "[json...] parse error at line 1, column 2: syntax error ..."
    if (const auto colon = why.find(": "); colon != std::string_view::npos) why.remove_prefix(colon + 2);
    throw bad_input{fmt::format("{}:{}: malformed JSON at byte {}: {}", file,
                                1 + std::count(text.begin(), end, '\n'), e.byte, why)};
  } catch (const json::exception& e) {  // a number that no double holds
    throw bad_input{fmt::format("{}: malformed JSON: {}", file, e.what())};
  }
}

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in{std::fopen(path.c_str(), "rb"), &std::fclose};
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (in) {
    const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), in.get());
    text.append(chunk.data(), got);
    if (text.size() > max_file_bytes)
      throw bad_input{fmt::format("{}: must be at most {} bytes", path, max_file_bytes)};
    if (got > 0) continue;
    if (std::ferror(in.get()) != 0) break;
    return text;
  }
  throw bad_input{fmt::format("{}: cannot be read: {}", path, std::strerror(errno))};
}

report check_file(const std::string& path) {
  using checker = void (*)(const field& entry, report& to);
  constexpr std::array<std::pair<const char*, checker>, 3> lists{
      {{"vectors", check_vector}, {"pins", check_pin}, {"errors", check_error}}};
  const json document = parse(path, read_file(path));
  report to;
  try {
    field{document, ""}.only({"description", "token_encoding", "vectors", "pins", "errors"});
    for (const auto& [name, check] : lists) {
      if (!document.contains(name)) continue;
      for (const field& unnamed : field{document.at(name), name}.list()) {
        to.id = unnamed["id"].text();
        check({unnamed.value(), fmt::format("{} ({})", unnamed.at(), to.id)}, to);
      }
    }
  } catch (const bad_input& e) {
    throw bad_input{path + ": " + e.text};
  }
  if (to.vectors + to.pins + to.errors + to.computed.size() == 0)
    throw bad_input{path + ": holds no vectors, pins or errors"};
  return to;
}

// ---- Printing ----

void print_text(const report& r, std::ostream& out) {
  out << fmt::format("names: {} vectors, {} pins, {} errors: ", r.vectors, r.pins, r.errors);
  if (r.mismatches.empty()) {
    out << (r.vectors + r.pins + r.errors == 0 ? "nothing to compare" : "all equal");
  } else {
    out << r.mismatches.size() << (r.mismatches.size() == 1 ? " mismatch" : " mismatches");
  }
  if (!r.computed.empty()) out << "; " << r.computed.size() << " computed";
  out << '\n';
  for (const json& m : r.mismatches)
    out << fmt::format("{}: {}: the file has {}, computed {}\n", m["id"].get<std::string>(),
                       m["field"].get<std::string>(), quoted(m["file"]), quoted(m["computed"]));
  if (!r.computed.empty()) out << json{{"vectors", r.computed}}.dump(1) << '\n';
}

void print_json(const report& r, const std::string& file, std::ostream& out) {
  out << json{{"schema_version", schema_version},
              {"vectors_file", file},
              {"counts",
               {{"vectors", r.vectors},
                {"pins", r.pins},
                {"errors", r.errors},
                {"mismatches", r.mismatches.size()},
                {"computed", r.computed.size()}}},
              {"mismatches", r.mismatches},
              {"computed", r.computed}}
             .dump(1, ' ', false, json::error_handler_t::replace)  // a path need not be UTF-8
      << '\n';
}

}  // namespace

int run_names(const names_options& options, std::ostream& out, std::ostream& err) {
  try {
    const report r = check_file(options.vectors);
    if (options.json) {
      print_json(r, options.vectors, out);
    } else {
      print_text(r, out);
    }
    return r.mismatches.empty() ? 0 : 1;
  } catch (const bad_input& e) {
    err << "names: " << e.text << '\n';
    return 2;
  }
}

}  // namespace kvlease
