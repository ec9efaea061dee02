#include "src/memory_provider.hpp"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "src/exposure.hpp"

namespace kvlease {

namespace {

/// Units a job moves before it lets other jobs of the executor run.
constexpr std::size_t units_per_job = 4;

struct live_span {
  std::size_t size;
  std::uint64_t handle;
};

/// Where one unit lies, and the right to touch it that was taken at submission.
struct place {
  std::span<std::byte> memory;
  touch_right right;
};

std::string hex(std::uintptr_t address) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[address % 16]);
    address /= 16;
  } while (address != 0);
  return "0x" + text;
}

std::string span_text(std::uintptr_t address, std::size_t size) {
  return hex(address) + " + " + std::to_string(size);
}

std::string unit_text(const unit& u) {
  return "unit (group " + std::to_string(u.local_group()) + ", local " + std::to_string(u.local()) + ")";
}

}  // namespace

/// What providers, attempts, handles and jobs share, so that each may outlive the others.
struct memory_provider::core {
  core(std::shared_ptr<memory_store> s, provider_context c, memory_options o)
      : store{std::move(s)}, context{std::move(c)}, options{o} {}

  const std::shared_ptr<memory_store> store;
  const provider_context context;
  const memory_options options;
  std::atomic<bool> closing{false};
  std::atomic<std::uint64_t> hits{0}, misses{0}, failures{0};

  std::mutex mutex;  ///< guards what follows, and the answers of every transfer
  std::condition_variable advanced;
  std::function<void()> wake;
  std::map<std::uintptr_t, live_span> spans;
  std::uint64_t last_handle = 0;

  bool registered(std::span<const std::byte> memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::lock_guard lock{mutex};
    const auto after = spans.upper_bound(address);
    if (after == spans.begin()) return false;
    const auto& [first, span] = *std::prev(after);
    return address - first <= span.size && memory.size() <= span.size - (address - first);
  }

  void touch(const place& at, touch_kind kind) const {
    if (context.touches) context.touches->touch(at.right, at.memory, kind);
  }
};

