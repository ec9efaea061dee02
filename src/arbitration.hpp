// The one linearization point: outcomes and claims of operations against the retirement clocks
// (semantics 1.3, 4, 7.5). Pure; owned by the deadline arbiter. Time is an argument, results are effects.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "messages/operation.hpp"
#include "src/retirement.hpp"

namespace kvlease {

namespace arbitration_effects {
struct granted {
  operation_id operation;
};
struct refused {
  operation_id operation;
  std::string reason;
};
struct decided {
  operation_id operation;
  outcome value;
  direction way = direction::fetch;
};
struct authorised {
  settle_token token;
};
struct not_authorised {
  operation_id operation;
};
}  // namespace arbitration_effects

using arbitration_effect =
    std::variant<arbitration_effects::granted, arbitration_effects::refused, arbitration_effects::decided,
                 arbitration_effects::authorised, arbitration_effects::not_authorised, operation_released,
                 operation_retained, drain_started, fatal_record>;

class arbitration {
 public:
  explicit arbitration(incarnation of) : clocks_{of} {}

  result<owner_id> create_owner(time_point now, request_id request, direction way, transfer_timeout timeout);
  /// Drops an owner that no operation uses. False for any other, and after fatal.
  bool close_owner(time_point now, owner_id owner);
  /// granted; or refused, with the outcome cancelled(local) where no outcome can be had any more.
  void expose(time_point now, const exposure& e);
  /// Tracks the adapter's registrations as a claim of an owner without a request clock (5.1).
  /// Errors: state "admission is closed".
  result<owner_id> track(time_point now, operation_id registrations, transfer_timeout timeout);

  /// Proposes an outcome; the first one stands (1.3). Late ones are counted and change nothing.
  void commit(time_point now, operation_id operation, outcome value);
  void retain_unproven(time_point now, operation_id operation, const std::string& reason);
  /// authorised or not_authorised.
  void settle(time_point now, operation_id operation);
  /// The memory is back: the host is told, and the operation forgotten.
  void retired(time_point now, operation_id operation, operation_times times);
  /// The adapter can't speak for its operations any more: they fail, their memory is retained (7.4).
  void adapter_down(time_point now);

  void advance(time_point now);
  void request_shutdown(time_point now);
  result<void> stop(time_point now);

  std::vector<arbitration_effect> take_effects();
  std::optional<time_point> next_deadline() const { return clocks_.next_deadline(); }
  const retirement& clocks() const noexcept { return clocks_; }
  std::size_t open() const noexcept { return operations_.size(); }
  /// The operation that uses the owner; none while none does.
  operation_id operation_of(owner_id owner) const;
  /// The owner of an operation that is open here.
  std::optional<owner_id> owner_of(operation_id operation) const;
  /// Messages that named no operation here, or came after the outcome (7.1).
  std::uint64_t rejected() const noexcept { return rejected_; }

 private:
  struct operation_state {
    owner_id owner;
    request_id request;
    direction way = direction::fetch;
    bool registrations = false;  ///< no host, no outcome
    std::optional<outcome> value;
    std::optional<std::string> retained;  ///< told to the host once the outcome has been
    bool final_told = false;
    bool settled = false;  ///< its token is out: the memory comes back, whatever turns fatal later
    time_point submitted;
    time_point decided_at;
  };

  operation_state* find(operation_id operation);
  void decide(time_point now, operation_id operation, operation_state& o, outcome value);
  void tell_retained(operation_id operation, operation_state& o, bool final);
  /// Turns the clocks' events into effects.
  void absorb(time_point now);
  void latch_fatal(time_point now, const fatal_record& f);
  std::vector<operation_id> sorted_operations() const;

  retirement clocks_;
  std::unordered_map<operation_id, operation_state> operations_;
  std::unordered_map<owner_id, operation_id> by_owner_;
  std::vector<arbitration_effect> effects_;
  std::uint64_t rejected_ = 0;
};

}  // namespace kvlease
