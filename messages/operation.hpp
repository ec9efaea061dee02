// What the host hears of an operation, from the arbiter alone and in this order: one outcome, then released
// or retained (semantics 7.5).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "messages/contract.hpp"
#include "messages/ids.hpp"
#include "messages/retirement.hpp"

namespace kvlease {

/// What an operation needs to be exposed.
struct exposure {
  operation_id operation;
  std::optional<owner_id> owner;  ///< absent: the operation gets an owner of its own
  request_id request;
  direction way = direction::fetch;
  transfer_timeout timeout;
  time_point submitted;
};

/// When each answer of one operation became known; zero where it never did.
struct operation_times {
  time_point submitted;     ///< the adapter took it in
  time_point outcome;       ///< the arbiter committed it
  time_point access_ended;  ///< proven
  time_point copies_ended;  ///< the last local copy and read guard
  time_point released;      ///< the arbiter heard that the memory is back
};

/// The logical outcome: visible at once, whatever the memory waits for (1.1).
struct operation_outcome {
  operation_id operation;
  outcome value;
};

/// The memory has been given back on proof.
struct operation_released {
  operation_id operation;
  operation_times times;
};

/// The memory is kept: evidence is disputed. `final` after fatal; else a retried proof may still release it.
struct operation_retained {
  operation_id operation;
  std::string reason;
  bool final = false;
};

/// Authority to erase the roots of one operation. Only the arbiter's core makes one (7.3).
class settle_token {
 public:
  operation_id operation() const noexcept { return operation_; }

 private:
  friend class arbitration;
  explicit settle_token(operation_id op) : operation_{op} {}
  operation_id operation_;
};

}  // namespace kvlease
