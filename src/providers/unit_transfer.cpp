#include "src/providers/unit_transfer.hpp"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

namespace kvlease {

std::string unit_text(const unit& u) {
  return fmt::format("unit (group {}, local {})", u.local_group(), u.local());
}

std::string span_text(std::uintptr_t address, std::size_t size) {
  return fmt::format("{:#x} + {}", address, size);
}

// ---- Spans -----------------------------------------------------------------------------------------------

std::uint64_t registered_spans::add(const char* who, std::uintptr_t address, std::size_t size) {
  if (size == 0 || size - 1 > std::numeric_limits<std::uintptr_t>::max() - address)
    throw std::invalid_argument{fmt::format("{}: not a span: {}", who, span_text(address, size))};
  auto next = spans_.lower_bound(address);
  if (next != spans_.begin()) {
    const auto before = std::prev(next);
    if (address - before->first < before->second.size) next = before;
  }
  if (next != spans_.end() && (next->first <= address || next->first - address < size))
    throw std::invalid_argument{fmt::format("{}: {} overlaps the registered {}", who,
                                            span_text(address, size),
                                            span_text(next->first, next->second.size))};
  spans_.emplace(address, entry{size, ++last_handle_});
  return last_handle_;
}

void registered_spans::remove(std::uintptr_t address, std::uint64_t handle) {
  const auto it = spans_.find(address);
  if (it != spans_.end() && it->second.handle == handle) spans_.erase(it);
}

bool registered_spans::covers(std::span<const std::byte> memory) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto after = spans_.upper_bound(address);
  if (after == spans_.begin()) return false;
  const auto& [first, span] = *std::prev(after);
  return address - first <= span.size && memory.size() <= span.size - (address - first);
}

// ---- One submission --------------------------------------------------------------------------------------

unit_transfer::unit_transfer(std::shared_ptr<transfer_book> book, direction way, const cache_extent& extent)
    : book_{std::move(book)}, way_{way}, extent_{extent} {}

std::optional<outcome> unit_transfer::poll() {
  const std::lock_guard lock{book_->mutex};
  return outcome_;
}

cancel_disposition unit_transfer::request_cancel() {
  cancel_.store(true, std::memory_order_relaxed);
  return cancel_disposition::requested;
}

std::optional<std::string> unit_transfer::prepare() {
  places_.reserve(extent_.units().size());
  for (const unit& u : extent_.units()) {
    const auto memory = book_->context.resolver->resolve(u.local_group(), u.local());
    if (!memory) return unit_text(u) + " resolves to no memory";
    places_.push_back(
        {*memory, book_->context.touches ? book_->context.touches->claim(*memory) : touch_right{}});
  }
  const std::lock_guard lock{book_->mutex};
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto memory = places_[i].memory;
    if (!book_->spans.covers(memory))
      return fmt::format("{} lies in no registered pool: {}", unit_text(unit_at(i)),
                         span_text(reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()));
  }
  return std::nullopt;
}

void unit_transfer::touch(std::size_t i, touch_kind kind) const {
  if (book_->context.touches) book_->context.touches->touch(places_[i].right, places_[i].memory, kind);
}

bool unit_transfer::commit_locked(outcome o) {
  if (outcome_) return false;
  const std::size_t units = extent_.units().size();
  if (const auto* d = std::get_if<delivered>(&o)) {
    book_->hits += d->served().size();
    book_->misses += units - d->served().size();
  } else if (std::holds_alternative<failed>(o)) {
    book_->failures += units;
  }
  outcome_ = std::move(o);
  return true;
}

void unit_transfer::announce(bool changed) {
  if (!changed) return;
  book_->advanced.notify_all();
  std::function<void()> wake;
  {
    const std::lock_guard lock{book_->mutex};
    wake = book_->wake;
  }
  if (wake) wake();
}

void unit_transfer::finish(outcome o) {
  bool changed = false;
  {
    const std::lock_guard lock{book_->mutex};
    changed = commit_locked(std::move(o));
  }
  announce(changed);
}

void unit_transfer::end_access(proof_source how) {
  bool changed = false;
  {
    const std::lock_guard lock{book_->mutex};
    changed = !ended_;
    if (changed) ended_ = how;
  }
  announce(changed);
}

void unit_transfer::finish_and_end(outcome o, proof_source how) {
  bool changed = false;
  {
    const std::lock_guard lock{book_->mutex};
    changed = commit_locked(std::move(o));
    if (!ended_) {
      ended_ = how;
      changed = true;
    }
  }
  announce(changed);
}

// ---- The provider ----------------------------------------------------------------------------------------

namespace {

class span_registration final : public registration {
 public:
  span_registration(std::shared_ptr<transfer_book> book, std::uintptr_t address, std::uint64_t handle)
      : book_{std::move(book)}, address_{address}, handle_{handle} {}

  void close() override {
    const std::lock_guard lock{book_->mutex};
    book_->spans.remove(address_, handle_);
  }

 private:
  const std::shared_ptr<transfer_book> book_;
  const std::uintptr_t address_;
  const std::uint64_t handle_;
};

}  // namespace

transfer_provider::transfer_provider(const char* who, provider_context context)
    : book_{std::make_shared<transfer_book>(who, std::move(context))} {
  if (!book_->context.resolver) throw std::invalid_argument{fmt::format("{}: no resolver", who)};
}

transfer_provider::~transfer_provider() { transfer_provider::on_progress({}); }

unit_counters transfer_provider::counters() const {
  return {book_->hits.load(), book_->misses.load(), book_->failures.load()};
}

result<std::unique_ptr<route>> transfer_provider::open_route(const std::string&) {
  return fail(errc::unsupported, fmt::format("{}: routes need more than one source", book_->who));
}

std::shared_ptr<unit_transfer> transfer_provider::mine(attempt& a) const {
  auto* t = dynamic_cast<unit_transfer*>(&a);
  return t != nullptr && t->belongs_to(*book_) ? t->shared_from_this() : nullptr;
}

bool transfer_provider::quiesce(attempt_list attempts) {
  const auto book = book_;  // a waiter may outlive the provider
  for (const auto& a : attempts) {
    const auto t = mine(*a);
    if (!t) return false;
    std::unique_lock lock{book->mutex};
    book->advanced.wait(lock, [&] { return t->ended_locked().has_value(); });
  }
  return true;
}

void transfer_provider::settle(attempt_list attempts) {
  const auto book = book_;
  for (const auto& a : attempts)
    if (!mine(*a)) throw std::invalid_argument{fmt::format("{}: settle of a foreign attempt", book->who)};
  for (const auto& a : attempts) {
    const auto t = mine(*a);
    std::unique_lock lock{book->mutex};
    book->advanced.wait(lock, [&] { return t->has_outcome_locked(); });
  }
}

std::unique_ptr<registration> transfer_provider::register_pool(std::uintptr_t address, std::size_t size) {
  const std::lock_guard lock{book_->mutex};
  return std::make_unique<span_registration>(book_, address, book_->spans.add(book_->who, address, size));
}

access_answer transfer_provider::poll_access(attempt& a) {
  const auto t = mine(a);
  if (!t) return {access_state::unproven, proof_source::terminal_status};
  const std::lock_guard lock{book_->mutex};
  const auto how = t->ended_locked();
  return {how ? access_state::ended : access_state::running, how.value_or(proof_source::terminal_status)};
}

void transfer_provider::on_progress(std::function<void()> wake) {
  const std::lock_guard lock{book_->mutex};
  book_->wake.swap(wake);
}

}  // namespace kvlease
