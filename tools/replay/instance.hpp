// One serving instance of a replay: a manager with its pages, a runtime, and a provider over what all
// instances share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "src/include/kvlease/runtime.hpp"
#include "src/names.hpp"
#include "src/providers/fault_provider.hpp"
#include "tools/replay/gate.hpp"
#include "tools/replay/options.hpp"

namespace kvlease::replay {

/// How many pages requests may ask for: who admits more than fits would wait for itself.
class page_budget {
 public:
  explicit page_budget(std::size_t pages) : free_{pages} {}
  void take(std::size_t n) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return free_ >= n; });
    free_ -= n;
  }
  void give(std::size_t n) {
    const std::lock_guard lock{mutex_};
    free_ += n;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t free_;
};

struct instance {
  std::unique_ptr<identity> names;  ///< what the engine itself would call its blocks
  std::shared_ptr<gate_book> gates = std::make_shared<gate_book>();
  std::shared_ptr<fault_provider> faults;
  std::unique_ptr<page_budget> budget;
  std::string device;  ///< what it says of itself
  std::unique_ptr<runtime> lender;
};

/// Errors: as runtime::start. `on_fatal` is called on a thread of the instance's own.
result<std::unique_ptr<instance>> make_instance(const replay_plan& plan, std::size_t number,
                                                std::function<void(const fatal_record&)> on_fatal);

}  // namespace kvlease::replay
