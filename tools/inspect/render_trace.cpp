#include "tools/inspect/render_trace.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/inspect/json_writer.hpp"
#include "tools/inspect/render_json.hpp"

namespace kvlease::inspect {

namespace {

/// Perfetto groups tracks by process; these are ours.
enum class group : int { operations = 1, leases = 2, actors = 3 };
constexpr std::pair<group, std::string_view> groups[] = {
    {group::operations, "operations"}, {group::leases, "leases"}, {group::actors, "actors"}};

using track_key = std::pair<group, std::uint64_t>;

track_key track_of(const journal_event& e) {
  if (e.subject[0] != 0) return {group::operations, e.subject[0]};
  if (e.subject[1] != 0) return {group::leases, e.subject[1]};
  return {group::actors, static_cast<std::uint64_t>(e.from)};
}

std::string track_name(const track_key& key) {
  switch (key.first) {
    case group::operations:
      return "operation " + id_text(key.second);
    case group::leases:
      return "lease " + id_text(key.second);
    case group::actors:
      break;
  }
  return std::string{to_string(static_cast<actor_kind>(key.second))};
}

class trace_writer {
 public:
  explicit trace_writer(std::string& out) : j{out} {}

  void name(std::string_view what, group g, std::optional<int> track, std::string_view text) {
    j.begin_object();
    j.key("name").text(what).key("ph").text("M").key("pid").number(static_cast<int>(g));
    j.key("tid").number(track.value_or(0)).key("ts").number(0);
    j.key("args").begin_object().key("name").text(text).end_object();
    j.end_object();
  }
  void slice(const track_key& key, int track, std::string_view text, std::chrono::nanoseconds from,
             std::chrono::nanoseconds to) {
    head(text, "X", key, track, from);
    j.key("dur");
    micros(std::max(to - from, std::chrono::nanoseconds{0}));
    j.end_object();
  }
  void instant(const track_key& key, int track, const journal_event& e) {
    head(e.what, "i", key, track, e.at);
    j.key("s").text("t");
    j.key("args").begin_object();
    j.key("sequence").number(e.sequence);
    j.key("from").text(to_string(e.from));
    constexpr std::array<std::string_view, 4> names{"operation", "lease", "request", "other"};
    for (std::size_t i = 0; i < names.size(); ++i)
      if (e.subject[i] != 0) j.key(names[i]).text(id_text(e.subject[i]));
    j.key("value").number(e.value);
    j.end_object().end_object();
  }

  json_writer j;

 private:
  void head(std::string_view text, std::string_view phase, const track_key& key, int track,
            std::chrono::nanoseconds at) {
    j.begin_object();
    j.key("name").text(text).key("cat").text("kvlease").key("ph").text(phase);
    j.key("pid").number(static_cast<int>(key.first)).key("tid").number(track);
    j.key("ts");
    micros(at);
  }
  void micros(std::chrono::nanoseconds t) { j.number(static_cast<double>(t.count()) / 1000.0); }
};

void write_track(trace_writer& w, const track_key& key, int track,
                 const std::vector<const journal_event*>& events, bool open, std::chrono::nanoseconds now) {
  w.name("thread_name", key.first, track, track_name(key));
  const auto end = open ? std::max(now, events.back()->at) : events.back()->at;
  const bool lasts = key.first != group::actors;
  if (lasts) w.slice(key, track, track_name(key), events.front()->at, end);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto until = i + 1 < events.size() ? events[i + 1]->at : end;
    if (lasts && until > events[i]->at) w.slice(key, track, events[i]->what, events[i]->at, until);
    w.instant(key, track, *events[i]);
  }
}

}  // namespace

std::string trace_json(std::span<const journal_event> events, const inspection_snapshot& open) {
  std::map<track_key, std::vector<const journal_event*>> tracks;
  for (const auto& e : events) tracks[track_of(e)].push_back(&e);
  std::set<track_key> lasting;
  for (const auto& o : open.operations) lasting.emplace(group::operations, o.id.value);
  for (const auto& l : open.leases) lasting.emplace(group::leases, l.id.value);

  std::string out;
  trace_writer w{out};
  w.j.begin_object();
  // The format lets a trace have members of its own; readers pass over them.
  w.j.key("schema_version").number(inspection_schema_version);
  w.j.key("displayTimeUnit").text("ms");
  w.j.key("otherData").begin_object();
  w.j.key("runtime").text(std::to_string(open.runtime.value)).end_object();
  w.j.key("traceEvents").begin_array();
  for (const auto& [g, text] : groups) w.name("process_name", g, std::nullopt, text);
  int track = 0;
  for (auto& [key, list] : tracks) {
    std::ranges::stable_sort(list, {}, [](const journal_event* e) { return e->at; });
    write_track(w, key, ++track, list, lasting.contains(key), open.uptime);
  }
  w.j.end_array().end_object();
  return out;
}

}  // namespace kvlease::inspect
