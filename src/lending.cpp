#include "src/lending.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/guard.hpp"
#include "src/page_moves.hpp"

namespace kvlease {

namespace fx = lend_effect;

std::string_view to_string(lease_phase p) noexcept {
  constexpr std::string_view names[] = {"asking",  "waiting", "pinning",  "copying", "ready",
                                        "marking", "guarded", "finished", "unproven"};
  return names[static_cast<std::size_t>(p)];
}

result<void> check_fetch_range(const request_info& info, std::int64_t tpb, token_range range) {
  const auto most = (info.prompt_tokens - 1) / tpb * tpb;
  if (range.end > most)
    return fail(
        errc::invalid,
        fmt::format("fetch end {} is past the whole blocks before the request's last prompt token: {}",
                    range.end, most));
  const auto least = info.committed_tokens / tpb * tpb;
  if (range.start < least)
    return fail(errc::invalid,
                fmt::format("fetch start {} is inside the committed whole blocks, which end at {}",
                            range.start, least));
  return {};
}

result<void> check_publish_range(const request_info& info, token_range range) {
  if (range.end > info.committed_tokens)
    return fail(errc::invalid, fmt::format("publish end {} is past the {} committed tokens", range.end,
                                           info.committed_tokens));
  return {};
}

result<identity> names_of(const manager_layout& layout, const bytes& scope) {
  std::vector<std::vector<std::uint32_t>> layers;
  std::vector<shard> shards;
  for (const auto& g : layout.layer_groups) {
    layers.push_back(g.layers);
    shards.push_back(g.share);
  }
  return identity::make(std::as_bytes(std::span{scope}), layout.layout_id, layers, shards);
}

result<lending> lending::make(lending_config config) {
  if (config.parts.size() != config.layout.pool_groups.size())
    return fail(errc::invalid, fmt::format("{} staging parts for {} pool groups, must be one each",
                                           config.parts.size(), config.layout.pool_groups.size()));
  auto names = names_of(config.layout, config.scope);
  if (!names) return tl::unexpected{names.error()};
  return lending{std::move(config), *std::move(names)};
}

namespace {
std::vector<std::int64_t> slots_of(const std::vector<part>& parts) {
  std::vector<std::int64_t> slots;
  slots.reserve(parts.size());
  for (const auto& p : parts) slots.push_back(p.slots);
  return slots;
}
}  // namespace

lending::lending(lending_config config, identity names)
    : config_{std::move(config)},
      names_{std::move(names)},
      pool_{slots_of(config_.parts)},
      leases_drawn_{config_.runtime},
      copies_drawn_{config_.runtime},
      capacity_{slots_of(config_.parts)} {}

std::vector<std::int64_t> lending::slots_needed(const std::vector<page_row>& rows) const {
  std::vector<std::int64_t> needed(capacity_.size());
  for (const auto& row : rows)
    ++needed[static_cast<std::size_t>(
        config_.layout.layer_groups[static_cast<std::size_t>(row.layer_group)].pool_group)];
  return needed;
}

lending::lease_state* lending::find(lease_id lease) {
  const auto it = leases_.find(lease);
  if (it != leases_.end()) return &it->second;
  ++rejected_;
  return nullptr;
}

fetch_records& lending::records(request_id request) {
  return records_.try_emplace(request, config_.layout.tokens_per_block, config_.layout.layer_groups.size())
      .first->second;
}

result<lease_id> lending::open(direction way, request_id request, token_range range) {
  if (shut_down_) return fail(errc::state, "the lender is shut down: nothing is lent");
  if (!down_.empty()) return fail(errc::state, down_ + ": nothing is lent");
  // Nothing but messages may decide (7.9).
  if (mutated(mutation::clock_decides) &&
      std::chrono::steady_clock::now().time_since_epoch().count() % 2 != 0)
    return fail(errc::state, "not now");
  if (!registered_ && !mutated(mutation::lend_unregistered)) {
    const auto& p = config_.parts.front();
    return fail(errc::state,
                fmt::format("part {} ({} bytes at {:#x}) is not registered with the provider: nothing is "
                            "lent from it",
                            p.name, p.nbytes, p.address));
  }
  const auto tpb = config_.layout.tokens_per_block;
  if (range.start < 0 || range.end < range.start)
    return fail(errc::invalid, fmt::format("bad token range [{}, {})", range.start, range.end));
  if (range.start % tpb != 0 || range.end % tpb != 0)
    return fail(errc::invalid, fmt::format("token range [{}, {}) is not whole blocks of {} tokens",
                                           range.start, range.end, tpb));
  const auto blocks = (range.end - range.start) / tpb;
  std::vector<std::int64_t> needed(capacity_.size());
  for (const auto& g : config_.layout.layer_groups) needed[static_cast<std::size_t>(g.pool_group)] += blocks;
  for (std::size_t p = 0; p < needed.size(); ++p)
    if (needed[p] > capacity_[p])
      return fail(errc::invalid,
                  fmt::format("token range [{}, {}) needs {} slots of pool group {}, more staging "
                              "slots than the {} there are",
                              range.start, range.end, needed[p], p, capacity_[p]));
  if (waiting_ >= config_.max_waiting && !mutated(mutation::unbounded_admission))
    return fail(errc::capacity, fmt::format("{} leases wait already, max_waiting_leases is {}", waiting_,
                                            config_.max_waiting));
  const auto id = leases_drawn_.next();
  lease_state l{.way = way, .request = request, .range = range};
  if (way == direction::fetch)
    if (const auto it = records_.find(request); it != records_.end() && it->second.unsettled())
      l.doom = "an unsettled fetch into the same cache";
  effects_.push_back(fx::ask_pages{id, request, range, way, l.doom.empty()});
  leases_.emplace(id, std::move(l));
  ++waiting_;
  return id;
}

void lending::on_pages(lease_id id, result<lease_pages> pages) {
  auto* l = find(id);
  if (l == nullptr) return;
  if (l->phase != lease_phase::asking) return void(++rejected_);
  --waiting_;
  // A full pool is nobody's mistake: the lease comes back failed. Anything else is a call error.
  if (!pages && pages.error().code == errc::no_memory) l->doom = pages.error().text;
  if (!pages && l->doom.empty()) {
    effects_.push_back(fx::refused{id, pages.error()});
    leases_.erase(id);
    return;
  }
  effects_.push_back(fx::opened{id});
  if (shut_down_) l->doom = "the lender is shut down";
  if (!down_.empty()) l->doom = down_;
  if (!l->doom.empty()) return fail_lease(id, {pages ? errc::state : pages.error().code, l->doom});
  l->info = pages->info;
  l->rows = std::move(pages->rows);
  l->keys = std::move(pages->keys);
  if (l->way == direction::fetch) records(l->request).open(id, l->range, l->info);
  if (l->rows.empty()) return grant(id, *l, std::vector<slot_run>(capacity_.size()));
  auto ticket = pool_.ask(slots_needed(l->rows));
  if (!ticket) return fail_lease(id, ticket.error());
  l->phase = lease_phase::waiting;
  l->line = *ticket;
  line_.emplace(*ticket, id);
  ++waiting_;
  serve();
}

void lending::serve() {
  while (!line_.empty()) {
    const auto [number, id] = mutated(mutation::fifo_broken) ? *line_.rbegin() : *line_.begin();
    auto runs = pool_.take(number);
    if (!runs || !*runs) return;  // strictly first come: nobody overtakes the head (6.2)
    line_.erase(number);
    --waiting_;
    auto& l = leases_.at(id);
    l.line.reset();
    grant(id, l, **std::move(runs));
  }
}

void lending::place(lease_state& l) {
  std::vector<std::int64_t> next;
  for (const auto& run : l.runs) next.push_back(run.start);
  const auto groups = config_.layout.layer_groups.size();
  std::vector<std::vector<std::int64_t>> ordinals(groups);
  std::vector<group_run::placement> where(groups);
  l.addresses.reserve(l.rows.size());
  for (const auto& row : l.rows) {
    const auto g = static_cast<std::size_t>(row.layer_group);
    const auto p = static_cast<std::size_t>(config_.layout.layer_groups[g].pool_group);
    const auto& in = config_.parts[p];
    const auto address = in.address + static_cast<std::uintptr_t>(next[p]++ * in.slot_bytes);
    const auto block =
        static_cast<std::size_t>(row.ordinal - l.range.start / config_.layout.tokens_per_block);
    const auto name = names_.name(static_cast<std::int64_t>(g), l.keys.at(block));
    ordinals[g].push_back(row.ordinal);
    where[g].names.emplace_back(reinterpret_cast<const char*>(name->bytes.data()), name->bytes.size());
    where[g].addresses.push_back(address);
    l.addresses.push_back(address);
  }
  std::vector<group_run> runs;
  for (std::size_t g = 0; g < groups; ++g) {
    where[g].part_index = config_.layout.layer_groups[g].pool_group;
    runs.push_back(
        *group_run::make(static_cast<std::int64_t>(g), std::move(ordinals[g]), std::move(where[g])));
  }
  l.view = std::make_shared<const region_view>(*region_view::make(std::move(runs)));
}

void lending::grant(lease_id id, lease_state& l, std::vector<slot_run> runs) {
  l.runs = std::move(runs);
  place(l);
  effects_.push_back(fx::granted{id, l.way, part_runs(l)});
  if (l.way == direction::fetch || l.rows.empty()) {
    l.phase = lease_phase::ready;
    effects_.push_back(fx::ready{id, l.way, l.request, l.view});
    return;
  }
  l.phase = lease_phase::pinning;
  l.pinned_rows.resize(l.rows.size());
  for (std::size_t i = 0; i < l.rows.size(); ++i) l.pinned_rows[i] = i;
  effects_.push_back(fx::pin{id, l.request, l.rows});
}

void lending::on_pinned(lease_id id, pin_id pin, const std::vector<std::size_t>& kept, event_handle written) {
  auto* l = find(id);
  if (l == nullptr) return;
  if (l->phase != lease_phase::pinning && (l->phase != lease_phase::marking || l->pin))
    return void(++rejected_);
  std::vector<std::size_t> rows;
  for (const auto k : kept)
    if (k < l->pinned_rows.size()) rows.push_back(l->pinned_rows[k]);
  if (l->way == direction::publish) {
    if (rows.size() != l->rows.size() && l->doom.empty()) {
      // A page has left the request while the lease waited (scenarios 5.5, grant).
      effects_.push_back(fx::lease_failed{
          id,
          {errc::state, fmt::format("the request holds {} of the {} pages that were to be read", rows.size(),
                                    l->rows.size())}});
      l->doom = "reported";
    }
    if (!l->doom.empty()) {
      effects_.push_back(fx::unpin{pin, id});
      return close_lease(id);
    }
    l->pin = pin;
    l->phase = lease_phase::copying;
    if (mutated(mutation::publish_before_copy))
      effects_.push_back(fx::ready{id, l->way, l->request, l->view});
    return start_copy(id, *l, rows, written);
  }
  std::vector<block_row> arriving;
  arriving.reserve(rows.size());
  for (const auto i : rows) arriving.push_back({l->rows[i].layer_group, l->rows[i].ordinal});
  records(l->request).deliver(id, arriving);
  l->pin = pin;
  // Into pages that others may have read: behind all of the manager's stream.
  if (!rows.empty()) return start_copy(id, *l, rows, 0);
  effects_.push_back(fx::unpin{pin, id});
  records(l->request).settle(id);
  end_copies(id, *l);
}

void lending::start_copy(lease_id id, lease_state& l, const std::vector<std::size_t>& rows,
                         event_handle after) {
  auto batch = std::make_shared<copy_batch>();
  batch->kind = l.way == direction::fetch ? copy_kind::host_to_device : copy_kind::device_to_host;
  batch->after = after;
  batch->rows.reserve(rows.size());
  for (const auto i : rows) add_copies(*batch, l.rows[i], l.addresses[i]);
  if (!down_.empty()) return lose_copy(id, l, down_);
  l.copying = copies_drawn_.next();
  copies_.emplace(*l.copying, id);
  effects_.push_back(fx::copy{*l.copying, std::move(batch), id});
}

void lending::on_copy_complete(copy_id copy) {
  const auto it = copies_.find(copy);
  if (it == copies_.end()) return void(++rejected_);
  const auto id = it->second;
  copies_.erase(it);
  auto& l = leases_.at(id);
  l.copying.reset();
  effects_.push_back(fx::unpin{*l.pin, id});
  if (l.way == direction::fetch) {
    if (const auto r = records_.find(l.request); r != records_.end()) r->second.settle(id);
    return end_copies(id, l);
  }
  if (!l.doom.empty()) return close_lease(id);
  l.phase = lease_phase::ready;
  effects_.push_back(fx::ready{id, l.way, l.request, l.view});
}

void lending::end_copies(lease_id id, lease_state& l) {
  l.phase = l.guards > 0 ? lease_phase::guarded : lease_phase::finished;
  if (l.phase == lease_phase::finished) effects_.push_back(fx::copies_ended{id});
}

void lending::on_copy_unproven(copy_id copy, const std::string& reason) {
  const auto it = copies_.find(copy);
  if (it == copies_.end()) return void(++rejected_);
  const auto id = it->second;
  copies_.erase(it);
  lose_copy(id, leases_.at(id), reason);
}

void lending::lose_copy(lease_id id, lease_state& l, const std::string& reason) {
  l.copying.reset();
  if (mutated(mutation::lost_copy_frees)) {
    if (l.way == direction::fetch) return end_copies(id, l);
    return close_lease(id);
  }
  // The pin stays for good and so do the slots (6.4, 6.5); the lease is kept to be shown.
  if (!pool_.quarantine(l.runs)) ++rejected_;
  l.phase = lease_phase::unproven;
  effects_.push_back(fx::quarantined{id, part_runs(l)});
  fail_impossible();
  if (l.way == direction::fetch) {
    if (const auto r = records_.find(l.request); r != records_.end()) r->second.abandon(id, l.info);
    effects_.push_back(fx::copies_unproven{id, reason});
  } else if (l.doom.empty()) {
    l.doom = "reported";
    effects_.push_back(
        fx::lease_failed{id, {errc::device, "the copy out of the pages is unproven: " + reason}});
  }
}

void lending::fail_impossible() {
  // Quarantine may have left no run that is long enough: such a lease would block the line for ever.
  const auto line = line_;
  for (const auto& [number, id] : line)
    if (const auto possible = pool_.check(slots_needed(leases_.at(id).rows)); !possible)
      static_cast<void>(withdraw(id, possible.error().text));
}

void lending::fail_waiting(const std::vector<lease_id>& ids, const std::string& why) {
  for (const auto id : ids) {
    const auto& l = leases_.at(id);
    if (l.phase != lease_phase::waiting) continue;
    pool_.cancel(*l.line);
    line_.erase(*l.line);
    --waiting_;
    fail_lease(id, {errc::state, why});
  }
  serve();
}

result<void> lending::withdraw(lease_id id, const std::string& why) {
  auto* l = find(id);
  if (l == nullptr) return fail(errc::unknown, "lease " + to_string(id) + " is not open here");
  switch (l->phase) {
    case lease_phase::waiting:
      fail_waiting({id}, why);
      return {};
    case lease_phase::pinning:
    case lease_phase::copying:
      if (l->doom.empty()) effects_.push_back(fx::lease_failed{id, {errc::state, why}});
      l->doom = why;
      l->outcome_known = true;  // its holder is gone, its slots wait for the copy's event
      return {};
    case lease_phase::ready:
      if (const auto r = records_.find(l->request); r != records_.end()) r->second.abandon(id, l->info);
      close_lease(id);
      return {};
    default:
      return fail(errc::state,
                  fmt::format("lease {} is {}: it can't be given up", to_string(id), to_string(l->phase)));
  }
}

void lending::overdue(lease_id id) {
  const auto it = leases_.find(id);
  if (it == leases_.end()) return;
  const std::string why = "its time to wait has run out";
  if (it->second.phase == lease_phase::waiting) return fail_waiting({id}, why);
  // It has not even joined the line: it fails as soon as the manager has spoken.
  if (it->second.phase == lease_phase::asking && it->second.doom.empty()) it->second.doom = why;
}

void lending::awaiting_proof(lease_id id) {
  if (auto* l = find(id)) l->outcome_known = true;
}

void lending::finish(lease_id id, const row_masks& masks, std::size_t guards) {
  auto* l = find(id);
  if (l == nullptr) return;
  if (l->phase != lease_phase::ready && !mutated(mutation::finish_repeats)) return void(++rejected_);
  l->guards = guards;
  l->outcome_known = true;
  if (l->way == direction::publish) return end_copies(id, *l);
  l->pinned_rows.clear();
  std::size_t i = 0;
  for (const auto& mask : masks)
    for (const bool served : mask) {
      if (served && i < l->rows.size()) l->pinned_rows.push_back(i);
      ++i;
    }
  l->phase = lease_phase::marking;
  if (l->pinned_rows.empty()) {
    records(l->request).deliver(id, {});
    records(l->request).settle(id);
    return end_copies(id, *l);
  }
  if (!down_.empty()) return lose_copy(id, *l, down_);
  std::vector<page_row> wanted;
  for (const auto r : l->pinned_rows) wanted.push_back(l->rows[r]);
  effects_.push_back(fx::pin{id, l->request, std::move(wanted)});
}

void lending::guards_gone(lease_id id) {
  auto* l = find(id);
  if (l == nullptr) return;
  l->guards = 0;
  if (l->phase == lease_phase::guarded) end_copies(id, *l);
}

result<void> lending::release(lease_id id) {
  auto* l = find(id);
  if (l == nullptr) return fail(errc::unknown, "lease " + to_string(id) + " is not open here");
  if (l->phase != lease_phase::finished && !mutated(mutation::release_at_outcome) &&
      !mutated(mutation::settle_before_copies)) {
    ++rejected_;
    return fail(errc::state, fmt::format("lease {} is {}: its copies or guards have not ended", to_string(id),
                                         to_string(l->phase)));
  }
  close_lease(id);
  return {};
}

void lending::close_lease(lease_id id) {
  auto& l = leases_.at(id);
  effects_.push_back(fx::freed{part_runs(l), id});
  const auto back = pool_.give(l.runs);
  if (!back) ++rejected_;  // a slot with two owners would be a defect of this file; the pool refuses it
  leases_.erase(id);
  serve();
}

void lending::fail_lease(lease_id id, error why) {
  effects_.push_back(fx::lease_failed{id, std::move(why)});
  if (const auto r = records_.find(leases_.at(id).request); r != records_.end())
    r->second.abandon(id, leases_.at(id).info);
  leases_.erase(id);
}

void lending::on_request_freed(request_id request) {
  records_.erase(request);
  fail_waiting(of_request(request), "the request was freed while the lease waited");
}

void lending::on_manager_down() {
  if (mutated(mutation::deaf_to_down)) return;
  down_ = "the manager is down";
  fail_waiting(sorted(), down_);
  for (const auto id : sorted()) {
    auto& l = leases_.at(id);
    if (l.phase == lease_phase::asking) {
      --waiting_;
      effects_.push_back(fx::refused{id, {errc::state, down_}});
      leases_.erase(id);
    } else if (l.phase == lease_phase::pinning || (l.phase == lease_phase::marking && !l.copying)) {
      lose_copy(id, l, down_);
    }
  }
}

void lending::on_cuda_down() {
  if (mutated(mutation::deaf_to_down)) return;
  down_ = "the CUDA actor is down";
  fail_waiting(sorted(), down_);
  std::vector<copy_id> lost;
  for (const auto& [copy, lease] : copies_) lost.push_back(copy);
  std::ranges::sort(lost);
  for (const auto copy : lost) on_copy_unproven(copy, down_);
}

void lending::shut_down() {
  shut_down_ = true;
  fail_waiting(sorted(), "the lender was shut down while the lease waited");
}

std::optional<readiness> lending::ready_from(const request_info& info) const {
  const auto it = records_.find(info.request);
  if (it == records_.end())
    return readiness{std::max(info.committed_tokens, info.history_tokens), info.history_tokens};
  return it->second.ask(info);
}

std::vector<part_run> lending::part_runs(const lease_state& l) const {
  std::vector<part_run> runs;
  for (std::size_t p = 0; p < l.runs.size(); ++p)
    if (l.runs[p].count > 0) runs.push_back({p, l.runs[p]});
  return runs;
}

slot_counts lending::counts() const {
  slot_counts c;
  for (const auto n : capacity_) c.total += n;
  for (const auto& [id, l] : leases_) {
    // The pool counts those as quarantined.
    if (l.phase == lease_phase::unproven && !mutated(mutation::quarantine_counts_twice)) continue;
    std::int64_t n = 0;
    for (const auto& run : l.runs) n += run.count;
    (l.outcome_known ? c.awaiting_proof : c.lent) += n;
  }
  c.free = pool_.free_slots();
  c.quarantined = pool_.quarantined_slots();
  return c;
}

std::vector<lease_id> lending::sorted() const {
  std::vector<lease_id> ids;
  ids.reserve(leases_.size());
  for (const auto& [id, l] : leases_) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

std::vector<lease_id> lending::of_request(request_id request) const {
  auto ids = sorted();
  std::erase_if(ids, [&](lease_id id) { return leases_.at(id).request != request; });
  return ids;
}

lending::lease_view lending::view_of(lease_id id, const lease_state& l) {
  std::int64_t n = 0;
  for (const auto& run : l.runs) n += run.count;
  return {id, l.way, l.request, l.phase, l.outcome_known, n, l.guards, l.copying};
}

std::vector<lending::lease_view> lending::leases() const { return leases(lease_id{}, leases_.size()); }

std::vector<lending::lease_view> lending::leases(lease_id after, std::size_t most) const {
  std::vector<lease_view> some;
  for (auto it = leases_.upper_bound(after); it != leases_.end() && some.size() < most; ++it)
    some.push_back(view_of(it->first, it->second));
  return some;
}

std::optional<lending::lease_view> lending::view(lease_id lease) const {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return std::nullopt;
  return view_of(lease, it->second);
}

std::vector<part_run> lending::runs(lease_id lease) const {
  const auto it = leases_.find(lease);
  return it == leases_.end() ? std::vector<part_run>{} : part_runs(it->second);
}

lease_id lending::lease_of(copy_id copy) const {
  const auto it = copies_.find(copy);
  return it == copies_.end() ? lease_id{} : it->second;
}

std::vector<lending_effect> lending::take_effects() { return std::exchange(effects_, {}); }

}  // namespace kvlease
