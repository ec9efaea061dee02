#include "actors/inspection_port.hpp"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "actors/outlet.hpp"
#include "src/assemble.hpp"
#include "src/explain.hpp"

namespace kvlease {

namespace {

/// The inspector has bounds of 100 ms of its own; beyond that it is stuck, or its scheduler is.
constexpr std::chrono::milliseconds patience{140};

class actor_inspection final : public closable_inspection {
 public:
  actor_inspection(inspector_actor inspector, inspection_setup setup)
      : to_{std::move(inspector)}, s_{std::move(setup)} {}

  inspection_snapshot look(std::size_t limit) override {
    const auto told = ask(gather_all{limit, nullptr});
    auto out = assemble(told, *s_.watch, s_.started, limit);
    out.taken = std::chrono::system_clock::now();
    if (s_.exposure_bytes) out.exposure_bytes = s_.exposure_bytes();
    if (s_.workers)
      for (auto& p : out.providers) {
        const auto w = s_.workers();
        p.workers = static_cast<std::int64_t>(w.threads);
        p.workers_busy = static_cast<std::int64_t>(w.busy);
      }
    return out;
  }

  explanation why(const subject& about) override {
    const auto told = ask(gather_about{about, nullptr});
    auto e = explain(about, told, s_.watch->parts());
    if (const auto& log = s_.watch->log(); log != nullptr && !e.found) {
      std::uint64_t lost = 0;
      const auto newest = log->last();
      const auto after = newest > log->capacity() ? newest - log->capacity() : 0;
      explain_past(e, log->read(after, log->capacity(), lost), log->start(), told.now);
    }
    return e;
  }

  inspection_metrics metrics() override {
    auto m = s_.watch->metrics();
    if (s_.exposure_bytes) m.exposure_bytes = s_.exposure_bytes();
    return m;
  }

  health state() override { return s_.watch->state(now(), s_.unproven_budget); }

  std::vector<journal_event> events(std::uint64_t after, std::size_t limit, std::uint64_t& lost) override {
    lost = 0;
    std::vector<journal_event> out;
    const auto& log = s_.watch->log();
    if (log == nullptr) return out;
    const auto records = log->read(after, limit, lost);
    out.reserve(records.size());
    for (const auto& r : records)
      out.push_back({r.sequence,
                     std::chrono::nanoseconds{r.at},
                     to_string(r.kind),
                     r.from,
                     {r.operation, r.lease, r.request, r.other},
                     r.value});
    return out;
  }

  void close() override { to_.close(); }

 private:
  time_point now() const { return s_.now ? s_.now() : clock_type::now(); }

  template <class Question>
  gathered_facts ask(Question q) {
    q.answer = std::make_shared<std::promise<gathered_facts>>();
    auto future = q.answer->get_future();
    to_.send(std::move(q));
    try {
      if (future.wait_for(patience) == std::future_status::ready) return future.get();
    } catch (const std::future_error&) {  // the inspector has ended
    }
    gathered_facts nothing{.now = now(), .runtime = s_.runtime, .answers = {}, .down = {}};
    for (std::size_t k = 0; k < actor_kind_count; ++k) {
      const auto kind = static_cast<actor_kind>(k);
      nothing.answers.push_back({.from = kind, .at = {}, .facts = {}});
      if ((s_.watch->numbers().down >> k & 1U) != 0) nothing.down.push_back(kind);
    }
    return nothing;
  }

  outlet<inspector_actor> to_;
  inspection_setup s_;
};

}  // namespace

std::shared_ptr<closable_inspection> make_inspection(inspector_actor inspector, inspection_setup setup) {
  return std::make_shared<actor_inspection>(std::move(inspector), std::move(setup));
}

}  // namespace kvlease
