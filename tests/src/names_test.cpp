// Names, part names, reuse scopes, block keys and multimodal prompts, row by row of scenarios 7.E and 7.O.
#include "src/names.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <unordered_set>

namespace kvlease {
namespace {

using layer_lists = std::vector<std::vector<std::uint32_t>>;
using shards = std::vector<shard>;
using groups = std::vector<std::int64_t>;

std::vector<std::byte> bytes(std::string_view text) {
  const auto view = std::as_bytes(std::span{text});
  return {view.begin(), view.end()};
}

std::vector<std::byte> hex(std::string_view text) { return from_hex(text).value(); }

digest hex_digest(std::string_view text) {
  digest out;
  REQUIRE(text.size() == 2 * out.size());
  std::ranges::copy(hex(text), out.begin());
  return out;
}

/// A key as good as any.
digest key(std::uint8_t n) { return sha256(std::array{std::byte{n}}); }

identity make(std::string_view scope = "scope", std::string_view layout = "layout",
              const layer_lists& layers = {{0}, {1}}, const shards& of = {{1, 0}, {1, 0}}) {
  return identity::make(bytes(scope), bytes(layout), layers, of).value();
}

std::string refusal(std::string_view scope, std::string_view layout, const layer_lists& layers,
                    const shards& of) {
  const auto made = identity::make(bytes(scope), bytes(layout), layers, of);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == errc::invalid);
  return made.error().text;
}

std::string name_hex(const identity& of, std::int64_t group, const digest& k) {
  return to_hex(of.name(group, k).value().bytes);
}

/// The names of a few keys in each of `which`.
std::set<block_name> names(const identity& of, const groups& which = {0, 1}) {
  std::set<block_name> out;
  for (const std::int64_t g : which)
    for (std::uint8_t n = 0; n < 4; ++n) out.insert(of.name(g, key(n)).value());
  REQUIRE(out.size() == 4 * which.size());
  return out;
}

bool disjoint(const std::set<block_name>& a, const std::set<block_name>& b) {
  return std::ranges::none_of(a, [&](const block_name& n) { return b.contains(n); });
}

const std::string golden_layout = "94ede4f3bb6ba356921f266190dc66280f21fe93edaa7f7c717fddc9d815670d";
const layer_lists golden_layers{{4, 5}, {0, 1, 2, 3}};

// ---- 7.E Names ----

TEST_CASE("NM-01 anatomy: namespace, key, canonical group, shard count, shard index") {
  const auto id = make("scope", "layout", {{50}, {10}, {20}, {30}, {40}, {5}},
                       {{4, 3}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}});
  const std::string n = name_hex(id, 0, key(1));
  CHECK(n.size() == 2 * 54);
  CHECK(n == to_hex(id.namespace_id()) + to_hex(key(1)) + "000500040003");
}

