// The lender actor: the lending core, the two detectors' lender side, holds.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "messages/lender.hpp"
#include "src/exposure.hpp"
#include "src/ledger.hpp"
#include "src/lending.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct lender_config {
  lending_config core;
  std::shared_ptr<ledger> roots;
  std::shared_ptr<touch_table> touches;
  paint_mode paint = paint_mode::full;
  std::shared_ptr<std::atomic<std::uint64_t>> paint_exposure;  ///< where the paint's findings are counted
  std::chrono::nanoseconds answer_within = std::chrono::seconds{10};
  std::shared_ptr<observation> watch = {};
};

/// `config.core` must be accepted by lending::make.
lender_actor spawn_lender(caf::actor_system& system, lender_config config);

}  // namespace kvlease
