#include "src/journal_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/journal_form.hpp"
#include "src/journal_model.hpp"

namespace kvlease {

namespace {

/// A writer looks at the clock and then takes its number: so far can it be held up between, with room to
/// spare.
constexpr std::int64_t most_held_up = 60'000'000'000;

}  // namespace

void journal_model::step(const journal_record& r) {
  if (const auto wrong = form_fault(runtime, r)) return fail(r, wrong->rule, wrong->what);
  time_step(r);
  if (broken) return;
  actors_step(r);
  if (broken) return;
  switch (r.from) {
    case actor_kind::manager:
      return manager_step(r);
    case actor_kind::lender:
      return lender_step(r);
    case actor_kind::adapter:
    case actor_kind::backend:
      return adapter_step(r);
    case actor_kind::deadline_arbiter:
      return arbiter_step(r);
    default:
      return;
  }
}

void journal_model::time_step(const journal_record& r) {
  auto& before = latest[static_cast<std::size_t>(r.from)];
  if (r.at < before)
    return fail(
        r, "form",
        fmt::format("it is {} ns before the {}'s record that it follows", before - r.at, to_string(r.from)));
  if (newest - r.at > most_held_up)
    return fail(r, "form", fmt::format("it is {} ns before a record that it follows", newest - r.at));
  // Behind its own, the backend's records are its workers': each is on a thread of its own.
  if (r.from != actor_kind::backend || r.kind == kind::actor_up) before = r.at;
  newest = std::max(newest, r.at);
  if (!fatal && !due.empty() && newest - due.begin()->first > most_held_up &&
      !may_be_down(actor_kind::deadline_arbiter))
    fail(r, "4.9",
         fmt::format("owner {} was due {} ns ago", journal_id(due.begin()->second),
                     newest - due.begin()->first));
}

bool journal_model::fresh(const journal_record& r, number id, number& newest_one, std::string_view what,
                          bool consecutive) {
  const auto before = std::exchange(newest_one, std::max(newest_one, id));
  if (before == 0 && !whole) return true;
  if (id <= before) {
    fail(r, "7.1",
         fmt::format("{} {} is not new: {} was given before", what, journal_id(id), journal_id(before)));
    return false;
  }
  const auto first = before == 0 ? number{runtime.value} << id_sequence_bits : before;
  if (consecutive && whole && id != first + 1) {
    fail(r, "7.1",
         fmt::format("{} {} is given, and {} was not", what, journal_id(id), journal_id(first + 1)));
    return false;
  }
  return true;
}

bool journal_model::arrives(const journal_record& r, std::deque<sent>& line_of, number about,
                            std::string_view rule, std::optional<kind> as) {
  if (line_of.empty()) {
    fail(r, rule, fmt::format("nobody has asked for it ({})", journal_id(about)));
    return false;
  }
  const auto head = line_of.front();
  if (head.what != as.value_or(r.kind) || head.about != about) {
    fail(r, rule,
         fmt::format("{} of {} was asked for before, by record {}", to_string(head.what),
                     journal_id(head.about), head.sequence));
    return false;
  }
  if (r.at < head.at) {
    fail(r, "form",
         fmt::format("it is {} ns before record {}, which it follows from", head.at - r.at, head.sequence));
    return false;
  }
  line_of.pop_front();
  return true;
}

bool journal_model::pays(const journal_record& r, std::deque<due_record>& owes, number about, bool& was_due) {
  was_due = false;
  if (owes.empty()) return true;
  auto& head = owes.front();
  const bool placed =
      head.what != kind::slots_lent && (r.kind == kind::slots_freed || r.kind == kind::slots_quarantined);
  if (head.what == r.kind && head.about == about && (head.other == 0 || placed || head.other == r.other) &&
      (!placed || (head.other == r.other && head.value == r.value && head.part == r.extra))) {
    was_due = true;
    if (r.kind == kind::slots_lent && r.value < head.value)
      head.value -= r.value;  // another part's run follows
    else
      owes.pop_front();
    return true;
  }
  if (head.others_first && about != head.about &&
      (r.kind == kind::lease_failed || r.kind == kind::lease_granted))
    return true;
  fail(r, head.rule, fmt::format("{} of {} is due first", to_string(head.what), journal_id(head.about)));
  return false;
}

bool journal_model::names_its_own(const journal_record& r, const operation_model& o) {
  if (r.lease != 0 && r.lease != o.lease)
    fail(r, "7.1",
         fmt::format("operation {} has lease {}, not {}", journal_id(r.operation), journal_id(o.lease),
                     journal_id(r.lease)));
  else if (r.request != 0 && r.request != o.request)
    fail(r, "7.1",
         fmt::format("operation {} is of request {}, not {}", journal_id(r.operation), journal_id(o.request),
                     journal_id(r.request)));
  return !broken;
}

// ---- the checker

journal_checker::journal_checker(incarnation of) : model_{std::make_unique<journal_model>(of)} {}
journal_checker::~journal_checker() = default;

bool journal_checker::read(const journal_record& r) {
  auto& m = *model_;
  if (m.broken) return false;
  if (r.sequence != m.last + 1) {  // something is missing, or the file is of two journals
    if (r.sequence <= m.last) {
      m.fail(r, "7.1", fmt::format("its number comes behind {}", m.last));
      return false;
    }
    const auto runtime = m.runtime;
    const auto count = m.count;
    m = journal_model{runtime};
    m.count = count;
    m.whole = false;
  }
  m.last = r.sequence;
  ++m.count;
  m.step(r);
  return !m.broken;
}

const std::optional<broken_rule>& journal_checker::broken() const noexcept { return model_->broken; }
bool journal_checker::whole() const noexcept { return model_->whole; }
std::uint64_t journal_checker::records() const noexcept { return model_->count; }
std::size_t journal_checker::operations_open() const noexcept { return model_->open_operations; }
std::size_t journal_checker::leases_open() const noexcept { return model_->leases.size(); }

journal_verdict check_journal(incarnation of, std::span<const journal_record> records) {
  journal_checker c{of};
  for (const auto& r : records)
    if (!c.read(r)) break;
  return {c.broken(), c.whole(), c.records(), c.operations_open(), c.leases_open()};
}

}  // namespace kvlease