/// One submission: the attempt and the job that moves its bytes.
class memory_provider::transfer final : public attempt,
                                        public cancellable_attempt,
                                        public std::enable_shared_from_this<transfer> {
 public:
  transfer(std::shared_ptr<core> of, direction way, const cache_extent& extent)
      : core_{std::move(of)}, way_{way}, extent_{extent} {}

  std::optional<outcome> poll() override {
    const std::lock_guard lock{core_->mutex};
    return outcome_;
  }

  cancel_disposition request_cancel() override {
    cancel_.store(true, std::memory_order_relaxed);
    return cancel_disposition::requested;
  }

  bool belongs_to(const core& c) const noexcept { return core_.get() == &c; }
  /// With the core's lock held: outcome and end of access come together.
  bool over() const noexcept { return outcome_.has_value(); }

  /// Finds each unit's memory and takes the rights. Why it can't, or empty.
  std::optional<std::string> prepare() {
    places_.reserve(extent_.units().size());
    for (const unit& u : extent_.units()) {
      const auto memory = core_->context.resolver->resolve(u.local_group(), u.local());
      if (!memory) return unit_text(u) + " resolves to no memory";
      if (!core_->registered(*memory)) {
        return unit_text(u) + " lies in no registered pool: " +
               span_text(reinterpret_cast<std::uintptr_t>(memory->data()), memory->size());
      }
      places_.push_back(
          {*memory, core_->context.touches ? core_->context.touches->claim(*memory) : touch_right{}});
    }
    return std::nullopt;
  }

  /// Moves bytes to the end, or a few units and posts the rest.
  void run(bool to_end) {
    try {
      for (std::size_t moved = 0; next_ < places_.size(); ++next_, ++moved) {
        if (cancel_.load(std::memory_order_relaxed) || core_->closing.load(std::memory_order_relaxed)) {
          return finish(cancelled{cancelled_by::local});
        }
        if (!to_end && moved == units_per_job) return post();
        if (auto why = way_ == direction::fetch ? fetch_unit() : publish_unit()) return finish(failed{*why});
      }
      finish(delivered{std::move(served_)});
    } catch (const std::exception& e) {
      finish(failed{std::string{"memory provider: "} + e.what()});
    }
  }

  /// If it throws, no job of this transfer exists.
  void post() {
    core_->context.exec->post([self = shared_from_this()] { self->run(false); });
  }

  void finish(outcome o) {
    std::function<void()> wake;
    {
      const std::lock_guard lock{core_->mutex};
      if (outcome_) return;
      count(o);
      outcome_ = std::move(o);
      wake = core_->wake;
    }
    core_->advanced.notify_all();
    if (wake) wake();
  }

 private:
  std::optional<std::string> fetch_unit() {
    const unit& u = extent_.units()[next_];
    const place& at = places_[next_];
    const auto blob = core_->store->get(extent_.name(), u.name());
    if (!blob) return std::nullopt;
    if (blob->size() != at.memory.size()) return size_text(u, blob->size());
    core_->touch(at, touch_kind::write);
    std::memcpy(at.memory.data(), blob->data(), blob->size());
    served_.insert(u.name());
    return std::nullopt;
  }

  std::optional<std::string> publish_unit() {
    const unit& u = extent_.units()[next_];
    const place& at = places_[next_];
    const auto held = core_->store->find(extent_.name(), u.name());
    if (held && *held != at.memory.size()) return size_text(u, *held);
    if (!held) core_->touch(at, touch_kind::read);
    switch (core_->store->put(extent_.name(), u.name(), at.memory)) {
      case memory_store::put_result::other_size:
        return unit_text(u) + " was published with another size";
      case memory_store::put_result::full:
        return "store is full: " + unit_text(u) + " of " + std::to_string(at.memory.size()) +
               " bytes, capacity " + std::to_string(core_->store->capacity()) + ", held " +
               std::to_string(core_->store->bytes());
      case memory_store::put_result::added:
      case memory_store::put_result::kept:
        break;
    }
    served_.insert(u.name());
    return std::nullopt;
  }

  std::string size_text(const unit& u, std::size_t stored) const {
    return unit_text(u) + " has " + std::to_string(stored) + " bytes in the store, its slot " +
           std::to_string(places_[next_].memory.size());
  }

  void count(const outcome& o) {
    const std::size_t units = extent_.units().size();
    if (const auto* d = std::get_if<delivered>(&o)) {
      core_->hits += d->served().size();
      core_->misses += units - d->served().size();
    } else if (std::holds_alternative<failed>(o)) {
      core_->failures += units;
    }
  }

  const std::shared_ptr<core> core_;
  const direction way_;
  const cache_extent extent_;
  std::atomic<bool> cancel_{false};
  std::vector<place> places_;  ///< from here on: of the one running job alone
  std::size_t next_ = 0;
  std::set<bytes> served_;
  std::optional<outcome> outcome_;  ///< under the core's lock
};

class memory_provider::pool_registration final : public registration {
 public:
  pool_registration(std::shared_ptr<core> of, std::uintptr_t address, std::uint64_t handle)
      : core_{std::move(of)}, address_{address}, handle_{handle} {}

  void close() override {
    const std::lock_guard lock{core_->mutex};
    const auto it = core_->spans.find(address_);
    if (it != core_->spans.end() && it->second.handle == handle_) core_->spans.erase(it);
  }

 private:
  const std::shared_ptr<core> core_;
  const std::uintptr_t address_;
  const std::uint64_t handle_;
};

memory_provider::memory_provider(std::shared_ptr<memory_store> store, provider_context context,
                                 memory_options options)
    : core_{std::make_shared<core>(std::move(store), std::move(context), options)} {
  if (!core_->store) throw std::invalid_argument{"memory provider: no store"};
  if (!core_->context.resolver) throw std::invalid_argument{"memory provider: no resolver"};
  if (options.background && !core_->context.exec) throw std::invalid_argument{"memory provider: no executor"};
}

