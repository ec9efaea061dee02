#include "tools/inspect/views.hpp"

#include <fmt/format.h>

#include <map>

#include "tools/inspect/format.hpp"

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

struct column {
  const char* head;
  bool right;
  cell (*of)(const json&);
};

std::vector<column> columns_of(std::string_view what) {
  if (what == "operations")
    return {{"OPERATION", false, [](const json& o) { return text(o, "id"); }},
            {"WAY", false, [](const json& o) { return text(o, "way"); }},
            {"REQUEST", false, [](const json& o) { return text(o, "request"); }},
            {"LEASE", false, [](const json& o) { return text(o, "lease"); }},
            {"OUTCOME", false,
             [](const json& o) {
               auto t = text_of(o, "outcome");
               return t.empty() ? cell{"pending", tone::soft} : cell{std::move(t)};
             }},
            {"ACCESS", false, [](const json& o) { return answer(o, "access"); }},
            {"COPIES", false, [](const json& o) { return answer(o, "copies"); }},
            {"PROOF", false, [](const json& o) { return text(o, "proof"); }},
            {"AGE", true, [](const json& o) { return span(o, "age_seconds"); }},
            {"DEADLINE", true, [](const json& o) { return cell{span_text(o, "deadline_in_seconds")}; }},
            {"FATAL IN", true, [](const json& o) { return due(o, "fatal_in_seconds"); }},
            {"HELD BECAUSE", false, [](const json& o) { return reasons(o); }}};
  if (what == "leases")
    return {{"LEASE", false, [](const json& o) { return text(o, "id"); }},
            {"WAY", false, [](const json& o) { return text(o, "way"); }},
            {"REQUEST", false, [](const json& o) { return text(o, "request"); }},
            {"STATE", false, [](const json& o) { return text(o, "state"); }},
            {"ROWS", true, [](const json& o) { return text(o, "rows"); }},
            {"SIZE", true, [](const json& o) { return size(o, "bytes"); }},
            {"AGE", true, [](const json& o) { return span(o, "age_seconds"); }},
            {"HELD BECAUSE", false, [](const json& o) { return reasons(o); }}};
  if (what == "pools")
    return {
        {"POOL", false, [](const json& o) { return text(o, "name"); }},
        {"SLOT SIZE", true, [](const json& o) { return size(o, "slot_bytes"); }},
        {"SLOTS", true, [](const json& o) { return text(o, "total"); }},
        {"FREE", true, [](const json& o) { return text(o, "free"); }},
        {"LENT", true, [](const json& o) { return text(o, "lent"); }},
        {"AWAITING PROOF", true, [](const json& o) { return text(o, "awaiting_proof"); }},
        {"QUARANTINED", true, [](const json& o) {
           return cell{text_of(o, "quarantined"), number_of(o, "quarantined") > 0 ? tone::bad : tone::plain};
         }}};
  if (what == "registrations")
    return {{"PART", false, [](const json& o) { return text(o, "part"); }},
            {"STATE", false, [](const json& o) { return text(o, "state"); }},
            {"AGE", true, [](const json& o) { return span(o, "age_seconds"); }},
            {"REASON", false, [](const json& o) { return text(o, "reason"); }}};
  if (what == "owners")
    return {{"OWNER", false, [](const json& o) { return text(o, "id"); }},
            {"WAY", false, [](const json& o) { return text(o, "way"); }},
            {"REQUEST", false, [](const json& o) { return text(o, "request"); }},
            {"CLAIMS", true, [](const json& o) { return text(o, "claims"); }},
            {"DEADLINE", true, [](const json& o) { return cell{span_text(o, "deadline_in_seconds")}; }},
            {"FATAL IN", true, [](const json& o) { return due(o, "fatal_in_seconds"); }},
            {"DRAINS BECAUSE", false, [](const json& o) { return text(o, "drain_reason"); }}};
  if (what == "providers")
    return {{"PROVIDER", false, [](const json& o) { return text(o, "uri"); }},
            {"ATTEMPTS", true, [](const json& o) { return text(o, "attempts"); }},
            {"BUSY", true,
             [](const json& o) { return cell{text_of(o, "workers_busy") + " of " + text_of(o, "workers")}; }},
            {"UNITS", false,
             [](const json& o) {
               std::string all;
               if (o.contains("units") && o["units"].is_object())
                 for (const auto& [k, v] : o["units"].items())
                   all += (all.empty() ? "" : ", ") + v.dump() + " " + k;
               return cell{all};
             }},
            {"CAN PROVE", false, [](const json& o) { return cell{joined(list_of(o, "proofs"))}; }}};
  if (what == "devices")
    return {{"DEVICE", false, [](const json& o) { return text(o, "name"); }},
            {"PENDING", true, [](const json& o) { return text(o, "pending"); }},
            {"COPIES", true, [](const json& o) { return text(o, "copies"); }},
            {"MOVED", true, [](const json& o) { return size(o, "bytes"); }},
            {"UNPROVEN", true, [](const json& o) { return text(o, "unproven"); }},
            {"LOST", false, [](const json& o) {
               return cell{text_of(o, "lost"), tone::bad};
             }}};
  if (what == "actors")
    return {{"ACTOR", false, [](const json& o) { return text(o, "kind"); }},
            {"STATE", false, [](const json& o) { return answer(o, "state"); }},
            {"HEARD", true,
             [](const json& o) {
               return flag_of(o, "answered") ? cell{"now", tone::soft}
                                             : cell{span_text(o, "age_seconds") + " ago", tone::bad};
             }},
            {"MAILBOX", true, [](const json& o) { return text(o, "mailbox"); }},
            {"HANDLED", true, [](const json& o) { return text(o, "handled"); }},
            {"BUSY", true, [](const json& o) { return span(o, "busy_seconds"); }},
            {"OLDEST UNANSWERED", true, [](const json& o) { return span(o, "oldest_unanswered_seconds"); }}};
  return {
      {"HOLD", false, [](const json& o) { return cell{o.is_string() ? o.get<std::string>() : o.dump()}; }}};
}

