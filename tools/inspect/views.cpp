#include "tools/inspect/views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/inspect/format.hpp"
#include "tools/inspect/text_width.hpp"

namespace kvlease::inspect {

namespace {

using nlohmann::json;

class lines {
 public:
  explicit lines(const paper& on) : on_{on} {}
  void add(const std::string& indent, const std::string& what, const std::string& value,
           tone as = tone::plain) {
    if (value.empty()) return;
    auto head = fmt::format("{}{:<{}}  ", indent, what, 14 - indent.size());
    if (on_.width > 0) head = cut(head, std::max(on_.width / 2, std::size_t{1}));
    const auto room =
        on_.width > 0 ? std::max(on_.width - std::min(on_.width, width_of(head)), std::size_t{1}) : 0;
    bool first = true;
    for (const auto& part : wrapped(value, room)) {
      out.push_back((first ? toned(head, tone::soft, on_) : std::string(width_of(head), ' ')) +
                    toned(part, as, on_));
      first = false;
    }
  }
  void title(const std::string& name, const std::string& state) {
    const auto line = name + ": " + state;
    if (on_.width > 0 && width_of(line) > on_.width) {
      out.push_back(cut(name + ":", on_.width));
      add("  ", "state", state);
    } else {
      out.push_back(cut(line, width_of(line)));
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
      auto word = all.substr(from, end - from);
      if (width_of(word) > room) {  // no blank to fold at
        if (!parts.back().empty()) parts.emplace_back();
        for (; width_of(word) > room; word.erase(0, parts[parts.size() - 2].size())) {
          parts.back() = leading(word, room);
          parts.emplace_back();
        }
      }
      if (!parts.back().empty() && width_of(parts.back()) + 1 + width_of(word) > room) parts.emplace_back();
      parts.back() += (parts.back().empty() ? "" : " ") + word;
      from = end + 1;
    }
    return parts;
  }
  /// The most of the front of `word` that `room` columns hold, and at least a character.
  static std::string leading(const std::string& word, std::size_t room) {
    std::size_t end = 0, width = 0;
    while (end < word.size()) {
      auto next = end + 1;
      while (next < word.size() && (static_cast<unsigned char>(word[next]) & 0xC0U) == 0x80) ++next;
      width += width_of(std::string_view{word}.substr(end, next - end));
      if (width > room && end > 0) break;
      end = next;
    }
    return word.substr(0, end);
  }
  const paper on_;
};

/// " (0 of 2)": which of a process' runtimes it is.
std::string which_of(const json& s) {
  const auto all = number_of(s, "runtimes");
  return all > 1 ? fmt::format(" ({:.0f} of {:.0f})", number_of(s, "runtime_index"), all) : "";
}

/// Of what fatal expiry has been latched.
std::string fatal_text(const json& f) {
  const auto request = text_of(f, "request");
  const auto whose = request.empty() ? "the registrations" : text_of(f, "way") + " of request " + request;
  return whose + ": " + text_of(f, "reason");
}

/// What the runtime's end waits for, and how long it may.
std::vector<std::string> drain_texts(const json& s) {
  std::vector<std::string> out;
  if (const auto it = s.find("drain"); it != s.end() && it->is_object()) {
    auto line = "waits for " + text_of(*it, "waits_for");
    if (const auto open = number_of(*it, "requests_open"); open > 0)
      line += fmt::format(", {:.0f} requests are open", open);
    if (const auto in = span_text(*it, "deadline_in_seconds"); !in.empty())
      line += ", at most " + in + " more";
    out.push_back(line);
  } else if (flag_of(s, "draining")) {
    out.emplace_back(status_of_health(text_of(s, "health")) == 0 ? "over: nothing is held"
                                                                 : "waits for evidence");
  }
  const json* first = nullptr;
  for (const auto& o : list_of(s, "owners"))
    if (flag_of(s, "draining") && number_of(o, "fatal_in_seconds", 1e18) <
                                      (first == nullptr ? 1e18 : number_of(*first, "fatal_in_seconds")))
      first = &o;
  if (first != nullptr && s.contains("fatal") && s["fatal"].is_null())
    out.push_back(fmt::format("fatal expiry in {} ({}) unless the evidence comes",
                              span_text(*first, "fatal_in_seconds"), text_of(*first, "drain_reason")));
  return out;
}

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

std::vector<std::string> why_lines(const json& why, const paper& on) {
  lines l{on};
  const auto about = why.value("about", json::object());
  const auto name = text_of(about, "kind") + " " + text_of(about, "id");
  if (!flag_of(why, "found")) {
    l.title(name, "not known");
  } else {
    const auto facts = why.value("facts", json::object());
    const auto since = text_of(facts, "since_seconds");
    l.title(name, text_of(why, "state") +
                      (since.empty() ? "" : ", for " + span_text(std::strtod(since.c_str(), nullptr))));
    const auto outcome = text_of(why, "outcome");
    // What was never submitted has no outcome to wait for.
    const bool operation = text_of(about, "kind") == "operation" || !text_of(facts, "access").empty();
    const auto age = span_text(why, "outcome_age_seconds");
    l.add("  ", "outcome",
          outcome.empty() ? (operation ? "undecided" : "")
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
    for (const auto& [k, v] : it->items())
      if (k != "since_seconds") l.add("  ", k, v.is_string() ? v.get<std::string>() : v.dump());
  return l.out;
}

std::vector<std::string> summary_lines(const json& s, const paper& on) {
  lines l{on};
  const auto state = text_of(s, "health");
  l.add("", "health", state.empty() ? "?" : state, tone_of_health(state));
  l.add("", "runtime", text_of(s, "runtime") + which_of(s) + ", up " + span_text(s, "uptime_seconds"));
  if (const auto it = s.find("fatal"); it != s.end() && it->is_object())
    l.add("", "fatal", fatal_text(*it), tone::bad);
  for (const auto& line : drain_texts(s)) l.add("", "drain", line, tone::warn);
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
  const auto fitted = [&on](const std::string& line) { return on.width > 0 ? cut(line, on.width) : line; };
  if (e.contains("lost"))
    return toned(
        fitted(fmt::format("{} events were overwritten before they could be read", e["lost"].dump())),
        tone::bad, on);
  if (!e.contains("what")) return "";
  std::string about;
  for (const auto* k : {"operation", "lease", "request", "other"})
    if (e.contains(k)) about += fmt::format("{}{} {}", about.empty() ? "" : ", ", k, text_of(e, k));
  if (on.width > 0 && on.width < 80)  // whose record it is goes first
    return fitted(fmt::format("{:>9.3f}  {}  {}", number_of(e, "at_seconds"), text_of(e, "what"), about));
  auto line = fmt::format("{:>12.6f}  {:<16}  {:<28}  {}", number_of(e, "at_seconds"), text_of(e, "from"),
                          text_of(e, "what"), about);
  while (line.ends_with(' ')) line.pop_back();
  return fitted(line);
}

tone tone_of_health(std::string_view h) {
  return h == "healthy" ? tone::good : h == "held" ? tone::warn : tone::bad;
}

int status_of_health(std::string_view h) { return h == "healthy" ? 0 : h == "held" ? 1 : 2; }

}  // namespace kvlease::inspect