TEST_CASE("NM-02 the pinned name") {
  CHECK(name_version == 2);
  const auto id = identity::make(hex("1a3a86f2ce5c55b257fc3af4f8bc886f968394e3533e47644088aae9a75a0336"),
                                 hex(golden_layout), golden_layers, {{4, 3}, {1, 0}})
                      .value();
  CHECK(name_hex(id, 0, hex_digest("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")) ==
        "ac0cbcea5a240bde17f6bac29386876a"
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f000100040003");
}

TEST_CASE("NM-03 the pinned part names") {
  const auto id = identity::make({}, hex(golden_layout), golden_layers, {{1, 0}, {1, 0}}).value();
  CHECK(id.part_name(groups{0}) == "94ede4f3bb6ba356:lg1");
  CHECK(id.part_name(groups{1}) == "94ede4f3bb6ba356:lg0");
  CHECK(id.part_name(groups{1, 0, 0}) == "94ede4f3bb6ba356:lg0+1");
}

TEST_CASE("NM-04 part names ignore the scope") {
  const auto a = make("one");
  const auto b = make("two");
  CHECK(a.part_name(groups{0, 1}) == b.part_name(groups{0, 1}));
  CHECK(a.namespace_id() != b.namespace_id());
}

TEST_CASE("NM-05 a whole group is shard (1, 0)") { CHECK(name_hex(make(), 1, key(0)).ends_with("00010000")); }

TEST_CASE("NM-06 equal instances name alike") {
  CHECK(make() == make());
  CHECK(names(make()) == names(make()));
}

TEST_CASE("NM-07 local numbering does not matter") {
  const auto a = make("s", "l", {{0}, {1}});
  const auto b = make("s", "l", {{1}, {0}});
  CHECK(names(a, {0}) == names(b, {1}));
  CHECK(names(a, {1}) == names(b, {0}));
  CHECK(disjoint(names(a, {0}), names(a, {1})));
  CHECK(a.part_name(groups{0}) == b.part_name(groups{1}));
  CHECK(a.part_name(groups{0}) != a.part_name(groups{1}));
}

TEST_CASE("NM-08 another layout: no name in common") {
  CHECK(disjoint(names(make("s", "one")), names(make("s", "two"))));
}

TEST_CASE("NM-09 another scope: no name in common") {
  CHECK(disjoint(names(make("one", "l")), names(make("two", "l"))));
}

TEST_CASE("NM-10 lengths are hashed: a byte cannot move from one field to the other") {
  CHECK(make("a", "bc").namespace_id() != make("ab", "c").namespace_id());
}

TEST_CASE("NM-11 rejects: unknown layer group, empty layout_id") {
  const auto id = make();
  for (const std::int64_t g : {std::int64_t{-1}, std::int64_t{2}, std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<std::int64_t>::min()}) {
    const std::string text = "unknown layer group " + std::to_string(g) + ", must be 0 or more and below 2";
    CHECK(id.name(g, key(0)).error() == error{errc::invalid, text});
    CHECK(id.canonical(g).error() == error{errc::invalid, text});
    CHECK(id.part_name(groups{0, g}).error() == error{errc::invalid, text});
  }
  CHECK(id.part_name(groups{}).error().text == "part serves no layer group, must serve 1 or more");
  CHECK(refusal("s", "", {{0}}, {{1, 0}}) == "layout_id is empty, must be 1 byte or more");
  CHECK(identity::make({}, {}, {}, {}).error().text == "layout_id is empty, must be 1 byte or more");
}

TEST_CASE("NM-12 the scope is at most 65535 bytes") {
  const std::string most(65535, 's');
  CHECK(make(most).namespace_id().size() == 16);
  CHECK(make(most).namespace_id() != make().namespace_id());
  CHECK(make("").namespace_id().size() == 16);
  CHECK(refusal(most + "s", "l", {{0}}, {{1, 0}}) == "scope is 65536 bytes, must be at most 65535");
  CHECK(make("s", most) == make("s", most));
  CHECK(refusal("s", most + "s", {{0}}, {{1, 0}}) == "layout_id is 65536 bytes, must be at most 65535");
  // A namespace of the longest scope, from names.json.
  CHECK(to_hex(make(most).namespace_id()) == "5e559209dbf31e010765497db20093b1");
}

TEST_CASE("NM-13 replicated across ranks: one set of names") {
  std::set<block_name> all;
  for (int rank = 0; rank < 4; ++rank) all.merge(names(make()));
  CHECK(all == names(make()));
}

TEST_CASE("NM-14 head-sharded across ranks: pairwise disjoint names") {
  std::set<block_name> all;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto of_rank = names(make("s", "l", {{0}, {1}}, {{4, rank}, {4, rank}}));
    CHECK(disjoint(all, of_rank));
    all.insert(of_rank.begin(), of_rank.end());
  }
  CHECK(all.size() == 4 * 8);
}

TEST_CASE("NM-15 groups are judged one by one") {
  const auto a = make("s", "l", {{0}, {1}}, {{2, 0}, {1, 0}});
  const auto b = make("s", "l", {{0}, {1}}, {{2, 1}, {1, 0}});
  CHECK(disjoint(names(a, {0}), names(b, {0})));
  CHECK(names(a, {1}) == names(b, {1}));
}

std::string shard_refusal(shard bad) { return refusal("s", "l", {{0}, {1}}, {{1, 0}, bad}); }

TEST_CASE("NM-16 bad shard: the index reaches the count") {
  CHECK(shard_refusal({2, 2}) ==
        "shard of layer group 1 has count 2 and index 2, must be 0 <= index < count <= 65535");
}

TEST_CASE("NM-17 bad shard: no shards at all") {
  CHECK(shard_refusal({0, 0}) ==
        "shard of layer group 1 has count 0 and index 0, must be 0 <= index < count <= 65535");
}

TEST_CASE("NM-18 bad shard: negative index, and what 16 bits do not hold") {
  CHECK(shard_refusal({2, -1}) ==
        "shard of layer group 1 has count 2 and index -1, must be 0 <= index < count <= 65535");
  CHECK(shard_refusal({65536, 0}).starts_with("shard of layer group 1 has count 65536"));
  CHECK(name_hex(make("s", "l", {{0}}, {{65535, 65534}}), 0, key(0)).ends_with("0000fffffffe"));
}

