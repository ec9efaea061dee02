// The containment callback (semantics 4.8): called once on fatal, on a thread that was made at start, since
// at that time nothing new may be needed. It may block for ever and delays nothing.
#pragma once

#include <functional>
#include <memory>

#include "messages/retirement.hpp"

namespace kvlease {

class containment {
 public:
  using callback = std::function<void(const fatal_record&)>;
  explicit containment(callback call);
  /// Leaves the thread behind if the callback is still running.
  ~containment();
  containment(const containment&) = delete;
  containment& operator=(const containment&) = delete;

  /// Only the first call counts. Never blocks.
  void trigger(const fatal_record& fatal);
  /// The callback threw: reported, and nothing else; roots stay.
  bool failed() const;

 private:
  struct shared;
  std::shared_ptr<shared> shared_;
};

}  // namespace kvlease
