// A host service that embeds some runtimes: takes requests over HTTP, and shows the runtimes' inspection.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/serve/http_server.hpp"
#include "tools/serve/inspection_routes.hpp"
#include "tools/serve/job_queue.hpp"
#include "tools/serve/request.hpp"

namespace kvlease::serve {

/// How the drain of one runtime ended.
struct runtime_drain {
  bool stopped = false;               ///< nothing is retained
  std::vector<std::string> retained;  ///< a line for each thing that is
  std::uint64_t wrong_blocks = 0;
  std::uint64_t exposure_bytes = 0;
  std::string faults;  ///< that struck: "hang 3, late 1"; "" for none
  double seconds = 0;
};

struct drain_report {
  std::vector<runtime_drain> runtimes;
  std::size_t requests_open = 0;  ///< their threads are stuck

  /// Everything has ended, and nothing was wrong.
  bool good() const {
    return requests_open == 0 && std::ranges::all_of(runtimes, [](const runtime_drain& r) {
             return r.stopped && r.wrong_blocks == 0 && r.exposure_bytes == 0;
           });
  }
};

class host_service {
 public:
  /// `on_fatal` is called once an instance, on a thread of its own. Errors: as runtime::start and
  /// http_server.
  static result<std::unique_ptr<host_service>> start(
      const serve_plan& plan, std::function<void(std::size_t instance, const fatal_record&)> on_fatal);
  ~host_service();
  host_service(const host_service&) = delete;
  host_service& operator=(const host_service&) = delete;

  std::uint16_t tcp_port() const { return server_->tcp_port(); }
  std::string device() const { return instances_.front()->device; }

  /// Takes no more requests, lets those that run end, stops the runtimes, all at once, each in the order of
  /// semantics 6.7. Answers meanwhile what it is asked by GET.
  drain_report drain();

 private:
  using steady = std::chrono::steady_clock;
  host_service(const serve_plan& plan);
  runtime_drain drain_one(std::size_t instance);
  std::optional<inspect::drain_note> draining();
  void handle(const http_request& request, const http_reply& reply);
  void take_request(const http_request& request, const http_reply& reply);

  serve_plan plan_;
  std::vector<std::unique_ptr<replay::instance>> instances_;
  std::unique_ptr<inspection_routes> routes_;
  std::vector<std::unique_ptr<request_floor>> floors_;  ///< one an instance
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> draining_{false}, fatal_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_ = 0;   ///< requests, waiting or running
  bool evidence_ = false;  ///< a drain waits for it; before, for requests
  steady::time_point drain_until_;
  std::unique_ptr<job_queue> requests_;
  std::unique_ptr<http_server> server_;
};

}  // namespace kvlease::serve