TEST_CASE("NM-19 a shard is missing") {
  CHECK(refusal("s", "l", {{0}, {1}}, {{1, 0}}) == "1 shards for 2 layer groups, must be one each");
  CHECK(refusal("s", "l", {{0}}, {{1, 0}, {1, 0}}) == "2 shards for 1 layer groups, must be one each");
}

TEST_CASE("scenarios 6.3 the canonical order: lowest layer, then local index, groups without layers last") {
  const auto order = [](const layer_lists& layers) {
    const auto id = make("s", "l", layers, shards(layers.size()));
    std::vector<int> out;
    for (std::size_t g = 0; g < id.groups(); ++g)
      out.push_back(id.canonical(static_cast<std::int64_t>(g)).value());
    return out;
  };
  CHECK(order({{3, 5}, {1, 4}}) == std::vector{1, 0});
  CHECK(order({{}, {2}, {2}, {0}}) == std::vector{3, 1, 2, 0});
  CHECK(order({{9}, {11, 2}, {5}}) == std::vector{2, 0, 1});
  CHECK(order({{}, {std::numeric_limits<std::uint32_t>::max()}, {}}) == std::vector{1, 0, 2});
  CHECK(refusal("s", "l", layer_lists(65536), shards(65536)) == "65536 layer groups, must be at most 65535");
}

TEST_CASE("scenarios 6.5 a short layout id makes a short part name, and places sort as numbers") {
  CHECK(make("s", "ab", layer_lists(11), shards(11)).part_name(groups{10, 9, 2, 10}) == "6162:lg2+9+10");
}

TEST_CASE("names hash by their block key") {
  std::unordered_set<block_name, block_name_hash> set;
  for (const block_name& n : names(make())) set.insert(n);
  CHECK(set.size() == 8);
  const block_name_hash hash;
  CHECK(hash(make("a").name(0, key(1)).value()) == hash(make("b").name(1, key(1)).value()));
  CHECK(hash(make().name(0, key(1)).value()) != hash(make().name(0, key(2)).value()));
}

TEST_CASE("hex: both ways, and what it refuses") {
  CHECK(to_hex(hex("00ff10aB")) == "00ff10ab");
  CHECK(to_hex({}).empty());
  CHECK(hex("").empty());
  CHECK(from_hex("abc").error() == error{errc::invalid, "hex text has 3 digits, must be two a byte"});
  CHECK(from_hex("0g").error().text == "hex text has byte 0x67 at 1, must be a hexadecimal digit");
  CHECK(from_hex("00-1").error().text == "hex text has byte 0x2d at 2, must be a hexadecimal digit");
}

