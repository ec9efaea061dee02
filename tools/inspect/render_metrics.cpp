#include "tools/inspect/render_metrics.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

namespace kvlease::inspect {

namespace {

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

using label = std::pair<std::string_view, std::string_view>;

/// Writes the families one after the other: all samples of one stand together, as the format asks.
class exposition {
 public:
  explicit exposition(std::span<const runtime_metrics> runtimes) : runtimes_{runtimes} {}

  /// `each(runtime)` writes the family's samples of one runtime.
  template <class F>
  void family(std::string_view name, std::string_view type, std::string_view help, F each) {
    name_ = name;
    add("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    for (const auto& r : runtimes_) {
      runtime_ = r.name;
      each(r);
    }
  }
  template <class T>
  void sample(T value, std::initializer_list<label> labels = {}, std::string_view suffix = "") {
    add("{}{}{{runtime=\"{}\"", name_, suffix, escaped(runtime_));
    for (const auto& [key, text] : labels) add(",{}=\"{}\"", key, escaped(text));
    add("}} {}\n", value);
  }
  void samples(const histogram& h) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
      sum += h.counts[i];
      const bool last = i >= h.upper_seconds.size();
      sample(sum, {{"le", last ? "+Inf" : fmt::format("{}", h.upper_seconds[i])}}, "_bucket");
      if (last) break;
    }
    if (h.counts.size() <= h.upper_seconds.size()) sample(sum, {{"le", "+Inf"}}, "_bucket");
    sample(std::isfinite(h.sum_seconds) ? h.sum_seconds : 0.0, {}, "_sum");
    sample(sum, {}, "_count");
  }
  std::string take() { return std::move(out_); }

 private:
  template <class... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<T>(values)...);
  }
  std::span<const runtime_metrics> runtimes_;
  std::string out_;
  std::string_view name_, runtime_;
};

void pools(exposition& x) {
  x.family("kvlease_pool_slots", "gauge", "Slots of a staging pool by state; the states add up to the pool.",
           [&x](const runtime_metrics& r) {
             for (const auto& p : r.values.pools)
               for (const auto& [state, n] : {std::pair{"free", p.free},
                                              {"lent", p.lent},
                                              {"awaiting_proof", p.awaiting_proof},
                                              {"quarantined", p.quarantined}})
                 x.sample(n, {{"pool", p.name}, {"state", state}});
           });
  x.family("kvlease_pool_slot_bytes", "gauge", "Size of one slot of a staging pool.",
           [&x](const runtime_metrics& r) {
             for (const auto& p : r.values.pools) x.sample(p.slot_bytes, {{"pool", p.name}});
           });
}

void times(exposition& x) {
  x.family("kvlease_outcome_to_proof_seconds", "histogram",
           "From an operation's outcome to the proof that the backend's access has ended.",
           [&x](const runtime_metrics& r) { x.samples(r.values.outcome_to_proof); });
  x.family("kvlease_proof_to_release_seconds", "histogram", "From that proof to the release of the memory.",
           [&x](const runtime_metrics& r) { x.samples(r.values.proof_to_release); });
}

}  // namespace

std::string metrics_text(std::span<const runtime_metrics> runtimes) {
  exposition x{runtimes};
  x.family("kvlease_build_info", "gauge", "The version that runs; always 1.", [&x](const runtime_metrics&) {
    x.sample(1, {{"version", KVLEASE_VERSION}});
  });
  x.family("kvlease_health", "gauge", "0 healthy, 1 held but progressing, 2 unproven beyond budget or fatal.",
           [&x](const runtime_metrics& r) { x.sample(static_cast<int>(r.state)); });
  x.family("kvlease_fatal", "gauge", "1 once fatal expiry has been latched.",
           [&x](const runtime_metrics& r) { x.sample(r.values.fatal ? 1 : 0); });
  x.family("kvlease_exposure_bytes_total", "counter",
           "Bytes touched by who no longer, or not yet, held them.",
           [&x](const runtime_metrics& r) { x.sample(r.values.exposure_bytes); });
  x.family("kvlease_operations_total", "counter", "Operations by direction and outcome.",
           [&x](const runtime_metrics& r) {
             for (const auto& [key, n] : r.values.operations_total) {
               const auto slash = std::min(key.find('/'), key.size());
               const std::string_view way{key.data(), slash};
               const auto outcome = std::string_view{key}.substr(std::min(slash + 1, key.size()));
               x.sample(n, {{"direction", way}, {"outcome", outcome}});
             }
           });
  x.family("kvlease_held_bytes", "gauge", "Staging memory that is held, by reason.",
           [&x](const runtime_metrics& r) {
             for (const auto reason : all_held_reasons) {
               const auto it = r.values.held_bytes.find(reason);
               x.sample(it == r.values.held_bytes.end() ? 0 : it->second, {{"reason", to_string(reason)}});
             }
           });
  pools(x);
  times(x);
  x.family("kvlease_journal_records_total", "counter", "Records that the journal has taken.",
           [&x](const runtime_metrics& r) { x.sample(r.values.journal_records); });
  x.family("kvlease_journal_lost_records_total", "counter", "Records that were overwritten unread.",
           [&x](const runtime_metrics& r) { x.sample(r.values.journal_lost); });
  x.family("kvlease_messages_rejected_total", "counter", "Late, foreign or repeated messages, by actor.",
           [&x](const runtime_metrics& r) {
             for (const auto& [actor, n] : r.values.messages_rejected) x.sample(n, {{"actor", actor}});
           });
  return x.take();
}

}  // namespace kvlease::inspect
