// What a subject of `why` names, as text: ids as they are printed, slots, addresses. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/error.hpp"
#include "messages/inspection.hpp"
#include "messages/staging.hpp"
#include "src/facts.hpp"

namespace kvlease {

/// "1.7" as an id's value; the value itself in decimal or 0x hex is taken too. Empty for anything else.
std::optional<std::uint64_t> parse_id(std::string_view text);

/// "PART/INDEX", or "INDEX" where there is one part. Errors: invalid; unknown, naming the part or the bound.
result<std::pair<std::size_t, std::int64_t>> parse_slot(std::string_view text,
                                                        const std::vector<part>& parts);

/// The slot that holds the address. Errors: invalid; unknown "in no staging part".
result<std::pair<std::size_t, std::int64_t>> slot_of_address(std::string_view text,
                                                             const std::vector<part>& parts);

/// What to ask about `what` at first. Errors: as above.
result<about_question> question_of(const subject& what, const std::vector<part>& parts);

}  // namespace kvlease