TEST_CASE("sha256: FIPS 180 examples, and a stream that starts anew") {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  CHECK(to_hex(sha256({})) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  sha256_stream stream;
  for (int i = 0; i < 2; ++i) {
    stream.update(bytes("a"));
    stream.update(bytes("bc"));
    CHECK(to_hex(stream.finish()) == abc);
  }
  CHECK(stream.finish() == sha256({}));
}

// ---- 7.O Block keys ----

token_list count_up(std::uint32_t first, std::size_t count) {
  token_list out;
  out.ids.resize(count);
  std::iota(out.ids.begin(), out.ids.end(), first);
  return out;
}

std::vector<digest> keys(const token_list& tokens, std::int64_t tokens_per_block = 4,
                         const reuse_scope& scope = {}) {
  return block_keys(root_key(scope), tokens, tokens_per_block).value();
}

TEST_CASE("BK-01 scopes are distinct: absent and 0 differ") {
  const std::vector<reuse_scope> scopes{{{}, {}}, {0, {}}, {{}, 0}, {0, 0}, {7, 11}};
  const std::vector<std::string> serialized{"00", "010000000000000000", "020000000000000000",
                                            "0300000000000000000000000000000000",
                                            "0307000000000000000b00000000000000"};
  std::set<digest> roots;
  for (std::size_t i = 0; i < scopes.size(); ++i) {
    CHECK(to_hex(scopes[i].serialized()) == serialized[i]);
    CHECK(root_key(scopes[i]) == root_key(scopes[i]));
    roots.insert(root_key(scopes[i]));
  }
  CHECK(roots.size() == scopes.size());
  CHECK(to_hex(root_key({})) == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
}

TEST_CASE("BK-02 seeded: keys follow the scope") {
  const auto tokens = count_up(0, 12);
  CHECK(keys(tokens, 4, {7, 11}) == keys(tokens, 4, {7, 11}));
  const auto a = keys(tokens, 4, {7, 11});
  const auto b = keys(tokens, 4, {7, 12});
  for (std::size_t i = 0; i < 3; ++i) CHECK(a[i] != b[i]);
}

TEST_CASE("BK-02 a salt from a string: its first eight bytes of hash, little-endian; empty is a salt") {
  CHECK(salt_from_string("tenant-a") == 16248643848220682112U);
  CHECK(salt_from_string("") == 1449310910991872227U);
}

TEST_CASE("BK-03 chained from the root: a prefix's keys do not change by extension") {
  CHECK(keys({}, 2).empty());
  const auto two = keys({{1, 2}, {}}, 2);
  const auto four = keys({{1, 2, 3, 4}, {}}, 2);
  REQUIRE(four.size() == 2);
  CHECK(two == std::vector{four[0]});
  sha256_stream hash;
  hash.update(root_key({}));
  hash.update(hex("0100000002000000"));
  CHECK(four[0] == hash.finish());
  hash.update(four[0]);
  hash.update(hex("0300000004000000"));
  CHECK(four[1] == hash.finish());
}

TEST_CASE("BK-03 whole blocks only, and known keys are continued, not hashed again") {
  const auto tokens = count_up(100, 15);
  const auto all = keys(tokens);
  REQUIRE(all.size() == 3);
  CHECK(block_keys(root_key({}), tokens, 4, all) == all);
  CHECK(block_keys(root_key({}), tokens, 4, std::span{all}.first(2)) == all);
  std::vector<digest> made_up{key(9)};
  const auto continued = block_keys(root_key({}), tokens, 4, made_up).value();
  CHECK(continued[0] == key(9));
  CHECK(continued[1] != all[1]);
  std::vector<digest> grown;
  for (std::size_t n = 0; n <= 3; ++n) REQUIRE(extend_block_keys(grown, root_key({}), tokens, 4, n));
  CHECK(grown == all);
}

TEST_CASE("BK-03 refused: block sizes, counts and token ids, with the keys left as they were") {
  const digest root = root_key({});
  const auto why = [&](const token_list& tokens, std::int64_t tpb, std::size_t blocks,
                       std::vector<digest> known = {}) {
    const auto before = known;
    const auto done = extend_block_keys(known, root, tokens, tpb, blocks);
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().code == errc::invalid);
    CHECK(known == before);
    return done.error().text;
  };
  auto tokens = count_up(0, 8);
  CHECK(why(tokens, 0, 0) == "tokens_per_block is 0, must be 1 or more");
  CHECK(block_keys(root, tokens, -1).error().text == "tokens_per_block is -1, must be 1 or more");
  CHECK(why(tokens, 4, 3) ==
        "3 block keys wanted, must be from the 0 known ones to the 2 whole blocks of 8 tokens");
  CHECK(why(tokens, 4, 1, {key(0), key(1)}) ==
        "1 block keys wanted, must be from the 2 known ones to the 2 whole blocks of 8 tokens");
  CHECK_FALSE(block_keys(root, tokens, 4, std::vector<digest>(3)).has_value());
  tokens.ids[6] = token_id_limit - 1;
  CHECK(keys(tokens).size() == 2);
  tokens.ids[6] = token_id_limit;
  CHECK(why(tokens, 4, 2) == "token 6 is id 2147483648, must be below 2^31");
  CHECK(tokens.check().error().text == "token 6 is id 2147483648, must be below 2^31");
  CHECK(block_keys(root, tokens, 3).has_value());  // in the partial tail
  tokens.digests = {{6, key(1)}};                  // an id under a digest is not read
  CHECK(tokens.check().has_value());
  CHECK(keys(tokens).size() == 2);
  tokens.digests = {{6, key(1)}, {6, key(2)}};
  CHECK(why(tokens, 4, 2) == "digest 1 is at position 6, must be past digest 0 at 6");
  tokens.digests = {{8, key(1)}};
  CHECK(why(tokens, 4, 2) == "digest 0 is at position 8, must be below the 8 tokens");
}

TEST_CASE("BK-03 pinned keys: chained blocks, byte order, 32-token blocks") {
  const auto three = keys(count_up(100, 12));
  CHECK(to_hex(keys({{1, 2, 3, 4}, {}})[0]) ==
        "e432228522a304ab556d66e6e40979ad05575f28b19b554264dd3c6277aaf073");
  CHECK(to_hex(three[2]) == "c77d7f2fffce7a09d16584cc0f50c38dfa2858ca332e569229af25853112db9c");
  CHECK(to_hex(keys({{16909060, 256, 65536, 16777216}, {}})[0]) ==
        "5e2d54ca9f0c89370968fe51b21462e92248ca723420e2541d1c8addc709e45b");
  CHECK(to_hex(keys(count_up(1000, 97), 32)[2]) ==
        "5b478c18122b58a335604ba9d0f759c04678b91687bf604740e96ab8c4859b6d");
}

TEST_CASE("BK-04 block keys are scoped; a scope is its values, however it is written") {
  const auto tokens = count_up(0, 4);
  reuse_scope named;
  named.lora_id = 7;
  named.salt = 11;
  CHECK(keys(tokens, 4, {{}, 11}) != keys(tokens, 4, {{}, 12}));
  CHECK(keys(tokens, 4, {7, 11}) == keys(tokens, 4, named));
}

// ---- 7.O Multimodal prompts ----

constexpr std::int64_t vocab = 1000;

multimodal_item item(std::optional<std::uint8_t> hash, std::vector<token_run> runs) {
  return {hash ? std::optional{key(*hash)} : std::nullopt, std::move(runs), {}};
}

token_list applied(const std::vector<multimodal_item>& items, std::size_t prompt = 12) {
  return apply_multimodal(count_up(0, prompt).ids, items, vocab).value();
}

std::string item_refusal(const std::vector<multimodal_item>& items, std::int64_t vocab_size = vocab) {
  const auto done = apply_multimodal(count_up(0, 12).ids, items, vocab_size);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code == errc::invalid);
  return done.error().text;
}

