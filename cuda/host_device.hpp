// The device of a machine without a GPU: host memory, one stream that copies it, the same events and failures
// as cuda/cuda_device.hpp. With switches for tests to hold the stream and to make calls fail.
//
// Threads: as the port says: one thread enqueues, records, queries and recycles. The switches and the figures
// (fail_*, hold, open, run, ...) may be used from any thread. In the mode `threaded` a debug build asserts
// that the calls of the port come from the thread that bind_thread() was called on, if it was.
// The destructor drops queued work that has not run: neither its copies nor its events ever happen. It waits
// for the row being copied at most.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "messages/error.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease {

enum class host_stream : std::uint8_t {
  threaded,  ///< one worker thread runs the work in order; enqueue returns at once
  inline_,   ///< work runs inside enqueue and record
  manual,    ///< inline_ that starts held: nothing runs until run() or open()
};

class host_device final : public device_port {
 public:
  explicit host_device(host_stream mode = host_stream::threaded);
  ~host_device() override;
  host_device(const host_device&) = delete;
  host_device& operator=(const host_device&) = delete;

  std::string describe() const override;
  /// 4 KiB aligned, zero-filled. Errors: invalid for 0 bytes; no_memory with the size.
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t nbytes) override;
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t nbytes) override;
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t address, std::size_t nbytes) override;

  bool reaches(std::uintptr_t address, std::size_t nbytes) const override;

  /// Errors: state when `threaded` and another thread is bound.
  result<void> bind_thread() override;
  /// Errors: invalid for no batch, a null address in a row or an event to wait for that mark() did not make,
  /// with nothing queued; capacity by set_room(); device by fault.
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override;
  /// Copies of both kinds share the stream here. Errors: device by fault, with nothing recorded.
  result<device_event> record(copy_kind kind) override;
  /// Errors: unknown for an event that was not recorded here or was recycled; device by fault.
  result<event_state> query(device_event e) override;
  /// An event that was not seen complete is left as it is, and counted in bad_recycles().
  void recycle(device_event e) override;
  std::optional<error> lost() const override;

  // The host's own work on the manager's stream, for tests. Any thread.

  void launch(std::function<void()> work);
  /// An event behind all that is queued now, for batches to wait for. There is one stream, so they do anyway.
  event_handle mark();

  // Faults, for tests. Each strikes once, at the next such call, and then counts as struck.

  /// Queues the first `after_rows` rows of the next batch (all, if it is shorter), then fails.
  void fail_next_enqueue(std::size_t after_rows);
  void fail_next_record();
  /// The event asked about stays in error for ever.
  void fail_next_query();
  /// For ever: every call from now on fails, as after a sticky error of CUDA.
  void lose();
  std::uint64_t faults_struck() const;

  // The stream, for tests. Work is what was queued: one batch or one event.

  /// Once it has returned, no work runs until open(), except by run().
  void hold();
  /// reaches() says no from now on, as a GPU does for pageable memory.
  void reach_nothing();
  /// At most this many works are queued at once; the next enqueue answers capacity. Default: no bound.
  void set_room(std::size_t works);
  /// Lets work run again: at once on the calling thread, or on the worker.
  void open();
  /// Runs the oldest `n` held works, or all if there are fewer, on the calling thread; answers how many.
  std::size_t run(std::size_t n);

  std::size_t queued() const;  ///< works that have not started
  std::uint64_t rows_copied() const;
  std::size_t live_events() const;  ///< recorded and not recycled
  std::uint64_t bad_recycles() const;

 private:
  struct work {
    std::shared_ptr<const copy_batch> batch;  ///< absent: an event
    std::size_t rows = 0;                     ///< of the batch, from its first
    std::uint64_t event = 0;
    std::function<void()> call;  ///< the host's own
  };
  enum class event_memory : std::uint8_t { recorded, seen_complete, in_error };
  using lock = std::unique_lock<std::mutex>;

  void push(lock& held, work w);
  /// Takes the oldest work and runs it without the lock. Precondition: not busy, something queued.
  void run_one(lock& held);
  void drain_here(lock& held);
  void copy(const work& w);
  void worker();
  void check_thread() const;

  const host_stream mode_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<work> queue_;
  bool held_ = false;
  bool busy_ = false;  ///< a work is running, so none other may
  std::uint64_t recorded_ = 0;
  std::unordered_map<std::uint64_t, event_memory> events_;
  bool fail_enqueue_ = false;
  std::size_t fail_after_rows_ = 0;
  bool fail_record_ = false;
  bool fail_query_ = false;
  bool lost_ = false;
  std::size_t room_ = std::numeric_limits<std::size_t>::max();
  std::atomic<bool> reaches_{true};
  event_handle marks_ = 0;
  std::uint64_t struck_ = 0;
  std::uint64_t bad_recycles_ = 0;

  std::uint64_t completed_ = 0;  ///< the last event that the stream has passed

  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rows_copied_{0};
  std::atomic<std::thread::id> bound_{};
  std::thread thread_;
};

}  // namespace kvlease
