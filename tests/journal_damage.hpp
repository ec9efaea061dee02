// Journals of real runs, damaged: every single damage of each class at every record, for the tests of the
// checker.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/journal.hpp"

namespace kvlease::test {

enum class damage_class : std::uint8_t {
  dropped,       ///< as if its writer had not written it: what follows is numbered anew
  doubled,       ///< written twice
  swapped,       ///< with the record behind it; numbers and times stay where they were
  another_id,    ///< one id is another of its kind that the journal has
  unknown_id,    ///< one id is none that was given
  foreign_id,    ///< one id is another runtime's
  stray_field,   ///< a field holds something that this kind of record does not have
  unknown_kind,  ///< its kind is none
  early,         ///< it is before its actor's record that it follows
  late,          ///< it is after its actor's next record; the last of all: a day later
};
inline constexpr std::size_t damage_classes = 10;
std::string_view to_string(damage_class c) noexcept;

struct damage {
  damage_class what;
  std::size_t at = 0;      ///< index of the record, in the journal as it was
  std::string field = {};  ///< of an id: "lease"
  std::vector<journal_record> records;
};

/// Calls `each` with every damage of `journal`, which begins with record 1.
void for_each_damage(const std::vector<journal_record>& journal,
                     const std::function<void(const damage&)>& each);

/// Why the damaged journal is that of a legal run, where it is: a rule of the journal as it was, not of the
/// checker.
std::optional<std::string_view> why_legal(const std::vector<journal_record>& journal, const damage& d);

}  // namespace kvlease::test
