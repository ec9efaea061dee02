#include "src/paged_manager.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

namespace kvlease {
namespace {

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t blocks_hashed_at_once = 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

tl::unexpected<error> unknown_request(request_id id) {
  return fail(errc::unknown, "request " + to_string(id) + ": not admitted here, or freed");
}

std::string text(token_range range) {
  return "[" + std::to_string(range.start) + ", " + std::to_string(range.end) + ")";
}

result<void> check_whole_blocks(token_range range, std::int64_t tokens_per_block) {
  if (range.start < 0 || range.end < range.start)
    return fail(errc::invalid, "bad token range " + text(range) + ": must be 0 <= start <= end");
  if (range.start % tokens_per_block != 0 || range.end % tokens_per_block != 0)
    return fail(errc::invalid, "token range " + text(range) + " is not whole blocks of " +
                                   std::to_string(tokens_per_block) + " tokens");
  return {};
}

/// Where memory goes that a copy may still touch: nowhere, until the process exits.
void keep_mapped(std::shared_ptr<memory_block> memory) {
  static std::mutex guard;
  static auto* const kept = new std::vector<std::shared_ptr<memory_block>>;
  const std::lock_guard lock{guard};
  kept->push_back(std::move(memory));
}

}  // namespace

result<std::unique_ptr<paged_manager>> paged_manager::make(paged_manager_options options,
                                                           std::vector<std::shared_ptr<memory_block>> pools) {
  if (auto ok = check_layout(options, pools); !ok) return tl::unexpected{std::move(ok).error()};
  std::vector<pool_group> groups;
  for (std::size_t i = 0, first = 0; i < options.pool_groups.size(); ++i) {
    const auto count = pools_in(options.pool_groups[i]);
    const auto from = pools.begin() + static_cast<std::ptrdiff_t>(first);
    groups.push_back({.memory = {from, from + static_cast<std::ptrdiff_t>(count)},
                      .pages = page_pool{options.pool_groups[i].pages},
                      .pages_per_block = layer_groups_in(options, i)});
    first += count;
  }
  if (options.layout_id.empty()) {
    auto derived = derive_layout_id(options);
    if (!derived) return tl::unexpected{std::move(derived).error()};
    options.layout_id = *std::move(derived);
  }
  manager_layout layout{.tokens_per_block = options.tokens_per_block,
                        .pool_groups = std::move(options.pool_groups),
                        .layer_groups = std::move(options.layer_groups),
                        .layout_id = std::move(options.layout_id)};
  return std::unique_ptr<paged_manager>{
      new paged_manager{std::move(layout), options.reuse, options.runtime, std::move(groups)}};
}

paged_manager::paged_manager(manager_layout layout, bool reuse, std::optional<incarnation> runtime,
                             std::vector<pool_group> pools)
    : layout_{std::move(layout)},
      reuse_{reuse},
      runtime_{runtime},
      pools_{std::move(pools)},
      index_{layout_.layer_groups.size()} {}

paged_manager::~paged_manager() {
  if (pins_.empty()) return;
  for (pool_group& g : pools_)
    for (auto& memory : g.memory) keep_mapped(std::move(memory));
}

bool paged_manager::used_ids::contains(request_id id) const {
  const auto behind = ranges_.upper_bound(id.value);
  return behind != ranges_.begin() && std::prev(behind)->second >= id.value;
}

void paged_manager::used_ids::add(request_id id) {
  assert(id && !contains(id));
  std::uint64_t first = id.value;
  std::uint64_t last = id.value;
  const auto behind = ranges_.upper_bound(id.value);
  if (behind != ranges_.end() && behind->first == id.value + 1) last = behind->second;
  if (behind != ranges_.begin() && std::prev(behind)->second + 1 == id.value)
    first = std::prev(behind)->first;
  if (last != id.value) ranges_.erase(behind);
  ranges_[first] = last;
}

std::int64_t paged_manager::whole_prompt_blocks(const request_state& r) const {
  return static_cast<std::int64_t>(r.prompt.size()) / layout_.tokens_per_block;
}

request_info paged_manager::info(request_id id, const request_state& r) const {
  const std::int64_t committed = r.committed * layout_.tokens_per_block;
  return {.request = id,
          .prompt_tokens = static_cast<std::int64_t>(r.prompt.size()),
          .committed_tokens = committed,
          .history_tokens = committed,
          .capacity_tokens = static_cast<std::int64_t>(r.blocks.size()) * layout_.tokens_per_block};
}

result<void> paged_manager::check_id(request_id id) const {
  const std::string name = "request " + to_string(id);
  if (!id) return fail(errc::invalid, name + ": zero is no id");
  if (runtime_ && id.runtime() != *runtime_)
    return fail(errc::invalid, name + ": of another runtime, must be of " + std::to_string(runtime_->value));
  if (used_.contains(id)) return fail(errc::invalid, name + ": this id was used before");
  return {};
}

result<request_info> paged_manager::admit(request_id id, request_spec spec) {
  if (auto ok = check_id(id); !ok) return tl::unexpected{std::move(ok).error()};
  if (spec.prompt.empty()) return fail(errc::invalid, "request " + to_string(id) + ": empty prompt");
  if (auto ok = spec.prompt.check(); !ok) return tl::unexpected{std::move(ok).error()};
  request_state r;
  r.root = root_key(spec.scope);
  r.prompt = std::move(spec.prompt);
  if (reuse_) reuse_prefix(r);
  used_.add(id);
  const auto [at, fresh] = requests_.emplace(id, std::move(r));
  assert(fresh);
  return info(id, at->second);
}

void paged_manager::reuse_prefix(request_state& r) {
  const std::int64_t most = (static_cast<std::int64_t>(r.prompt.size()) - 1) / layout_.tokens_per_block;
  for (std::int64_t i = 0; i < most; ++i) {
    // A few blocks ahead of need: a call that hashes has a fixed cost, and the keys are needed later anyway.
    if (static_cast<std::size_t>(i) == r.keys.size())
      extend_keys(r, std::min(most, i + blocks_hashed_at_once));
    const cached_block b = index_.find(r.keys[static_cast<std::size_t>(i)]);
    if (b == cached_block::none || index_.pinned(b)) break;
    index_.add_user(b);
    const auto pages = index_.pages(b);
    for (std::size_t lg = 0; lg < groups(); ++lg) pools_[pool_of(lg)].pages.add_user(pages[lg]);
    r.pages.insert(r.pages.end(), pages.begin(), pages.end());
    r.blocks.push_back(b);
    ++r.committed;
  }
}

result<request_info> paged_manager::describe(request_id id) const {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return unknown_request(id);
  return info(id, at->second);
}

result<request_info> paged_manager::grow(request_id id, std::int64_t end) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return unknown_request(id);
  if (end < 0)
    return fail(errc::invalid, "grow of request " + to_string(id) + ": end is " + std::to_string(end) +
                                   ", must be 0 or more");
  request_state& r = at->second;
  const std::int64_t blocks =
      ceil_div(end, layout_.tokens_per_block) - static_cast<std::int64_t>(r.blocks.size());
  if (blocks > 0) {
    if (auto ok = make_room(id, blocks); !ok) return tl::unexpected{std::move(ok).error()};
    for (std::int64_t i = 0; i < blocks; ++i) append_block(r);
  }
  return info(id, r);
}

