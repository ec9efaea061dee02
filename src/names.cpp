#include "src/names.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace kvlease {
namespace {

constexpr std::size_t max_field_bytes = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t part_digits_bytes = 8;  // of the layout id, in a part name
constexpr std::string_view namespace_magic = "trtllm-kv-object";

// ---- Bytes ----

std::array<std::byte, 2> big_endian(std::uint16_t value) {
  return {static_cast<std::byte>(value >> 8), static_cast<std::byte>(value & 0xff)};
}

template <class T>
std::array<std::byte, sizeof(T)> little_endian(T value) {
  std::array<std::byte, sizeof(T)> out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  return out;
}

// ---- OpenSSL ----

void require(int ok) {
  if (ok != 1) throw std::runtime_error{"OpenSSL failed to compute a SHA-256"};
}

/// Fetched once: OpenSSL 3 otherwise looks the algorithm up again for each message, which costs about as much
/// as hashing a short block.
const EVP_MD* sha256_method() {
  static const EVP_MD* const method = EVP_MD_fetch(nullptr, "SHA2-256", nullptr);
  if (method == nullptr) throw std::runtime_error{"OpenSSL offers no SHA-256"};
  return method;
}

// ---- Tokens ----

tl::unexpected<error> bad_token(std::size_t position, std::uint32_t id) {
  return fail(errc::invalid, fmt::format("token {} is id {}, must be below 2^31", position, id));
}

result<void> check_digests(const token_list& tokens) {
  for (std::size_t i = 0; i < tokens.digests.size(); ++i) {
    const std::size_t at = tokens.digests[i].position;
    if (at >= tokens.size())
      return fail(errc::invalid, fmt::format("digest {} is at position {}, must be below the {} tokens", i,
                                             at, tokens.size()));
    if (i > 0 && at <= tokens.digests[i - 1].position)
      return fail(errc::invalid, fmt::format("digest {} is at position {}, must be past digest {} at {}", i,
                                             at, i - 1, tokens.digests[i - 1].position));
  }
  return {};
}

/// `first`: the position of ids[0].
result<void> check_ids(std::span<const std::uint32_t> ids, std::size_t first) {
  // One pass without a branch: all tokens are read here once more than hashing needs.
  const std::uint32_t any = std::accumulate(ids.begin(), ids.end(), std::uint32_t{0}, std::bit_or<>{});
  if (any < token_id_limit) return {};
  const auto bad = std::find_if(ids.begin(), ids.end(), [](auto id) { return id >= token_id_limit; });
  return bad_token(first + static_cast<std::size_t>(bad - ids.begin()), *bad);
}

/// Calls `on_ids(ids, first position)` and `on_digest(digest)` for what stands at positions [first, last), in
/// order; stops at the first error of on_ids. Digests are in order.
template <class OnIds, class OnDigest>
result<void> for_tokens(const token_list& tokens, std::size_t first, std::size_t last, OnIds on_ids,
                        OnDigest on_digest) {
  auto next = std::lower_bound(tokens.digests.begin(), tokens.digests.end(), first,
                               [](const token_digest& d, std::size_t at) { return d.position < at; });
  const std::span ids{tokens.ids};
  for (;;) {
    const bool more = next != tokens.digests.end() && next->position < last;
    const std::size_t until = more ? next->position : last;
    if (auto ok = on_ids(ids.subspan(first, until - first), first); !ok) return ok;
    if (!more) return {};
    on_digest(next->value);
    first = until + 1;
    ++next;
  }
}

void hash_ids(sha256_stream& hash, std::span<const std::uint32_t> ids) {
  if constexpr (std::endian::native == std::endian::little) {
    hash.update(std::as_bytes(ids));
  } else {
    for (const std::uint32_t id : ids) hash.update(little_endian(id));
  }
}

}  // namespace

// ---- Hashes and hex ----

void sha256_stream::context_deleter::operator()(evp_md_ctx_st* context) const noexcept {
  EVP_MD_CTX_free(context);
}

sha256_stream::sha256_stream() : context_{EVP_MD_CTX_new()} {
  if (!context_) throw std::bad_alloc{};
  require(EVP_DigestInit_ex(context_.get(), sha256_method(), nullptr));
}

void sha256_stream::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

digest sha256_stream::finish() {
  digest out;
  require(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(out.data()), nullptr));
  require(EVP_DigestInit_ex(context_.get(), sha256_method(), nullptr));
  return out;
}

