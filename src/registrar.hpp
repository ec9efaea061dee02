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

struct registrar_effects {
  struct opening {
    registration_id id;
    part span;
  };
  std::optional<opening> open;                 ///< → backend
  std::optional<registration_id> close;        ///< → backend
  std::optional<std::string> retain;           ///< → arbiter: the claim is unproven, grace starts
  bool settle = false;                         ///< → arbiter
  std::optional<hold_id> release_hold;         ///< → lender; and the claim has retired
  std::optional<std::string> start_answer;     ///< to whoever started: empty when all is registered
};

class registrar {
 public:
  registrar(incarnation of, operation_id claim, std::vector<part> parts)
      : drawn_{of}, claim_{claim}, parts_{std::move(parts)} {}

  bool may_start() const noexcept { return phase_ == phase::idle; }
  void start() noexcept { phase_ = phase::holding; }
  registrar_effects held(hold_id hold);
  registrar_effects registered(registration_id id, const std::string& problem);
  /// Admission stops for good; the first call puts the claim under the clock.
  registrar_effects stop();
  /// Nothing uses the registrations any more: revokes them, one at a time. A failed one is retried by the
  /// next call, on the same handle.
  registrar_effects close();
  registrar_effects revoked(registration_id id, const std::string& problem);
  registrar_effects settled();
  /// Nothing that was under way at the backend will be answered.
  registrar_effects backend_down();

  bool accepting() const noexcept { return phase_ == phase::registered; }
  bool closed() const noexcept { return phase_ == phase::closed; }
  /// The pseudo operation that stands for the registrations at the arbiter.
  operation_id claim() const noexcept { return claim_; }
  std::string state_text() const;

 private:
  enum class phase : std::uint8_t { idle, holding, registering, registered, failed, stopping, settling, closed };

  registrar_effects register_next();
  registrar_effects fail_start(const std::string& problem);

  id_source<registration_id> drawn_;
  operation_id claim_;
  std::vector<part> parts_;
  phase phase_ = phase::idle;
  std::optional<hold_id> hold_;
  std::vector<registration_id> live_;
  std::optional<registration_id> in_flight_;  ///< being opened or closed
  bool retained_ = false;
  std::string problem_;
};

}  // namespace kvlease
