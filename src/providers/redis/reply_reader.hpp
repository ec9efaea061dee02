// Reads one reply, whichever way its command expects it.
#pragma once

#include <span>
#include <utility>
#include <variant>

#include "src/providers/redis/command.hpp"

namespace kvlease::redis {

class reply_reader {
 public:
  explicit reply_reader(const expectation& e) : reader_{begin(e)} {}

  result<std::size_t> feed(std::span<const std::byte> in) {
    return std::visit([in](auto& r) { return r.feed(in); }, reader_);
  }
  bool done() const noexcept {
    return std::visit([](const auto& r) { return r.done(); }, reader_);
  }
  reply take() {
    return std::visit([](auto& r) { return reply{std::move(r.get())}; }, reader_);
  }

  bool wants_slot() const noexcept { return unit() != nullptr && unit()->wants_slot(); }
  /// Precondition: wants_slot().
  void give(std::span<std::byte> slot) { unit()->give(slot); }
  std::span<std::byte> direct() const noexcept { return unit() ? unit()->direct() : std::span<std::byte>{}; }
  /// Precondition: direct() is not empty.
  void took(std::size_t bytes) { unit()->took(bytes); }
  void withdraw() noexcept {
    if (unit()) unit()->withdraw();
  }

 private:
  using any = std::variant<value_reader, unit_reader>;
  static any begin(const expectation& e) {
    if (const auto* most = std::get_if<value_limits>(&e)) return any{std::in_place_type<value_reader>, *most};
    return any{std::in_place_type<unit_reader>, std::get<expected_unit>(e)};
  }
  unit_reader* unit() noexcept { return std::get_if<unit_reader>(&reader_); }
  const unit_reader* unit() const noexcept { return std::get_if<unit_reader>(&reader_); }

  any reader_;
};

}  // namespace kvlease::redis
