#include "tools/inspect/read_json.hpp"

#include <algorithm>
#include <map>

#include "src/subjects.hpp"
#include "tools/inspect/format.hpp"

namespace kvlease::inspect {

namespace {

using nlohmann::json;

std::uint64_t whole(const json& object, const char* member) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  return it != object.end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
}

std::chrono::nanoseconds time_of(const json& object, const char* member) {
  constexpr double most = 9e9;  // of seconds that nanoseconds hold
  return std::chrono::nanoseconds{
      static_cast<std::int64_t>(std::clamp(number_of(object, member), -most, most) * 1e9)};
}

std::uint64_t id_of(const json& object, const char* member) {
  return parse_id(text_of(object, member)).value_or(0);
}

std::map<std::string, std::uint64_t> counts_of(const json& object, const char* member) {
  std::map<std::string, std::uint64_t> out;
  if (const auto it = object.find(member); it != object.end() && it->is_object())
    for (const auto& [name, n] : it->items())
      if (n.is_number_unsigned()) out[name] = n.get<std::uint64_t>();
  return out;
}

histogram histogram_of(const json& object, const char* member) {
  histogram h;
  const auto it = object.find(member);
  if (it == object.end()) return h;
  for (const auto& v : list_of(*it, "upper_seconds"))
    h.upper_seconds.push_back(v.is_number() ? v.get<double>() : 0);
  for (const auto& v : list_of(*it, "counts"))
    h.counts.push_back(v.is_number_unsigned() ? v.get<std::uint64_t>() : 0);
  h.sum_seconds = number_of(*it, "sum_seconds");
  return h;
}

pool_line pool_of(const json& p) {
  const auto n = [&p](const char* member) { return static_cast<std::int64_t>(whole(p, member)); };
  pool_line l{.name = text_of(p, "name"), .slot_bytes = n("slot_bytes"), .map = {}};
  l.total = n("total");
  l.free = n("free");
  l.lent = n("lent");
  l.awaiting_proof = n("awaiting_proof");
  l.quarantined = n("quarantined");
  return l;
}

actor_kind actor_of(std::string_view name) {
  for (std::uint8_t k = 0; k <= static_cast<std::uint8_t>(actor_kind::inspector); ++k)
    if (to_string(static_cast<actor_kind>(k)) == name) return static_cast<actor_kind>(k);
  return actor_kind::inspector;
}

}  // namespace

health health_of(const json& snapshot) {
  const auto text = text_of(snapshot, "health");
  for (const auto h : {health::healthy, health::held})
    if (text == to_string(h)) return h;
  return health::unproven;
}

std::optional<inspection_metrics> metrics_of(const json& snapshot) {
  const auto it = snapshot.find("metrics");
  if (it == snapshot.end() || !it->is_object()) return std::nullopt;
  inspection_metrics m;
  m.operations_total = counts_of(*it, "operations_total");
  const auto held = counts_of(*it, "held_bytes");
  for (const auto r : all_held_reasons)
    if (const auto found = held.find(std::string{to_string(r)}); found != held.end())
      m.held_bytes[r] = found->second;
  for (const auto& p : list_of(*it, "pools")) m.pools.push_back(pool_of(p));
  m.exposure_bytes = whole(*it, "exposure_bytes");
  m.fatal = flag_of(*it, "fatal");
  m.outcome_to_proof = histogram_of(*it, "outcome_to_proof");
  m.proof_to_release = histogram_of(*it, "proof_to_release");
  m.journal_records = whole(*it, "journal_records");
  m.journal_lost = whole(*it, "journal_lost");
  m.messages_rejected = counts_of(*it, "messages_rejected");
  return m;
}

std::optional<saved_events> events_of(const json& snapshot) {
  const auto it = snapshot.find("events");
  if (it == snapshot.end() || !it->is_array()) return std::nullopt;
  saved_events out;
  for (const auto& e : *it) {
    out.names.push_back(text_of(e, "what"));
    out.events.push_back({whole(e, "sequence"),
                          time_of(e, "at_seconds"),
                          out.names.back(),
                          actor_of(text_of(e, "from")),
                          {id_of(e, "operation"), id_of(e, "lease"), id_of(e, "request"), id_of(e, "other")},
                          whole(e, "value")});
  }
  out.open.runtime = {
      static_cast<std::uint32_t>(std::strtoul(text_of(snapshot, "runtime").c_str(), nullptr, 10))};
  out.open.uptime = time_of(snapshot, "uptime_seconds");
  for (const auto& o : list_of(snapshot, "operations")) {
    operation_line l{};
    l.id = operation_id{id_of(o, "id")};
    out.open.operations.push_back(std::move(l));
  }
  for (const auto& o : list_of(snapshot, "leases")) {
    lease_line l{};
    l.id = lease_id{id_of(o, "id")};
    out.open.leases.push_back(std::move(l));
  }
  return out;
}

}  // namespace kvlease::inspect
