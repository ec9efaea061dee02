// The provider port: what a transfer or store backend implements (semantics 2, scenarios 1.7-1.14).
// Capabilities are interfaces; a provider says which it has through the as_*() accessors, so that a
// decorator can offer exactly what the provider behind it offers.
//
// Threads: every call is made on a worker, never on an actor's thread, and calls may overlap, also on one
// attempt. Exceptions are allowed here and nowhere above: `submission_rejected` means that nothing escaped,
// any other exception out of fetch/publish means that something may have.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "messages/contract.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// Certifies that nothing escaped: no work started, no peer notified, no memory touched (semantics 2.2).
class submission_rejected : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One submission whose effects escaped.
class attempt {
 public:
  virtual ~attempt() = default;
  /// Never blocks. Empty while pending; afterwards the same outcome for ever (semantics 2.3).
  virtual std::optional<outcome> poll() = 0;
};

/// An attempt that can be asked to stop (semantics 2.12): non-blocking, idempotent, proves nothing.
class cancellable_attempt {
 public:
  virtual ~cancellable_attempt() = default;
  virtual cancel_disposition request_cancel() = 0;
};

/// Works on any attempt: `unsupported` for one that is not cancellable.
cancel_disposition request_cancel(attempt& a);

/// A per-request source plan (semantics 2.7). If close() throws, the route is still open.
class route {
 public:
  virtual ~route() = default;
  virtual void close() = 0;
};

/// One registered span (semantics 2.9). close() is idempotent by handle; if it throws, the span stays
/// registered and the same handle is retried. It neither waits for nor proves the end of access.
class registration {
 public:
  virtual ~registration() = default;
  virtual void close() = 0;
};

using attempt_list = std::span<const std::shared_ptr<attempt>>;

/// What fetching and publishing providers share.
class deliveries {
 public:
  virtual ~deliveries() = default;
  /// May block. True: none of the listed attempts will ever touch caller memory again. False: this can't
  /// be established now, and waiting longer promises nothing (semantics 2.4).
  virtual bool quiesce(attempt_list attempts) = 0;
  /// Blocks without bound until each listed attempt has an outcome. No actor's thread calls it (2.5).
  virtual void settle(attempt_list attempts) = 0;
};

class fetches : public virtual deliveries {
 public:
  virtual std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) = 0;
  /// Advisory: which of `names` would hit, or empty when it can't be told more cheaply than by a fetch.
  virtual std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) = 0;
  /// Errors: unsupported on a single-source provider, invalid for a bad hint.
  virtual result<std::unique_ptr<route>> open_route(const std::string& hint) = 0;
};

class publishes : public virtual deliveries {
 public:
  virtual std::shared_ptr<attempt> publish(const cache_extent& extent) = 0;
};

class registers_pools {
 public:
  virtual ~registers_pools() = default;
  /// Throws and registers nothing when `address..+size` overlaps a live registration or can't be registered.
  virtual std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) = 0;
};

/// An answer about one attempt's access, with where it comes from when it is `ended`.
struct access_answer {
  access_state state = access_state::running;
  proof_source source = proof_source::terminal_status;
};

/// Optional: the end of access can be asked, attempt by attempt, without blocking (semantics 2.4).
class pollable {
 public:
  virtual ~pollable() = default;
  virtual access_answer poll_access(attempt& a) = 0;
};

/// Optional: proofs beyond `terminal_status` that must be asked for, as they cost other work
/// (architecture.md, "Proof has a source"). For an access that does not end by itself: its outcome has been
/// given already.
class proof_rungs {
 public:
  virtual ~proof_rungs() = default;
  /// In the order in which to try them; never `terminal_status`.
  virtual std::vector<proof_source> rungs() const = 0;
  /// Starts one rung for one attempt; again and for an attempt whose access has ended it does nothing. Waits
  /// for no proof: poll_access() answers `ended` with the rung as its source, once it is one. Answers the
  /// other attempts of this provider that it takes down: each has failed already, and its access ends by a
  /// proof of its own. For a rung that is not offered, or an attempt of another provider: nothing, and
  /// nothing happens.
  virtual std::vector<std::shared_ptr<attempt>> climb(attempt& a, proof_source rung) = 0;
};

/// Optional: the provider says when some attempt has advanced, so that nobody has to ask on a timer.
/// `wake` may be called on any thread, and any number of times; an empty function takes it back.
class notifies {
 public:
  virtual ~notifies() = default;
  virtual void on_progress(std::function<void()> wake) = 0;
};

/// Required of every provider (semantics 2.15): units, by how they ended.
struct unit_counters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t failures = 0;
  friend bool operator==(const unit_counters&, const unit_counters&) = default;
};

class provider {
 public:
  virtual ~provider() = default;
  virtual std::string describe() const = 0;
  virtual unit_counters counters() const = 0;
  virtual fetches* as_fetches() { return nullptr; }
  virtual publishes* as_publishes() { return nullptr; }
  virtual registers_pools* as_registers_pools() { return nullptr; }
  virtual pollable* as_pollable() { return nullptr; }
  virtual notifies* as_notifies() { return nullptr; }
  virtual proof_rungs* as_proof_rungs() { return nullptr; }
};

/// Where a unit's bytes lie: (local_group, local) -> a span of staging memory. Immutable, thread-safe.
class local_resolver {
 public:
  /// `part_of_group[g]` is the index into `parts` of local group g.
  local_resolver(std::vector<part> parts, std::vector<std::size_t> part_of_group)
      : parts_{std::move(parts)}, part_of_group_{std::move(part_of_group)} {}
  /// Empty for coordinates outside the parts.
  std::optional<std::span<std::byte>> resolve(std::int64_t local_group, std::int64_t local) const noexcept;
  const std::vector<part>& parts() const noexcept { return parts_; }

 private:
  std::vector<part> parts_;
  std::vector<std::size_t> part_of_group_;
};

/// Runs jobs on threads that may block, and later. Tests put virtual time behind it.
class executor {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  virtual ~executor() = default;
  virtual void post(std::function<void()> job) = 0;
  virtual void post_after(std::chrono::nanoseconds delay, std::function<void()> job) = 0;
  virtual time_point now() const = 0;
};

class touch_table;

/// What a provider is given when it is opened for one runtime.
struct provider_context {
  std::shared_ptr<const local_resolver> resolver;
  std::shared_ptr<executor> exec;        ///< for a provider's own background work
  std::shared_ptr<touch_table> touches;  ///< may be null; see src/exposure.hpp, semantics 8.1
};

}  // namespace kvlease
