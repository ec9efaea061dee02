#include "src/providers/fault_provider.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "src/exposure.hpp"
#include "src/mix.hpp"

namespace kvlease {

namespace {

/// How often the end of a pollable provider's transfer is asked for; only a late early success waits so.
constexpr std::chrono::microseconds watch_step{50};

/// Where one unit lies, and the right to touch it that was taken at submission.
struct place {
  const unit* of;
  std::span<std::byte> memory;
  touch_right right;
};

/// What the attempt's access answers: `held` runs, `follow` asks the provider behind.
enum class stage : std::uint8_t { held, follow, ended, unproven };

void fill_noise(std::span<std::byte> memory, std::uint64_t seed, std::uint64_t index) {
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix64(seed, index, at);
    std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
  }
}

std::string failure_text(std::uint64_t n) { return "injected failure of submission " + std::to_string(n); }

cache_extent with_units(const cache_extent& of, std::vector<unit> units) {
  // A subset of units that were unique is unique.
  return *cache_extent::make(of.name(), std::move(units),
                             of.is_last() ? end_of_sequence::yes : end_of_sequence::no);
}

}  // namespace

struct fault_provider::core {
  core(std::shared_ptr<provider> i, fault_plan p, provider_context c)
      : inner{std::move(i)}, plan{p}, context{std::move(c)} {
    if (!inner) throw std::invalid_argument{"fault provider: no provider behind it"};
    if (!context.resolver) throw std::invalid_argument{"fault provider: no resolver"};
    if (!context.exec) throw std::invalid_argument{"fault provider: no executor"};
    inner_fetches = inner->as_fetches();
    inner_publishes = inner->as_publishes();
    inner_pollable = inner->as_pollable();
    inner_deliveries = inner_fetches ? static_cast<deliveries*>(inner_fetches) : inner_publishes;
  }

  const std::shared_ptr<provider> inner;
  const fault_plan plan;
  const provider_context context;
  fetches* inner_fetches = nullptr;
  publishes* inner_publishes = nullptr;
  pollable* inner_pollable = nullptr;
  deliveries* inner_deliveries = nullptr;

  std::atomic<std::uint64_t> submissions{0}, misses{0}, failures{0};
  std::array<std::atomic<std::uint64_t>, fault_kind_count> struck{};

  std::mutex mutex;  ///< guards what follows, and the answers of every struck attempt
  std::condition_variable changed;
  bool abandoned = false;
  std::function<void()> wake;

  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent, route* along) const {
    return way == direction::fetch ? inner_fetches->fetch(extent, along) : inner_publishes->publish(extent);
  }

  bool is_abandoned() {
    const std::lock_guard lock{mutex};
    return abandoned;
  }

  /// After a change, with no lock held.
  void announce() {
    std::function<void()> call;
    {
      const std::lock_guard lock{mutex};
      call = wake;
    }
    changed.notify_all();
    if (call) call();
  }
};

