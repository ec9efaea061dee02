#include "src/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/holders.hpp"
#include "src/known.hpp"
#include "src/subjects.hpp"

namespace kvlease {

namespace {

std::chrono::nanoseconds since(time_point from, time_point now) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now - from);
}

std::string yes_no(bool b) { return b ? "yes" : "no"; }

class explainer {
 public:
  explainer(explanation& into, const gathered_facts& told, const std::vector<part>& parts)
      : e_{into}, k_{told}, parts_{parts} {}

  void about(const subject& what) {
    switch (what.kind) {
      case subject_kind::lease:
        return of_lease(lease_id{*parse_id(what.id)});
      case subject_kind::operation:
        return of_operation(operation_id{*parse_id(what.id)});
      case subject_kind::request:
        return of_request(request_id{*parse_id(what.id)});
      case subject_kind::registration:
        return of_registration(what.id);
      case subject_kind::slot:
      case subject_kind::address:
        return of_slot(*question_of(what, parts_)->slot);
    }
  }
  void end() {
    e_.safe = safe_steps(k_, e_.holders);
    if (k_.fatal) fact("fatal", k_.fatal->reason);
  }

 private:
  void fact(std::string name, std::string value) { e_.facts.emplace_back(std::move(name), std::move(value)); }
  void add(std::vector<holder> holders) {
    for (auto& h : holders) e_.holders.push_back(std::move(h));
  }

  void of_lease(lease_id id) { pair(k_.operation_on(id), k_.lease_of(id)); }
  void of_operation(operation_id id) {
    const auto* op = k_.operation_of(id);
    pair(op, op == nullptr ? nullptr : k_.lease_of(op->lease));
  }
  void pair(const operation_fact* op, const lease_fact* lease) {
    if (op == nullptr && lease == nullptr) return void(e_.state = "not open");
    e_.found = true;
    show_outcome(op);
    add(holders_of(k_, op, lease));
    e_.state = e_.holders.empty() ? "waiting for slots" : "held";
    if (op != nullptr) show(*op);
    if (lease != nullptr) show(*lease);
  }
  void show_outcome(const operation_fact* op) {
    if (op == nullptr || !op->value) return;
    e_.outcome = text_of(*op->value);
    if (op->times.outcome != time_point{}) e_.outcome_age = since(op->times.outcome, k_.now);
  }
  void show(const operation_fact& o) {
    fact("operation", to_string(o.id));
    fact("direction", std::string{to_string(o.way)});
    fact("request", to_string(o.request));
    fact("access", std::string{to_string(o.access)});
    fact("copies", std::string{to_string(o.copies)});
    fact("claim", std::string{to_string(o.claim)});
    if (o.source && o.access == access_phase::ended) fact("proof", std::string{to_string(*o.source)});
    if (!o.cancel.empty()) fact("cancel", o.cancel);
    const auto* owner = k_.owner_of(o.id);
    if (owner != nullptr && owner->drain_started) fact("drain", owner->reason);
  }
  void show(const lease_fact& l) {
    fact("lease", to_string(l.id));
    fact("phase", std::string{to_string(l.phase)});
    fact("slots", std::to_string(l.slots));
    fact("bytes", std::to_string(l.nbytes));
    for (const auto& run : l.runs)
      if (run.part < parts_.size())
        fact("part " + parts_[run.part].name,
             fmt::format("slots {} to {}", run.slots.start, run.slots.end() - 1));
  }

  void of_request(request_id id) {
    e_.found = k_.request && k_.request->known;
    std::size_t things = 0;
    const operation_fact* only = nullptr;
    for (const auto* o : k_.operations)
      if (o->request == id) {
        add(holders_of(k_, o, k_.lease_of(o->lease)));
        only = o;
        ++things;
      }
    for (const auto* l : k_.leases)
      if (l->request == id && k_.operation_on(l->id) == nullptr) {
        add(holders_of(k_, nullptr, l));
        ++things;
      }
    e_.found |= things > 0;
    if (!e_.found) return void(e_.state = "not open");
    if (things == 1) show_outcome(only);
    e_.state = e_.holders.empty() ? "holds no staging memory" : "held";
    if (k_.request) {
      fact("known to the manager", yes_no(k_.request->known));
      if (k_.request->known) {
        fact("prompt_tokens", std::to_string(k_.request->prompt_tokens));
        fact("committed_tokens", std::to_string(k_.request->committed_tokens));
        fact("capacity_tokens", std::to_string(k_.request->capacity_tokens));
      }
    }
    fact("leases", std::to_string(things));
  }