class lines {
 public:
  explicit lines(const paper& on) : on_{on} {}
  void add(const std::string& indent, const std::string& what, const std::string& value,
           tone as = tone::plain) {
    if (value.empty()) return;
    const auto head = fmt::format("{}{:<{}}  ", indent, what, 14 - indent.size());
    const auto room = on_.width > head.size() + 10 ? on_.width - head.size() : 0;
    bool first = true;
    for (const auto& part : wrapped(value, room)) {
      out.push_back((first ? toned(head, tone::soft, on_) : std::string(width_of(head), ' ')) +
                    toned(part, as, on_));
      first = false;
    }
  }
  std::vector<std::string> out;

 private:
  static std::vector<std::string> wrapped(const std::string& value, std::size_t room) {
    const auto all = cut(value, value.size());
    if (room == 0 || width_of(all) <= room) return {all};
    std::vector<std::string> parts(1);
    for (std::size_t from = 0; from < all.size();) {
      const auto end = std::min(all.find(' ', from), all.size());
      const auto word = all.substr(from, end - from);
      if (!parts.back().empty() && width_of(parts.back()) + 1 + width_of(word) > room) parts.emplace_back();
      parts.back() += (parts.back().empty() ? "" : " ") + word;
      from = end + 1;
    }
    return parts;
  }
  const paper on_;
};

std::string held_text(const json& snapshot) {
  std::map<std::string, double> held;
  if (const auto it = snapshot.find("held_bytes"); it != snapshot.end() && it->is_object()) {
    for (const auto& [reason, bytes] : it->items())
      if (bytes.is_number() && bytes.get<double>() > 0) held[reason] = bytes.get<double>();
  } else
    for (const auto& l : list_of(snapshot, "leases"))
      for (const auto& r : list_of(l, "reasons"))
        if (r.is_string()) held[r.get<std::string>()] += number_of(l, "bytes");
  std::string out;
  for (const auto& [reason, bytes] : held)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", size_text(bytes), reason);
  return out.empty() ? "nothing" : out;
}

}  // namespace

table list_table(const json& snapshot, std::string_view what) {
  const auto columns = columns_of(what);
  table t;
  for (const auto& c : columns) {
    t.head.emplace_back(c.head);
    t.right.push_back(c.right);
  }
  for (const auto& row : list_of(snapshot, std::string{what}.c_str())) {
    auto& cells = t.rows.emplace_back();
    for (const auto& c : columns) cells.push_back(c.of(row));
  }
  return t;
}

