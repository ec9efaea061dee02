// What providers that move units themselves have in common: the attempt of one submission, with its outcome
// and its end of access kept apart (semantics 1), and the book of one provider in which the attempts'
// waiters, the registered spans and the counters stand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvlease/provider.hpp"
#include "src/exposure.hpp"

namespace kvlease {

/// "unit (group 0, local 3)".
std::string unit_text(const unit& u);
/// "0x7f00 + 4096".
std::string span_text(std::uintptr_t address, std::size_t size);

/// The spans that a provider has registered (semantics 2.9, 2.10). Not thread-safe.
class registered_spans {
 public:
  /// Throws std::invalid_argument, with `who` in front, for an empty span, one past the end of memory, and
  /// one that overlaps another. Returns a handle, never used twice.
  std::uint64_t add(const char* who, std::uintptr_t address, std::size_t size);
  /// Does nothing for a handle that is gone.
  void remove(std::uintptr_t address, std::uint64_t handle);
  bool covers(std::span<const std::byte> memory) const;

 private:
  struct entry {
    std::size_t size;
    std::uint64_t handle;
  };
  std::map<std::uintptr_t, entry> spans_;
  std::uint64_t last_handle_ = 0;
};

/// Shared by a provider, its attempts, its registrations and its threads, so that each may outlive the
/// others.
struct transfer_book {
  transfer_book(const char* who_, provider_context c) : who{who_}, context{std::move(c)} {}

  const char* const who;  ///< in front of every text, e.g. "memory provider"
  const provider_context context;
  std::atomic<std::uint64_t> hits{0}, misses{0}, failures{0};

  std::mutex mutex;  ///< guards what follows, and the answers of every transfer
  std::condition_variable advanced;
  std::function<void()> wake;
  registered_spans spans;
};

/// Where one unit lies, and the right to touch it that was taken at submission (semantics 8.1).
struct unit_place {
  std::span<std::byte> memory;
  touch_right right;
};

/// One submission. Providers derive from it what moves the bytes.
///
/// Counters (2.15), by how the unit ended, of fetches and publishes alike: served is a hit, not served a
/// miss, each unit of a failed attempt a failure; units of a cancelled attempt count nowhere.
class unit_transfer : public attempt,
                      public cancellable_attempt,
                      public std::enable_shared_from_this<unit_transfer> {
 public:
  unit_transfer(std::shared_ptr<transfer_book> book, direction way, const cache_extent& extent);

  std::optional<outcome> poll() final;
  /// Sets cancel_asked(); providers look at it where they can stop.
  cancel_disposition request_cancel() override;

  /// Finds each unit's memory, which must be registered, and takes the rights. Why it can't, or empty.
  std::optional<std::string> prepare();

  /// The first outcome is the outcome (2.3); a later one is dropped. Wakes who waits. May be called before or
  /// after end_access(): it proves nothing.
  void finish(outcome o);
  /// No byte of the units' memory will be touched any more, ever. Wakes who waits.
  void end_access(proof_source how = proof_source::terminal_status);
  void finish_and_end(outcome o, proof_source how = proof_source::terminal_status);

  bool cancel_asked() const noexcept { return cancel_.load(std::memory_order_relaxed); }
  bool belongs_to(const transfer_book& b) const noexcept { return book_.get() == &b; }
  direction way() const noexcept { return way_; }
  const cache_extent& extent() const noexcept { return extent_; }
  const unit& unit_at(std::size_t i) const { return extent_.units()[i]; }
  /// One for each unit, in their order, once prepare() has answered well.
  const std::vector<unit_place>& places() const noexcept { return places_; }
  transfer_book& book() const noexcept { return *book_; }

  /// Say it right before bytes of the unit's memory move.
  void touch(std::size_t i, touch_kind kind) const;

  /// With the book's lock held.
  bool has_outcome_locked() const noexcept { return outcome_.has_value(); }
  std::optional<proof_source> ended_locked() const noexcept { return ended_; }

 private:
  bool commit_locked(outcome o);
  void announce(bool changed);

  const std::shared_ptr<transfer_book> book_;
  const direction way_;
  const cache_extent extent_;
  std::vector<unit_place> places_;
  std::atomic<bool> cancel_{false};
  std::optional<outcome> outcome_;     ///< under the book's lock
  std::optional<proof_source> ended_;  ///< likewise
};

/// The part of a provider that is the same whoever moves the bytes. `start()` gets prepared transfers.
///
/// Threads: any call on any thread. `wake` runs outside every lock; one that is under way when it is replaced
/// may still finish.
class transfer_provider : public provider,
                          public fetches,
                          public publishes,
                          public registers_pools,
                          public pollable,
                          public notifies {
 public:
  /// Throws std::invalid_argument without resolver. `who`: a literal.
  transfer_provider(const char* who, provider_context context);
  /// Takes the wake back. Derived classes stop their own work first.
  ~transfer_provider() override;
  transfer_provider(const transfer_provider&) = delete;
  transfer_provider& operator=(const transfer_provider&) = delete;

  unit_counters counters() const override;
  fetches* as_fetches() override { return this; }
  publishes* as_publishes() override { return this; }
  registers_pools* as_registers_pools() override { return this; }
  pollable* as_pollable() override { return this; }
  notifies* as_notifies() override { return this; }

  /// Always unsupported here: there is one source.
  result<std::unique_ptr<route>> open_route(const std::string& hint) override;
  /// Waits until access has ended, however long. An attempt of another provider is never proven.
  bool quiesce(attempt_list attempts) override;
  /// Throws std::invalid_argument for an attempt of another provider.
  void settle(attempt_list attempts) override;
  std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) override;
  access_answer poll_access(attempt& a) override;
  void on_progress(std::function<void()> wake) override;

 protected:
  const std::shared_ptr<transfer_book>& book() const noexcept { return book_; }
  /// Null for an attempt of another provider.
  std::shared_ptr<unit_transfer> mine(attempt& a) const;

 private:
  const std::shared_ptr<transfer_book> book_;
};

}  // namespace kvlease
