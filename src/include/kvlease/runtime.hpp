// kvlease for any host: one object, plain calls, no CAF type (architecture, "Embedding").
//
// A runtime lends staging memory of one manager to one provider. Calls return futures that are ready within
// `answer_within`; what becomes of leases and operations comes through callbacks. Callbacks run on the
// runtime's own threads, one at a time, and must not block. All calls are thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/copies.hpp"
#include "messages/operation.hpp"
#include "messages/pages.hpp"
#include "messages/report.hpp"
#include "messages/staging.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/inspection.hpp"
#include "src/include/kvlease/manager_port.hpp"
#include "src/include/kvlease/provider.hpp"
#include "src/ledger.hpp"
#include "src/profile.hpp"

namespace kvlease {

template <class T>
using answer_of = std::future<result<T>>;

struct runtime_options {
  // ---- required
  shared_runtime_profile profile;  ///< explicit facts, validated before anything is held (semantics 3.1)
  std::shared_ptr<device_port> device;
  std::shared_ptr<manager_port> manager;
  std::function<std::shared_ptr<provider>(const provider_context&)> open_provider;
  std::vector<std::int64_t> staging_slots;  ///< one count a pool group, each at least 1
  /// The host's own staging memory, one span a pool group of at least slots times page bytes, registered
  /// with the device until the runtime has ended. Empty: the device allocates it.
  std::vector<host_span> staging_memory;
  // ---- naming
  bytes scope;  ///< at most 65,535 bytes; instances that share content share it (scenarios 6.2)
  // ---- bounds of admission (semantics 7.7), each at least 1
  std::size_t max_operations = 1024;
  std::size_t max_waiting_leases = 1024;
  std::size_t max_queued_submissions = 1024;
  // ---- threads
  std::size_t scheduler_threads = 2;
  std::size_t submit_workers = 2;    ///< provider calls at once
  std::size_t proof_workers = 1;     ///< polls and blocking proofs at once
  std::size_t provider_workers = 1;  ///< for the provider's own background work
  bool manager_blocks = false;       ///< give the manager port a thread of its own
  // ---- the proof ladder (docs/providers.md): for an access that does not end by itself
  /// Rungs that may be climbed, of those that the provider offers; none: off. One may end other operations
  /// too: those fail first, and are proven one by one.
  std::vector<proof_source> proof_rungs;
  double climb_after =
      0.5;  ///< of the grace; above 0, below 1. The rungs behind the first share what is left
  // ---- watching copies on a GPU
  std::chrono::nanoseconds spin = std::chrono::milliseconds{2};  ///< asks without a pause after progress
  /// One scheduler thread stays awake meanwhile: a copy's end is heard some 20 us earlier, for a processor.
  bool keep_awake = true;
  // ---- times
  std::chrono::nanoseconds answer_within = std::chrono::seconds{10};
  std::chrono::duration<double> shutdown_grace = std::chrono::seconds{5};  ///< for the registrations (5.8)
  // ---- the engine's own page access
  std::size_t page_access_bytes = std::size_t{16} << 20;  ///< page-locked, at least one page; 0: none
  // ---- detectors
  bool paint_slots = true;  ///< semantics 8.2
  // ---- inspection
  bool meters = true;                    ///< count and time messages, keep gauges; metrics() needs them
  bool journal = true;                   ///< keep a record of every transition, in a ring
  std::size_t journal_records = 65'536;  ///< of the ring, 64 bytes each; rounded up to a power of two
  std::string journal_file;              ///< also written here, made anew; empty: to no file
  /// How long memory may be held beyond its outcome before health() says so.
  std::chrono::nanoseconds unproven_budget = std::chrono::seconds{60};
  /// Called once, on a thread of its own, when fatal expiry is latched (4.8). Default: a line on stderr.
  std::function<void(const fatal_record&)> on_fatal;
};

/// A write lease's slots are lent, or a read lease's copy is complete; or the lease brings nothing.
struct lease_events {
  std::function<void(lease_id, std::shared_ptr<const region_view>)> ready;
  std::function<void(lease_id, const error&)> failed;
};

/// In this order: outcome once, then released or retained; retained may be followed by released unless final.
struct operation_events {
  std::function<void(const operation_outcome&)> outcome;
  std::function<void(const operation_released&)> released;
  std::function<void(const operation_retained&)> retained;
};

class runtime {
 public:
  /// Allocates staging, opens the provider, registers every part. Errors: invalid, no_memory, provider; io
  /// for the journal's file.
  static result<std::unique_ptr<runtime>> start(runtime_options options);
  /// Waits two seconds for evidence and returns within 4.5 s, whatever is stuck; what can't be proven to be
  /// out of use is left mapped, and reported on stderr.
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  // ---- requests (the manager's)
  answer_of<request_info> admit(request_spec spec);
  answer_of<request_info> describe(request_id request);
  answer_of<request_info> grow(request_id request, std::int64_t end);
  /// `written`: an event of the device, recorded on the manager's stream behind the work that wrote the
  /// blocks, so that publishes need not wait for what the stream holds beyond it. The host keeps it until the
  /// request has been freed and its leases have ended.
  answer_of<request_info> commit(request_id request, std::int64_t end, event_handle written = 0);
  answer_of<void> free(request_id request);
  /// The engine's access to the whole blocks of `range`, behind the manager's stream. `buffer` holds the rows
  /// back to back, in the order of manager_port::rows. A buffer that the device does not reach goes through
  /// staging of `page_access_bytes`.
  answer_of<void> write_pages(request_id request, token_range range,
                              std::shared_ptr<std::vector<std::byte>> buffer);
  answer_of<void> read_pages(request_id request, token_range range,
                             std::shared_ptr<std::vector<std::byte>> buffer);