digest sha256(std::span<const std::byte> bytes) {
  sha256_stream hash;
  hash.update(bytes);
  return hash.finish();
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    out += digits[std::to_integer<std::size_t>(b >> 4)];
    out += digits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return out;
}

namespace {
int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

result<std::vector<std::byte>> from_hex(std::string_view text) {
  if (text.size() % 2 != 0)
    return fail(errc::invalid, fmt::format("hex text has {} digits, must be two a byte", text.size()));
  std::vector<std::byte> out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0)
      return fail(errc::invalid,
                  fmt::format("hex text has byte 0x{:02x} at {}, must be a hexadecimal digit",
                              static_cast<unsigned char>(text[high < 0 ? i : i + 1]), high < 0 ? i : i + 1));
    out.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return out;
}

// ---- Names ----

std::size_t block_name_hash::operator()(const block_name& name) const noexcept {
  std::uint64_t h = 0;
  std::memcpy(&h, name.bytes.data() + block_key_offset, sizeof h);
  return static_cast<std::size_t>(h);
}

std::vector<std::uint16_t> canonical_order(const std::vector<std::vector<std::uint32_t>>& layers) {
  constexpr std::uint64_t no_layers = std::uint64_t{1} << 62;
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto lowest = std::min_element(layers[i].begin(), layers[i].end());
    order.emplace_back(lowest == layers[i].end() ? no_layers : *lowest, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::uint16_t> out(layers.size());
  for (std::size_t place = 0; place < order.size(); ++place)
    out[order[place].second] = static_cast<std::uint16_t>(place);
  return out;
}

namespace {

identity::namespace_bytes namespace_of(std::span<const std::byte> scope,
                                       std::span<const std::byte> layout_id) {
  sha256_stream hash;
  hash.update(std::as_bytes(std::span{namespace_magic}));
  hash.update(big_endian(name_version));
  for (const auto field : {scope, layout_id}) {
    // Without the lengths, a byte could move from one field to the other unseen.
    hash.update(big_endian(static_cast<std::uint16_t>(field.size())));
    hash.update(field);
  }
  const digest all = hash.finish();
  identity::namespace_bytes out;
  std::copy_n(all.begin(), out.size(), out.begin());
  return out;
}

result<void> check_length(std::string_view field, std::size_t size) {
  if (size <= max_field_bytes) return {};
  return fail(errc::invalid, fmt::format("{} is {} bytes, must be at most {}", field, size, max_field_bytes));
}

result<void> check_shards(const std::vector<shard>& shards, std::size_t groups) {
  if (groups > max_field_bytes)
    return fail(errc::invalid, fmt::format("{} layer groups, must be at most {}", groups, max_field_bytes));
  if (shards.size() != groups)
    return fail(errc::invalid,
                fmt::format("{} shards for {} layer groups, must be one each", shards.size(), groups));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto [count, index] = shards[i];
    if (index < 0 || index >= count || count > static_cast<std::int64_t>(max_field_bytes))
      return fail(errc::invalid,
                  fmt::format("shard of layer group {} has count {} and index {}, must be 0 <= index < count "
                              "<= {}",
                              i, count, index, max_field_bytes));
  }
  return {};
}

tl::unexpected<error> unknown_group(std::int64_t local_group, std::size_t groups) {
  return fail(errc::invalid,
              fmt::format("unknown layer group {}, must be 0 or more and below {}", local_group, groups));
}

bool contains(std::size_t groups, std::int64_t local_group) {
  return local_group >= 0 && static_cast<std::uint64_t>(local_group) < groups;
}

}  // namespace

result<identity> identity::make(std::span<const std::byte> scope, std::span<const std::byte> layout_id,
                                const std::vector<std::vector<std::uint32_t>>& layers,
                                const std::vector<shard>& shards) {
  if (layout_id.empty()) return fail(errc::invalid, "layout_id is empty, must be 1 byte or more");
  if (auto ok = check_length("scope", scope.size()); !ok) return tl::unexpected{ok.error()};
  if (auto ok = check_length("layout_id", layout_id.size()); !ok) return tl::unexpected{ok.error()};
  if (auto ok = check_shards(shards, layers.size()); !ok) return tl::unexpected{ok.error()};
  identity made;
  made.namespace_ = namespace_of(scope, layout_id);
  made.part_prefix_ = to_hex(layout_id.first(std::min(layout_id.size(), part_digits_bytes))) + ":lg";
  made.canonical_ = canonical_order(layers);
  made.unkeyed_.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    auto& bytes = made.unkeyed_[i].bytes;
    std::copy(made.namespace_.begin(), made.namespace_.end(), bytes.begin());
    auto suffix = bytes.begin() + block_key_offset + std::tuple_size_v<digest>;
    for (const std::uint16_t field : {made.canonical_[i], static_cast<std::uint16_t>(shards[i].count),
                                      static_cast<std::uint16_t>(shards[i].index)}) {
      const auto two = big_endian(field);
      suffix = std::copy(two.begin(), two.end(), suffix);
    }
  }
  return made;
}

