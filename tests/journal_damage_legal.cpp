// Which single damages leave the journal of a legal run. Said from the journal as it was, without the
// checker.
#include <algorithm>
#include <set>
#include <utility>

#include "tests/journal_damage.hpp"

namespace kvlease::test {

using kind = journal_kind;

namespace {

using records = std::vector<journal_record>;
using number = std::uint64_t;
using reason = std::optional<std::string_view>;

bool one_of(kind k, std::initializer_list<kind> some) { return std::ranges::find(some, k) != some.end(); }

/// Some record behind `i` is such a one.
template <class Is>
bool later(const records& all, std::size_t i, Is is) {
  return std::any_of(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all.end(), is);
}
template <class Is>
bool before(const records& all, std::size_t i, Is is) {
  return std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), is);
}
bool outcome_is(const journal_record& r, outcome_detail d) {
  return r.kind == kind::outcome_committed && r.detail == static_cast<std::uint8_t>(d);
}

/// The lease is the operation's.
bool about(const journal_record& r, number operation, number lease) {
  return (operation != 0 && r.operation == operation) || (lease != 0 && r.lease == lease);
}
number lease_of(const records& all, number operation) {
  for (const auto& r : all)
    if (r.kind == kind::operation_admitted && r.operation == operation) return r.lease;
  return 0;
}

bool down(const records& all, actor_kind k) {
  return before(all, all.size(), [k](const auto& x) {
    return x.kind == kind::actor_down && x.value == static_cast<number>(k);
  });
}

/// A record that is legal because an actor is down.
bool only_a_death_explains(const records& all, std::size_t j) {
  const auto& r = all[j];
  const auto lost = [&r](const journal_record& x) {
    return x.lease == r.lease && one_of(x.kind, {kind::copy_lost, kind::slots_quarantined});
  };
  switch (r.kind) {
    case kind::slots_quarantined:
    case kind::copies_disputed:
      return !before(all, j, lost);
    case kind::submission_withdrawn:
      return !before(all, j, [&r](const auto& x) {
        return x.operation == r.operation && x.kind == kind::outcome_committed;
      });
    case kind::submission_escaped:
      return !before(all, j, [&r](const auto& x) {
        return x.operation == r.operation && x.kind == kind::submission_entered;
      });
    case kind::outcome_committed:
      return outcome_is(r, outcome_detail::failed) && !before(all, j, [&r](const auto& x) {
               return x.operation == r.operation &&
                      one_of(x.kind, {kind::outcome_reported, kind::submission_rejected,
                                      kind::submission_escaped, kind::submission_withdrawn});
             });
    case kind::drain_started:
      return !before(all, j, [&r](const auto& x) {
        return x.other == r.other && one_of(x.kind, {kind::claim_retained, kind::outcome_committed});
      });
    case kind::lease_finish_asked: {  // of what the adapter would have cancelled first
      bool made = false, undelivered = false;
      for (std::size_t i = 0; i < j; ++i) {
        if (all[i].operation != r.operation) continue;
        if (all[i].kind == kind::cancel_asked) return false;
        made |= all[i].kind == kind::submission_accepted;
        undelivered |=
            all[i].kind == kind::outcome_committed && !outcome_is(all[i], outcome_detail::delivered);
      }
      return made && undelivered;
    }
    default:
      return false;
  }
}

