// What a record of each kind consists of: who writes it, and which of its fields hold something. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/journal.hpp"

namespace kvlease {

struct wrong_form {
  std::string_view rule;  ///< "7.1" of ids, "form" of the rest
  std::string what;
};
/// What is wrong with the record by itself; empty where nothing is: a kind that there is not or that its
/// writer does not write, an id that is missing, foreign or not of this kind, a detail that stands for
/// nothing, a time before the start.
std::optional<wrong_form> form_fault(incarnation of, const journal_record& r);

/// The kind's `other` holds an id (7.1), not a slot.
bool other_is_id(journal_kind k) noexcept;

}  // namespace kvlease
