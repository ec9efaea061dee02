// Holds chosen submissions at the provider's door, so that a replay can abort a request while its operation
// is in flight, whatever the machine's timing: the call has been entered, nothing has moved, and the bytes
// land only after the cancellation. Everything else passes through.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "src/include/kvlease/provider.hpp"

namespace kvlease::replay {

/// Which first unit names are held. Thread-safe.
class gate_book {
 public:
  void hold(const bytes& name);
  void open(const bytes& name);
  /// Whether a submission of `name` is inside; waits for it at most `patience`.
  bool entered(const bytes& name, std::chrono::nanoseconds patience);
  /// Lets everything through from now on.
  void abandon();

  /// The provider's side: blocks while `name` is held.
  void pass(const bytes& name);

 private:
  struct door {
    int holds = 0;
    int inside = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<bytes, door> doors_;
  bool abandoned_ = false;
};

/// `inner` behind the book's doors.
std::shared_ptr<provider> gate(std::shared_ptr<provider> inner, std::shared_ptr<gate_book> book);

}  // namespace kvlease::replay
