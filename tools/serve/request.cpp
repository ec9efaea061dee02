#include "tools/serve/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "tools/replay/content.hpp"
#include "tools/replay/segment.hpp"

namespace kvlease::serve {

bool request_floor::take(std::size_t n) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return ended_ || free_ >= n; });
  if (ended_) return false;
  free_ -= n;
  return true;
}

void request_floor::give(std::size_t n) {
  const std::lock_guard lock{mutex_};
  free_ += n;
  changed_.notify_all();
}

void request_floor::end() {
  const std::lock_guard lock{mutex_};
  ended_ = true;
  changed_.notify_all();
}

namespace {

using steady = std::chrono::steady_clock;

using replay::segment;
using replay::watch;

class life {
 public:
  life(request_floor& floor, replay::instance& on, std::size_t instance, const request_ask& ask)
      : floor_{floor},
        on_{on},
        ask_{ask},
        tpb_{floor.plan.instances.tokens_per_block},
        timeout_{ask.timeout.value_or(floor.plan.instances.timeout)} {
    answer_.instance = instance;
  }

  result<request_answer> go() {
    const auto began = steady::now();
    auto done = enter();
    if (done) done = fetch();
    if (done) done = compute();
    if (done) done = publish();
    if (info_.request) static_cast<void>(on_.lender->free(info_.request).get());
    if (!done) return tl::unexpected{done.error()};
    answer_.seconds = std::chrono::duration<double>(steady::now() - began).count();
    return std::move(answer_);
  }

 private:
  std::int64_t whole(std::int64_t tokens) const { return tokens / tpb_ * tpb_; }
  std::int64_t longest() const {
    return static_cast<std::int64_t>(floor_.plan.instances.staging_slots) * tpb_;
  }
  static tl::unexpected<error> ending() { return fail(errc::state, "the service ends"); }

  /// Waits until `ready`. Errors: state once the service ends or the runtime is fatal.
  template <class F>
  result<void> wait(watch& w, F ready) {
    std::unique_lock lock{w.mutex};
    while (!ready(w)) {
      if (floor_.ended()) return ending();
      w.changed.wait_for(lock, std::chrono::milliseconds{20});
      if (!ready(w) && on_.lender->fatal()) return fail(errc::state, "the runtime is fatal");
    }
    return {};
  }

  result<void> enter() {
    request_spec spec;
    spec.prompt.ids = ask_.tokens;
    spec.scope.salt = ask_.salt;
    const auto keys = block_keys(root_key(spec.scope), spec.prompt, tpb_);
    if (!keys) return tl::unexpected{keys.error()};
    for (const auto& key : *keys) names_.push_back(*on_.names->name(0, key));
    const auto info = on_.lender->admit(std::move(spec)).get();
    if (!info) return tl::unexpected{info.error()};
    info_ = *info;
    known_ = info_.committed_tokens;
    answer_.request = to_string(info_.request);
    answer_.prompt_blocks = info_.prompt_tokens / tpb_;
    answer_.hit_blocks = known_ / tpb_;
    return {};
  }

  result<void> lend(direction way, segment& s) {
    const auto state = s.state;
    const auto lease = on_.lender->lend(way, info_.request, s.range, replay::lease_told_to(state)).get();
    if (!lease) return tl::unexpected{lease.error()};
    s.lease = *lease;
    const auto there = wait(*state, [](const watch& w) { return w.lease_decided(); });
    if (!there) static_cast<void>(on_.lender->withdraw(s.lease).get());
    if (there && state->lease_failed) return tl::unexpected{*state->lease_failed};
    return there;
  }

  result<void> submit(direction way, segment& s) {
    const auto state = s.state;
    const auto retried_after = timeout_.value() / 4;
    const bool retries = floor_.plan.retry_proofs;
    const auto op =
        on_.lender
            ->submit(
                way, s.lease, info_.request, timeout_,
                {.outcome =
                     [state](const operation_outcome& o) {
                       state->set([&](watch& w) { w.value = o.value; });
                     },
                 .released =
                     [state](const operation_released&) { state->set([](watch& w) { w.released = true; }); },
                 .retained =
                     [state, retried_after, retries, floor = &floor_,
                      on = &on_](const operation_retained& r) {
                       if (r.final) return state->set([](watch& w) { w.final = true; });
                       if (!retries || std::exchange(state->retried, true)) return;
                       floor->timer.post_after(retried_after, [on, id = r.operation] {
                         if (!on->lender->fatal()) static_cast<void>(on->lender->retry_proof(id));
                       });
                     }})
            .get();
    if (!op) {
      static_cast<void>(on_.lender->withdraw(s.lease).get());
      return tl::unexpected{op.error()};
    }
    s.operation = *op;
    auto decided = wait(*state, [](const watch& w) { return w.value.has_value(); });
    if (decided) answer_.operations.push_back({to_string(*op), way, to_string(*state->value)});
    return decided;
  }

  /// Makes the lease's states last, where the drill asks for it.
  void drill(const segment& s) {
    if (ask_.drill.read_guard.count() > 0)
      if (auto guard = on_.lender->guard(s.lease)) {
        auto kept = std::make_shared<read_guard>(*std::move(guard));
        floor_.timer.post_after(ask_.drill.read_guard, [kept]() mutable { kept.reset(); });
      }
    if (floor_.device != nullptr && ask_.drill.copy.count() > 0) floor_.device->hold_next(ask_.drill.copy);
    if (floor_.device != nullptr && ask_.drill.lose_copy) floor_.device->lose_next();
    const auto until = steady::now() + ask_.drill.keep_lease;
    while (steady::now() < until && !floor_.ended())
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }

