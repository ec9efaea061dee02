// The one thread that owns UCX's objects: it alone calls UCX, sleeps on event descriptors, and runs what
// other threads post. UCX's callbacks run on it, from inside progress.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "messages/error.hpp"
#include "src/providers/ucx/options.hpp"

namespace kvlease {

/// "Endpoint timeout", as UCX words it.
std::string ucx_text(ucs_status_t status);

/// A worker, its event descriptor, and the endpoints of it that are being closed. Of the loop's thread alone.
class ucx_worker {
 public:
  static result<std::unique_ptr<ucx_worker>> make(ucp_context_h context);
  ~ucx_worker();  ///< UCX's own; no request may be open
  ucx_worker(const ucx_worker&) = delete;
  ucx_worker& operator=(const ucx_worker&) = delete;

  ucp_worker_h get() const noexcept { return worker_; }
  int descriptor() const noexcept { return descriptor_; }
  /// Bytes of a message's header, at most.
  std::size_t max_header() const noexcept { return max_header_; }
  /// False: something happened already, progress first.
  bool arm() const { return ucp_worker_arm(worker_) != UCS_ERR_BUSY; }
  /// Messages with this id go to `take`, whole, on the loop's thread.
  ucs_status_t receive(unsigned id, ucp_am_recv_callback_t take, void* argument);
  /// Until nothing is left to do now; whether there was anything.
  bool progress();
  /// Closes by force: operations of the endpoint end in later progress, each with its own callback. That this
  /// returns proves nothing about memory.
  void close_endpoint(ucp_ep_h endpoint);
  /// No endpoint is being closed any more.
  bool all_closed() const noexcept { return closing_.empty(); }

 private:
  ucx_worker() = default;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::size_t max_header_ = 0;
  std::vector<void*> closing_;  ///< requests
};

/// Two workers, so that who connects to the listener reaches no handler that writes to leased memory:
/// `serving` knows questions only, `fetching` replies only.
class ucx_loop {
 public:
  struct hooks {
    std::function<void()> after_progress;  ///< once a round
    std::function<bool()> idle;            ///< asked after close(): nothing is open any more
  };
  /// Errors: provider, with UCX's reason.
  static result<std::unique_ptr<ucx_loop>> make(const ucx_options& options);
  /// stop() must have been called if start() was.
  ~ucx_loop();
  ucx_loop(const ucx_loop&) = delete;
  ucx_loop& operator=(const ucx_loop&) = delete;

  void start(hooks h);
  /// Any thread. False once it is stopping: the task will not run.
  bool post(std::function<void()> task);
  /// Runs `last` on the thread, then makes progress until nothing is open or has happened for a moment, at
  /// most for `bound`, and joins the thread. False: something is still open, so UCX's objects are left as
  /// they are, for good, and nobody progresses them.
  bool stop(std::function<void()> last, std::chrono::milliseconds bound);

  ucx_worker& serving() noexcept { return *serving_; }
  ucx_worker& fetching() noexcept { return *fetching_; }

 private:
  ucx_loop() = default;
  void run();
  bool run_tasks();
  void sleep();
  void wake() const;

  ucp_context_h context_ = nullptr;
  std::unique_ptr<ucx_worker> serving_, fetching_;
  std::chrono::microseconds spin_{0};
  int posted_ = -1;  ///< an eventfd
  hooks hooks_;
  std::thread thread_;
  std::mutex mutex_;  ///< guards what follows
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point give_up_;
  bool clean_ = true;  ///< of the thread, until it is joined
};

}  // namespace kvlease