class fault_provider::struck_attempt final : public attempt,
                                             public cancellable_attempt,
                                             public std::enable_shared_from_this<struck_attempt> {
 public:
  struck_attempt(std::shared_ptr<core> of, fault_kind kind, std::uint64_t n, direction way,
                 const cache_extent& extent)
      : core_{std::move(of)}, kind_{kind}, n_{n}, way_{way}, extent_{extent} {
    for (const unit& u : extent_.units()) {
      const auto memory = core_->context.resolver->resolve(u.local_group(), u.local());
      if (!memory) continue;  // the provider behind answers for it
      places_.push_back(
          {&u, *memory, core_->context.touches ? core_->context.touches->claim(*memory) : touch_right{}});
    }
  }

  bool belongs_to(const core& c) const noexcept { return core_.get() == &c; }

  /// Carries the fault out as far as the submission goes. Exceptions of the provider behind pass through.
  void start(route* along) {
    switch (kind_) {
      case fault_kind::fail:
        return fail_now();
      case fault_kind::late:
        return start_late(along);
      case fault_kind::unproven:
        unproven_once_ = true;
        return follow(core_->submit(way_, extent_, along));
      case fault_kind::stubborn:
        if (along) return follow(core_->submit(way_, extent_, along));
        return later(&struck_attempt::submit_late);
      default:
        return;  // hang
    }
  }

  std::optional<outcome> poll() override {
    std::shared_ptr<attempt> behind;
    {
      const std::lock_guard lock{core_->mutex};
      if (outcome_ || stage_ != stage::follow) return outcome_;
      behind = behind_;
    }
    return behind->poll();
  }

  cancel_disposition request_cancel() override {
    if (kind_ == fault_kind::hang || kind_ == fault_kind::stubborn) return cancel_disposition::requested;
    std::shared_ptr<attempt> behind;
    {
      const std::lock_guard lock{core_->mutex};
      behind = behind_;
    }
    return behind ? kvlease::request_cancel(*behind) : cancel_disposition::requested;
  }

  /// Of the provider behind; null while it has not been submitted there.
  std::shared_ptr<attempt> behind() {
    const std::lock_guard lock{core_->mutex};
    return behind_;
  }

  access_answer poll_access() {
    std::shared_ptr<attempt> behind;
    {
      const std::lock_guard lock{core_->mutex};
      switch (stage_) {
        case stage::held:
          return {access_state::running, proof_source::terminal_status};
        case stage::ended:
          return {access_state::ended, proof_source::terminal_status};
        case stage::unproven:
          return {access_state::unproven, proof_source::terminal_status};
        case stage::follow:
          behind = behind_;
      }
    }
    access_answer answer = core_->inner_pollable->poll_access(*behind);
    if (answer.state == access_state::ended && unproven_once_.exchange(false)) {
      answer.state = access_state::unproven;
    }
    return answer;
  }

  bool quiesce() {
    std::shared_ptr<attempt> behind;
    {
      std::unique_lock lock{core_->mutex};
      core_->changed.wait(lock, [this] { return stage_ != stage::held || core_->abandoned; });
      if (stage_ != stage::follow) return stage_ == stage::ended;
      behind = behind_;
    }
    return core_->inner_deliveries->quiesce({&behind, 1}) && !unproven_once_.exchange(false);
  }

  void settle() {
    std::shared_ptr<attempt> behind;
    {
      std::unique_lock lock{core_->mutex};
      core_->changed.wait(lock, [this] { return outcome_ || stage_ == stage::follow || core_->abandoned; });
      if (outcome_) return;
      if (stage_ != stage::follow) throw std::runtime_error{"fault provider: abandoned before an outcome"};
      behind = behind_;
    }
    core_->inner_deliveries->settle({&behind, 1});
  }

 private:
  touch_kind touching() const noexcept {
    return way_ == direction::fetch ? touch_kind::write : touch_kind::read;
  }
  void touch(const place& at) const {
    if (core_->context.touches) core_->context.touches->touch(at.right, at.memory, touching());
  }
  void scribble(const place& at) const {
    touch(at);
    fill_noise(at.memory, draw(core_->plan, n_, fault_draw::noise),
               static_cast<std::uint64_t>(&at - places_.data()));
  }

  /// The first outcome stays.
  void answer(std::optional<outcome> o, stage next) {
    {
      const std::lock_guard lock{core_->mutex};
      if (!outcome_) outcome_ = std::move(o);
      stage_ = next;
    }
    core_->announce();
  }

  void follow(std::shared_ptr<attempt> behind) {
    {
      const std::lock_guard lock{core_->mutex};
      behind_ = std::move(behind);
      stage_ = stage::follow;
    }
    core_->announce();
  }

  void later(void (struck_attempt::*step)()) {
    core_->context.exec->post_after(late_delay(core_->plan, n_), [self = shared_from_this(), step] {
      if (self->core_->is_abandoned()) return self->answer(std::nullopt, stage::unproven);
      ((*self).*step)();
    });
  }

  void fail_now() {
    core_->failures += extent_.units().size();
    if (way_ == direction::fetch) {
      const std::size_t first = places_.size() > 1 ? draw(core_->plan, n_, fault_draw::units) & 1 : 0;
      for (std::size_t i = first; i < places_.size(); i += 2) scribble(places_[i]);
    }
    answer(failed{failure_text(n_)}, stage::ended);
  }

  void start_late(route* along) {
    const late_shape shape = along ? late_shape::early_success : late_shape_of(core_->plan, n_);
    if (shape == late_shape::early_success) {
      auto behind = core_->submit(way_, extent_, along);
      {
        const std::lock_guard lock{core_->mutex};
        behind_ = std::move(behind);
      }
      return watch();
    }
    // Before the delay starts: a stage that was set after it could undo a later one.
    if (shape == late_shape::early_failure) answer(failed{failure_text(n_)}, stage::held);
    later(&struck_attempt::submit_late);
  }

  /// The delayed submission. Its rights are those of the first submission, whatever the provider behind
  /// claims now.
  void submit_late() {
    for (const place& at : places_) touch(at);
    try {
      follow(core_->submit(way_, extent_, nullptr));
    } catch (const submission_rejected& e) {
      answer(failed{e.what()}, stage::ended);
    } catch (const std::exception& e) {
      answer(failed{e.what()}, stage::unproven);
    }
  }

  /// Waits for the end of the provider behind, without blocking where it can be polled.
  void watch() {
    if (core_->is_abandoned()) return answer(std::nullopt, stage::unproven);
    if (!core_->inner_pollable) {
      return core_->context.exec->post([self = shared_from_this()] {
        self->or_follow([&self] {
          const std::shared_ptr<attempt> behind = self->behind_;
          self->core_->inner_deliveries->settle({&behind, 1});
          self->behind_over(self->core_->inner_deliveries->quiesce({&behind, 1}));
        });
      });
    }
    const access_state access = core_->inner_pollable->poll_access(*behind_).state;
    if (access != access_state::unproven && (access == access_state::running || !behind_->poll())) {
      return core_->context.exec->post_after(
          watch_step, [self = shared_from_this()] { self->or_follow([&self] { self->watch(); }); });
    }
    behind_over(access == access_state::ended);
  }

  /// In a job nobody can catch what the provider behind throws: the host meets it when it asks by itself.
  template <class F>
  void or_follow(F step) {
    try {
      step();
    } catch (...) {
      follow(behind_);
    }
  }

  /// Late, early success. Nothing delivered, or nothing proven: there is nothing to hide.
  void behind_over(bool proven) {
    const auto given = behind_->poll();
    const auto* d = given ? std::get_if<delivered>(&*given) : nullptr;
    if (!proven || !d || d->served().empty()) return follow(behind_);
    std::erase_if(places_, [d](const place& at) { return !d->served().contains(at.of->name()); });
    if (way_ == direction::fetch) {
      for (const place& at : places_) {
        saved_.emplace_back(at.memory.begin(), at.memory.end());
        scribble(at);
      }
    }
    answer(*given, stage::held);
    try {
      later(&struck_attempt::finish_late);
    } catch (...) {
      finish_late();  // no later: the executor takes no more jobs
    }
  }

  /// The right bytes land, or the source is read once more, long after the outcome.
  void finish_late() {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const place& at = places_[i];
      touch(at);
      if (way_ == direction::fetch) {
        std::memcpy(at.memory.data(), saved_[i].data(), saved_[i].size());
      } else {
        for (const std::byte b : at.memory) last_read_ ^= b;
      }
    }
    answer(std::nullopt, stage::ended);
  }

  const std::shared_ptr<core> core_;
  const fault_kind kind_;
  const std::uint64_t n_;  ///< number of the submission
  const direction way_;
  const cache_extent extent_;
  std::vector<place> places_;                  ///< of the one step that runs
  std::vector<std::vector<std::byte>> saved_;  ///< by place; of the one step that runs
  std::byte last_read_{};                      ///< makes the late read of a source real
  std::atomic<bool> unproven_once_{false};
  std::optional<outcome> outcome_;  ///< from here on under the core's lock; over that of behind_
  stage stage_ = stage::held;
  std::shared_ptr<attempt> behind_;  ///< set once
};

