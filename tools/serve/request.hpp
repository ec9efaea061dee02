// One request to the service, and its life on an instance: reuse what is there, fetch what others published,
// compute the rest, publish that, exit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/thread_pool.hpp"
#include "tools/replay/instance.hpp"
#include "tools/serve/drill_device.hpp"
#include "tools/serve/options.hpp"

namespace kvlease::serve {

/// For tests and drills of operators: makes a state last that is short otherwise.
struct request_drill {
  std::chrono::nanoseconds keep_lease{};  ///< between a fetch's lease and its submission
  std::chrono::nanoseconds read_guard{};  ///< a read guard on the fetch's lease
  std::chrono::nanoseconds copy{};        ///< the copy of what was fetched
  bool lose_copy = false;                 ///< its end is never known
};

struct request_ask {
  std::vector<std::uint32_t> tokens;
  std::optional<std::uint64_t> salt;
  std::optional<std::size_t> instance;
  std::optional<transfer_timeout> timeout;
  request_drill drill;
};

/// Errors: invalid, with the member and the rule.
result<request_ask> parse_request(std::string_view body, const serve_plan& plan);

struct request_answer {
  std::string request;  ///< its id
  std::size_t instance = 0;
  std::int64_t prompt_blocks = 0;
  std::int64_t hit_blocks = 0;         ///< of the instance's own pages
  std::uint64_t fetched_blocks = 0;    ///< served by the provider, copied and checked
  std::uint64_t published_blocks = 0;  ///< accepted by the provider
  std::uint64_t wrong_blocks = 0;      ///< fetched, but not what their names say
  struct operation {
    std::string id;
    direction way;
    std::string outcome;
  };
  std::vector<operation> operations;
  double seconds = 0;
};
std::string to_json(const request_answer& a);

/// What the requests of a service share. Thread-safe.
class request_floor {
 public:
  request_floor(const serve_plan& p, std::size_t pages) : plan{p}, free_{pages} {}
  /// Waits for pages; false: the service ends first.
  bool take(std::size_t n);
  void give(std::size_t n);
  /// From now on requests give up at the next step.
  void end();
  bool ended() const { return ended_; }

  const serve_plan& plan;
  std::atomic<std::uint64_t> wrong{0};
  std::shared_ptr<drill_device> device;  ///< null without drills
  thread_pool timer{"kvl-serve", 1, std::chrono::milliseconds{200}};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t free_;
  std::atomic<bool> ended_{false};
};

/// Blocks until the request has exited; its memory may still wait for proofs. Errors: those of the runtime;
/// state when the service ends meanwhile, or when the memory that was fetched into is kept.
result<request_answer> run_request(request_floor& floor, replay::instance& on, std::size_t instance,
                                   const request_ask& ask);

}  // namespace kvlease::serve