result<void> paged_manager::make_room(request_id id, std::int64_t blocks) {
  std::int64_t evictions = 0;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const pool_group& pool = pools_[g];
    const std::int64_t each = pool.pages_per_block;
    const std::int64_t needed = blocks > int64_max / each ? int64_max : blocks * each;
    const std::int64_t available = pool.pages.free() + index_.evictable() * each;
    if (needed > available)
      return fail(errc::no_memory, "no free pages: request " + to_string(id) + " needs " +
                                       std::to_string(needed) + " pages of pool group " + std::to_string(g) +
                                       ", " + std::to_string(available) + " of " +
                                       std::to_string(pool.pages.total()) + " are available");
    evictions = std::max(evictions, ceil_div(std::max<std::int64_t>(needed - pool.pages.free(), 0), each));
  }
  for (std::int64_t i = 0; i < evictions; ++i) evict_oldest();
  return {};
}

void paged_manager::evict_oldest() {
  const cached_block b = index_.oldest();
  const auto pages = index_.pages(b);
  for (std::size_t lg = 0; lg < groups(); ++lg) pools_[pool_of(lg)].pages.uncache(pages[lg]);
  index_.erase(b);
}

void paged_manager::append_block(request_state& r) {
  for (std::size_t lg = 0; lg < groups(); ++lg) r.pages.push_back(pools_[pool_of(lg)].pages.take());
  r.blocks.push_back(cached_block::none);
}

