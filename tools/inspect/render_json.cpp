#include "tools/inspect/render_json.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "tools/inspect/json_writer.hpp"

namespace kvlease::inspect {

namespace {

void version(json_writer& j) { j.key("schema_version").number(inspection_schema_version); }

template <class Id>
void id_member(json_writer& j, std::string_view name, const Id& id) {
  j.key(name);
  if (id)
    j.text(to_string(id));
  else
    j.null();
}

template <class Range, class F>
void list(json_writer& j, std::string_view name, const Range& values, F each) {
  j.key(name).begin_array();
  for (const auto& v : values) each(v);
  j.end_array();
}

void texts(json_writer& j, std::string_view name, const std::vector<std::string>& values) {
  list(j, name, values, [&j](const std::string& v) { j.text(v); });
}

void reasons(json_writer& j, const std::vector<held_reason>& values) {
  list(j, "reasons", values, [&j](held_reason r) { j.text(to_string(r)); });
}

void write(json_writer& j, const holder& h) {
  j.begin_object();
  j.key("reason").text(to_string(h.reason));
  j.key("what").text(h.what);
  j.key("evidence").text(h.evidence);
  j.key("from").text(h.from);
  j.key("age_seconds").seconds(h.age);
  j.key("last_evidence").text(h.last_evidence);
  j.key("last_evidence_age_seconds").seconds(h.last_evidence_age);
  j.key("next").text(h.next);
  j.key("next_in_seconds").seconds(h.next_in);
  j.end_object();
}

void write(json_writer& j, const explanation& e, bool with_version) {
  j.begin_object();
  if (with_version) version(j);
  j.key("about").begin_object();
  j.key("kind").text(to_string(e.about.kind)).key("id").text(e.about.id).end_object();
  j.key("found").boolean(e.found);
  j.key("state").text(e.state);
  j.key("outcome").text(e.outcome);
  j.key("outcome_age_seconds").seconds(e.outcome_age);
  list(j, "holders", e.holders, [&j](const holder& h) { write(j, h); });
  texts(j, "safe", e.safe);
  texts(j, "unknown", e.unknown);
  j.key("facts").begin_object();
  for (const auto& [name, value] : e.facts) j.key(name).text(value);
  j.end_object();
  j.end_object();
}

void write(json_writer& j, const actor_line& a) {
  j.begin_object();
  j.key("kind").text(to_string(a.kind));
  j.key("state").text(a.state);
  j.key("answered").boolean(a.answered);
  j.key("age_seconds").seconds(a.age);
  j.key("mailbox").number(a.mailbox);
  j.key("handled").number(a.handled);
  j.key("busy_seconds").seconds(a.busy);
  j.key("oldest_unanswered_seconds").seconds(a.oldest_unanswered);
  j.end_object();
}

void write(json_writer& j, const operation_line& o) {
  j.begin_object();
  id_member(j, "id", o.id);
  j.key("way").text(to_string(o.way));
  id_member(j, "request", o.request);
  id_member(j, "lease", o.lease);
  j.key("outcome").text(o.outcome);
  j.key("access").text(o.access);
  j.key("copies").text(o.copies);
  j.key("proof").text(o.proof);
  j.key("age_seconds").seconds(o.age);
  j.key("outcome_age_seconds").seconds(o.outcome_age);
  j.key("deadline_in_seconds").seconds(o.deadline_in);
  j.key("fatal_in_seconds").seconds(o.fatal_in);
  reasons(j, o.reasons);
  j.end_object();
}

void write(json_writer& j, const lease_line& l) {
  j.begin_object();
  id_member(j, "id", l.id);
  j.key("way").text(to_string(l.way));
  id_member(j, "request", l.request);
  j.key("state").text(l.state);
  j.key("rows").number(l.rows);
  j.key("bytes").number(l.bytes);
  j.key("age_seconds").seconds(l.age);
  reasons(j, l.reasons);
  j.end_object();
}

void write(json_writer& j, const pool_line& p) {
  j.begin_object();
  j.key("name").text(p.name);
  j.key("slot_bytes").number(p.slot_bytes);
  j.key("total").number(p.total);
  j.key("free").number(p.free);
  j.key("lent").number(p.lent);
  j.key("awaiting_proof").number(p.awaiting_proof);
  j.key("quarantined").number(p.quarantined);
  if (!p.map.empty()) j.key("map").text(p.map);
  j.end_object();
}

void write(json_writer& j, const registration_line& r) {
  j.begin_object();
  j.key("part").text(r.part);
  j.key("state").text(r.state);
  j.key("reason").text(r.reason);
  j.key("age_seconds").seconds(r.age);
  j.end_object();
}

void write(json_writer& j, const owner_line& o) {
  j.begin_object();
  j.key("id").text(o.id);
  id_member(j, "request", o.request);
  j.key("way").text(to_string(o.way));
  j.key("claims").number(o.claims);
  j.key("deadline_in_seconds").seconds(o.deadline_in);
  j.key("fatal_in_seconds").seconds(o.fatal_in);
  j.key("drain_reason").text(o.drain_reason);
  j.end_object();
}

void write(json_writer& j, const provider_line& p) {
  j.begin_object();
  j.key("uri").text(p.uri);
  texts(j, "proofs", p.proofs);
  j.key("attempts").number(p.attempts);
  j.key("workers_busy").number(p.workers_busy);
  j.key("workers").number(p.workers);
  j.key("units").begin_object();
  for (const auto& [name, value] : p.units) j.key(name).number(value);
  j.end_object();
  j.end_object();
}

void write(json_writer& j, const device_line& d) {
  j.begin_object();
  j.key("name").text(d.name);
  j.key("pending").number(d.pending);
  j.key("copies").number(d.copies);
  j.key("bytes").number(d.bytes);
  j.key("unproven").number(d.unproven);
  j.key("lost").text(d.lost);
  j.end_object();
}

void write_fatal(json_writer& j, const std::optional<fatal_record>& f) {
  j.key("fatal");
  if (!f) {
    j.null();
    return;
  }
  j.begin_object();
  j.key("owner").text(to_string(f->owner));
  id_member(j, "request", f->request);
  j.key("way").text(to_string(f->way));
  j.key("reason").text(f->reason);
  j.key("grace_seconds").seconds(f->deadline - f->started);
  j.key("noticed_after_seconds").seconds(f->noticed - f->deadline);
  j.end_object();
}

std::string utc(std::chrono::system_clock::time_point t) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(t)),
                     ms % 1000);
}

