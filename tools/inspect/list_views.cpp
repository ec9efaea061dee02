#include <utility>

#include "tools/inspect/format.hpp"
#include "tools/inspect/views.hpp"

namespace kvlease::inspect {

namespace {

using nlohmann::json;

tone tone_of_answer(std::string_view answer) {
  if (answer == "unproven" || answer == "stuck" || answer == "down") return tone::bad;
  return answer == "running" || answer == "pending" ? tone::warn : tone::plain;
}

/// Less than a second, or past.
tone tone_of_due(const json& object, const char* member) {
  return number_of(object, member, 1e9) < 1 ? tone::bad : tone::plain;
}

cell text(const json& object, const char* member) { return {text_of(object, member)}; }
cell answer(const json& object, const char* member) {
  auto t = text_of(object, member);
  const auto as = tone_of_answer(t);
  return {std::move(t), as};
}
cell span(const json& object, const char* member) { return {span_text(object, member)}; }
cell due(const json& object, const char* member) {
  return {span_text(object, member), tone_of_due(object, member)};
}
cell size(const json& object, const char* member) { return {size_text(number_of(object, member))}; }
cell reasons(const json& object) { return {joined(list_of(object, "reasons")), tone::warn}; }

/// A column and what stands in it.
struct view : column {
  cell (*of)(const json&);
};

constexpr std::size_t least_text = 12;

view fixed(const char* head, unsigned dropped, cell (*of)(const json&)) {
  return {{head, false, dropped, 0, false}, of};
}
view figure(const char* head, unsigned dropped, cell (*of)(const json&)) {
  return {{head, true, dropped, 0, false}, of};
}
/// A text of any length.
view free_text(const char* head, unsigned dropped, cell (*of)(const json&)) {
  return {{head, false, dropped, least_text, false}, of};
}
/// What the table is looked at for.
view last_cut(const char* head, cell (*of)(const json&)) { return {{head, false, 0, 0, true}, of}; }

std::vector<view> of_operations() {
  return {fixed("OPERATION", 0, [](const json& o) { return text(o, "id"); }),
          fixed("WAY", 7, [](const json& o) { return text(o, "way"); }),
          fixed("REQUEST", 2, [](const json& o) { return text(o, "request"); }),
          fixed("LEASE", 3, [](const json& o) { return text(o, "lease"); }),
          free_text("OUTCOME", 8,
                    [](const json& o) {
                      auto t = text_of(o, "outcome");
                      return t.empty() ? cell{"pending", tone::soft} : cell{std::move(t)};
                    }),
          fixed("ACCESS", 6, [](const json& o) { return answer(o, "access"); }),
          fixed("COPIES", 5, [](const json& o) { return answer(o, "copies"); }),
          fixed("PROOF", 1, [](const json& o) { return text(o, "proof"); }),
          figure("AGE", 9, [](const json& o) { return span(o, "age_seconds"); }),
          figure("DEADLINE", 4, [](const json& o) { return cell{span_text(o, "deadline_in_seconds")}; }),
          figure("FATAL IN", 10, [](const json& o) { return due(o, "fatal_in_seconds"); }),
          last_cut("HELD BECAUSE", [](const json& o) { return reasons(o); })};
}

std::vector<view> of_leases() {
  return {fixed("LEASE", 0, [](const json& o) { return text(o, "id"); }),
          fixed("WAY", 4, [](const json& o) { return text(o, "way"); }),
          fixed("REQUEST", 2, [](const json& o) { return text(o, "request"); }),
          fixed("STATE", 5, [](const json& o) { return text(o, "state"); }),
          figure("ROWS", 1, [](const json& o) { return text(o, "rows"); }),
          figure("SIZE", 3, [](const json& o) { return size(o, "bytes"); }),
          figure("AGE", 6, [](const json& o) { return span(o, "age_seconds"); }),
          last_cut("HELD BECAUSE", [](const json& o) { return reasons(o); })};
}

std::vector<view> of_pools() {
  return {last_cut("POOL", [](const json& o) { return text(o, "name"); }),
          figure("SLOT SIZE", 1, [](const json& o) { return size(o, "slot_bytes"); }),
          figure("SLOTS", 3, [](const json& o) { return text(o, "total"); }),
          figure("FREE", 4, [](const json& o) { return text(o, "free"); }),
          figure("LENT", 2, [](const json& o) { return text(o, "lent"); }),
          figure("AWAITING", 5, [](const json& o) { return text(o, "awaiting_proof"); }),
          figure("QUARANTINED", 6, [](const json& o) {
            return cell{text_of(o, "quarantined"), number_of(o, "quarantined") > 0 ? tone::bad : tone::plain};
          })};
}

std::vector<view> of_registrations() {
  return {free_text("PART", 0, [](const json& o) { return text(o, "part"); }),
          fixed("STATE", 0, [](const json& o) { return text(o, "state"); }),
          figure("AGE", 1, [](const json& o) { return span(o, "age_seconds"); }),
          last_cut("PROBLEM", [](const json& o) { return text(o, "reason"); })};
}

std::vector<view> of_owners() {
  return {fixed("OWNER", 0, [](const json& o) { return text(o, "id"); }),
          fixed("OF", 2,
                [](const json& o) {
                  return text_of(o, "request").empty() ? cell{"registrations", tone::soft} : text(o, "way");
                }),
          fixed("REQUEST", 4, [](const json& o) { return text(o, "request"); }),
          figure("CLAIMS", 1, [](const json& o) { return text(o, "claims"); }),
          figure("DEADLINE", 3, [](const json& o) { return cell{span_text(o, "deadline_in_seconds")}; }),
          figure("FATAL IN", 5, [](const json& o) { return due(o, "fatal_in_seconds"); }),
          {{"DRAINS BECAUSE", false, 0, least_text, true},
           [](const json& o) { return text(o, "drain_reason"); }}};
}

std::vector<view> of_providers() {
  return {
      free_text("PROVIDER", 0, [](const json& o) { return text(o, "uri"); }),
      figure("ATTEMPTS", 2, [](const json& o) { return text(o, "attempts"); }),
      figure("BUSY", 3,
             [](const json& o) { return cell{text_of(o, "workers_busy") + " of " + text_of(o, "workers")}; }),
      free_text("UNITS", 1,
                [](const json& o) {
                  std::string all;
                  if (o.contains("units") && o["units"].is_object())
                    for (const auto& [k, v] : o["units"].items())
                      all += (all.empty() ? "" : ", ") + v.dump() + " " + k;
                  return cell{all};
                }),
      last_cut("CAN PROVE", [](const json& o) { return cell{joined(list_of(o, "proofs"))}; })};
}

std::vector<view> of_devices() {
  return {free_text("DEVICE", 0, [](const json& o) { return text(o, "name"); }),
          figure("PENDING", 4, [](const json& o) { return text(o, "pending"); }),
          figure("COPIES", 2, [](const json& o) { return text(o, "copies"); }),
          figure("MOVED", 1, [](const json& o) { return size(o, "bytes"); }),
          figure("UNPROVEN", 3, [](const json& o) { return text(o, "unproven"); }),
          last_cut("LOST", [](const json& o) {
            return cell{text_of(o, "lost"), tone::bad};
          })};
}

std::vector<view> of_actors() {
  return {fixed("ACTOR", 0, [](const json& o) { return text(o, "kind"); }),
          fixed("STATE", 0, [](const json& o) { return answer(o, "state"); }),
          figure("HEARD", 4,
                 [](const json& o) {
                   return flag_of(o, "answered") ? cell{"now", tone::soft}
                                                 : cell{span_text(o, "age_seconds") + " ago", tone::bad};
                 }),
          figure("MAILBOX", 3, [](const json& o) { return text(o, "mailbox"); }),
          figure("HANDLED", 1, [](const json& o) { return text(o, "handled"); }),
          figure("BUSY", 2, [](const json& o) { return span(o, "busy_seconds"); }),
          figure("UNANSWERED", 5, [](const json& o) { return span(o, "oldest_unanswered_seconds"); })};
}

std::vector<view> columns_of(std::string_view what) {
  if (what == "operations") return of_operations();
  if (what == "leases") return of_leases();
  if (what == "pools") return of_pools();
  if (what == "registrations") return of_registrations();
  if (what == "owners") return of_owners();
  if (what == "providers") return of_providers();
  if (what == "devices") return of_devices();
  if (what == "actors") return of_actors();
  return {
      last_cut("HOLD", [](const json& o) { return cell{o.is_string() ? o.get<std::string>() : o.dump()}; })};
}

}  // namespace

table list_table(const json& snapshot, std::string_view what) {
  const auto views = columns_of(what);
  table t;
  for (const auto& v : views) t.columns.push_back(v);
  for (const auto& row : list_of(snapshot, std::string{what}.c_str())) {
    auto& cells = t.rows.emplace_back();
    for (const auto& v : views) cells.push_back(v.of(row));
  }
  return t;
}

}  // namespace kvlease::inspect