/// What a record is about, by which a later one would need it.
bool named_again(const records& all, std::size_t i) {
  const auto& r = all[i];
  const auto by_other = [&r](const auto& x) { return x.other == r.other && x.from == r.from; };
  const auto lease = r.lease != 0 ? r.lease : lease_of(all, r.operation);
  switch (r.kind) {
    case kind::request_admitted:
      return later(all, i,
                   [&r](const auto& x) { return x.request == r.request && x.kind != kind::owner_created; });
    case kind::rows_pinned:
      return later(all, i, [&](const auto& x) {
        return (x.from == actor_kind::manager && x.other == r.other) || (r.lease != 0 && x.lease == r.lease);
      });
    case kind::rows_unpinned:
    case kind::rows_kept_pinned:
    case kind::hold_taken:
    case kind::hold_released:
    case kind::registration_failed:
    case kind::registration_kept:
      return later(all, i, by_other);
    case kind::registration_made:
      return later(all, i, [&](const auto& x) {
        return by_other(x) || one_of(x.kind, {kind::lease_opened, kind::registration_started});
      });
    case kind::owner_created:
      for (std::size_t j = i + 1; j < all.size(); ++j)
        if (all[j].from == actor_kind::deadline_arbiter && all[j].other == r.other)
          return all[j].kind != kind::exposed;
      return false;
    default:
      break;
  }
  if (r.from == actor_kind::lender)
    return later(all, i, [&](const auto& x) {
      const bool tells = x.from == actor_kind::lender ||
                         one_of(x.kind, {kind::operation_admitted, kind::copies_ended, kind::rows_pinned});
      return r.lease != 0 && x.lease == r.lease && tells;
    });
  // Of its operation, wherever the outcome is not what is told: that comes of its own (1.1).
  return later(all, i, [&](const auto& x) {
    return about(x, r.operation, lease) &&
           !one_of(x.kind, {kind::outcome_committed, kind::drain_started, kind::lease_awaiting});
  });
}

reason dropped(const records& all, std::size_t i) {
  const auto& r = all[i];
  const auto tracked = std::ranges::find(all, kind::registrations_tracked, &journal_record::kind);
  const auto parts = tracked == all.end() ? number{0} : tracked->operation;
  const auto stopped = [](const auto& x) { return x.kind == kind::stop_ended && x.value == 1; };
  switch (r.kind) {
    case kind::actor_up: {
      const bool needed = later(all, i, [&r](const auto& x) {
        const bool proof = one_of(x.kind, {kind::access_ended, kind::access_disputed}) && x.other != 0;
        const bool copy = one_of(x.kind, {kind::copy_completed, kind::copy_lost});
        return x.from == r.from || (r.from == actor_kind::proof_collector && proof) ||
               (r.from == actor_kind::cuda && copy) || (x.kind == kind::actor_down && x.value == r.value);
      });
      return needed ? reason{} : "an actor that nothing comes of may not have started yet";
    }
    case kind::actor_down:
      for (std::size_t j = i + 1; j < all.size(); ++j)
        if (only_a_death_explains(all, j)) return std::nullopt;
      return "an actor that is silent may be slow as well as down";
    case kind::request_freed:
      return "a request may be kept for longer";
    case kind::stop_asked:
      return later(all, i, [](const auto& x) { return x.kind == kind::stop_ended; }) &&
                     !before(all, i, [](const auto& x) { return x.kind == kind::stop_asked; })
                 ? reason{}
                 : "another stop was asked for, or none has ended";
    case kind::stop_ended:
      return "a stop may not have ended yet";
    case kind::admission_closed:
      return later(all, i,
                   [&](const auto& x) {
                     return stopped(x) || (x.kind == kind::drain_started &&
                                           x.detail == static_cast<std::uint8_t>(drain_cause::shutdown));
                   })
                 ? reason{}
                 : "no owner drains for it, and the runtime is not stopped";
    case kind::lender_shut:
    case kind::arbiter_stopped:
      return later(all, i, stopped) ? reason{} : "the runtime is not stopped";
    case kind::lease_withdrawn:
      return later(all, i, [&r](const auto& x) { return x.lease == r.lease && x.kind != kind::lease_failed; })
                 ? reason{}
                 : "a lease that waits may fail by itself";
    case kind::copy_started:
      if (later(all, i, [&r](const auto& x) {
            return x.lease == r.lease && x.from == actor_kind::lender &&
                   !one_of(x.kind, {kind::lease_withdrawn, kind::lease_failed, kind::slots_quarantined});
          }))
        return std::nullopt;
      if (down(all, actor_kind::cuda) || down(all, actor_kind::manager))
        return "what waits for its pin is quarantined by a death as well";
      break;
    case kind::lease_awaiting:
      return later(all, i, [&r](const auto& x) { return x.lease == r.lease && x.from == actor_kind::lender; })
                 ? reason{}
                 : "the lender may not have come to it yet";
    case kind::cancel_asked:
      return later(all, i,
                   [&r](const auto& x) {
                     return x.operation == r.operation && x.kind == kind::lease_finish_asked;
                   }) &&
                     !down(all, actor_kind::backend)
                 ? reason{}
                 : "the adapter may not have come to it yet";
    case kind::claim_retained:
    case kind::claim_retired:
      return later(all, i,
                   [&](const auto& x) {
                     const bool line = one_of(x.kind, {kind::exposed, kind::exposure_refused,
                                                       kind::claim_retired, kind::claim_retained});
                     const bool last = x.operation == parts && x.kind == kind::claim_settled;
                     return (line && x.operation != parts && r.operation != parts) || last ||
                            (x.operation == r.operation && x.from == actor_kind::deadline_arbiter);
                   })
                 ? reason{}
                 : "the arbiter may not have come to it yet";
    case kind::drain_started:
    case kind::fatal_latched:
      return later(all, i,
                   [](const auto& x) {
                     return x.from == actor_kind::deadline_arbiter &&
                            !one_of(x.kind, {kind::drain_started, kind::fatal_latched,
                                             kind::outcome_committed, kind::admission_closed,
                                             kind::claim_retained, kind::claim_retired, kind::owner_created});
                   })
                 ? reason{}
                 : "the arbiter may not be further yet";
    case kind::submission_entered:
      if (later(all, i, [&r](const auto& x) {
            return x.operation == r.operation && x.kind == kind::submission_rejected;
          }))
        return "what is rejected need not have been called";
      if (!later(all, i,
                 [&r](const auto& x) { return x.operation == r.operation && x.from == actor_kind::adapter; }))
        return "the run may not have come so far yet";
      return down(all, actor_kind::backend)
                 ? reason{"a worker that its actor's death has left behind may not have got to its call"}
                 : reason{};
    case kind::outcome_reported:
      return later(all, i,
                   [&r](const auto& x) {
                     return x.operation == r.operation && (outcome_is(x, outcome_detail::delivered) ||
                                                           outcome_is(x, outcome_detail::failed));
                   })
                 ? reason{}
                 : "a report that has lost changes nothing (1.3)";
    default:
      break;
  }
  if (named_again(all, i)) return std::nullopt;
  if (r.kind == kind::owner_created) return "an exposure without an owner of the host makes one";
  return "the run may not have come so far yet";
}