TEST_CASE("BK-13 sparse runs: only the exact positions are replaced; block by block gives the same keys") {
  const auto tokens = applied({item(1, {{1, 1}, {3, 2}, {8, 1}})});
  CHECK(tokens.ids == std::vector<std::uint32_t>{0, 0, 2, 1001, 1002, 5, 6, 7, 1003, 9, 10, 11});
  CHECK(tokens.digests == std::vector<token_digest>{{1, key(1)}});
  CHECK(tokens.check().has_value());
  std::vector<digest> grown;
  for (std::size_t n = 1; n <= 3; ++n) REQUIRE(extend_block_keys(grown, root_key({}), tokens, 4, n));
  CHECK(grown == keys(tokens));
  CHECK(keys(applied({item(1, {{9, 2}})}))[1] == keys(count_up(0, 12))[1]);
}

TEST_CASE("BK-13 pinned: one item in two runs") {
  const std::array<std::int32_t, 8> words{16909060,  84281096,  286397204, 353769240,
                                          555885348, 623257384, 825373492, 892745528};
  const digest d = digest_from_words(words);
  CHECK(to_hex(d) == "0102030405060708111213141516171821222324252627283132333435363738");
  const std::vector<multimodal_item> items{{d, {{1, 1}, {3, 1}}, {}}};
  const auto k = keys(apply_multimodal({11, 999, 77, 999, 12, 13, 14, 15}, items, 1000).value());
  CHECK(to_hex(k[0]) == "633e5e06c03dce78de818b089752853b3ac38f00d88d5d3f8139dd1f3f796ce5");
  CHECK(to_hex(k[1]) == "a4ed1b4d1769d060668eb512863846c7139447f13190123a978d8e88b8d44813");
  CHECK(to_hex(digest_from_words(std::array<std::int32_t, 8>{-1, -2, 0, 0, 0, 0, 0, 1})) ==
        "fffffffffffffffe000000000000000000000000000000000000000000000001");
}

TEST_CASE("BK-14 runs win over the span; a span alone is one run") {
  multimodal_item both = item(1, {{2, 1}, {5, 1}});
  both.span = token_run{2, 4};
  CHECK(applied({both}) == applied({item(1, {{2, 1}, {5, 1}})}));
  multimodal_item alone = item(1, {});
  alone.span = token_run{2, 4};
  CHECK(applied({alone}) == applied({item(1, {{2, 4}})}));
  CHECK(applied({alone}) != applied({both}));
}

TEST_CASE("BK-15 special tokens inside an item are replaced too") {
  const std::vector<multimodal_item> items{item(1, {{1, 3}})};
  const auto plain = apply_multimodal({5, 999, 999, 999}, items, vocab).value();
  CHECK(apply_multimodal({5, 999, 7, 998}, items, vocab).value() == plain);
  CHECK(plain.ids == std::vector<std::uint32_t>{5, 0, 1001, 1002});
}

