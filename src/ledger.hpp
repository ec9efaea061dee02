// The ledger (semantics 7.3): the roots of all memory that may still be touched, owned by the runtime and
// outside every actor, because an actor's state is destroyed with it. Actors and messages carry ids.
// Nothing leaves on its own: an operation's roots go only against a settle token of the arbiter, a
// registration's once its close has succeeded, an unowned lease's when the lender takes it back.
// Thread-safe; one mutex, held for table work only, never while anything foreign is called.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "messages/operation.hpp"
#include "messages/staging.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/provider.hpp"

namespace kvlease {

/// Decides between a worker that enters the provider's call and whoever takes the submission back (5.3).
class submission_token {
 public:
  /// queued → entered; the worker, right before the call.
  bool enter() noexcept { return move_to(entered); }
  /// queued → withdrawn: proof that nothing was submitted.
  bool withdraw() noexcept { return move_to(withdrawn); }

 private:
  static constexpr int queued = 0, entered = 1, withdrawn = 2;
  bool move_to(int to) noexcept {
    int expected = queued;
    return state_.compare_exchange_strong(expected, to);
  }
  std::atomic<int> state_{queued};
};

class ledger;

/// Keeps a lease's slots while its holder reads them (1.4). Movable; may outlive the runtime.
class read_guard {
 public:
  read_guard() = default;
  read_guard(std::shared_ptr<ledger> of, lease_id lease, std::shared_ptr<const region_view> view)
      : of_{std::move(of)}, lease_{lease}, view_{std::move(view)} {}
  read_guard(read_guard&& o) noexcept = default;
  read_guard& operator=(read_guard&& o) noexcept;
  ~read_guard() { drop(); }

  const region_view& view() const noexcept { return *view_; }
  explicit operator bool() const noexcept { return of_ != nullptr; }
  void drop();

 private:
  std::shared_ptr<ledger> of_;
  lease_id lease_;
  std::shared_ptr<const region_view> view_;
};

class ledger : public std::enable_shared_from_this<ledger> {
 public:
  // ---- leases: rooted by the lender once they are ready
  void root_lease(lease_id lease, direction way, request_id request, std::shared_ptr<const region_view> view);
  /// One operation owns a lease. Errors: unknown "not ready"; state "already owned"; invalid for the wrong
  /// direction or another request's lease.
  result<std::shared_ptr<const region_view>> claim_lease(lease_id lease, operation_id by, direction way,
                                                         request_id request);
  /// The submission failed its checks: the lease is its holder's again (5.2).
  void unclaim_lease(lease_id lease, operation_id by);
  /// Errors: unknown; state when an operation owns it or a read guard is open.
  result<void> withdraw_lease(lease_id lease);

  // ---- read guards
  /// Errors: unknown; state once the lease is finishing.
  result<read_guard> guard(lease_id lease);
  /// How many are open.
  std::size_t guards(lease_id lease) const;
  /// No new guard from now on; answers how many are open. When the last of them goes, `gone` is told.
  std::size_t begin_finish(lease_id lease);
  void on_guards_gone(std::function<void(lease_id)> gone);

  // ---- operations
  void root_operation(operation_id op, lease_id lease, std::shared_ptr<const cache_extent> extent);
  std::shared_ptr<const cache_extent> extent(operation_id op) const;
  std::shared_ptr<submission_token> token(operation_id op) const;
  void root_attempt(operation_id op, std::shared_ptr<attempt> a);
  std::shared_ptr<attempt> attempt_of(operation_id op) const;
  /// The operations whose attempts these are; what is none's is left out.
  std::vector<operation_id> operations_of(const std::vector<std::shared_ptr<attempt>>& attempts) const;
  /// Erases the operation and its lease. False when there is no such operation (any more).
  bool erase(const settle_token& token);

  // ---- routes: rooted by the backend, gone once their close has succeeded
  void root_route(route_id id, std::shared_ptr<route> r);
  std::shared_ptr<route> route_of(route_id id) const;
  void route_closed(route_id id);

  // ---- registrations
  void root_registration(registration_id id, std::shared_ptr<registration> handle);
  std::shared_ptr<registration> registration_of(registration_id id) const;
  void registration_closed(registration_id id);

  // ---- memory, and whatever must live as long as it
  void root_memory(std::shared_ptr<memory_block> block);
  void root_keepalive(std::shared_ptr<void> thing);
  /// The memory may go from now on: free_memory() gives it back, or the ledger's end. Errors: state, with
  /// what is left; nothing is let go.
  result<void> release_memory();
  /// Gives back what was released. May wait for a device: on no actor's thread.
  void free_memory();

  /// A line for each root but the memory: what keeps it mapped.
  std::vector<std::string> rest() const;
  std::size_t operations() const;

 private:
  friend class read_guard;
  void drop_guard(lease_id lease);

  struct lease_entry {
    direction way;
    request_id request;
    std::shared_ptr<const region_view> view;
    operation_id owner;
    std::size_t guards = 0;
    bool finishing = false;
  };
  struct operation_entry {
    lease_id lease;
    std::shared_ptr<const cache_extent> extent;
    std::shared_ptr<submission_token> token;
    std::shared_ptr<attempt> handle;
  };
  std::vector<std::string> rest_locked() const;

  mutable std::mutex mutex_;
  std::unordered_map<lease_id, lease_entry> leases_;
  std::unordered_map<operation_id, operation_entry> operations_;
  std::unordered_map<registration_id, std::shared_ptr<registration>> registrations_;
  std::unordered_map<route_id, std::shared_ptr<route>> routes_;
  std::vector<std::shared_ptr<memory_block>> memory_, released_;
  std::vector<std::shared_ptr<void>> keepalive_;
  std::function<void(lease_id)> guards_gone_;
};

/// Keeps what a runtime could not release, for the rest of the process (6.7). Answers how many are kept.
std::size_t leave_mapped(std::shared_ptr<ledger> kept);

}  // namespace kvlease