/// Of what a request is, and what is kept of it.
bool of_requests(const journal_record& a, const journal_record& b) {
  return a.request == b.request && a.request != 0 &&
         (a.kind == kind::request_admitted || b.kind == kind::request_admitted || a.kind == b.kind ||
          (b.kind == kind::request_freed && a.kind == kind::rows_pinned && a.value > 0)) &&
         a.kind != kind::owner_created && b.kind != kind::owner_created;
}

/// What one actor's message to another brings about without naming it.
bool causes(const records& all, std::size_t i) {
  const auto &a = all[i], &b = all[i + 1];
  return (a.kind == kind::registrations_tracked && b.kind == kind::hold_taken) ||
         (a.kind == kind::hold_taken && b.kind == kind::registration_started) ||
         (a.kind == kind::registration_made && b.kind == kind::lease_opened) ||
         (a.kind == kind::actor_down && only_a_death_explains(all, i + 1)) ||
         (a.kind == kind::actor_up && b.kind == kind::actor_down && b.value == a.value) ||
         (a.kind == kind::lease_unpinned && b.kind == kind::rows_unpinned && a.other == b.other) ||
         (b.kind == kind::stop_ended && b.value == 1);
}

reason swapped(const records& all, std::size_t i) {
  const auto &a = all[i], &b = all[i + 1];
  const auto are = [&](auto is, auto other) { return (is(a) && other(b)) || (is(b) && other(a)); };
  if (a.kind == kind::actor_up && b.kind == kind::actor_up) return "actors start in any order";
  const bool shared = (a.operation != 0 && a.operation == b.operation) ||
                      (a.lease != 0 && a.lease == b.lease) || of_requests(a, b);
  const auto proofs = [](const journal_record& r) {
    return one_of(r.kind, {kind::access_ended, kind::access_disputed, kind::proof_started});
  };
  const auto told = [](const journal_record& r) {
    return one_of(r.kind, {kind::outcome_reported, kind::cancel_asked});
  };
  const auto answers = [&](const journal_record& r) {
    return proofs(r) || told(r) ||
           one_of(r.kind, {kind::submission_queued, kind::submission_entered, kind::submission_accepted,
                           kind::submission_withdrawn, kind::submission_escaped});
  };
  const auto decides = [](const journal_record& r) {
    return one_of(r.kind, {kind::outcome_committed, kind::claim_retained});
  };
  const auto by_adapter = [](const journal_record& r) { return r.from == actor_kind::adapter; };
  const auto drains = [](const journal_record& r) { return r.kind == kind::drain_started; };
  const auto awaits = [](const journal_record& r) { return r.kind == kind::lease_awaiting; };
  const auto registers = [](const journal_record& r) {
    return r.kind >= kind::registration_started && r.kind <= kind::registration_kept;
  };
  if (a.from != b.from) {
    if (!shared && !causes(all, i)) return "two actors, and nothing in common";
    if (are(answers, decides)) return "evidence and outcome come as they come (1.1)";
    if (are(by_adapter, drains)) return "an outcome is told before the drain that it starts is noted";
    if (are(by_adapter, awaits)) return "the lender comes in its own time to what it is told";
    if (are(registers, decides)) return "the arbiter comes in its own time to what it is told";
    return std::nullopt;
  }
  if (!shared) return "two messages to one actor, and nothing in common";
  if (are(proofs, told)) return "reports, outcomes and proofs come of three actors";
  return std::nullopt;
}

