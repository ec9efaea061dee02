// Timeouts, and what the retirement clocks report (semantics 4).
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "messages/contract.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"

namespace kvlease {

using clock_type = std::chrono::steady_clock;
using time_point = clock_type::time_point;
using duration = clock_type::duration;

/// A finite positive span: one serves the request clock and the grace that follows (scenarios 3.1).
class transfer_timeout {
 public:
  /// Errors: invalid "finite positive" with the value, for zero, negative, infinite and NaN.
  static result<transfer_timeout> make(std::chrono::duration<double> seconds);
  duration value() const noexcept { return value_; }
  friend bool operator==(const transfer_timeout&, const transfer_timeout&) = default;

 private:
  explicit transfer_timeout(duration d) : value_{d} {}
  duration value_;
};

/// Why the runtime stopped settling; latched once and final (4.5).
struct fatal_record {
  owner_id owner;
  request_id request;
  direction way = direction::fetch;
  std::string reason;
  time_point started;   ///< of the drain
  time_point deadline;  ///< started + timeout
  time_point noticed;
  friend bool operator==(const fatal_record&, const fatal_record&) = default;
};

/// The request clock has run out: operations without an outcome have failed (4.3).
struct request_expired {
  owner_id owner;
  friend bool operator==(const request_expired&, const request_expired&) = default;
};
/// Grace has begun, at `started`.
struct drain_started {
  owner_id owner;
  time_point started;
  std::string reason;
  friend bool operator==(const drain_started&, const drain_started&) = default;
};

using retirement_event = std::variant<request_expired, drain_started, fatal_record>;

}  // namespace kvlease
