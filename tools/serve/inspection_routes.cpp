#include "tools/serve/inspection_routes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/inspect/page.hpp"
#include "tools/inspect/render_json.hpp"
#include "tools/inspect/render_metrics.hpp"
#include "tools/inspect/render_trace.hpp"
#include "tools/serve/addresses.hpp"

namespace kvlease::serve {

namespace {

constexpr std::size_t default_limit = 10'000, max_limit = 200'000;
constexpr std::size_t max_explained = 256;
constexpr std::chrono::seconds explain_within{2};
constexpr std::size_t default_trace_events = 200'000, max_trace_events = 2'000'000;
constexpr std::size_t events_at_once = 4096;
constexpr std::size_t max_id_bytes = 256;

std::optional<std::uint64_t> number_in(std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (bad != std::errc{} || end != text.data() + text.size() || text.empty() || value > most)
    return std::nullopt;
  return value;
}

/// The query's number `name`, or `otherwise` where it is not given. Errors: invalid, with its range.
result<std::uint64_t> number_of(const std::string& query, std::string_view name, std::uint64_t otherwise,
                                std::uint64_t most) {
  const auto text = query_value(query, name);
  if (text.empty()) return otherwise;
  if (const auto value = number_in(text, most)) return *value;
  return fail(errc::invalid, fmt::format("{} must be a number of 0 to {}", name, most));
}

/// The journal's last `most` records.
std::vector<journal_event> last_events(inspection_port& port, std::size_t most) {
  const auto records = port.metrics().journal_records;
  std::uint64_t after = records > most ? records - most : 0;
  std::vector<journal_event> all;
  while (all.size() < most) {
    std::uint64_t lost = 0;
    const auto some = port.events(after, std::min(events_at_once, most - all.size()), lost);
    if (some.empty()) break;
    all.insert(all.end(), some.begin(), some.end());
    after = some.back().sequence;
  }
  return all;
}

/// Reads the journal on and on.
class event_reader {
 public:
  event_reader(std::shared_ptr<inspection_port> port, std::uint64_t after, bool live)
      : port_{std::move(port)}, after_{after}, live_{live} {}

  std::optional<std::string> next() {
    std::uint64_t lost = 0;
    const auto events = port_->events(after_, events_at_once, lost);
    std::string lines;
    if (lost > 0) lines += inspect::lost_json(lost) + "\n";
    for (const auto& e : events) {
      lines += inspect::event_json(e) + "\n";
      after_ = e.sequence;
    }
    if (lines.empty() && !live_) return std::nullopt;
    return lines;
  }