reason other_id(const records& all, const damage& d) {
  const auto& r = all[d.at];
  const auto named = [&](auto is) { return later(all, d.at, is); };
  if (r.kind == kind::slots_lent && d.field == "other")
    return named([&](const auto& x) {
      const auto first = d.records[d.at].other;
      const bool moved = one_of(x.kind, {kind::slots_freed, kind::slots_quarantined});
      const bool meets = x.extra == r.extra && x.other < first + r.value && first < x.other + x.value;
      return (moved && x.lease == r.lease) || (x.kind == kind::slots_lent && meets);
    })
               ? reason{}
               : "nothing else names the slots of a lease that has not come back";
  if (d.field != "request" && r.kind != kind::lease_opened) return std::nullopt;
  switch (r.kind) {
    case kind::owner_created:
      return "the host says which request its owner is of";
    case kind::request_freed:
      return "another request may be freed";
    case kind::rows_pinned:
      return r.lease == 0 ? reason{"nothing else names the request of the engine's own copy"} : reason{};
    case kind::lease_opened:
      if (d.field == "request")
        return named([&r](const auto& x) { return x.lease == r.lease && x.request != 0; })
                   ? reason{}
                   : "nothing else names the request of a lease that was never ready";
      [[fallthrough]];
    case kind::request_admitted:
      return named([&](const auto& x) {
        return r.kind == kind::lease_opened ? x.lease == r.lease
                                            : x.request == r.request && x.kind != kind::owner_created;
      })
                 ? reason{}
                 : "nothing else names it, and ids that were drawn for what was refused are left out";
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::string_view> why_legal(const std::vector<journal_record>& journal, const damage& d) {
  switch (d.what) {
    case damage_class::dropped:
      return dropped(journal, d.at);
    case damage_class::doubled:
      if (journal[d.at].kind == kind::stop_asked) return "two hosts may ask for a stop";
      return std::nullopt;
    case damage_class::swapped:
      return swapped(journal, d.at);
    case damage_class::another_id:
    case damage_class::unknown_id:
      return other_id(journal, d);
    case damage_class::late:
      if (d.at + 1 == journal.size()) return "it is the last, and nothing tells how long the run went on";
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace kvlease::test
