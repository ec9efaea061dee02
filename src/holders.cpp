#include "src/holders.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvlease {

namespace {

std::chrono::nanoseconds between(time_point from, time_point to) {
  if (from == time_point{}) return {};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from);
}

std::string provider_of(const known_facts& k) {
  return k.backend ? "provider " + k.backend->uri : "the provider";
}

std::string name_of(const owner_fact& o) {
  if (o.registrations) return "the registrations";
  return o.operation ? "operation " + to_string(o.operation) : "owner " + to_string(o.id);
}

/// What the clocks will do if no evidence comes: the first of all that can befall this memory. Fatal expiry
/// of any owner ends every release (4.5), so another's grace counts like its own.
void add_next(const known_facts& k, const owner_fact* owner, holder& h) {
  if (k.fatal) {
    h.next = "nothing: the runtime is fatal, its memory stays mapped until the process ends";
    return;
  }
  std::optional<time_point> due;
  const auto consider = [&](const std::optional<time_point>& at, std::string what) {
    if (!at || (due && *due <= *at)) return;
    due = at;
    h.next = std::move(what);
  };
  if (owner != nullptr) {
    consider(owner->fatal_at, "fatal expiry of the grace");
    if (!owner->drain_started)
      consider(owner->deadline,
               "the request's deadline: the outcome is failed(transfer timeout) unless there is one, and the "
               "grace begins");
  }
  if (const auto& first = k.first_grace; first && (owner == nullptr || first->id != owner->id))
    consider(first->fatal_at, fmt::format("the runtime's fatal expiry, by the grace of {} ({}),",
                                          name_of(*first), first->reason));
  if (due) {
    h.next_in = between(k.now, *due);
  } else if (h.next.empty()) {
    h.next = "it is released as soon as the evidence is there";
    if (owner == nullptr) h.next += "; no clock runs";
  }
}

void running(const known_facts& k, const operation_fact& o, holder& h) {
  const auto id = to_string(o.id);
  h.from = provider_of(k);
  h.age = between(o.times.submitted, k.now);
  switch (o.access) {
    case access_phase::exposing:
      h.evidence = "the arbiter's answer to the exposure of operation " + id;
      h.from = "deadline arbiter";
      return;
    case access_phase::queued:
      h.evidence = "the provider's answer to the submission of operation " + id;
      if (k.backend && k.backend->calling && k.backend->queued_since) {
        h.last_evidence = "submission: a worker has it, or will";
        h.last_evidence_age = between(*k.backend->queued_since, k.now);
      }
      return;
    case access_phase::ended:
      h.evidence = "outcome of operation " + id + "; its access has ended";
      return;
    default:
      break;
  }
  const auto* p = k.proof_of(o.id);
  h.evidence = "access end of operation " + id;
  if (p == nullptr) return;
  h.evidence += " (proof " + to_string(p->proof) + ")";
  if (p->blocking) {
    h.last_evidence = "quiesce: has not returned";
    h.last_evidence_age = between(p->since, k.now);
  } else if (p->last_look) {
    h.last_evidence = "poll_access: running";
    h.last_evidence_age = between(*p->last_look, k.now);
  }
}

void unproven(const known_facts& k, const operation_fact& o, holder& h) {
  h.from = provider_of(k);
  if (o.access == access_phase::escaped) {
    h.evidence =
        "none can come: the submission of operation " + to_string(o.id) + " escaped without an attempt";
    h.age = between(o.times.outcome == time_point{} ? o.times.submitted : o.times.outcome, k.now);
    h.last_evidence = "submission: " + (o.value ? o.value->reason : std::string{"escaped"});
    h.last_evidence_age = h.age;
    return;
  }
  h.evidence = "a new proof of the access end of operation " + to_string(o.id);
  if (!o.disputed) return;
  h.age = between(o.disputed->at, k.now);
  h.last_evidence = "proof: " + o.disputed->result;
  h.last_evidence_age = h.age;
}

void copying(const known_facts& k, const operation_fact* o, const lease_fact* l, holder& h) {
  h.from = "CUDA actor";
  if (k.device && !k.device->name.empty()) h.from += " on " + k.device->name;
  if (o != nullptr && o->copies == copy_phase::complete) {
    h.evidence = "settlement of the claim of operation " + to_string(o->id);
    h.from = "deadline arbiter";
    h.age = between(o->times.copies_ended, k.now);
    return;
  }
  h.age = between(o != nullptr ? o->times.access_ended : l->changed, k.now);
  if (l != nullptr && l->copying) {
    h.evidence = fmt::format("event of copy {} of lease {}", to_string(*l->copying), to_string(l->id));
    if (k.device && k.device->last_look) {
      h.last_evidence = "event query: pending";
      h.last_evidence_age = between(*k.device->last_look, k.now);
    }
    return;
  }
  h.evidence = fmt::format("pages of lease {} pinned for its copy", l != nullptr ? to_string(l->id) : "");
  h.from = "manager";
}

void lost(const known_facts& k, const operation_fact* o, const lease_fact* l, holder& h) {
  const bool of_copy = (l != nullptr && l->phase == lease_phase::unproven) ||
                       (o != nullptr && o->copies == copy_phase::unproven);
  if (of_copy) {
    h.evidence = "none can come: a local copy can't be proven complete, its slots are kept for good";
    h.from = "CUDA actor";
    h.age = between(l != nullptr ? l->changed : o->times.access_ended, k.now);
    h.last_evidence = "copy: unproven";
    if (k.device && !k.device->lost.empty()) h.last_evidence += ", " + k.device->lost;
    h.last_evidence_age = h.age;
    h.next = "nothing: the slots stay out of use until the process ends";
    return;
  }
  h.evidence = "none counts any more: after fatal expiry nothing is settled";
  h.from = "deadline arbiter";
  if (k.fatal) {
    h.age = between(k.fatal->noticed, k.now);
    h.last_evidence = "fatal: " + k.fatal->reason;
    h.last_evidence_age = h.age;
  }
}