result<std::uint16_t> identity::canonical(std::int64_t local_group) const {
  if (!contains(groups(), local_group)) return unknown_group(local_group, groups());
  return canonical_[static_cast<std::size_t>(local_group)];
}

result<block_name> identity::name(std::int64_t local_group, const digest& block_key) const {
  if (!contains(groups(), local_group)) return unknown_group(local_group, groups());
  block_name out = unkeyed_[static_cast<std::size_t>(local_group)];
  std::copy(block_key.begin(), block_key.end(), out.bytes.begin() + block_key_offset);
  return out;
}

result<std::string> identity::part_name(std::span<const std::int64_t> local_groups) const {
  if (local_groups.empty()) return fail(errc::invalid, "part serves no layer group, must serve 1 or more");
  std::vector<std::uint16_t> places;
  for (const std::int64_t g : local_groups) {
    if (!contains(groups(), g)) return unknown_group(g, groups());
    places.push_back(canonical_[static_cast<std::size_t>(g)]);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return fmt::format("{}{}", part_prefix_, fmt::join(places, "+"));
}

// ---- Reuse scope ----

std::vector<std::byte> reuse_scope::serialized() const {
  const unsigned mask = (lora_id ? 1U : 0U) | (salt ? 2U : 0U);
  std::vector<std::byte> out{static_cast<std::byte>(mask)};
  for (const auto& value : {lora_id, salt}) {
    if (!value) continue;
    const auto bytes = little_endian(*value);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

digest root_key(const reuse_scope& scope) { return sha256(scope.serialized()); }

std::uint64_t salt_from_string(std::string_view text) {
  const digest d = sha256(std::as_bytes(std::span{text}));
  std::uint64_t salt = 0;
  for (std::size_t i = sizeof salt; i-- > 0;) salt = salt << 8 | std::to_integer<std::uint64_t>(d[i]);
  return salt;
}

// ---- Tokens and block keys ----

result<void> token_list::check() const {
  if (auto ok = check_digests(*this); !ok) return ok;
  return for_tokens(*this, 0, size(), check_ids, [](const digest&) {});
}

result<void> extend_block_keys(std::vector<digest>& keys, const digest& root, const token_list& tokens,
                               std::int64_t tokens_per_block, std::size_t blocks) {
  if (tokens_per_block < 1)
    return fail(errc::invalid, fmt::format("tokens_per_block is {}, must be 1 or more", tokens_per_block));
  const auto each = static_cast<std::size_t>(tokens_per_block);
  const std::size_t have = keys.size();
  if (blocks > tokens.size() / each || blocks < have)
    return fail(errc::invalid, fmt::format("{} block keys wanted, must be from the {} known ones to the {} "
                                           "whole blocks of {} tokens",
                                           blocks, have, tokens.size() / each, tokens.size()));
  if (auto ok = check_digests(tokens); !ok) return ok;
  // Not reserve(blocks): callers that go on block by block would copy all keys each time.
  if (blocks > keys.capacity()) keys.reserve(std::max(blocks, 2 * keys.capacity()));
  sha256_stream hash;
  for (std::size_t i = have; i < blocks; ++i) {
    hash.update(i == 0 ? root : keys.back());
    auto ok = for_tokens(
        tokens, i * each, (i + 1) * each,
        [&](std::span<const std::uint32_t> ids, std::size_t first) {
          auto good = check_ids(ids, first);
          if (good) hash_ids(hash, ids);
          return good;
        },
        [&](const digest& d) { hash.update(d); });
    if (!ok) {
      keys.resize(have);
      return ok;
    }
    keys.push_back(hash.finish());
  }
  return {};
}

result<std::vector<digest>> block_keys(const digest& root, const token_list& tokens,
                                       std::int64_t tokens_per_block, std::span<const digest> known) {
  std::vector<digest> keys{known.begin(), known.end()};
  const std::size_t blocks =
      tokens_per_block < 1 ? 0 : tokens.size() / static_cast<std::size_t>(tokens_per_block);
  if (auto ok = extend_block_keys(keys, root, tokens, tokens_per_block, blocks); !ok)
    return tl::unexpected{ok.error()};
  return keys;
}

// ---- Multimodal prompts ----

namespace {

std::span<const token_run> runs_of(const multimodal_item& item) {
  if (!item.runs.empty() || !item.span) return item.runs;
  return {&*item.span, 1};
}

std::string run_text(std::size_t item, const token_run& run) {
  return fmt::format("multimodal item {}: run of {} tokens at {}", item, run.length, run.position);
}

result<void> check_item(std::size_t index, std::span<const token_run> runs, std::size_t prompt) {
  if (runs.empty())
    return fail(errc::invalid, fmt::format("multimodal item {} has no runs, must have 1 or more", index));
  const auto size = static_cast<std::int64_t>(prompt);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const token_run& run = runs[i];
    if (run.length < 1) return fail(errc::invalid, run_text(index, run) + ", its length must be 1 or more");
    if (run.position < 0)
      return fail(errc::invalid, run_text(index, run) + ", its position must be 0 or more");
    if (run.position > size || run.length > size - run.position)
      return fail(errc::invalid,
                  fmt::format("{}, must end within the prompt of {} tokens", run_text(index, run), prompt));
    if (i > 0 && run.position < runs[i - 1].position)
      return fail(errc::invalid, fmt::format("{}, out of order: the run before it is at {}",
                                             run_text(index, run), runs[i - 1].position));
  }
  return {};
}

/// Over all items at once, since a run may overlap one of its own item or of any other.
result<void> check_overlap(std::span<const multimodal_item> items) {
  std::vector<std::pair<token_run, std::size_t>> all;
  for (std::size_t i = 0; i < items.size(); ++i)
    for (const token_run& run : runs_of(items[i])) all.emplace_back(run, i);
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first.position < b.first.position; });
  for (std::size_t i = 1; i < all.size(); ++i) {
    const auto& [before, item_before] = all[i - 1];
    const auto& [run, item] = all[i];
    if (run.position < before.position + before.length)
      return fail(errc::invalid,
                  fmt::format("{}, must not overlap that of item {}, {} tokens at {}", run_text(item, run),
                              item_before, before.length, before.position));
  }
  return {};
}

}  // namespace

