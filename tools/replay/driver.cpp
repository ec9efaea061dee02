#include "tools/replay/driver.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <optional>
#include <thread>

#include "src/mix.hpp"
#include "tools/replay/content.hpp"
#include "tools/replay/segment.hpp"

namespace kvlease::replay {

void run_context::count_outcome(const outcome& value, std::size_t units) {
  const std::lock_guard lock{mutex_};
  count(outcomes_, value, units);
}

void run_context::problem(std::string what) {
  const std::lock_guard lock{mutex_};
  if (problems_.size() < 20) problems_.push_back(std::move(what));
}

outcome_counts run_context::outcomes() {
  const std::lock_guard lock{mutex_};
  return outcomes_;
}

std::vector<std::string> run_context::problems() {
  const std::lock_guard lock{mutex_};
  return problems_;
}

namespace {

/// Waits for `ready`, and gives up once the run stops. Answers whether it is.
template <class F>
bool wait(watch& w, const run_context& run, F ready) {
  std::unique_lock lock{w.mutex};
  while (!ready(w)) {
    if (run.stop) return false;
    w.changed.wait_for(lock, std::chrono::milliseconds{5});
  }
  return true;
}

/// The operation's memory is back, or kept for good.
void over(run_context& run, watch& state) {
  const std::lock_guard lock{state.mutex};
  if (state.value && !std::holds_alternative<delivered>(*state.value)) --run.unsuccessful;
  --run.open;
}

enum class abort_point : std::uint8_t {
  none,
  leased_fetch,     ///< the lease is ready and is given up
  in_flight_fetch,  ///< the provider's call has been entered
  decided_fetch,    ///< the outcome is known, the proof is not
  leased_publish,
  in_flight_publish,
  decided_publish,
};

class request_run {
 public:
  request_run(run_context& run, instance& on, std::size_t index)
      : run_{run},
        on_{on},
        index_{index},
        work_{run.plan.work.requests[index]},
        tpb_{run.plan.tokens_per_block} {
    const auto die = mix64(run.plan.seed ^ mix64(index + 0x9e3779b97f4a7c15u));
    if (static_cast<double>(die >> 11) * 0x1.0p-53 < run.plan.abort)
      abort_ = static_cast<abort_point>(1 + mix64(die) % 6);
  }

  void go();

 private:
  result<void> prepare();
  bool fetch();
  bool compute();
  void publish();
  /// Lends, and submits unless the request aborts before. False: no operation.
  bool start(direction way, segment& s, abort_point leased, abort_point in_flight);
  bool lend(direction way, segment& s);
  bool submit(direction way, segment& s);
  /// A lease that no operation owns goes back; it may just have failed by itself.
  void give_up(const segment& s) { static_cast<void>(on_.lender->withdraw(s.lease).get()); }
  void note(direction way, const segment& s);
  /// The served rows have been copied into the request's pages: are they what their names say?
  void verify(const segment& s, const std::set<bytes>& served);
  bool fell(const error& e, const char* doing);
  void aborted() {
    ++run_.aborted;
    gone_ = true;
  }

  std::int64_t block_count(std::int64_t tokens) const { return tokens / tpb_; }

