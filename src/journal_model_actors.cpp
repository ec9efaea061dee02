// Actors up and down (7.4), and the supervisor's stop (6.7, 7.8).
#include <fmt/format.h>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;

void journal_model::actors_step(const journal_record& r) {
  const auto name = to_string(r.from);
  const auto i = static_cast<std::size_t>(r.from);
  if (r.kind == kind::actor_up) {
    if (up[i]) return fail(r, "7.4", fmt::format("the {} is up already", name));
    up[i] = true;
    return;
  }
  if (whole && !up[i]) return fail(r, "7.4", fmt::format("the {} is not up", name));
  if (down[i] && r.kind != kind::submission_entered)  // a worker outlives its actor
    return fail(r, "7.4", fmt::format("the {} is down", name));
  switch (r.kind) {
    case kind::actor_down: {
      if (r.value >= actors) return fail(r, "form", fmt::format("{} is no actor", r.value));
      const auto who = static_cast<std::size_t>(r.value);
      if (down[who])
        return fail(r, "7.4", fmt::format("the {} is down already", to_string(static_cast<actor_kind>(who))));
      if (whole && !up[who])
        return fail(r, "7.4", fmt::format("the {} was not up", to_string(static_cast<actor_kind>(who))));
      down[who] = true;
      return;
    }
    case kind::stop_asked:
      ++stops_asked;
      return;
    case kind::stop_ended: {
      if (whole && stops_asked == 0) return fail(r, "7.8", "nobody has asked for a stop");
      stops_asked = 0;
      if (r.value > 1) return fail(r, "form", fmt::format("{} is neither stopped nor refused", r.value));
      if (r.value == 0 || !whole) return;
      const auto left = !closed                            ? "admission is open"
                        : open_operations > 0              ? "operations are open"
                        : !registrations.live.empty()      ? "registrations stand"
                        : registrations.hold != 0          ? "the hold is taken"
                        : !shut                            ? "the lender is not shut"
                        : !leases.empty() || !lent.empty() ? "leases are open"
                        : !lost.empty()                    ? "slots are quarantined"
                        : !stopped || !owners.empty()      ? "the arbiter is not stopped"
                                                           : nullptr;
      if (left != nullptr) fail(r, "6.7", fmt::format("stopped, and {}", left));
      return;
    }
    default:
      return;
  }
}

}  // namespace kvlease
