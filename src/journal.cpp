#include "src/journal.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace kvlease {

std::string_view to_string(journal_kind k) noexcept {
  static constexpr std::array<std::string_view, journal_kind_count> names{
#define KVLEASE_JOURNAL_TEXT(name) #name,
      KVLEASE_FOR_EACH_JOURNAL_KIND(KVLEASE_JOURNAL_TEXT)
#undef KVLEASE_JOURNAL_TEXT
  };
  const auto i = static_cast<std::size_t>(k);
  return i < names.size() ? names[i] : "unknown";
}

journal::journal(incarnation of, std::size_t capacity, time_point start)
    : runtime_{of},
      start_{start},
      mask_{std::bit_ceil(std::clamp<std::size_t>(capacity, 64, std::size_t{1} << 30)) - 1},
      cells_{std::make_unique<cell[]>(mask_ + 1)} {}

void journal::write(time_point now, journal_record r) noexcept {
  r.sequence = head_.fetch_add(1, std::memory_order_acq_rel) + 1;
  r.at = std::chrono::duration_cast<std::chrono::nanoseconds>(now - start_).count();
  // The ring is larger than a core's caches: the cell of a record to come is fetched meanwhile.
  __builtin_prefetch(&cells_[(r.sequence + 8) & mask_], 1);
  auto& c = cells_[r.sequence & mask_];
  const auto old = c.word[0].exchange(busy, std::memory_order_acquire);
  if (old == busy) return;  // lapped within another's write: that one will put its own number there
  if (old > r.sequence) return c.word[0].store(old, std::memory_order_release);  // lapped before this one
  std::atomic_thread_fence(std::memory_order_release);                           // no word before the mark
  const auto raw = std::bit_cast<std::array<std::uint64_t, words>>(r);
  for (std::size_t i = 1; i < words; ++i) c.word[i].store(raw[i], std::memory_order_relaxed);
  c.word[0].store(r.sequence, std::memory_order_release);
}

journal::found journal::load(std::uint64_t sequence, journal_record& into) const noexcept {
  const auto& c = cells_[sequence & mask_];
  const auto before = c.word[0].load(std::memory_order_acquire);
  const bool lapped = last() >= sequence + mask_ + 1;
  if (before != sequence) {
    if (lapped || (before != busy && before > sequence)) return found::gone;
    // Older, or being written. A number that its writer had to drop is behind most of the ring by then.
    return last() - sequence > mask_ / 2 ? found::gone : found::not_yet;
  }
  std::array<std::uint64_t, words> raw{sequence};
  for (std::size_t i = 1; i < words; ++i) raw[i] = c.word[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (c.word[0].load(std::memory_order_relaxed) != sequence) return found::gone;
  into = std::bit_cast<journal_record>(raw);
  return found::yes;
}

std::vector<journal_record> journal::read(std::uint64_t after, std::size_t limit, std::uint64_t& lost) const {
  std::vector<journal_record> out;
  const auto newest = last();
  auto next = after + 1;
  std::uint64_t missing = 0;  // counted with the record behind them: a reader goes on behind the last one
  if (newest > mask_ + 1 && next <= newest - (mask_ + 1)) {  // skips at once what is overwritten for sure
    missing = newest - (mask_ + 1) - after;
    next = newest - mask_;
  }
  out.reserve(std::min<std::size_t>(limit, next <= newest ? newest - next + 1 : 0));
  journal_record r;
  for (; next <= newest && out.size() < limit; ++next) {
    switch (load(next, r)) {
      case found::yes:
        out.push_back(r);
        lost += std::exchange(missing, 0);
        break;
      case found::gone:
        ++missing;
        break;
      case found::not_yet:
        return out;
    }
  }
  return out;
}

}  // namespace kvlease