  // ---- leases (the lender's)
  answer_of<lease_id> lend(direction way, request_id request, token_range range, lease_events events,
                           std::optional<std::chrono::nanoseconds> wait_at_most = std::nullopt);
  /// Gives up a lease that was not submitted. Errors: unknown, state.
  answer_of<void> withdraw(lease_id lease);
  /// Empty while a fetch of the request is unsettled.
  answer_of<std::optional<readiness>> ready_from(request_id request);
  answer_of<slot_counts> slots();
  /// Keeps the lease's slots while the host reads them (1.4). Errors: unknown, state.
  result<read_guard> guard(lease_id lease);

  // ---- operations
  /// Errors leave the lease with the caller and start no clock: invalid, state, capacity, unsupported.
  answer_of<operation_id> submit(direction way, lease_id lease, request_id request, transfer_timeout timeout,
                                 operation_events events, std::optional<route_id> along = std::nullopt);
  /// A per-request source plan for fetches (2.7). Errors: unsupported, invalid (the hint), provider.
  answer_of<route_id> open_route(std::string hint);
  /// Errors: unknown; provider when the close failed: the route is open still.
  answer_of<void> close_route(route_id route);
  answer_of<void> cancel(operation_id operation, cancelled_by who = cancelled_by::local);
  answer_of<void> retry_proof(operation_id operation);

  // ---- the runtime
  answer_of<snapshot> look();
  std::uint64_t exposure_bytes() const;  ///< what both detectors have found (semantics 8)
  /// Looks at the paint of every free slot first. Takes time by the bytes of staging.
  answer_of<std::uint64_t> check_exposure();
  std::optional<fatal_record> fatal() const;
  /// What tools see of this runtime. It may be kept longer than the runtime.
  std::shared_ptr<inspection_port> inspection() const;
  /// Closes admission and drains, in the order of semantics 6.7. May be repeated.
  stop_report stop(std::chrono::nanoseconds bound);

 private:
  struct body;
  explicit runtime(std::unique_ptr<body> b);
  std::unique_ptr<body> body_;
};

}  // namespace kvlease