fault_provider::fault_provider(std::shared_ptr<provider> inner, fault_plan plan, provider_context context)
    : core_{std::make_shared<core>(std::move(inner), plan, std::move(context))} {}

fault_provider::~fault_provider() {
  on_progress({});
  abandon();
}

void fault_provider::abandon() {
  const auto shared = core_;  // a waiter may outlive the provider
  {
    const std::lock_guard lock{shared->mutex};
    shared->abandoned = true;
  }
  shared->announce();
}

std::array<std::uint64_t, fault_kind_count> fault_provider::struck() const {
  std::array<std::uint64_t, fault_kind_count> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = core_->struck[i].load();
  return counts;
}

std::string fault_provider::describe() const {
  std::string faults;
  for (std::size_t i = 0; i < fault_kind_count; ++i) {
    const double p = core_->plan.probability[i];
    if (p > 0) faults.append(to_string(fault_kind(i))).append("=" + std::to_string(p) + ", ");
  }
  return "faults (" + faults + "seed " + std::to_string(core_->plan.seed) + ") in front of " +
         core_->inner->describe();
}

unit_counters fault_provider::counters() const {
  unit_counters sum = core_->inner->counters();
  sum.misses += core_->misses.load();
  sum.failures += core_->failures.load();
  return sum;
}

fetches* fault_provider::as_fetches() { return core_->inner_fetches ? this : nullptr; }
publishes* fault_provider::as_publishes() { return core_->inner_publishes ? this : nullptr; }
registers_pools* fault_provider::as_registers_pools() {
  return core_->inner->as_registers_pools() ? this : nullptr;
}
pollable* fault_provider::as_pollable() { return core_->inner_pollable ? this : nullptr; }
notifies* fault_provider::as_notifies() { return core_->inner->as_notifies() ? this : nullptr; }
proof_rungs* fault_provider::as_proof_rungs() { return core_->inner->as_proof_rungs() ? this : nullptr; }

