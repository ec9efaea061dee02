#include "messages/report.hpp"

namespace kvlease {

std::string_view to_string(actor_kind k) noexcept {
  constexpr std::string_view names[] = {"manager", "lender",          "adapter",
                                        "backend", "proof_collector", "deadline_arbiter",
                                        "cuda",    "supervisor",      "inspector"};
  return names[static_cast<std::size_t>(k)];
}

}  // namespace kvlease