void write(json_writer& j, std::string_view name, const histogram& h) {
  j.key(name).begin_object();
  list(j, "upper_seconds", h.upper_seconds, [&j](double v) { j.number(v); });
  list(j, "counts", h.counts, [&j](std::uint64_t v) { j.number(v); });
  j.key("sum_seconds").number(h.sum_seconds);
  j.end_object();
}

void write_members(json_writer& j, const inspection_metrics& m) {
  j.key("operations_total").begin_object();
  for (const auto& [name, value] : m.operations_total) j.key(name).number(value);
  j.end_object();
  j.key("held_bytes").begin_object();
  for (const auto reason : all_held_reasons) {
    const auto it = m.held_bytes.find(reason);
    j.key(to_string(reason)).number(it == m.held_bytes.end() ? 0 : it->second);
  }
  j.end_object();
  list(j, "pools", m.pools, [&j](const pool_line& p) { write(j, p); });
  j.key("exposure_bytes").number(m.exposure_bytes);
  j.key("fatal").boolean(m.fatal);
  write(j, "outcome_to_proof", m.outcome_to_proof);
  write(j, "proof_to_release", m.proof_to_release);
  j.key("journal_records").number(m.journal_records);
  j.key("journal_lost").number(m.journal_lost);
  j.key("messages_rejected").begin_object();
  for (const auto& [name, value] : m.messages_rejected) j.key(name).number(value);
  j.end_object();
}