digest digest_from_words(std::span<const std::int32_t, 8> words) {
  digest out;
  auto at = out.begin();
  for (const std::int32_t word : words) {
    const auto bytes = little_endian(static_cast<std::uint32_t>(word));
    at = std::copy(bytes.rbegin(), bytes.rend(), at);
  }
  return out;
}

bool identified(std::span<const multimodal_item> items) noexcept {
  return std::all_of(items.begin(), items.end(), [](const auto& item) { return item.hash.has_value(); });
}

result<token_list> apply_multimodal(std::vector<std::uint32_t> ids, std::span<const multimodal_item> items,
                                    std::int64_t vocab_size) {
  token_list out{std::move(ids), {}};
  if (std::none_of(items.begin(), items.end(), [](const auto& item) { return item.hash.has_value(); }))
    return out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].hash)
      return fail(errc::invalid,
                  fmt::format("multimodal item {} has no hash, must have one as others do", i));
    if (auto ok = check_item(i, runs_of(items[i]), out.size()); !ok) return tl::unexpected{ok.error()};
  }
  if (auto ok = check_overlap(items); !ok) return tl::unexpected{ok.error()};
  if (vocab_size < 0 || vocab_size >= token_id_limit)
    return fail(errc::invalid, fmt::format("vocab_size is {}, must be from 0 to below 2^31", vocab_size));
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::int64_t k = 0;
    for (const token_run& run : runs_of(items[i])) {
      // The last id of the run; k is below the prompt's size, so the sum cannot overflow.
      if (vocab_size + k + run.length - 1 >= token_id_limit)
        return fail(errc::invalid, fmt::format("{}: vocab_size {} leaves no room for its ids below 2^31",
                                               run_text(i, run), vocab_size));
      for (std::int64_t at = run.position; at < run.position + run.length; ++at, ++k) {
        const auto position = static_cast<std::size_t>(at);
        // 0 under a digest, so that prompts with equal keys also compare equal.
        out.ids[position] = k == 0 ? 0 : static_cast<std::uint32_t>(vocab_size + k);
        if (k == 0) out.digests.push_back({position, *items[i].hash});
      }
    }
  }
  std::sort(out.digests.begin(), out.digests.end(),
            [](const auto& a, const auto& b) { return a.position < b.position; });
  return out;
}

}  // namespace kvlease
