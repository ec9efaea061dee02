// Which submissions a fault_provider strikes, and how: pure functions of a seed and a submission's number.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

/// What each does is told in src/providers/fault_provider.hpp.
enum class fault_kind : std::uint8_t { miss, partial, fail, reject, escape, hang, late, unproven, stubborn };
inline constexpr std::size_t fault_kind_count = 9;

std::string_view to_string(fault_kind k) noexcept;

struct fault_plan {
  std::uint64_t seed = 0;
  std::array<double, fault_kind_count> probability{};  ///< by fault_kind; each in [0, 1], sum at most 1
  std::chrono::nanoseconds late =
      std::chrono::milliseconds{10};  ///< bound of delays; a silent one's is twice that
};

/// "partial=0.05,fail=0.02"; the empty text strikes nothing. Errors: invalid for an unknown fault, a fault
/// given twice, something that is no number in [0, 1], or a sum above 1.
result<fault_plan> parse_faults(std::string_view text, std::uint64_t seed);

/// The fault that submission number `n` of a decorator gets, or none.
std::optional<fault_kind> strike(const fault_plan& plan, std::uint64_t n) noexcept;

/// What else a fault draws for its submission.
enum class fault_draw : std::uint8_t { kind, units, noise, delay, shape };
std::uint64_t draw(const fault_plan& plan, std::uint64_t n, fault_draw what) noexcept;

/// Which of `count` units a partial submission keeps, rising: at least one stays and at least one goes; of
/// fewer than two, none stays.
std::vector<std::size_t> partial_units(const fault_plan& plan, std::uint64_t n, std::size_t count);

/// In [late / 4, late]; twice that for a silent late submission, so that one can pass the request's deadline
/// and still end within the grace where every other ends before it.
std::chrono::nanoseconds late_delay(const fault_plan& plan, std::uint64_t n) noexcept;

/// How a late submission hides that its bytes have not landed.
enum class late_shape : std::uint8_t { early_success, early_failure, silent };
late_shape late_shape_of(const fault_plan& plan, std::uint64_t n) noexcept;

}  // namespace kvlease