std::vector<std::string> why_lines(const json& why, const paper& on) {
  lines l{on};
  const auto about = why.value("about", json::object());
  const auto name = text_of(about, "kind") + " " + text_of(about, "id");
  if (!flag_of(why, "found")) {
    l.out.push_back(name + ": not known");
  } else {
    l.out.push_back(name + ": " + text_of(why, "state"));
    const auto outcome = text_of(why, "outcome");
    const auto age = span_text(why, "outcome_age_seconds");
    l.add("  ", "outcome",
          outcome.empty() ? "undecided"
          : age.empty()   ? outcome
                          : outcome + ", " + age + " ago");
    for (const auto& h : list_of(why, "holders")) {
      l.add("  ", "held by", text_of(h, "reason") + ": " + text_of(h, "what"), tone::warn);
      const auto from = text_of(h, "from");
      l.add("    ", "waits for", text_of(h, "evidence") + (from.empty() ? "" : ", from " + from));
      l.add("    ", "for", span_text(h, "age_seconds"));
      const auto seen = span_text(h, "last_evidence_age_seconds");
      l.add("    ", "last seen", text_of(h, "last_evidence") + (seen.empty() ? "" : ", " + seen + " ago"));
      const auto in = span_text(h, "next_in_seconds");
      l.add("    ", "next", text_of(h, "next") + (in.empty() ? "" : " in " + in));
    }
    if (list_of(why, "holders").empty() && list_of(why, "unknown").empty())
      l.add("  ", "held by", "nothing", tone::good);
  }
  for (const auto& s : list_of(why, "safe"))
    l.add("  ", "safe to do", s.is_string() ? s.get<std::string>() : s.dump());
  for (const auto& s : list_of(why, "unknown"))
    l.add("  ", "not known", s.is_string() ? s.get<std::string>() : s.dump(), tone::bad);
  if (const auto it = why.find("facts"); it != why.end() && it->is_object())
    for (const auto& [k, v] : it->items()) l.add("  ", k, v.is_string() ? v.get<std::string>() : v.dump());
  return l.out;
}

std::vector<std::string> summary_lines(const json& s, const paper& on) {
  lines l{on};
  const auto state = text_of(s, "health");
  l.add("", "health", state.empty() ? "?" : state, tone_of_health(state));
  l.add("", "runtime",
        text_of(s, "runtime") + ", up " + span_text(s, "uptime_seconds") +
            (flag_of(s, "draining") ? ", draining" : ""));
  if (const auto it = s.find("fatal"); it != s.end() && it->is_object())
    l.add("", "fatal",
          text_of(*it, "way") + " of request " + text_of(*it, "request") + ": " + text_of(*it, "reason"),
          tone::bad);
  l.add("", "operations", text_of(s, "operations_total"));
  l.add("", "leases", text_of(s, "leases_total"));
  l.add("", "held", held_text(s));
  for (const auto& p : list_of(s, "pools"))
    l.add("", "pool",
          fmt::format("{}: {} slots: {} free, {} lent, {} awaiting proof, {} quarantined", text_of(p, "name"),
                      text_of(p, "total"), text_of(p, "free"), text_of(p, "lent"),
                      text_of(p, "awaiting_proof"), text_of(p, "quarantined")));
  l.add("", "exposure", text_of(s, "exposure_bytes") + " bytes",
        number_of(s, "exposure_bytes") > 0 ? tone::bad : tone::plain);
  for (const auto& a : list_of(s, "actors"))
    if (text_of(a, "state") != "up" || !flag_of(a, "answered"))
      l.add("", "actor",
            text_of(a, "kind") + " is " + text_of(a, "state") + ", last heard " +
                span_text(a, "age_seconds") + " ago",
            tone::bad);
  return l.out;
}

std::string event_line(const json& e, const paper& on) {
  if (e.contains("lost"))
    return toned(fmt::format("{} events were overwritten before they could be read", e["lost"].dump()),
                 tone::bad, on);
  if (!e.contains("what")) return "";
  std::string about;
  for (const auto* k : {"operation", "lease", "request", "other"})
    if (e.contains(k)) about += fmt::format("{}{} {}", about.empty() ? "" : ", ", k, text_of(e, k));
  const auto line = fmt::format("{:>12.6f}  {:<16}  {:<28}  {}", number_of(e, "at_seconds"),
                                text_of(e, "from"), text_of(e, "what"), about);
  return on.width > 0 ? cut(line, on.width) : line;
}

tone tone_of_health(std::string_view h) {
  return h == "healthy" ? tone::good : h == "held" ? tone::warn : tone::bad;
}

int status_of_health(std::string_view h) { return h == "healthy" ? 0 : h == "held" ? 1 : 2; }

}  // namespace kvlease::inspect
