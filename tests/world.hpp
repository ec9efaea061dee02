// A whole runtime under CAF's deterministic scheduler, on virtual time: the production actors, unchanged, a
// scripted provider and a stream that the test can hold. No CAF type here, so that test files stay light.
//
// Nothing runs by itself: each call that sends something also runs everything until all is quiet, unless
// `step_by_hand` is set. Time moves by advance() only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/host_device.hpp"
#include "messages/inspection.hpp"
#include "messages/operation.hpp"
#include "messages/report.hpp"
#include "messages/retirement.hpp"
#include "messages/staging.hpp"
#include "src/journal_check.hpp"
#include "src/ledger.hpp"
#include "src/paged_manager.hpp"
#include "tests/device_bench.hpp"
#include "tests/scripted_provider.hpp"

namespace kvlease::test {

using namespace std::chrono_literals;

struct world_options {
  std::int64_t tokens_per_block = 4;
  std::int64_t page_bytes = 64;
  std::int64_t pages = 64;
  std::int64_t slots = 8;
  bool reuse = false;
  scripted_options provider;
  /// Instead of the scripted provider. world::provider is null then.
  std::function<std::shared_ptr<kvlease::provider>(const provider_context&)> open_provider;
  std::chrono::duration<double> timeout{5.0};  ///< T: of operations and registrations
  std::size_t max_operations = 1024, max_waiting_leases = 1024, max_queued_submissions = 1024;
  bool hold_stream = false;
  std::shared_ptr<device_bench> bench;  ///< absent: the host stand-in, inline
  bool start = true;                    ///< register the parts
  bool step_by_hand = false;            ///< calls send only; run(), step() or run_random() does the rest
  std::string backend_revision = "scripted-1";
  /// Off where the test sends what no actor would: its journal breaks rules then.
  bool check_journal = true;
  std::size_t journal_records = 65'536;  ///< 0: no journal
  std::vector<proof_source> proof_rungs;
};

/// All that the host heard of one operation, in order.
struct heard {
  std::vector<std::string> events;  ///< "outcome ...", "released", "retained ...", "retained for good ..."
  std::optional<outcome> value;
  int outcomes = 0, releases = 0, retentions = 0;
  bool final = false;
  operation_times times;
};

/// What the host heard of one lease.
struct lease_heard {
  std::shared_ptr<const region_view> view;
  std::optional<error> failure;
};

class world {
 public:
  explicit world(world_options options = {});
  ~world();
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  // ---- time and scheduling
  void run();                                 ///< until nothing is ready; time stands still
  void advance(std::chrono::nanoseconds by);  ///< fires every timer at its own time
  time_point now() const;
  std::size_t ready() const;  ///< actors with a message to take
  /// The `i`-th ready actor takes its next message; its name and the message type go into trace().
  void step(std::size_t i = 0);
  /// Seeded interleaving of everything that is ready; time moves to the next timer when nothing is, at most
  /// until `until`.
  void run_random(std::uint64_t seed, std::chrono::nanoseconds until);
  const std::vector<std::string>& trace() const;

  // ---- the host
  /// A request whose prompt is `first`, `first`+1, ...; errors fail the test.
  request_id admit(std::int64_t tokens, std::uint32_t first = 1);
  result<lease_id> lend(direction way, request_id request, token_range range,
                        std::optional<std::chrono::nanoseconds> wait_at_most = std::nullopt);
  result<operation_id> submit(direction way, lease_id lease, request_id request,
                              std::optional<owner_id> owner = std::nullopt,
                              std::optional<std::chrono::duration<double>> timeout = std::nullopt);
  /// Lends `blocks` blocks from the start and submits; errors fail the test.
  operation_id fetch(request_id request, std::int64_t blocks = 2);
  /// Computes and commits `blocks` blocks (byte = fill), lends them for reading, submits.
  operation_id publish(request_id request, std::int64_t blocks = 2, std::byte fill = std::byte{0x5a});
  /// Writes `blocks` blocks of pages with `fill` and commits them.
  void compute(request_id request, std::int64_t blocks, std::byte fill);
  result<request_info> commit(request_id request, std::int64_t end, event_handle written = 0);
  result<void> cancel(operation_id op, cancelled_by who = cancelled_by::local);
  result<void> cancel_directly(operation_id op);  ///< at the arbiter
  result<void> retry_proof(operation_id op);
  result<void> free(request_id request);
  result<void> withdraw(lease_id lease);
  result<owner_id> create_owner(request_id request, std::chrono::duration<double> timeout);
  result<std::optional<readiness>> ready_from(request_id request);
  result<request_info> grow(request_id request, std::int64_t end);
  result<request_info> describe(request_id request);
  /// Bytes of one page of the request.
  std::vector<std::byte> page(request_id request, std::int64_t block);
  slot_counts slots();
  result<void> start();
  /// One call of the adapter's close: closed, and what it waits for.
  std::pair<bool, std::vector<std::string>> close_adapter();
  /// The supervisor's shutdown; time moves by at most `bound`.
  stop_report stop(std::chrono::nanoseconds bound = 1s);
  result<route_id> open_route(const std::string& hint);
  result<void> close_route(route_id route);
  result<void> close_admission();
  result<void> stop_arbiter();
  result<snapshot> look();
  std::uint64_t exposure_bytes();  ///< after a look at the paint
  std::uint64_t touch_exposure() const;
  std::uint64_t paint_exposure();

  const heard& of(operation_id op);
  const lease_heard& of(lease_id lease);
  /// A figure of an actor's report, -1 when there is none.
  std::int64_t figure(actor_kind kind, const std::string& name);
  const std::optional<fatal_record>& fatal() const;
  int containments() const;  ///< calls of the containment callback

  // ---- inspection
  explanation why(subject_kind kind, const std::string& id);
  inspection_snapshot inspect(std::size_t limit = 10'000);
  inspection_metrics metrics() const;
  health state(std::chrono::nanoseconds budget = 60s) const;
  std::vector<journal_record> records() const;
  /// What the records say of the rules; the destructor checks it too.
  journal_verdict verdict() const;
  /// For what sends messages that no actor would: its journal breaks rules.
  void skip_journal_check();

  // ---- the machinery
  std::shared_ptr<scripted_provider> provider;
  std::shared_ptr<host_device> device;  ///< null on a GPU
  std::shared_ptr<device_bench> bench;
  std::shared_ptr<ledger> roots;
  paged_manager* manager = nullptr;
  const std::vector<part>& parts() const;
  /// Jobs for workers wait while true: a provider that is stuck in a call (or too few workers).
  void hold_workers(bool submit, bool proof);
  /// So many posts to the workers throw: there is no thread to be had.
  void refuse_jobs(int submit, int proof);
  /// Runs one held job of the submit workers; false when none is held.
  bool run_one_submit_job();
  void kill(actor_kind kind);
  bool alive(actor_kind kind);
  /// Reaches into the runtime with the messages of messages/: see tests/inject.hpp.
  struct inside;
  inside& in() { return *inside_; }

 private:
  std::unique_ptr<inside> inside_;
};

}  // namespace kvlease::test