  result<void> fetch() {
    const auto end = (info_.prompt_tokens - 1) / tpb_ * tpb_;
    while (known_ < end) {
      segment s{.range = {known_, std::min(end, known_ + longest())}};
      if (const auto ok = lend(direction::fetch, s); !ok) return ok;
      drill(s);
      if (const auto ok = submit(direction::fetch, s); !ok) return ok;
      const auto* ok = std::get_if<delivered>(&*s.state->value);
      // Failed or cancelled: nothing will be copied into the pages, so the engine computes at once.
      if (ok == nullptr) return {};
      // Delivered: the pages are the fetch's until it has settled.
      if (const auto over = wait(*s.state, [](const watch& w) { return w.released || w.final; }); !over)
        return over;
      if (s.state->final) return fail(errc::state, "the fetch's memory is kept: its end can't be proven");
      if (const auto checked = verify(s, ok->served()); !checked) return checked;
      for (const auto& name : s.state->view->runs().front().where()->names) {
        if (!ok->served().contains(name)) break;
        known_ += tpb_;
      }
      if (known_ < s.range.end) return {};
    }
    return {};
  }

  /// The served rows have been copied into the request's pages: are they what their names say?
  result<void> verify(const segment& s, const std::set<bytes>& served) {
    const auto& lent = s.state->view->runs().front();
    const auto block = floor_.plan.instances.block_bytes;
    auto buffer = std::make_shared<std::vector<std::byte>>(lent.size() * block);
    if (const auto read = on_.lender->read_pages(info_.request, s.range, buffer).get(); !read) return read;
    for (std::size_t i = 0; i < lent.size(); ++i) {
      if (!served.contains(lent.where()->names[i])) continue;
      const auto& mine = names_[static_cast<std::size_t>(lent.ordinals()[i])].bytes;
      if (!replay::check_block(mine, std::span{*buffer}.subspan(i * block, block))) ++answer_.wrong_blocks;
    }
    floor_.wrong += answer_.wrong_blocks;
    answer_.fetched_blocks += served.size();
    return {};
  }

  result<void> compute() {
    const auto end = whole(info_.prompt_tokens);
    if (end == 0 || end == info_.committed_tokens) return {};
    // Pages that a copy still pins come back with its event; whoever lacks them meanwhile waits.
    const auto give_up = steady::now() + 3 * timeout_.value();
    for (;;) {
      const auto grown = on_.lender->grow(info_.request, end).get();
      if (grown) break;
      if (floor_.ended()) return ending();
      if (grown.error().code != errc::no_memory || steady::now() > give_up)
        return tl::unexpected{grown.error()};
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    const auto block = floor_.plan.instances.block_bytes;
    const auto first = static_cast<std::size_t>(known_ / tpb_);
    const auto count = static_cast<std::size_t>(end / tpb_) - first;
    auto buffer = std::make_shared<std::vector<std::byte>>(count * block);
    for (std::size_t i = 0; i < count; ++i)
      replay::fill_block(names_[first + i].bytes, std::span{*buffer}.subspan(i * block, block));
    if (const auto ok = on_.lender->write_pages(info_.request, {known_, end}, buffer).get(); !ok) return ok;
    if (const auto ok = on_.lender->commit(info_.request, end).get(); !ok) return tl::unexpected{ok.error()};
    return {};
  }

  result<void> publish() {
    const auto end = whole(info_.prompt_tokens);
    for (auto at = known_; at < end; at += longest()) {
      segment s{.range = {at, std::min(end, at + longest())}};
      if (const auto ok = lend(direction::publish, s); !ok) return ok;
      if (const auto ok = submit(direction::publish, s); !ok) return ok;
      if (const auto* ok = std::get_if<delivered>(&*s.state->value))
        answer_.published_blocks += ok->served().size();
    }
    return {};
  }

  request_floor& floor_;
  replay::instance& on_;
  const request_ask& ask_;
  const std::int64_t tpb_;
  const transfer_timeout timeout_;
  request_answer answer_;
  request_info info_;
  std::vector<block_name> names_;  ///< of the whole prompt blocks
  std::int64_t known_ = 0;         ///< tokens of the prefix that need no computing
};

}  // namespace

result<request_answer> run_request(request_floor& floor, replay::instance& on, std::size_t instance,
                                   const request_ask& ask) {
  const auto tpb = floor.plan.instances.tokens_per_block;
  const auto pages = (ask.tokens.size() + tpb - 1) / tpb;
  if (!floor.take(pages)) return fail(errc::state, "the service ends");
  auto answer = life{floor, on, instance, ask}.go();
  floor.give(pages);
  return answer;
}

std::string to_json(const request_answer& a) {
  nlohmann::ordered_json operations = nlohmann::ordered_json::array();
  for (const auto& o : a.operations)
    operations.push_back({{"id", o.id}, {"way", to_string(o.way)}, {"outcome", o.outcome}});
  return nlohmann::ordered_json{{"schema_version", 1},
                                {"request", a.request},
                                {"instance", a.instance},
                                {"blocks",
                                 {{"prompt", a.prompt_blocks},
                                  {"hit", a.hit_blocks},
                                  {"fetched", a.fetched_blocks},
                                  {"published", a.published_blocks},
                                  {"wrong", a.wrong_blocks}}},
                                {"operations", operations},
                                {"seconds", a.seconds}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kvlease::serve
