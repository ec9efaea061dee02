// What a snapshot's JSON looks like to people.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/table.hpp"

namespace kvlease::inspect {

/// The lists that `ls` knows, as they are called in the snapshot.
inline constexpr std::array<std::string_view, 9> listable{
    "operations", "leases", "pools", "registrations", "owners", "providers", "devices", "actors", "holds"};

/// Precondition: `what` is listable.
table list_table(const nlohmann::json& snapshot, std::string_view what);

/// The lines of `why`: outcome, holders with the evidence awaited, what is safe, what is not known.
std::vector<std::string> why_lines(const nlohmann::json& why, const paper& on);

/// Health, totals, pools, what is held and by which reason.
std::vector<std::string> summary_lines(const nlohmann::json& snapshot, const paper& on);

/// One line for an event; empty for a line that is none.
std::string event_line(const nlohmann::json& event, const paper& on);

tone tone_of_health(std::string_view health);
/// 0 healthy, 1 held, 2 unproven; 2 for what is none of them.
int status_of_health(std::string_view health);

}  // namespace kvlease::inspect
