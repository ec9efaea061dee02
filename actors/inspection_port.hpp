// The inspection port over a runtime's actors. Every call answers within 150 ms: where the inspector itself
// does not, from what can be seen without it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "messages/wiring.hpp"
#include "src/include/kvlease/inspection.hpp"
#include "src/observation.hpp"

namespace kvlease {

struct worker_figures {
  std::size_t threads = 0, busy = 0;
};

struct inspection_setup {
  incarnation runtime;
  std::shared_ptr<observation> watch;
  time_point started;
  std::chrono::nanoseconds unproven_budget = std::chrono::seconds{60};
  std::function<std::uint64_t()> exposure_bytes;
  std::function<worker_figures()> workers;
  std::function<time_point()> now;  ///< the actors' clock; empty: the steady clock
};

/// A port that can be closed: after that it answers from what it has, and holds no actor.
class closable_inspection : public inspection_port {
 public:
  virtual void close() = 0;
};

std::shared_ptr<closable_inspection> make_inspection(inspector_actor inspector, inspection_setup setup);

}  // namespace kvlease