page_row paged_manager::row(const request_state& r, std::size_t layer_group, std::int64_t ordinal) const {
  const std::size_t g = pool_of(layer_group);
  const std::int64_t page = r.pages[static_cast<std::size_t>(ordinal) * groups() + layer_group];
  const pool_group_layout& layout = layout_.pool_groups[g];
  page_row out{.layer_group = static_cast<std::int64_t>(layer_group),
               .ordinal = ordinal,
               .page = page,
               .nbytes = static_cast<std::size_t>(layout.page_bytes)};
  const auto in_pool = [&](std::size_t pool, std::int64_t nbytes) {
    return pools_[g].memory[pool]->address() + static_cast<std::uintptr_t>(page * nbytes);
  };
  if (layout.pool_bytes.size() < 2) {
    out.address = in_pool(0, layout.page_bytes);
    return out;
  }
  for (std::size_t pool = 0; pool < layout.pool_bytes.size(); ++pool)
    out.pieces.push_back(
        {in_pool(pool, layout.pool_bytes[pool]), static_cast<std::size_t>(layout.pool_bytes[pool])});
  out.address = out.pieces.front().address;
  return out;
}

result<std::vector<page_row>> paged_manager::rows(request_id id, token_range range) const {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return unknown_request(id);
  const request_state& r = at->second;
  if (auto ok = check_whole_blocks(range, layout_.tokens_per_block); !ok)
    return tl::unexpected{std::move(ok).error()};
  const std::int64_t first = range.start / layout_.tokens_per_block;
  const std::int64_t last = range.end / layout_.tokens_per_block;
  if (last > static_cast<std::int64_t>(r.blocks.size()))
    return fail(errc::invalid, "token range " + text(range) + ": past the capacity of " +
                                   std::to_string(info(id, r).capacity_tokens) + " tokens");
  std::vector<page_row> out;
  out.reserve(static_cast<std::size_t>(last - first) * groups());
  for (std::size_t lg = 0; lg < groups(); ++lg)
    for (std::int64_t ordinal = first; ordinal < last; ++ordinal) out.push_back(row(r, lg, ordinal));
  return out;
}

void paged_manager::extend_keys(request_state& r, std::int64_t blocks) const {
  assert(blocks <= whole_prompt_blocks(r));
  const auto wanted = static_cast<std::size_t>(blocks);
  if (wanted <= r.keys.size()) return;
  // By doubling, as a prompt that is committed block by block would else be copied as often.
  if (wanted > r.keys.capacity()) r.keys.reserve(std::max(wanted, 2 * r.keys.capacity()));
  [[maybe_unused]] const auto ok =
      extend_block_keys(r.keys, r.root, r.prompt, layout_.tokens_per_block, wanted);
  assert(ok);  // admit() has checked every token
}

result<std::vector<digest>> paged_manager::block_keys(request_id id, token_range range) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return unknown_request(id);
  request_state& r = at->second;
  if (auto ok = check_whole_blocks(range, layout_.tokens_per_block); !ok)
    return tl::unexpected{std::move(ok).error()};
  const std::int64_t first = range.start / layout_.tokens_per_block;
  const std::int64_t last = range.end / layout_.tokens_per_block;
  if (last > whole_prompt_blocks(r))
    return fail(errc::invalid, "token range " + text(range) + ": past the whole blocks of a prompt of " +
                                   std::to_string(r.prompt.size()) + " tokens");
  extend_keys(r, last);
  return std::vector<digest>(r.keys.begin() + first, r.keys.begin() + last);
}

