// Why is this memory still held? From what the actors told about one subject to an explanation: reasons of
// the closed list, the evidence awaited and from whom, what happens next, and what a person may safely do.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "messages/inspection.hpp"
#include "src/facts.hpp"
#include "src/journal.hpp"

namespace kvlease {

/// `told`: the answers to question_of(what) and to what followed from them. `parts`: the staging.
/// What is not known here is `found == false`, with the reason among the facts.
explanation explain(const subject& what, const gathered_facts& told, const std::vector<part>& parts);

/// Of a subject that is no more: what the journal still has of it. Changes nothing for one that was found.
void explain_past(explanation& of, const std::vector<journal_record>& records, time_point start,
                  time_point now);

}  // namespace kvlease