  run_context& run_;
  instance& on_;
  std::size_t index_;
  const trace_request& work_;
  std::int64_t tpb_;
  abort_point abort_ = abort_point::none;
  request_info info_;
  std::vector<block_name> names_;  ///< of the whole prompt blocks
  std::int64_t known_ = 0;         ///< tokens of the prefix that need no computing
  bool gone_ = false;              ///< aborted, or the run stops
};

/// An error is expected once the run stops, and a problem otherwise.
bool request_run::fell(const error& e, const char* doing) {
  gone_ = true;
  if (!run_.stop && !on_.lender->fatal())
    run_.problem(fmt::format("request {}: {}: {}", index_, doing, to_string(e)));
  return false;
}

result<void> request_run::prepare() {
  request_spec spec;
  auto& ids = spec.prompt.ids;
  ids.resize(static_cast<std::size_t>(block_count(work_.input_tokens + tpb_ - 1) * tpb_));
  for (std::size_t b = 0; b < work_.blocks.size(); ++b)
    block_tokens(work_.blocks[b],
                 std::span{ids}.subspan(b * static_cast<std::size_t>(tpb_), static_cast<std::size_t>(tpb_)));
  ids.resize(work_.input_tokens);
  const auto keys = block_keys(root_key(spec.scope), spec.prompt, tpb_);
  if (!keys) return tl::unexpected{keys.error()};
  names_.reserve(keys->size());
  for (const auto& key : *keys) names_.push_back(*on_.names->name(0, key));
  const auto info = on_.lender->admit(std::move(spec)).get();
  if (!info) return tl::unexpected{info.error()};
  info_ = *info;
  known_ = info_.committed_tokens;
  run_.local_hits += static_cast<std::uint64_t>(block_count(known_));
  return {};
}

bool request_run::lend(direction way, segment& s) {
  const auto state = s.state;
  const auto lease = on_.lender->lend(way, info_.request, s.range, lease_told_to(state)).get();
  if (!lease) return fell(lease.error(), "lend");
  s.lease = *lease;
  if (!wait(*state, run_, [](const watch& w) { return w.lease_decided(); })) {
    give_up(s);
    gone_ = true;
    return false;
  }
  if (!state->lease_failed) return true;
  ++run_.not_leased;
  return false;
}

bool request_run::submit(direction way, segment& s) {
  const auto state = s.state;
  ++run_.open;
  const auto op =
      on_.lender
          ->submit(way, s.lease, info_.request, run_.plan.timeout,
                   {.outcome =
                        [state, &run = run_](const operation_outcome& o) {
                          if (!std::holds_alternative<delivered>(o.value)) ++run.unsuccessful;
                          state->set([&](watch& w) { w.value = o.value; });
                        },
                    .released =
                        [state, &run = run_](const operation_released& r) {
                          run.latencies.add(r.times);
                          over(run, *state);
                          state->set([](watch& w) { w.released = true; });
                        },
                    .retained =
                        [state, &run = run_, on = &on_](const operation_retained& r) {
                          if (r.final) {
                            ++run.kept;
                            over(run, *state);
                            return state->set([](watch& w) { w.final = true; });
                          }
                          ++run.retained;
                          if (std::exchange(state->retried, true)) return;
                          // Disputed evidence is retried once, after a quarter of the timeout.
                          run.timer.post_after(run.plan.timeout.value() / 4, [on, op_id = r.operation] {
                            if (!on->lender->fatal()) static_cast<void>(on->lender->retry_proof(op_id));
                          });
                        }})
          .get();
  if (!op) {
    --run_.open;
    give_up(s);
    return fell(op.error(), "submit");
  }
  s.operation = *op;
  ++run_.operations;
  return true;
}

bool request_run::start(direction way, segment& s, abort_point leased, abort_point in_flight) {
  if (!lend(way, s)) return false;
  if (abort_ == leased) {
    give_up(s);
    aborted();
    return false;
  }
  const auto& where = s.state->view->runs().front().where();
  const auto first = where->names.empty() ? bytes{} : where->names.front();
  const bool held = abort_ == in_flight && !first.empty();
  if (held) on_.gates->hold(first);
  const bool submitted = submit(way, s);
  if (held) {
    const auto decided = [&] {
      const std::lock_guard lock{s.state->mutex};
      return s.state->value.has_value();
    };
    while (submitted && !run_.stop && !on_.gates->entered(first, std::chrono::milliseconds{1}) &&
           !decided()) {
    }
    if (submitted) {
      static_cast<void>(on_.lender->cancel(s.operation).get());
      wait(*s.state, run_, [](const watch& w) { return w.value.has_value(); });
    }
    on_.gates->open(first);
    aborted();
  }
  if (!submitted) return false;
  if (!wait(*s.state, run_, [](const watch& w) { return w.value.has_value(); })) {
    gone_ = true;
    const std::lock_guard lock{s.state->mutex};
    if (!s.state->value) return false;
  }
  note(way, s);
  return !gone_;
}

void request_run::note(direction way, const segment& s) {
  const auto units = static_cast<std::size_t>(block_count(s.range.end - s.range.start));
  run_.count_outcome(*s.state->value, units);
  run_.outcomes_of[index_] += fmt::format("{} [{}, {}): {}; ", to_string(way), s.range.start, s.range.end,
                                          to_string(*s.state->value));
}

void request_run::verify(const segment& s, const std::set<bytes>& served) {
  const auto& lent = s.state->view->runs().front();
  const auto block = static_cast<std::size_t>(run_.plan.block_bytes);
  auto buffer = std::make_shared<std::vector<std::byte>>(lent.size() * block);
  const auto read = on_.lender->read_pages(info_.request, s.range, buffer).get();
  if (!read) return void(fell(read.error(), "read pages"));
  for (std::size_t i = 0; i < lent.size(); ++i) {
    const auto& name = lent.where()->names[i];
    if (!served.contains(name)) continue;
    const auto& mine = names_[static_cast<std::size_t>(lent.ordinals()[i])].bytes;
    const bool same_name = std::equal(mine.begin(), mine.end(), std::as_bytes(std::span{name}).begin(),
                                      std::as_bytes(std::span{name}).end());
    if (!same_name || !check_block(mine, std::span{*buffer}.subspan(i * block, block))) ++run_.wrong;
  }
  run_.fetched += served.size();
}

bool request_run::fetch() {
  const auto end = (info_.prompt_tokens - 1) / tpb_ * tpb_;
  const auto longest = static_cast<std::int64_t>(run_.plan.staging_slots) * tpb_;
  while (known_ < end) {
    segment s{.range = {known_, std::min(end, known_ + longest)}};
    if (!start(direction::fetch, s, abort_point::leased_fetch, abort_point::in_flight_fetch)) return !gone_;
    if (abort_ == abort_point::decided_fetch) {
      aborted();
      return false;
    }
    const auto* ok = std::get_if<delivered>(&*s.state->value);
    // Failed or cancelled: nothing will be copied into the pages, so the engine goes on at once.
    if (ok == nullptr) return true;
    // Delivered: the pages are the fetch's until it has settled (6.6).
    if (!wait(*s.state, run_, [](const watch& w) { return w.released || w.final; }) || s.state->final) {
      gone_ = true;
      return false;
    }
    verify(s, ok->served());
    if (gone_) return false;
    const auto ready = on_.lender->ready_from(info_.request).get();
    if (!ready) return fell(ready.error(), "readiness");
    std::int64_t prefix = s.range.start;
    for (const auto& name : s.state->view->runs().front().where()->names) {
      if (!ok->served().contains(name)) break;
      prefix += tpb_;
    }
    if (!*ready || (**ready).usable_until != prefix)
      run_.problem(fmt::format("request {}: usable until {}, but the served prefix ends at {}", index_,
                               *ready ? (**ready).usable_until : -1, prefix));
    known_ = prefix;
    if (known_ < s.range.end) return true;
  }
  return true;
}

bool request_run::compute() {
  const auto end = info_.prompt_tokens / tpb_ * tpb_;
  if (end == 0 || end == info_.committed_tokens) return true;
  // Pages that a copy still pins come back with its event; whoever lacks them meanwhile waits.
  const auto give_up = std::chrono::steady_clock::now() + 3 * run_.plan.timeout.value();
  for (;;) {
    const auto grown = on_.lender->grow(info_.request, end).get();
    if (grown) break;
    if (grown.error().code != errc::no_memory || run_.stop || std::chrono::steady_clock::now() > give_up)
      return fell(grown.error(), "grow");
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  const auto block = static_cast<std::size_t>(run_.plan.block_bytes);
  const auto first = static_cast<std::size_t>(block_count(known_));
  const auto count = static_cast<std::size_t>(block_count(end)) - first;
  auto buffer = std::make_shared<std::vector<std::byte>>(count * block);
  for (std::size_t i = 0; i < count; ++i)
    fill_block(names_[first + i].bytes, std::span{*buffer}.subspan(i * block, block));
  if (const auto ok = on_.lender->write_pages(info_.request, {known_, end}, buffer).get(); !ok)
    return fell(ok.error(), "write pages");
  if (const auto ok = on_.lender->commit(info_.request, end).get(); !ok) return fell(ok.error(), "commit");
  return true;
}

void request_run::publish() {
  const auto end = info_.prompt_tokens / tpb_ * tpb_;
  const auto longest = static_cast<std::int64_t>(run_.plan.staging_slots) * tpb_;
  for (auto at = known_; at < end && !gone_; at += longest) {
    segment s{.range = {at, std::min(end, at + longest)}};
    if (!start(direction::publish, s, abort_point::leased_publish, abort_point::in_flight_publish)) continue;
    if (const auto* ok = std::get_if<delivered>(&*s.state->value)) run_.published += ok->served().size();
    if (abort_ == abort_point::decided_publish) aborted();
  }
}

void request_run::go() {
  if (run_.stop) return void(++run_.not_run);
  const auto pages = static_cast<std::size_t>(block_count(work_.input_tokens + tpb_ - 1));
  on_.budget->take(pages);
  if (run_.stop) {
    ++run_.not_run;
  } else if (const auto ok = prepare(); !ok) {
    fell(ok.error(), "admit");
  } else {
    const auto role = run_.plan.role;
    const bool goes_on = role == replay_role::publish || fetch();
    if (goes_on && role != replay_role::fetch && compute()) publish();
    static_cast<void>(on_.lender->free(info_.request).get());
  }
  on_.budget->give(pages);
  ++run_.done;
}

}  // namespace

void run_request(run_context& run, instance& on, std::size_t index) { request_run{run, on, index}.go(); }

}  // namespace kvlease::replay
