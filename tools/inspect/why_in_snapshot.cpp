#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/inspect/format.hpp"
#include "tools/inspect/target.hpp"

namespace kvlease::inspect {

namespace {

using nlohmann::json;

/// What is awaited while memory is held for this reason, and from whom; a live runtime names the very
/// attempt.
std::pair<const char*, const char*> awaited(std::string_view reason) {
  if (reason == "lent_not_submitted") return {"the lease's submission or withdrawal", "host"};
  if (reason == "backend_access_running") return {"the end of the backend's access", "provider"};
  if (reason == "backend_end_unproven") return {"a proof that the backend's access has ended", "provider"};
  if (reason == "local_copy_pending") return {"the event behind the local copy", "CUDA actor"};
  if (reason == "consumer_reading") return {"the end of the last read guard", "host"};
  if (reason == "registered_by_backend") return {"the close of the registration", "provider"};
  if (reason == "shutdown_drain") return {"the rest of the shutdown", "runtime"};
  return {"", ""};
}

void add_holders(json& out, const json& line, const std::string& what) {
  for (const auto& r : list_of(line, "reasons")) {
    if (!r.is_string()) continue;
    const auto [evidence, from] = awaited(r.get<std::string>());
    json h{{"reason", r},
           {"what", what},
           {"evidence", evidence},
           {"from", from},
           {"age_seconds", number_of(line, "age_seconds")},
           {"last_evidence", ""},
           {"last_evidence_age_seconds", nullptr},
           {"next", ""},
           {"next_in_seconds", nullptr}};
    for (const auto& [member, next] : {std::pair{"fatal_in_seconds", "fatal expiry of the grace"},
                                       {"deadline_in_seconds", "the request's deadline"}})
      if (const auto it = line.find(member); it != line.end() && it->is_number() && h["next"] == "") {
        h["next"] = next;
        h["next_in_seconds"] = *it;
      }
    out["holders"].push_back(std::move(h));
  }
}

void copy_facts(json& out, const json& line, std::initializer_list<const char*> members) {
  for (const auto* m : members)
    if (auto t = text_of(line, m); !t.empty()) out["facts"][m] = t;
}

void of_operation(json& out, const json& snapshot, const std::string& id) {
  for (const auto& o : list_of(snapshot, "operations")) {
    if (text_of(o, "id") != id) continue;
    out["found"] = true;
    out["state"] = list_of(o, "reasons").empty() ? "not held" : "held";
    out["outcome"] = text_of(o, "outcome");
    if (o.contains("outcome_age_seconds")) out["outcome_age_seconds"] = o["outcome_age_seconds"];
    add_holders(out, o, "lease " + text_of(o, "lease"));
    copy_facts(out, o, {"way", "request", "lease", "access", "copies", "proof"});
  }
}

void of_lease(json& out, const json& snapshot, const std::string& id) {
  for (const auto& o : list_of(snapshot, "operations"))
    if (text_of(o, "lease") == id) of_operation(out, snapshot, text_of(o, "id"));
  for (const auto& l : list_of(snapshot, "leases")) {
    if (text_of(l, "id") != id) continue;
    out["found"] = true;
    out["state"] = text_of(l, "state");
    // Its operation, which knows the clocks, has told the rest.
    if (out["holders"].empty()) add_holders(out, l, "lease " + id);
    copy_facts(out, l, {"way", "request", "rows", "bytes"});
  }
}

void of_request(json& out, const json& snapshot, const std::string& id) {
  for (const auto& l : list_of(snapshot, "leases")) {
    if (text_of(l, "request") != id) continue;
    json one{{"holders", json::array()}, {"facts", json::object()}};
    of_lease(one, snapshot, text_of(l, "id"));
    out["found"] = true;
    for (auto& h : one["holders"]) out["holders"].push_back(std::move(h));
    out["facts"]["lease " + text_of(l, "id")] = text_of(l, "state");
  }
  if (flag_of(out, "found")) out["state"] = out["holders"].empty() ? "not held" : "held";
}

void of_registration(json& out, const json& snapshot, const std::string& id) {
  for (const auto& r : list_of(snapshot, "registrations")) {
    if (text_of(r, "part") != id) continue;
    out["found"] = true;
    out["state"] = text_of(r, "state");
    json line = r;
    line["reasons"] = json::array({"registered_by_backend"});
    if (out["state"] != "closed") add_holders(out, line, "registration " + id);
    copy_facts(out, r, {"reason"});
  }
}

void of_slot(json& out, const json& snapshot, const std::string& id) {
  const auto slash = id.rfind('/');
  const auto digits = slash == std::string::npos ? id : id.substr(slash + 1);
  std::size_t index = 0;
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (bad != std::errc{} || end != digits.data() + digits.size()) return;
  const auto& pools = list_of(snapshot, "pools");
  for (const auto& p : pools) {
    if (slash == std::string::npos ? pools.size() != 1 : text_of(p, "name") != id.substr(0, slash)) continue;
    const auto map = text_of(p, "map");
    const auto total = static_cast<std::size_t>(number_of(p, "total"));
    if (index >= total || map.size() != total) continue;
    const char state = map[index];
    out["found"] = true;
    out["state"] = state == '.'   ? "free"
                   : state == 'L' ? "lent"
                   : state == 'A' ? "awaiting proof"
                                  : "quarantined";
    if (state == 'Q') add_holders(out, json{{"reasons", {"quarantined"}}}, "slot " + id);
    if (state == 'L' || state == 'A')
      out["unknown"].push_back("which lease has it, and so why: a snapshot does not tell");
  }
}

}  // namespace

json why_in_snapshot(const json& snapshot, const subject& about) {
  for (const auto& e : list_of(snapshot, "explanations")) {
    const auto it = e.is_object() ? e.find("about") : e.end();
    if (it == e.end() || text_of(*it, "kind") != to_string(about.kind) || text_of(*it, "id") != about.id)
      continue;
    json out = e;
    out["schema_version"] = inspection_schema_version;
    return out;
  }
  json out{{"schema_version", inspection_schema_version},
           {"about", {{"kind", std::string{to_string(about.kind)}}, {"id", about.id}}},
           {"found", false},
           {"state", ""},
           {"outcome", ""},
           {"outcome_age_seconds", nullptr},
           {"holders", json::array()},
           {"safe", json::array()},
           {"unknown", json::array()},
           {"facts", json::object()}};
  switch (about.kind) {
    case subject_kind::operation:
      of_operation(out, snapshot, about.id);
      break;
    case subject_kind::lease:
      of_lease(out, snapshot, about.id);
      break;
    case subject_kind::request:
      of_request(out, snapshot, about.id);
      break;
    case subject_kind::registration:
      of_registration(out, snapshot, about.id);
      break;
    case subject_kind::slot:
      of_slot(out, snapshot, about.id);
      break;
    case subject_kind::address:
      out["unknown"].push_back("addresses: a snapshot does not hold them");
      break;
  }
  out["unknown"].push_back("what has happened since " + text_of(snapshot, "taken"));
  return out;
}

}  // namespace kvlease::inspect
