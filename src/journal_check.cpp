#include "src/journal_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/journal_model.hpp"

namespace kvlease {

void journal_model::step(const journal_record& r) {
  check_ids(r);
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

void journal_checker::finish() {
  auto& m = *model_;
  if (!m.broken && m.suspended) m.broken = std::exchange(m.suspended, std::nullopt);
}

const std::optional<broken_rule>& journal_checker::broken() const noexcept { return model_->broken; }
bool journal_checker::whole() const noexcept { return model_->whole; }
std::uint64_t journal_checker::records() const noexcept { return model_->count; }
std::size_t journal_checker::operations_open() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(model_->operations, [](const auto& o) { return !o.second.registrations; }));
}
std::size_t journal_checker::leases_open() const noexcept { return model_->leases.size(); }

journal_verdict check_journal(incarnation of, std::span<const journal_record> records) {
  journal_checker c{of};
  for (const auto& r : records)
    if (!c.read(r)) break;
  c.finish();
  return {c.broken(), c.whole(), c.records(), c.operations_open(), c.leases_open()};
}

}  // namespace kvlease