  void of_registration(const std::string& id) {
    const auto number = parse_id(id);
    for (const auto& r : k_.registrations) {
      if (r.part != id && !(number && r.id && r.id.value == *number)) continue;
      e_.found = true;
      e_.state = r.state == "none" ? "not registered" : r.state;
      add(holders_of(k_, r));
      fact("part", r.part);
      if (r.id) fact("registration", to_string(r.id));
      if (!r.reason.empty()) fact("problem", r.reason);
      return;
    }
    e_.state = "not known";
  }

  void of_slot(std::pair<std::size_t, std::int64_t> where) {
    const auto& in = parts_[where.first];
    fact("part", in.name);
    fact("slot", std::to_string(where.second));
    fact("address",
         fmt::format("{:#x}", in.address + static_cast<std::uintptr_t>(where.second * in.slot_bytes)));
    fact("bytes", std::to_string(in.slot_bytes));
    if (!k_.slot) return void(e_.state = "not known");
    e_.found = true;
    if (k_.slot->since)
      fact("since_seconds",
           fmt::format("{:.6f}", std::chrono::duration<double>(k_.now - *k_.slot->since).count()));
    else
      fact("since", "the start of the runtime: it was never lent");
    const auto lease = k_.slot->lease;
    switch (k_.slot->state) {
      case 'L':
        e_.state = "lent";
        break;
      case 'A':
        e_.state = "awaiting proof";
        break;
      case 'Q':
        e_.state = "quarantined";
        break;
      default:
        e_.state = "free";
    }
    if (lease) {
      const auto* op = k_.operation_on(lease);
      show_outcome(op);
      add(holders_of(k_, op, k_.lease_of(lease)));
      if (op != nullptr) show(*op);
      fact("lease", to_string(lease));
    }
    for (const auto& r : k_.registrations)
      if (r.part == in.name) add(holders_of(k_, r));
  }

  explanation& e_;
  known_facts k_;
  const std::vector<part>& parts_;
};

}  // namespace

explanation explain(const subject& what, const gathered_facts& told, const std::vector<part>& parts) {
  explanation e{.about = what,
                .state = {},
                .outcome = {},
                .outcome_age = {},
                .holders = {},
                .safe = {},
                .unknown = {},
                .facts = {}};
  for (const auto& a : told.answers) {
    if (a.answered) continue;
    const bool down = std::ranges::find(told.down, a.from) != told.down.end();
    auto line = fmt::format("the {} {}", to_string(a.from), down ? "is down" : "did not answer");
    if (a.at)
      line +=
          fmt::format(", last heard {:.3f} s ago", std::chrono::duration<double>(told.now - *a.at).count());
    e.unknown.push_back(std::move(line));
  }
  if (const auto question = question_of(what, parts); !question) {
    e.state = "not known";
    e.facts.emplace_back("problem", question.error().text);
    return e;
  }
  explainer x{e, told, parts};
  x.about(what);
  x.end();
  return e;
}

void explain_past(explanation& of, const std::vector<journal_record>& records, time_point start,
                  time_point now) {
  if (of.found || (of.about.kind != subject_kind::operation && of.about.kind != subject_kind::lease)) return;
  const auto id = parse_id(of.about.id);
  if (!id || *id == 0) return;  // 0 stands for none
  const bool by_lease = of.about.kind == subject_kind::lease;
  const auto age = [&](const journal_record& r) {
    return since(start + std::chrono::nanoseconds{r.at}, now);
  };
  std::uint64_t operation = by_lease ? 0 : *id;
  std::string proof;  ///< that released it
  for (const auto& r : records) {
    if (by_lease && r.lease == *id && r.operation != 0) operation = r.operation;
    if (r.kind == journal_kind::access_ended && operation != 0 && r.operation == operation)
      proof = r.other == 0 ? "none needed: nothing was submitted"
                           : std::string{to_string(static_cast<proof_source>(r.detail))};
    if (r.kind == journal_kind::outcome_committed && operation != 0 && r.operation == operation) {
      of.outcome = to_string(static_cast<outcome_detail>(r.detail));
      of.outcome_age = age(r);
    }
    const bool mine = by_lease ? r.lease == *id : r.operation == *id;
    if (!mine) continue;
    const bool over = r.kind == journal_kind::operation_released || r.kind == journal_kind::lease_withdrawn ||
                      r.kind == journal_kind::lease_failed;
    if (!over) continue;
    of.found = true;
    of.state = r.kind == journal_kind::operation_released ? "released"
               : r.kind == journal_kind::lease_withdrawn  ? "withdrawn"
                                                          : "failed";
    of.facts.emplace_back(of.state + "_seconds_ago",
                          fmt::format("{:.6f}", std::chrono::duration<double>(age(r)).count()));
    if (of.state == "released" && !proof.empty()) of.facts.emplace_back("proof", proof);
  }
}

}  // namespace kvlease
