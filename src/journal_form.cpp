#include "src/journal_form.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include "messages/contract.hpp"
#include "messages/copies.hpp"

namespace kvlease {

namespace {

enum class has : std::uint8_t { none, one, maybe };
constexpr auto no = has::none, id = has::one, may = has::maybe;

struct form {
  actor_kind from = actor_kind::manager;
  has operation = no, lease = no, request = no, other = no;
  bool value = false;
  std::uint8_t most = 0;  ///< that `detail` can be
  bool slots = false;     ///< `other` is a slot, `extra` its part
};

constexpr auto manager = actor_kind::manager, lender = actor_kind::lender, adapter = actor_kind::adapter,
               backend = actor_kind::backend, arbiter = actor_kind::deadline_arbiter,
               supervisor = actor_kind::supervisor;
constexpr auto ways = static_cast<std::uint8_t>(direction::publish);
constexpr auto copies = static_cast<std::uint8_t>(copy_kind::device_to_host);
constexpr auto outcomes = static_cast<std::uint8_t>(outcome_detail::cancelled_by_peer);
constexpr auto sources = static_cast<std::uint8_t>(proof_source::process_exit);
constexpr auto causes = static_cast<std::uint8_t>(drain_cause::shutdown);

/// Of any actor: its own.
bool of_itself(const journal_record& r) { return r.value == static_cast<std::uint64_t>(r.from); }

constexpr form form_of(journal_kind k) {
  using enum journal_kind;
  switch (k) {
    case actor_up:
      return {.value = true};
    case actor_down:
    case stop_asked:
    case stop_ended:
      return {.from = supervisor, .value = true};
    case request_admitted:
    case request_freed:
      return {.from = manager, .request = id};
    case rows_pinned:
      return {.from = manager, .lease = may, .request = id, .other = id, .value = true};
    case rows_unpinned:
    case rows_kept_pinned:
      return {.from = manager, .other = id};
    case lease_opened:
      return {.from = lender, .lease = id, .request = id, .most = ways};
    case lease_ready:
      return {.from = lender, .lease = id, .request = id};
    case lease_granted:
    case lease_finishing:
      return {.from = lender, .lease = id, .value = true};
    case slots_lent:
    case slots_quarantined:
      return {.from = lender, .lease = id, .value = true, .slots = true};
    case slots_freed:
      return {.from = lender, .lease = may, .value = true, .slots = true};
    case lease_failed:
    case lease_withdrawn:
    case lease_awaiting:
    case guards_gone:
    case lease_returned:
      return {.from = lender, .lease = id};
    case copy_started:
      return {.from = lender, .lease = id, .other = id, .value = true, .most = copies};
    case copy_completed:
    case copy_lost:
    case lease_unpinned:
      return {.from = lender, .lease = id, .other = id};
    case hold_taken:
    case hold_released:
      return {.from = lender, .other = id};
    case lender_shut:
      return {.from = lender};
    case operation_admitted:
      return {.from = adapter, .operation = id, .lease = id, .request = id, .most = ways};
    case submission_queued:
    case submission_accepted:
    case submission_rejected:
    case submission_withdrawn:
    case submission_escaped:
    case copies_ended:
    case copies_disputed:
      return {.from = adapter, .operation = id, .lease = id, .request = id};
    case submission_entered:
      return {.from = backend, .operation = id};
    case outcome_reported:
      return {.from = adapter, .operation = id, .value = true, .most = outcomes};
    case cancel_asked:
      return {.from = adapter, .operation = id};
    case proof_started:
      return {.from = adapter, .operation = id, .other = id};
    case access_ended:
      return {.from = adapter, .operation = id, .lease = id, .request = id, .other = may, .most = sources};
    case access_disputed:
      return {.from = adapter, .operation = id, .lease = id, .request = id, .other = id};
    case rung_climbed:
      return {.from = adapter, .operation = id, .other = id, .most = sources};
    case operation_taken_down:
      return {.from = adapter, .operation = id, .other = id};
    case lease_finish_asked:
      return {.from = adapter, .operation = id, .lease = id, .value = true};
    case operation_released:
      return {.from = adapter, .operation = id, .lease = id};
    case registration_started:
    case registration_made:
    case registration_failed:
    case registration_closing:
    case registration_closed:
    case registration_kept:
      return {.from = adapter, .operation = id, .other = id};
    case owner_created:
      return {.from = arbiter, .request = may, .other = id, .value = true};
    case exposed:
    case registrations_tracked:
      return {.from = arbiter, .operation = id, .other = id, .value = true};
    case exposure_refused:
    case claim_retained:
    case claim_settled:
    case claim_refused:
    case claim_retired:
      return {.from = arbiter, .operation = id, .other = may};
    case outcome_committed:
      return {.from = arbiter, .operation = id, .other = may, .value = true, .most = outcomes};
    case drain_started:
      return {.from = arbiter, .operation = may, .other = id, .value = true, .most = causes};
    case owner_closed:
      return {.from = arbiter, .other = id};
    case fatal_latched:
      return {.from = arbiter, .request = may, .other = id, .value = true};
    case admission_closed:
    case arbiter_stopped:
      return {.from = arbiter};
  }
  return {};
}

std::optional<std::string> wrong_id(std::string_view what, has wanted, std::uint64_t value, incarnation of) {
  const auto text = to_string(operation_id{value});
  if (value == 0 && wanted == id) return fmt::format("it names no {}", what);
  if (value != 0 && wanted == no) return fmt::format("it names {} {}, and has none", what, text);
  if (value != 0 && operation_id{value}.runtime() != of)
    return fmt::format("id {} is of another runtime than {}", text, of.value);
  return std::nullopt;
}

}  // namespace

bool other_is_id(journal_kind k) noexcept { return form_of(k).other != no; }

std::optional<wrong_form> form_fault(incarnation of, const journal_record& r) {
  const auto bad = [](std::string what) { return wrong_form{"form", std::move(what)}; };
  if (static_cast<std::size_t>(r.kind) >= journal_kind_count)
    return bad(fmt::format("{} is no kind of record", static_cast<unsigned>(r.kind)));
  if (r.from > actor_kind::inspector)
    return bad(fmt::format("{} is no actor", static_cast<unsigned>(r.from)));
  const auto f = form_of(r.kind);
  if (r.kind == journal_kind::actor_up ? !of_itself(r) : r.from != f.from)
    return bad(fmt::format("the {} does not write it", to_string(r.from)));
  for (const auto& [what, wanted, value] : {std::tuple{"operation", f.operation, r.operation},
                                            {"lease", f.lease, r.lease},
                                            {"request", f.request, r.request},
                                            {"id", f.slots ? may : f.other, f.slots ? 0 : r.other}})
    if (auto wrong = wrong_id(what, wanted, value, of)) return wrong_form{"7.1", *std::move(wrong)};
  if (!f.value && r.value != 0) return bad(fmt::format("it has the value {}, and should have none", r.value));
  if (!f.slots && r.extra != 0) return bad(fmt::format("it has the part {}, and should have none", r.extra));
  if (r.detail > f.most) return bad(fmt::format("its detail {} stands for nothing", r.detail));
  if (r.at < 0) return bad(fmt::format("its time, {} ns, is before the start", r.at));
  return std::nullopt;
}

}  // namespace kvlease
