#include "src/facts.hpp"

#include "src/include/kvlease/inspection.hpp"

namespace kvlease {

outcome_fact fact_of(const outcome& o) {
  outcome_fact f{detail_of(o), 0, {}};
  if (const auto* d = std::get_if<delivered>(&o)) f.served = d->served().size();
  if (const auto* x = std::get_if<failed>(&o)) f.reason = x->reason();
  return f;
}

std::string text_of(const outcome_fact& o) {
  switch (o.what) {
    case outcome_detail::delivered:
      return o.served == 0 ? "miss" : "delivered(" + std::to_string(o.served) + ")";
    case outcome_detail::failed:
    case outcome_detail::timed_out:
      return "failed(" + o.reason + ")";
    case outcome_detail::cancelled:
      return "cancelled(local)";
    case outcome_detail::cancelled_by_peer:
      return "cancelled(peer)";
  }
  return {};
}

std::string subject_of(const fatal_record& f) {
  if (f.request) return std::string{to_string(f.way)} + " of request " + to_string(f.request);
  return f.owner ? "the registrations" : "the runtime";
}

}  // namespace kvlease
