// The inspection port: what tools see of a runtime. It is read-only: no call frees memory or changes
// anything. Threads: every call may come from any thread, and answers within 150 ms, whatever is stuck.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/inspection.hpp"

namespace kvlease {

class inspection_port {
 public:
  virtual ~inspection_port() = default;
  /// At most `limit` operations, leases and owners each, the oldest first. What did not answer is shown as it
  /// was last seen, with its age.
  virtual inspection_snapshot look(std::size_t limit = 10'000) = 0;
  /// Of a subject that is not known: `found` is false.
  virtual explanation why(const subject& about) = 0;
  virtual inspection_metrics metrics() = 0;
  virtual health state() = 0;
  /// The events behind number `after`, at most `limit`; `lost` tells how many were overwritten before they
  /// could be read.
  virtual std::vector<journal_event> events(std::uint64_t after, std::size_t limit, std::uint64_t& lost) = 0;
};

/// What it was that fatal expiry has won over: "fetch of request 1.3", "the registrations" or "the runtime".
std::string subject_of(const fatal_record& f);

}  // namespace kvlease