result<request_info> paged_manager::commit(request_id id, std::int64_t end) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return unknown_request(id);
  request_state& r = at->second;
  const request_info now = info(id, r);
  const std::string name = "commit of request " + to_string(id) + ": end is " + std::to_string(end);
  if (end < 0 || end % layout_.tokens_per_block != 0)
    return fail(errc::invalid,
                name + ", must be whole blocks of " + std::to_string(layout_.tokens_per_block) + " tokens");
  if (end < now.committed_tokens)
    return fail(errc::invalid,
                name + ", below the " + std::to_string(now.committed_tokens) + " committed tokens");
  if (end > now.prompt_tokens)
    return fail(errc::invalid,
                name + ", past the prompt of " + std::to_string(now.prompt_tokens) + " tokens");
  if (end > now.capacity_tokens)
    return fail(errc::invalid,
                name + ", past the capacity of " + std::to_string(now.capacity_tokens) + " tokens");
  const std::int64_t from = r.committed;
  r.committed = end / layout_.tokens_per_block;
  if (reuse_ && r.committed > from) {
    extend_keys(r, r.committed);
    // Earlier blocks that stayed private and whose key has gone since: no resident block lacks its parent.
    std::int64_t first = from;
    while (first > 0 && index_.find(r.keys[static_cast<std::size_t>(first - 1)]) == cached_block::none)
      --first;
    for (std::int64_t i = first; i < r.committed; ++i) make_resident(r, i);
  }
  return info(id, r);
}

void paged_manager::make_resident(request_state& r, std::int64_t ordinal) {
  const auto i = static_cast<std::size_t>(ordinal);
  if (index_.find(r.keys[i]) != cached_block::none) return;
  assert(r.blocks[i] == cached_block::none);
  const cached_block parent = i == 0 ? cached_block::none : index_.find(r.keys[i - 1]);
  assert((parent == cached_block::none) == (i == 0));
  const auto pages = std::span{r.pages}.subspan(i * groups(), groups());
  std::int64_t pins = 0;
  for (std::size_t lg = 0; lg < groups(); ++lg) pins += pools_[pool_of(lg)].pages.pins(pages[lg]);
  const cached_block b = index_.insert(r.keys[i], parent, pages, pins);
  for (std::size_t lg = 0; lg < groups(); ++lg) pools_[pool_of(lg)].pages.cache(pages[lg], b);
  r.blocks[i] = b;
}

void paged_manager::written(request_id id, event_handle e) {
  if (const auto at = requests_.find(id); at != requests_.end()) at->second.written = e;
}

event_handle paged_manager::written(request_id id) const {
  const auto at = requests_.find(id);
  return at == requests_.end() ? 0 : at->second.written;
}

result<void> paged_manager::free(request_id id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return unknown_request(id);
  const request_state& r = at->second;
  // From the last block, so that each unlocks its parent in turn and no walk up is needed.
  for (std::size_t i = r.blocks.size(); i-- > 0;) {
    if (r.blocks[i] != cached_block::none) index_.drop_user(r.blocks[i]);
    for (std::size_t lg = 0; lg < groups(); ++lg)
      pools_[pool_of(lg)].pages.drop_user(r.pages[i * groups() + lg]);
  }
  requests_.erase(at);
  return {};
}

std::vector<std::size_t> paged_manager::pin(pin_id pin, request_id id, std::span<const page_row> wanted) {
  std::vector<std::size_t> kept;
  const auto at = requests_.find(id);
  if (at == requests_.end() || pins_.contains(pin)) return kept;
  const request_state& r = at->second;
  std::vector<pinned_page> pages;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const page_row& w = wanted[i];
    if (w.layer_group < 0 || w.layer_group >= static_cast<std::int64_t>(groups())) continue;
    if (w.ordinal < 0 || w.ordinal >= static_cast<std::int64_t>(r.blocks.size())) continue;
    const auto lg = static_cast<std::size_t>(w.layer_group);
    if (w != row(r, lg, w.ordinal)) continue;
    pools_[pool_of(lg)].pages.add_pin(w.page);
    const cached_block b = r.blocks[static_cast<std::size_t>(w.ordinal)];
    if (b != cached_block::none) index_.add_pin(b);
    pages.push_back({.pool = pool_of(lg), .page = w.page});
    kept.push_back(i);
  }
  if (!pages.empty()) pins_.emplace(pin, std::move(pages));
  return kept;
}