 private:
  std::shared_ptr<inspection_port> port_;
  std::uint64_t after_;
  const bool live_;
};

http_response events(const std::shared_ptr<inspection_port>& port, const std::string& query) {
  constexpr auto unset = ~std::uint64_t{0};
  auto after = number_of(query, "after", unset, unset - 1);
  if (!after) return problem(400, after.error().text);
  if (*after == unset) after = port->metrics().journal_records;
  const auto live = number_of(query, "live", 1, 1);
  if (!live) return problem(400, live.error().text);
  auto reader = std::make_shared<event_reader>(port, *after, *live == 1);
  return {200, "", "application/x-ndjson", [reader] { return reader->next(); }};
}

http_response trace(inspection_port& port, const std::string& query) {
  const auto last = number_of(query, "last", default_trace_events, max_trace_events);
  if (!last) return problem(400, last.error().text);
  return {200, inspect::trace_json(last_events(port, *last), port.look(default_limit))};
}

}  // namespace

http_response problem(unsigned status, std::string_view text) { return {status, inspect::error_json(text)}; }

http_response wrong_method(std::string allowed, std::string_view text) {
  auto r = problem(405, text);
  r.allowed = std::move(allowed);
  return r;
}

health inspection_routes::state_of(inspection_port& port,
                                   const std::optional<inspect::drain_note>& drain) const {
  const auto own = port.state();
  return drain ? std::max(own, health::held) : own;
}

http_response inspection_routes::why(std::size_t first, std::size_t count, std::string_view rest) const {
  const auto slash = rest.find('/');
  const auto kind = parse_subject_kind(rest.substr(0, slash));
  if (!kind || slash == std::string_view::npos || slash + 1 == rest.size())
    return problem(
        404, "must be /why/KIND/ID, KIND one of lease, operation, slot, address, request, registration");
  const auto id = rest.substr(slash + 1);
  if (id.size() > max_id_bytes) return problem(414, "the id is too long");
  explanation answer;
  for (std::size_t i = first; i < first + count && !answer.found; ++i) {
    auto one = ports_[i]->why({*kind, std::string{id}});
    if (i == first || one.found) answer = std::move(one);
  }
  return {answer.found ? 200U : 404U, inspect::why_json(answer)};
}

http_response inspection_routes::snapshot(std::size_t index, const std::string& query) const {
  auto& port = *ports_[index];
  const auto limit = number_of(query, "limit", default_limit, max_limit);
  if (!limit) return problem(400, limit.error().text);
  const auto explain = number_of(query, "explain", 0, max_explained);
  if (!explain) return problem(400, explain.error().text);
  const auto events = number_of(query, "events", 0, max_trace_events);
  if (!events) return problem(400, events.error().text);
  const auto metrics = number_of(query, "metrics", 0, 1);
  if (!metrics) return problem(400, metrics.error().text);
  const auto seen = port.look(*limit);
  std::vector<explanation> explained;
  const auto until = std::chrono::steady_clock::now() + explain_within;
  for (const auto& l : seen.leases) {
    if (explained.size() >= *explain || std::chrono::steady_clock::now() > until) break;
    if (!l.reasons.empty()) explained.push_back(port.why({subject_kind::lease, to_string(l.id)}));
  }
  inspect::snapshot_extras with{.explained = explained,
                                .metrics = {},
                                .events = {},
                                .drain = draining(),
                                .index = index,
                                .runtimes = ports_.size()};
  if (*metrics == 1) with.metrics = port.metrics();
  if (!query_value(query, "events").empty()) with.events = last_events(port, *events);
  return {200, inspect::snapshot_json(seen, state_of(port, with.drain), with)};
}

http_response inspection_routes::answer(const http_request& request) const {
  std::string_view path = request.path;
  constexpr std::string_view one = "/runtime/";
  if (!path.starts_with(one)) return of_one(0, ports_.size(), path, request);
  const auto rest = path.substr(one.size());
  const auto slash = std::min(rest.find('/'), rest.size());
  const auto index = number_in(rest.substr(0, slash), ports_.size() - 1);
  if (!index) return problem(404, fmt::format("runtimes are numbered 0 to {}", ports_.size() - 1));
  return of_one(*index, 1, slash == rest.size() ? "/" : rest.substr(slash), request);
}

http_response inspection_routes::of_one(std::size_t first, std::size_t count, std::string_view path,
                                        const http_request& request) const {
  const bool known = path == "/" || path == "/snapshot" || path == "/metrics" || path == "/health" ||
                     path == "/events" || path == "/trace" || path.starts_with("/why/");
  if (!known)
    return problem(404, "known are /, /snapshot, /why/KIND/ID, /events, /metrics, /trace and /health");
  if (request.method != "GET") return wrong_method("GET, HEAD", "only GET: inspection changes nothing");
  const auto drain = draining();
  auto& port = ports_[first];
  if (path == "/") return {200, inspect::page(), "text/html; charset=utf-8"};
  if (path == "/snapshot") return snapshot(first, request.query);
  if (path.starts_with("/why/")) return why(first, count, path.substr(5));
  if (path == "/events") return events(port, request.query);
  if (path == "/trace") return trace(*port, request.query);
  if (path == "/metrics") {
    if (query_value(request.query, "format") == "json") return {200, inspect::metrics_json(port->metrics())};
    std::vector<inspect::runtime_metrics> all;
    for (std::size_t i = first; i < first + count; ++i)
      all.push_back({std::to_string(i), state_of(*ports_[i], drain), ports_[i]->metrics()});
    return {200, inspect::metrics_text(all), std::string{inspect::metrics_content_type}};
  }
  std::vector<inspect::runtime_health> all;
  auto worst = health::healthy;
  for (std::size_t i = first; i < first + count; ++i) {
    const auto m = ports_[i]->metrics();
    all.push_back({i, state_of(*ports_[i], drain), m.fatal, m.exposure_bytes});
    worst = std::max(worst, all.back().state);
  }
  return {worst == health::unproven ? 503U : 200U, inspect::health_json(all, drain)};
}

}  // namespace kvlease::serve