void write(json_writer& j, const journal_event& e, bool with_version) {
  j.begin_object();
  if (with_version) version(j);
  j.key("sequence").number(e.sequence);
  j.key("at_seconds").seconds(e.at);
  j.key("what").text(e.what);
  j.key("from").text(to_string(e.from));
  constexpr std::array<std::string_view, 4> names{"operation", "lease", "request", "other"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (e.subject[i] != 0) j.key(names[i]).text(id_text(e.subject[i]));
  j.key("value").number(e.value);
  j.end_object();
}

void write_drain(json_writer& j, const std::optional<drain_note>& d) {
  j.key("drain");
  if (!d) {
    j.null();
    return;
  }
  j.begin_object();
  j.key("waits_for").text(d->waits_for);
  j.key("requests_open").number(d->requests_open);
  j.key("deadline_in_seconds").seconds(d->deadline_in);
  j.end_object();
}

}  // namespace

std::string id_text(std::uint64_t value) { return to_string(id<struct any_tag>{value}); }

std::string snapshot_json(const inspection_snapshot& s, health state, const snapshot_extras& with) {
  std::string out;
  out.reserve(4096 + s.operations.size() * 320 + s.leases.size() * 200 + s.owners.size() * 160);
  json_writer j{out};
  const auto lines = [&j](std::string_view name, const auto& values) {
    list(j, name, values, [&j](const auto& v) { write(j, v); });
  };
  j.begin_object();
  version(j);
  j.key("runtime").text(std::to_string(s.runtime.value));
  j.key("runtime_index").number(with.index);
  j.key("runtimes").number(with.runtimes);
  j.key("taken").text(utc(s.taken));
  j.key("uptime_seconds").seconds(s.uptime);
  j.key("health").text(to_string(state));
  j.key("draining").boolean(s.draining);
  write_fatal(j, s.fatal);
  j.key("exposure_bytes").number(s.exposure_bytes);
  j.key("operations_total").number(s.operations_total);
  j.key("leases_total").number(s.leases_total);
  lines("actors", s.actors);
  lines("pools", s.pools);
  lines("operations", s.operations);
  lines("leases", s.leases);
  lines("owners", s.owners);
  lines("registrations", s.registrations);
  lines("providers", s.providers);
  lines("devices", s.devices);
  texts(j, "holds", s.holds);
  write_drain(j, with.drain);
  if (!with.explained.empty())
    list(j, "explanations", with.explained, [&j](const explanation& e) { write(j, e, false); });
  if (with.metrics) {
    j.key("metrics").begin_object();
    write_members(j, *with.metrics);
    j.end_object();
  }
  if (with.events) list(j, "events", *with.events, [&j](const journal_event& e) { write(j, e, false); });
  j.end_object();
  return out;
}

std::string why_json(const explanation& e) {
  std::string out;
  json_writer j{out};
  write(j, e, true);
  return out;
}

std::string metrics_json(const inspection_metrics& m) {
  std::string out;
  json_writer j{out};
  j.begin_object();
  version(j);
  write_members(j, m);
  j.end_object();
  return out;
}

std::string health_json(std::span<const runtime_health> runtimes, const std::optional<drain_note>& drain) {
  runtime_health all;
  for (const auto& r : runtimes) {
    all.state = std::max(all.state, r.state);
    all.fatal = all.fatal || r.fatal;
    all.exposure_bytes += r.exposure_bytes;
  }
  std::string out;
  json_writer j{out};
  const auto members = [&j](const runtime_health& r) {
    j.key("health").text(to_string(r.state));
    j.key("status").number(static_cast<int>(r.state));
    j.key("fatal").boolean(r.fatal);
    j.key("exposure_bytes").number(r.exposure_bytes);
  };
  j.begin_object();
  version(j);
  members(all);
  write_drain(j, drain);
  list(j, "runtimes", runtimes, [&](const runtime_health& r) {
    j.begin_object();
    j.key("runtime_index").number(r.index);
    members(r);
    j.end_object();
  });
  j.end_object();
  return out;
}

std::string event_json(const journal_event& e) {
  std::string out;
  json_writer j{out};
  write(j, e, true);
  return out;
}

std::string lost_json(std::uint64_t lost) {
  std::string out;
  json_writer j{out};
  j.begin_object();
  version(j);
  j.key("lost").number(lost);
  j.end_object();
  return out;
}

std::string error_json(std::string_view text) {
  std::string out;
  json_writer j{out};
  j.begin_object();
  version(j);
  j.key("error").text(text);
  j.end_object();
  return out;
}

}  // namespace kvlease::inspect
