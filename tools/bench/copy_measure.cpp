#include "tools/bench/copy_measure.hpp"

#include "tools/bench/statistics.hpp"

namespace kvlease::bench {

namespace {

using steady = std::chrono::steady_clock;
using seconds = std::chrono::duration<double>;
constexpr auto patience = std::chrono::seconds{30};

double since(steady::time_point start) { return seconds{steady::now() - start}.count(); }

struct sample {
  double seconds = 0;
  double cpu_seconds = 0;
};

result<void> wait_until_finished(mover& what, steady::time_point start) {
  for (;;) {
    const auto done = what.finished();
    if (!done) return tl::unexpected{done.error()};
    if (*done) return {};
    if (steady::now() - start > patience) return fail(errc::timeout, "bench: a copy did not end within 30 s");
  }
}

/// `count` batches, back to back. CPU time counts the calls alone, not the wait for room.
result<sample> take(mover& what, std::size_t count) {
  if (const auto ready = what.prepare(); !ready) return tl::unexpected{ready.error()};
  sample s;
  const auto start = steady::now();
  for (std::size_t i = 0; i < count; ++i) {
    for (;;) {
      const double before = thread_cpu_seconds();
      const auto queued = what.submit();
      s.cpu_seconds += thread_cpu_seconds() - before;
      if (queued) break;
      if (queued.error().code != errc::capacity) return tl::unexpected{queued.error()};
      if (steady::now() - start > patience) return fail(errc::timeout, "bench: no room for a copy in 30 s");
      if (const auto asked = what.finished(); !asked) return tl::unexpected{asked.error()};
    }
  }
  if (const auto done = wait_until_finished(what, start); !done) return tl::unexpected{done.error()};
  s.seconds = since(start) / static_cast<double>(count);
  s.cpu_seconds /= static_cast<double>(count);
  return s;
}

/// The rate of the load over a stretch of time; nothing without a load.
class rate_meter {
 public:
  explicit rate_meter(busy_load* load) : load_{load} {}
  result<void> begin() {
    if (load_ == nullptr) return {};
    const auto now = load_->operations();
    if (!now) return tl::unexpected{now.error()};
    at_begin_ = *now;
    began_ = steady::now();
    return {};
  }
  result<void> end() {
    if (load_ == nullptr) return {};
    const auto now = load_->operations();
    if (!now) return tl::unexpected{now.error()};
    operations_ += *now - at_begin_;
    seconds_ += since(began_);
    return {};
  }
  double rate() const { return seconds_ > 0 ? operations_ / seconds_ : 0; }

 private:
  busy_load* load_;
  double at_begin_ = 0;
  steady::time_point began_;
  double operations_ = 0;
  double seconds_ = 0;
};

struct entrant {
  mover* what;
  rate_meter meter;
  samples got;
  double spent = 0;

  bool done(const measure_options& o) const {
    return got.seconds.size() >= o.repetitions && spent >= o.min_time.count();
  }
  result<void> turn(const measure_options& o) {
    if (auto ok = meter.begin(); !ok) return ok;
    const auto start = steady::now();
    do {
      const auto s = take(*what, o.in_flight);
      if (!s) return tl::unexpected{s.error()};
      got.seconds.push_back(s->seconds);
      got.cpu_seconds.push_back(s->cpu_seconds);
    } while (since(start) < o.slice.count());
    spent += since(start);
    return meter.end();
  }
};

result<void> stand_aside(rate_meter& alone, seconds slice) {
  if (auto ok = alone.begin(); !ok) return ok;
  const auto start = steady::now();
  while (since(start) < slice.count()) {
  }
  return alone.end();
}

}  // namespace

result<measured> measure(std::span<mover* const> movers, const measure_options& options, busy_load* load) {
  std::vector<entrant> all;
  for (auto* m : movers) all.push_back({m, rate_meter{load}, {}, 0});
  for (auto& e : all)
    for (std::size_t i = 0; i < e.what->cycle(); ++i)
      if (const auto warm = take(*e.what, 1); !warm) return tl::unexpected{warm.error()};

  rate_meter alone{load};
  const auto all_done = [&] {
    return std::all_of(all.begin(), all.end(), [&](const entrant& e) { return e.done(options); });
  };
  // The first of a round changes, so that none always runs behind the same neighbour's end.
  for (std::size_t first = 0; !all_done(); first = (first + 1) % all.size()) {
    if (load != nullptr)
      if (const auto ok = stand_aside(alone, options.slice); !ok) return tl::unexpected{ok.error()};
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto& e = all[(first + i) % all.size()];
      if (e.done(options)) continue;
      if (const auto ok = e.turn(options); !ok) return tl::unexpected{ok.error()};
    }
  }

  measured m;
  m.load_alone = alone.rate();
  for (auto& e : all) {
    e.got.load_rate = e.meter.rate();
    m.movers.push_back(std::move(e.got));
  }
  return m;
}

}  // namespace kvlease::bench