memory_provider::~memory_provider() {
  core_->closing.store(true, std::memory_order_relaxed);
  on_progress({});
}

std::string memory_provider::describe() const {
  return "memory (" + std::string{core_->options.background ? "background" : "inline"} + ", capacity " +
         std::to_string(core_->store->capacity()) + " bytes)";
}

unit_counters memory_provider::counters() const {
  return {core_->hits.load(), core_->misses.load(), core_->failures.load()};
}

std::shared_ptr<attempt> memory_provider::fetch(const cache_extent& extent, route* along) {
  if (along) throw submission_rejected{"memory provider: foreign route: it opens none"};
  return submit(direction::fetch, extent);
}

std::shared_ptr<attempt> memory_provider::publish(const cache_extent& extent) {
  return submit(direction::publish, extent);
}

std::shared_ptr<attempt> memory_provider::submit(direction way, const cache_extent& extent) {
  auto made = std::make_shared<transfer>(core_, way, extent);
  if (auto why = made->prepare()) {
    made->finish(failed{std::move(*why)});
  } else if (!core_->options.background) {
    made->run(true);
  } else {
    try {
      made->post();
    } catch (const std::exception& e) {
      throw submission_rejected{std::string{"memory provider: the executor took no job: "} + e.what()};
    }
  }
  return made;
}

std::optional<std::set<bytes>> memory_provider::probe(const bytes& extent, const std::set<bytes>& names) {
  std::set<bytes> hits;
  for (const bytes& name : names) {
    if (core_->store->find(extent, name)) hits.insert(hits.end(), name);
  }
  return hits;
}

result<std::unique_ptr<route>> memory_provider::open_route(const std::string&) {
  return fail(errc::unsupported, "memory provider: routes need more than one source");
}

std::shared_ptr<memory_provider::transfer> memory_provider::mine(attempt& a) const {
  auto* t = dynamic_cast<transfer*>(&a);
  return t && t->belongs_to(*core_) ? t->shared_from_this() : nullptr;
}

bool memory_provider::quiesce(attempt_list attempts) {
  const auto shared = core_;  // a waiter may outlive the provider
  for (const auto& a : attempts) {
    const auto t = mine(*a);
    if (!t) return false;
    std::unique_lock lock{shared->mutex};
    shared->advanced.wait(lock, [&] { return t->over(); });
  }
  return true;
}

void memory_provider::settle(attempt_list attempts) {
  for (const auto& a : attempts) {
    if (!mine(*a)) throw std::invalid_argument{"memory provider: settle of a foreign attempt"};
  }
  quiesce(attempts);  // outcome and end of access come together
}

std::unique_ptr<registration> memory_provider::register_pool(std::uintptr_t address, std::size_t size) {
  if (size == 0 || size - 1 > std::numeric_limits<std::uintptr_t>::max() - address) {
    throw std::invalid_argument{"memory provider: not a span: " + span_text(address, size)};
  }
  const std::lock_guard lock{core_->mutex};
  auto next = core_->spans.lower_bound(address);
  if (next != core_->spans.begin()) {
    const auto before = std::prev(next);
    if (address - before->first < before->second.size) next = before;
  }
  if (next != core_->spans.end() && (next->first <= address || next->first - address < size)) {
    throw std::invalid_argument{"memory provider: " + span_text(address, size) + " overlaps the registered " +
                                span_text(next->first, next->second.size)};
  }
  const std::uint64_t handle = ++core_->last_handle;
  auto made = std::make_unique<pool_registration>(core_, address, handle);
  core_->spans.emplace(address, live_span{size, handle});
  return made;
}

access_answer memory_provider::poll_access(attempt& a) {
  const auto t = mine(a);
  if (!t) return {access_state::unproven, proof_source::terminal_status};
  const std::lock_guard lock{core_->mutex};
  return {t->over() ? access_state::ended : access_state::running, proof_source::terminal_status};
}

void memory_provider::on_progress(std::function<void()> wake) {
  const std::lock_guard lock{core_->mutex};
  core_->wake.swap(wake);
}

}  // namespace kvlease