TEST_CASE("BK-16 an item with a hash, but neither runs nor span") {
  CHECK(item_refusal({item(1, {{0, 1}}), item(2, {})}) ==
        "multimodal item 1 has no runs, must have 1 or more");
}

TEST_CASE("BK-17 several items over several blocks: a digest at the first position of each") {
  const auto tokens = applied({item(2, {{5, 1}, {9, 2}}), item(1, {{1, 3}, {7, 1}})});
  CHECK(tokens.digests == std::vector<token_digest>{{1, key(1)}, {5, key(2)}});
  CHECK(tokens.ids == std::vector<std::uint32_t>{0, 0, 1001, 1002, 4, 0, 6, 1003, 8, 1001, 1002, 11});
  std::vector<digest> grown;
  for (std::size_t n = 1; n <= 3; ++n) REQUIRE(extend_block_keys(grown, root_key({}), tokens, 4, n));
  CHECK(grown == keys(tokens));
}

TEST_CASE("BK-18 bad runs are refused") {
  const auto most = std::numeric_limits<std::int64_t>::max();
  CHECK(item_refusal({item(1, {{2, 0}})}) ==
        "multimodal item 0: run of 0 tokens at 2, its length must be 1 or more");
  CHECK(item_refusal({item(1, {{2, -1}})}) ==
        "multimodal item 0: run of -1 tokens at 2, its length must be 1 or more");
  CHECK(item_refusal({item(1, {{-1, 2}})}) ==
        "multimodal item 0: run of 2 tokens at -1, its position must be 0 or more");
  CHECK(item_refusal({item(1, {{11, 2}})}) ==
        "multimodal item 0: run of 2 tokens at 11, must end within the prompt of 12 tokens");
  CHECK(item_refusal({item(1, {{1, most}})}).ends_with("must end within the prompt of 12 tokens"));
  CHECK(item_refusal({item(1, {{most, 1}})}).ends_with("must end within the prompt of 12 tokens"));
  CHECK(item_refusal({item(1, {{5, 1}, {2, 1}})}) ==
        "multimodal item 0: run of 1 tokens at 2, out of order: the run before it is at 5");
  CHECK(item_refusal({item(1, {{2, 3}, {4, 1}})}) ==
        "multimodal item 0: run of 1 tokens at 4, must not overlap that of item 0, 3 tokens at 2");
  CHECK(item_refusal({item(1, {{4, 2}}), item(2, {{2, 3}})}) ==
        "multimodal item 0: run of 2 tokens at 4, must not overlap that of item 1, 3 tokens at 2");
  CHECK(applied({item(1, {{2, 2}, {4, 8}})}).digests.size() == 1);  // touching runs do not overlap
}

TEST_CASE("BK-18 ids of an item must stay below 2^31") {
  CHECK(item_refusal({item(1, {{0, 1}})}, -1) == "vocab_size is -1, must be from 0 to below 2^31");
  CHECK(item_refusal({item(1, {{0, 1}})}, token_id_limit) ==
        "vocab_size is 2147483648, must be from 0 to below 2^31");
  const std::int64_t last = std::int64_t{token_id_limit} - 2;
  CHECK(apply_multimodal({1, 2}, std::vector{item(1, {{0, 2}})}, last).has_value());
  CHECK(
      item_refusal({item(1, {{0, 2}, {4, 1}})}, last) ==
      "multimodal item 0: run of 1 tokens at 4: vocab_size 2147483646 leaves no room for its ids below 2^31");
}

TEST_CASE("BK-19 runs without hashes: the tokens are unchanged, and not to be named") {
  const std::vector<multimodal_item> items{item({}, {{1, 3}}), item({}, {})};
  CHECK(applied(items) == count_up(0, 12));
  CHECK_FALSE(identified(items));
  CHECK(identified({}));
  CHECK(identified(std::vector{item(1, {{1, 3}})}));
  CHECK(item_refusal({item(1, {{1, 1}}), item({}, {{2, 1}})}) ==
        "multimodal item 1 has no hash, must have one as others do");
}

TEST_CASE("BK-20 the same digest over other runs: other keys") {
  CHECK(keys(applied({item(1, {{1, 2}})})) != keys(applied({item(1, {{1, 1}, {3, 1}})})));
  CHECK(keys(applied({item(1, {{1, 2}})})) != keys(applied({item(2, {{1, 2}})})));
}

}  // namespace
}  // namespace kvlease
