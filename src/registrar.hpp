// The life of the staging parts' registrations (semantics 5.1, 5.8, scenarios 4.1, 4.7): the hold, then one
// registration a part in order; at the end the registrations last first, the claim, then the hold. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "messages/ids.hpp"
#include "messages/operation.hpp"
#include "messages/staging.hpp"

namespace kvlease {

/// What to do, in this order.
struct registrar_effects {
  struct opening {
    registration_id id;
    part span;
  };
  bool take_hold = false;                   ///< → lender
  std::optional<opening> open;              ///< → backend
  std::optional<registration_id> close;     ///< → backend
  std::optional<std::string> retain;        ///< → arbiter: the claim is unproven, grace starts
  bool settle = false;                      ///< → arbiter
  std::optional<hold_id> release_hold;      ///< → lender
  bool retired = false;                     ///< → arbiter: the claim is gone
  std::optional<std::string> start_answer;  ///< to whoever started: empty when all is registered
};

class registrar {
 public:
  registrar(incarnation of, operation_id claim, std::vector<part> parts)
      : drawn_{of}, claim_{claim}, parts_{std::move(parts)} {}

  bool may_start() const noexcept { return phase_ == phase::idle; }
  registrar_effects start();
  /// The arbiter does not track the claim: there is nothing to register under.
  registrar_effects refused(const std::string& why);
  registrar_effects held(hold_id hold);
  registrar_effects registered(registration_id id, const std::string& problem);
  /// Admission stops for good; the first call puts the claim under the clock.
  registrar_effects stop();
  /// Once no operation is open: revokes the registrations, one at a time. A failed one is retried by the next
  /// call, on the same handle. After fatal nothing.
  registrar_effects close(std::size_t open_operations);
  registrar_effects revoked(registration_id id, const std::string& problem);
  registrar_effects settled();
  /// Nothing that was under way at the backend, or is sent there, will be answered.
  registrar_effects backend_down();
  registrar_effects lender_down();
  /// Nothing is registered or torn down any more.
  void fatal() noexcept { fatal_ = true; }

  bool accepting() const noexcept;
  bool closed() const noexcept { return phase_ == phase::closed; }
  /// The pseudo operation that stands for the registrations at the arbiter.
  operation_id claim() const noexcept { return claim_; }
  std::string state_text() const;
  struct part_view {
    const part* span;
    registration_id id;      ///< none: not tried yet
    std::string_view state;  ///< "none", "registering", "registered", "closing" or "failed"
  };
  std::vector<part_view> views() const;
  /// Of the last failure; empty: none.
  const std::string& problem() const noexcept { return problem_; }
  std::int64_t registered_bytes() const noexcept;

 private:
  enum class phase : std::uint8_t {
    idle,
    holding,
    registering,
    registered,
    failed,
    stopping,
    settling,
    closed
  };

  registrar_effects register_next();
  registrar_effects close_next();
  registrar_effects fail_start(const std::string& problem);

  id_source<registration_id> drawn_;
  operation_id claim_;
  std::vector<part> parts_;
  phase phase_ = phase::idle;
  bool hold_asked_ = false;  ///< and not answered
  std::optional<hold_id> hold_;
  std::vector<registration_id> live_;
  std::optional<registration_id> in_flight_;  ///< being opened or closed
  bool retained_ = false;
  bool backend_down_ = false;
  bool lender_down_ = false;
  bool fatal_ = false;
  std::string problem_;
};

}  // namespace kvlease
