// The manager: requests and pins (6.4).
#include <fmt/format.h>

#include "src/journal_model.hpp"

namespace kvlease {

using kind = journal_kind;

void journal_model::manager_step(const journal_record& r) {
  const auto known = requests.find(r.request);
  const auto unknown_request = [&] {
    return fail(r, "7.1", fmt::format("request {} was not admitted", journal_id(r.request)));
  };
  switch (r.kind) {
    case kind::request_admitted:
      if (fresh(r, r.request, newest_request, "request", false)) requests[r.request] = false;
      return;
    case kind::request_freed:
      if (known == requests.end()) return whole ? unknown_request() : void();
      if (known->second)
        return fail(r, "7.1", fmt::format("request {} is freed twice", journal_id(r.request)));
      known->second = true;
      return;
    case kind::rows_pinned: {
      if (!fresh(r, r.other, newest_pin, "pin")) return;
      if (known == requests.end() && whole) return unknown_request();
      if (known != requests.end() && known->second && r.value > 0)
        return fail(r, "6.4",
                    fmt::format("pin {} keeps {} rows of request {}, which was freed", journal_id(r.other),
                                r.value, journal_id(r.request)));
      if (r.lease == 0) {  // the engine's own access to its pages
        if (r.value == 0) return fail(r, "6.4", fmt::format("pin {} is of no rows", journal_id(r.other)));
        pins[r.other] = {};
        return;
      }
      auto* l = lease(r.lease);
      if (l == nullptr && !whole) return;
      if (!arrives(r, to_manager, r.lease, "6.4")) return;
      pins[r.other] = {r.lease, false};
      if (l == nullptr) return;
      if (r.request != l->request)
        return fail(r, "7.1",
                    fmt::format("lease {} is of request {}, not {}", journal_id(r.lease),
                                journal_id(l->request), journal_id(r.request)));
      if (!lender_is_done_with(r.lease))
        return fail(r, "6.2", fmt::format("lease {} has not got all of its slots", journal_id(r.lease)));
      if (r.value > l->rows)
        return fail(r, "6.4",
                    fmt::format("lease {} has asked for {} rows, and {} are pinned", journal_id(r.lease),
                                l->rows, r.value));
      l->pin = r.other;
      l->pinned = r.value;
      return;
    }
    case kind::rows_unpinned:
    case kind::rows_kept_pinned: {
      const auto it = pins.find(r.other);
      if (it == pins.end())
        return whole ? fail(r, "6.4", fmt::format("pin {} does not stand", journal_id(r.other))) : void();
      if (it->second.lease != 0) {
        if (r.kind == kind::rows_kept_pinned)
          return fail(r, "6.4",
                      fmt::format("pin {} is lease {}'s: the lender keeps it", journal_id(r.other),
                                  journal_id(it->second.lease)));
        if (!it->second.given_up)
          return fail(r, "6.4",
                      fmt::format("pin {} goes, and the copy of lease {} is not complete",
                                  journal_id(r.other), journal_id(it->second.lease)));
        if (!arrives(r, to_manager, r.other, "6.4")) return;
      }
      pins.erase(it);
      return;
    }
    default:
      return;
  }
}

}  // namespace kvlease