std::shared_ptr<attempt> fault_provider::fetch(const cache_extent& extent, route* along) {
  return submit(direction::fetch, extent, along);
}

std::shared_ptr<attempt> fault_provider::publish(const cache_extent& extent) {
  return submit(direction::publish, extent, nullptr);
}

std::shared_ptr<attempt> fault_provider::submit(direction way, const cache_extent& extent, route* along) {
  const std::uint64_t n = core_->submissions++;
  const auto kind = strike(core_->plan, n);
  if (!kind) return core_->submit(way, extent, along);
  ++core_->struck[static_cast<std::size_t>(*kind)];
  switch (*kind) {
    case fault_kind::reject:
      throw submission_rejected{"injected rejection of submission " + std::to_string(n)};
    case fault_kind::miss:
    case fault_kind::partial: {
      std::vector<unit> kept;
      if (*kind == fault_kind::partial) {
        for (const std::size_t i : partial_units(core_->plan, n, extent.units().size())) {
          kept.push_back(extent.units()[i]);
        }
      }
      const std::size_t withheld = extent.units().size() - kept.size();
      auto made = core_->submit(way, with_units(extent, std::move(kept)), along);
      core_->misses += withheld;
      return made;
    }
    case fault_kind::escape:
      core_->submit(way, extent, along);
      throw std::runtime_error{"injected error out of submission " + std::to_string(n)};
    case fault_kind::fail:
    case fault_kind::hang:
    case fault_kind::late:
    case fault_kind::unproven:
    case fault_kind::stubborn:
      break;
  }
  auto made = std::make_shared<struck_attempt>(core_, *kind, n, way, extent);
  made->start(along);
  return made;
}

std::optional<std::set<bytes>> fault_provider::probe(const bytes& extent, const std::set<bytes>& names) {
  return core_->inner_fetches->probe(extent, names);
}

result<std::unique_ptr<route>> fault_provider::open_route(const std::string& hint) {
  return core_->inner_fetches->open_route(hint);
}

std::shared_ptr<fault_provider::struck_attempt> fault_provider::mine(attempt& a) const {
  auto* s = dynamic_cast<struck_attempt*>(&a);
  return s && s->belongs_to(*core_) ? s->shared_from_this() : nullptr;
}

fault_provider::sorted fault_provider::sort(attempt_list attempts) const {
  sorted by;
  for (const auto& a : attempts) {
    if (auto s = mine(*a)) {
      by.struck.push_back(std::move(s));
    } else {
      by.untouched.push_back(a);
    }
  }
  return by;
}

bool fault_provider::quiesce(attempt_list attempts) {
  const auto shared = core_;  // a waiter may outlive the provider
  const sorted by = sort(attempts);
  // Each is asked, so that all injected doubts are spent by one call.
  bool all = by.untouched.empty() || shared->inner_deliveries->quiesce(by.untouched);
  for (const auto& s : by.struck) all &= s->quiesce();
  return all;
}

void fault_provider::settle(attempt_list attempts) {
  const auto shared = core_;
  const sorted by = sort(attempts);
  if (!by.untouched.empty()) shared->inner_deliveries->settle(by.untouched);
  for (const auto& s : by.struck) s->settle();
}

std::unique_ptr<registration> fault_provider::register_pool(std::uintptr_t address, std::size_t size) {
  return core_->inner->as_registers_pools()->register_pool(address, size);
}

access_answer fault_provider::poll_access(attempt& a) {
  if (const auto s = mine(a)) return s->poll_access();
  return core_->inner_pollable->poll_access(a);
}

std::vector<proof_source> fault_provider::rungs() const { return core_->inner->as_proof_rungs()->rungs(); }

std::vector<std::shared_ptr<attempt>> fault_provider::climb(attempt& a, proof_source rung) {
  auto& inner = *core_->inner->as_proof_rungs();
  const auto struck = mine(a);
  if (!struck) return inner.climb(a, rung);
  const auto behind = struck->behind();
  return behind ? inner.climb(*behind, rung) : std::vector<std::shared_ptr<attempt>>{};
}

void fault_provider::on_progress(std::function<void()> wake) {
  if (auto* n = core_->inner->as_notifies()) n->on_progress(wake);
  const std::lock_guard lock{core_->mutex};
  core_->wake.swap(wake);
}

}  // namespace kvlease