std::string thing(const operation_fact* o, const lease_fact* l) {
  if (o == nullptr) return l == nullptr ? "" : "lease " + to_string(l->id);
  return fmt::format("operation {} on lease {}", to_string(o->id), to_string(o->lease));
}

holder one(const known_facts& k, held_reason reason, const operation_fact* o, const lease_fact* l) {
  holder h{
      .reason = reason, .what = thing(o, l), .evidence = {}, .from = {}, .last_evidence = {}, .next = {}};
  switch (reason) {
    case held_reason::lent_not_submitted:
      h.evidence = "its submission, or its withdrawal";
      h.from = "host";
      h.age = between(l->changed, k.now);
      h.next = "nothing by itself: the lease is its holder's";
      add_next(k, nullptr, h);
      break;
    case held_reason::backend_access_running:
      running(k, *o, h);
      break;
    case held_reason::backend_end_unproven:
      unproven(k, *o, h);
      break;
    case held_reason::local_copy_pending:
      copying(k, o, l, h);
      break;
    case held_reason::consumer_reading: {
      h.what = "read guard of lease " + to_string(l->id);
      h.evidence = fmt::format("the end of {} read guard{} of lease {}", l->guards, l->guards == 1 ? "" : "s",
                               to_string(l->id));
      h.from = "host";
      h.age = between(l->changed, k.now);
      break;
    }
    case held_reason::quarantined:
      lost(k, o, l, h);
      break;
    case held_reason::shutdown_drain:
      h.evidence = "the evidence above; then the claim is settled";
      h.from = "supervisor";
      h.what = "shutdown of the runtime";
      if (const auto* owner = o == nullptr ? nullptr : k.owner_of(o->id);
          owner != nullptr && owner->drain_started)
        h.age = between(*owner->drain_started, k.now);
      break;
    case held_reason::registered_by_backend:
      break;
  }
  const bool clocked = reason != held_reason::lent_not_submitted;
  if (clocked && h.next.empty()) add_next(k, o == nullptr ? nullptr : k.owner_of(o->id), h);
  return h;
}

}  // namespace

std::vector<holder> holders_of(const known_facts& k, const operation_fact* op, const lease_fact* lease) {
  std::vector<holder> holders;
  for (const auto reason : reasons_of(op, lease, k.stopping)) holders.push_back(one(k, reason, op, lease));
  return holders;
}

std::vector<holder> holders_of(const known_facts& k, const registration_fact& r) {
  if (!r.id || r.state == "none") return {};
  holder h{.reason = held_reason::registered_by_backend,
           .what = "registration " + r.part,
           .evidence = {},
           .from = provider_of(k),
           .last_evidence = {},
           .next = {}};
  h.evidence = "close of registration " + to_string(r.id);
  if (!r.reason.empty()) h.last_evidence = r.reason;
  h.age = between(r.since, k.now);
  h.next = k.stopping ? "it is closed once no operation is open"
                      : "nothing until the runtime stops: then it is closed, after the last operation";
  const auto* mine = [&]() -> const owner_fact* {
    for (const auto* o : k.owners)
      if (o->registrations) return o;
    return nullptr;
  }();
  add_next(k, mine, h);
  std::vector<holder> holders{std::move(h)};
  if (k.stopping) {
    holders.push_back({.reason = held_reason::shutdown_drain,
                       .what = "shutdown of the runtime",
                       .evidence = fmt::format("the end of {} open operations", k.operations_total),
                       .from = "adapter",
                       .last_evidence = {},
                       .next = {}});
    if (mine != nullptr && mine->drain_started) holders.back().age = between(*mine->drain_started, k.now);
    add_next(k, mine, holders.back());
  }
  return holders;
}

std::vector<std::string> safe_steps(const known_facts& k, const std::vector<holder>& holders) {
  std::vector<std::string> steps;
  const auto add = [&steps](std::string step) {
    if (std::ranges::find(steps, step) == steps.end()) steps.push_back(std::move(step));
  };
  if (k.fatal) add("restart the process: nothing else takes this memory back");
  for (const auto& h : holders) switch (h.reason) {
      case held_reason::lent_not_submitted:
        add("submit the lease, or withdraw it: the slots return at once");
        break;
      case held_reason::backend_access_running:
        add("cancel the operation: the request has its answer at once, the memory comes back with the proof");
        add("free the request: nothing is copied into pages that it no longer holds");
        break;
      case held_reason::backend_end_unproven:
        if (h.evidence.starts_with("none can come"))
          add("restart the process before other requests need these slots");
        else
          add("retry the proof of the operation");
        break;
      case held_reason::local_copy_pending:
        add("wait: our own copies end with the stream");
        break;
      case held_reason::consumer_reading:
        add("end the host's read guard once it has read");
        break;
      case held_reason::registered_by_backend:
        add("stop the runtime: registrations are closed after the last operation");
        break;
      case held_reason::shutdown_drain:
        add("wait for the evidence, or let the process end: what is unproven is never reused");
        break;
      case held_reason::quarantined:
        add("restart the process when the other slots no longer suffice");
        break;
    }
  return steps;
}

}  // namespace kvlease
