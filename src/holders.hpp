// One holder for each reason: the evidence that is awaited, from whom, and what happens next. Pure.
#pragma once

#include <string>
#include <vector>

#include "messages/inspection.hpp"
#include "src/known.hpp"

namespace kvlease {

/// Of one operation and its lease; either may be missing.
std::vector<holder> holders_of(const known_facts& k, const operation_fact* op, const lease_fact* lease);
/// Of a registration that covers memory; empty where it covers none.
std::vector<holder> holders_of(const known_facts& k, const registration_fact& r);
/// What a person may safely do about it. None of it frees memory that is not proven.
std::vector<std::string> safe_steps(const known_facts& k, const std::vector<holder>& holders);

}  // namespace kvlease
