#include "src/readiness.hpp"

#include <algorithm>

namespace kvlease {

bool fetch_records::unsettled() const noexcept {
  return latest_ && (latest_->state == fetch_state::open || latest_->state == fetch_state::delivered);
}

std::int64_t fetch_records::known(const request_info& info) const noexcept {
  if (advanced_ && info.history_tokens <= advanced_->history)
    return std::max(info.committed_tokens, advanced_->kept);
  return std::max(info.committed_tokens, info.history_tokens);
}

void fetch_records::open(lease_id lease, token_range range, const request_info& after_grow) {
  if (after_grow.history_tokens > after_grow.committed_tokens)
    advanced_ = advanced_history{std::min(known(after_grow), range.start), after_grow.history_tokens};
  latest_ = latest_fetch{lease, range, fetch_state::open, {}};
}

void fetch_records::count(const block_row& row, bool there) {
  auto& group = arrived_.at(static_cast<std::size_t>(row.layer_group));
  const auto i = static_cast<std::size_t>(row.ordinal);
  if (i >= group.size()) {
    if (!there) return;
    group.resize(i + 1);
  }
  group[i] = there;
}

void fetch_records::deliver(lease_id lease, const std::vector<block_row>& rows) {
  if (!is_latest(lease)) return;
  for (const auto& row : rows) count(row, false);
  latest_->rows = rows;
  latest_->state = fetch_state::delivered;
}

void fetch_records::settle(lease_id lease) {
  if (!is_latest(lease) || latest_->state != fetch_state::delivered) return;
  for (const auto& row : latest_->rows) count(row, true);
  origin_ = std::min(origin_.value_or(latest_->range.start), latest_->range.start);
  latest_->state = fetch_state::settled;
}

void fetch_records::abandon(lease_id lease, const request_info& info) {
  if (!is_latest(lease)) return;
  const auto tail = info.history_tokens / tokens_per_block_;
  const bool inside = info.history_tokens % tokens_per_block_ != 0;
  if (inside && std::ranges::any_of(latest_->rows, [&](const auto& row) { return row.ordinal == tail; }))
    tainted_ = true;
  latest_->rows.clear();
  latest_->state = fetch_state::abandoned;
}

void fetch_records::shrink(std::int64_t blocks) {
  for (auto& group : arrived_)
    if (group.size() > static_cast<std::size_t>(blocks)) group.resize(static_cast<std::size_t>(blocks));
}

std::int64_t fetch_records::usable_until(std::int64_t known) const {
  const auto first = static_cast<std::size_t>(known / tokens_per_block_);
  std::size_t top = SIZE_MAX;
  for (const auto& group : arrived_) {
    std::size_t end = std::min(first, group.size());
    while (end < group.size() && group[end]) ++end;
    top = std::min(top, end);
  }
  if (top == SIZE_MAX || top <= first) return known;
  return static_cast<std::int64_t>(top) * tokens_per_block_;
}

std::optional<readiness> fetch_records::ask(const request_info& info) const {
  if (unsettled()) return std::nullopt;
  if (tainted_) return readiness{0, std::max<std::int64_t>(info.history_tokens, 1)};
  const auto before = known(info);
  if (!origin_) return readiness{before, info.history_tokens};
  return readiness{usable_until(before), std::min(*origin_, info.history_tokens)};
}

}  // namespace kvlease
