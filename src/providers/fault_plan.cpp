#include "src/providers/fault_plan.hpp"

#include <charconv>
#include <string>

#include "src/mix.hpp"

namespace kvlease {

namespace {

constexpr std::array<std::string_view, fault_kind_count> names{
    "miss", "partial", "fail", "reject", "escape", "hang", "late", "unproven", "stubborn"};

/// Room for the rounding of a sum such as ten times 0.1.
constexpr double sum_slack = 1e-9;

std::optional<std::size_t> index_of(std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

std::string valid_names() {
  std::string list;
  for (const auto name : names) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

tl::unexpected<error> bad_fault(std::string_view what, std::string_view name) {
  return fail(errc::invalid,
              std::string{what} + ": \"" + std::string{name} + "\", valid faults are " + valid_names());
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view to_string(fault_kind k) noexcept { return names[static_cast<std::size_t>(k)]; }

result<fault_plan> parse_faults(std::string_view text, std::uint64_t seed) {
  fault_plan plan;
  plan.seed = seed;
  std::array<bool, fault_kind_count> given{};
  double sum = 0;
  for (bool more = !text.empty(); more;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);

    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const auto kind = index_of(name);
    if (!kind) return bad_fault("unknown fault", name);
    if (given[*kind]) return bad_fault("fault given twice", name);
    given[*kind] = true;
    const auto value = equals == std::string_view::npos ? std::nullopt : number(item.substr(equals + 1));
    // Not a comparison that NaN would pass.
    if (!value || !(*value >= 0 && *value <= 1)) {
      return bad_fault("probability of a fault must be a number from 0 to 1", item);
    }
    plan.probability[*kind] = *value;
    sum += *value;
  }
  if (sum > 1 + sum_slack) {
    return fail(errc::invalid, "probabilities of faults add up to " + std::to_string(sum) + ", at most 1");
  }
  return plan;
}

std::uint64_t draw(const fault_plan& plan, std::uint64_t n, fault_draw what) noexcept {
  return mix64(plan.seed, n, static_cast<std::uint64_t>(what));
}

std::optional<fault_kind> strike(const fault_plan& plan, std::uint64_t n) noexcept {
  // The upper 53 bits as a double in [0, 1), exactly.
  const double at = static_cast<double>(draw(plan, n, fault_draw::kind) >> 11) * 0x1p-53;
  double below = 0;
  for (std::size_t i = 0; i < fault_kind_count; ++i) {
    below += plan.probability[i];
    if (at < below) return static_cast<fault_kind>(i);
  }
  return std::nullopt;
}

std::vector<std::size_t> partial_units(const fault_plan& plan, std::uint64_t n, std::size_t count) {
  std::vector<std::size_t> kept;
  if (count < 2) return kept;
  const std::uint64_t seed = draw(plan, n, fault_draw::units);
  const std::size_t goes = mix64(seed, 0, 0) % count;
  const std::size_t stays = (goes + 1 + mix64(seed, 0, 1) % (count - 1)) % count;
  for (std::size_t i = 0; i < count; ++i) {
    const bool toss = (mix64(seed, 1, i) & 1) != 0;
    if (i != goes && (i == stays || toss)) kept.push_back(i);
  }
  return kept;
}

std::chrono::nanoseconds late_delay(const fault_plan& plan, std::uint64_t n) noexcept {
  const auto least = plan.late / 4;
  const auto room = static_cast<std::uint64_t>((plan.late - least).count()) + 1;
  const auto delay =
      least + std::chrono::nanoseconds{static_cast<std::int64_t>(draw(plan, n, fault_draw::delay) % room)};
  const bool silent = strike(plan, n) == fault_kind::late && late_shape_of(plan, n) == late_shape::silent;
  return silent ? 2 * delay : delay;
}

late_shape late_shape_of(const fault_plan& plan, std::uint64_t n) noexcept {
  return static_cast<late_shape>(draw(plan, n, fault_draw::shape) % 3);
}

}  // namespace kvlease