bool paged_manager::unpin(pin_id pin) {
  const auto at = pins_.find(pin);
  if (at == pins_.end()) return false;
  for (const pinned_page& p : at->second) {
    page_pool& pool = pools_[p.pool].pages;
    // Asked now, not at pin(): the block may have become resident since.
    const cached_block b = pool.block(p.page);
    pool.drop_pin(p.page);
    if (b != cached_block::none) index_.drop_pin(b);
  }
  pins_.erase(at);
  return true;
}

page_counts paged_manager::counts() const {
  page_counts sum;
  for (const pool_group& g : pools_) {
    const page_counts c = g.pages.counts();
    sum.total += c.total, sum.free += c.free, sum.held += c.held;
    sum.cached += c.cached, sum.pinned += c.pinned;
  }
  return sum;
}

result<void> paged_manager::check_invariants() const {
  for (const pool_group& g : pools_)
    if (auto ok = g.pages.check_invariants(); !ok) return ok;
  if (auto ok = index_.check_invariants(); !ok) return ok;
  if (auto ok = check_pages(); !ok) return ok;
  return check_blocks();
}

/// Users and pins of each page, recounted from requests and pins.
result<void> paged_manager::check_pages() const {
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> seen;
  for (const pool_group& g : pools_) seen.emplace_back(static_cast<std::size_t>(g.pages.total()));
  for (const auto& [id, r] : requests_)
    for (std::size_t i = 0; i < r.pages.size(); ++i)
      ++seen[pool_of(i % groups())][static_cast<std::size_t>(r.pages[i])].first;
  for (const auto& [pin, pages] : pins_)
    for (const pinned_page& p : pages) ++seen[p.pool][static_cast<std::size_t>(p.page)].second;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const page_pool& pool = pools_[g].pages;
    for (std::int64_t page = 0; page < pool.total(); ++page) {
      const auto [users, pins] = seen[g][static_cast<std::size_t>(page)];
      if (pool.users(page) != users || pool.pins(page) != pins)
        return fail(errc::state, "page " + std::to_string(page) + " of pool group " + std::to_string(g) +
                                     " miscounts its users or pins");
      if (users > 1 && pool.block(page) == cached_block::none)
        return fail(errc::state, "page " + std::to_string(page) + " of pool group " + std::to_string(g) +
                                     " is private and has " + std::to_string(users) + " users");
    }
  }
  return {};
}

/// Requests, index and pools agree on which pages each resident block has.
result<void> paged_manager::check_blocks() const {
  for (const auto& [id, r] : requests_) {
    const std::string name = "request " + to_string(id);
    if (r.pages.size() != r.blocks.size() * groups() ||
        r.committed > static_cast<std::int64_t>(r.blocks.size()))
      return fail(errc::state, name + " has pages for other blocks than its own");
    for (std::size_t i = 0; i < r.blocks.size(); ++i) {
      const auto pages = std::span{r.pages}.subspan(i * groups(), groups());
      for (std::size_t lg = 0; lg < groups(); ++lg)
        if (pools_[pool_of(lg)].pages.block(pages[lg]) != r.blocks[i])
          return fail(errc::state, name + " and the pool disagree on block " + std::to_string(i));
      if (r.blocks[i] == cached_block::none) continue;
      const auto resident = index_.pages(r.blocks[i]);
      if (!std::equal(pages.begin(), pages.end(), resident.begin()) || index_.find(r.keys[i]) != r.blocks[i])
        return fail(errc::state, name + " and the index disagree on block " + std::to_string(i));
    }
  }
  std::int64_t cached_pages = 0;
  for (const pool_group& g : pools_)
    for (std::int64_t page = 0; page < g.pages.total(); ++page)
      if (g.pages.block(page) != cached_block::none) ++cached_pages;
  if (cached_pages != index_.size() * static_cast<std::int64_t>(groups()))
    return fail(errc::state, std::to_string(index_.size()) + " resident blocks, " +
                                 std::to_string(cached_pages) + " pages in them");
  return {};
}

}  // namespace kvlease
