#include "tests/journal_damage.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "messages/ids.hpp"

namespace kvlease::test {

using kind = journal_kind;

namespace {

using number = std::uint64_t;
using records = std::vector<journal_record>;

/// What an id names: those of one sort can be taken for each other.
enum class sort : std::uint8_t {
  none,
  operation,
  lease,
  request,
  owner,
  pin,
  copy,
  proof,
  hold,
  registration,
  slot
};

sort other_of(kind k) {
  switch (k) {
    case kind::rows_pinned:
    case kind::rows_unpinned:
    case kind::rows_kept_pinned:
    case kind::lease_unpinned:
      return sort::pin;
    case kind::copy_started:
    case kind::copy_completed:
    case kind::copy_lost:
      return sort::copy;
    case kind::slots_lent:
    case kind::slots_freed:
    case kind::slots_quarantined:
      return sort::slot;
    case kind::hold_taken:
    case kind::hold_released:
      return sort::hold;
    case kind::proof_started:
    case kind::access_ended:
    case kind::access_disputed:
      return sort::proof;
    case kind::registration_started:
    case kind::registration_made:
    case kind::registration_failed:
    case kind::registration_closing:
    case kind::registration_closed:
    case kind::registration_kept:
      return sort::registration;
    default:
      return k >= kind::owner_created && k <= kind::fatal_latched ? sort::owner : sort::none;
  }
}

struct field {
  std::string_view name;
  number journal_record::*where;
  sort of;
};
std::array<field, 4> fields_of(kind k) {
  return {{{"operation", &journal_record::operation, sort::operation},
           {"lease", &journal_record::lease, sort::lease},
           {"request", &journal_record::request, sort::request},
           {"other", &journal_record::other, other_of(k)}}};
}

void renumber(records& r) {
  for (std::size_t i = 0; i < r.size(); ++i) r[i].sequence = i + 1;
}

void damage_ids(const records& journal, std::size_t i, const std::map<sort, std::set<number>>& ids,
                const std::function<void(const damage&)>& each) {
  for (const auto& f : fields_of(journal[i].kind)) {
    const auto mine = journal[i].*f.where;
    const auto change = [&](damage_class c, number to) {
      damage d{c, i, std::string{f.name}, journal};
      d.records[i].*f.where = to;
      each(d);
    };
    if (mine == 0 && f.of != sort::slot) {
      const auto any = ids.find(f.of == sort::none ? sort::operation : f.of);
      if (any != ids.end()) change(damage_class::stray_field, *any->second.begin());
      continue;
    }
    // The nearest of its kind on either side, then one that was never given.
    const auto& all = ids.at(f.of);
    const auto at = all.find(mine);
    if (at != all.begin()) change(damage_class::another_id, *std::prev(at));
    if (std::next(at) != all.end()) change(damage_class::another_id, *std::next(at));
    change(damage_class::unknown_id, *all.rbegin() + 1000);
    if (f.of != sort::slot) change(damage_class::foreign_id, mine + (number{1} << id_sequence_bits));
  }
}

void damage_time(const records& journal, std::size_t i, const std::function<void(const damage&)>& each) {
  const auto from = journal[i].from;
  std::int64_t before = 0;
  for (std::size_t j = 0; j < i; ++j)
    if (journal[j].from == from) before = journal[j].at;
  damage early{damage_class::early, i, {}, journal};
  early.records[i].at = before - 1;
  each(early);
  damage late{damage_class::late, i, {}, journal};
  constexpr std::int64_t day = 86'400'000'000'000;
  late.records[i].at += day;
  for (std::size_t j = i + 1; j < journal.size(); ++j)
    if (journal[j].from == from && from != actor_kind::backend) {  // its workers' are each of a thread
      late.records[i].at = journal[j].at + 1;
      break;
    }
  each(late);
}

}  // namespace

std::string_view to_string(damage_class c) noexcept {
  static constexpr std::array<std::string_view, damage_classes> names{
      "dropped",    "doubled",     "swapped",      "another id", "unknown id",
      "foreign id", "stray field", "unknown kind", "early",      "late"};
  return names[static_cast<std::size_t>(c)];
}

void for_each_damage(const records& journal, const std::function<void(const damage&)>& each) {
  std::map<sort, std::set<number>> ids;
  for (const auto& r : journal)
    for (const auto& f : fields_of(r.kind))
      if (r.*f.where != 0 || f.of == sort::slot) ids[f.of].insert(r.*f.where);
  for (std::size_t i = 0; i < journal.size(); ++i) {
    damage d{damage_class::dropped, i, {}, journal};
    d.records.erase(d.records.begin() + static_cast<std::ptrdiff_t>(i));
    renumber(d.records);
    each(d);

    d = {damage_class::doubled, i, {}, journal};
    d.records.insert(d.records.begin() + static_cast<std::ptrdiff_t>(i), journal[i]);
    renumber(d.records);
    each(d);

    if (i + 1 < journal.size()) {
      d = {damage_class::swapped, i, {}, journal};
      std::swap(d.records[i], d.records[i + 1]);
      std::swap(d.records[i].sequence, d.records[i + 1].sequence);
      std::swap(d.records[i].at, d.records[i + 1].at);
      each(d);
    }
    damage_ids(journal, i, ids, each);

    d = {damage_class::unknown_kind, i, {}, journal};
    d.records[i].kind = static_cast<kind>(journal_kind_count);
    each(d);
    d = {damage_class::stray_field, i, "extra", journal};
    if (other_of(journal[i].kind) != sort::slot) {
      d.records[i].extra = 1;
      each(d);
    }
    damage_time(journal, i, each);
  }
}

}  // namespace kvlease::test
