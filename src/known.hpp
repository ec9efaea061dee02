// Gathered facts, by what they are about: the last answer about a thing counts. Pure; points into the facts.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "src/facts.hpp"

namespace kvlease {

struct known_facts {
  explicit known_facts(const gathered_facts& g);

  const operation_fact* operation_on(lease_id lease) const;
  const operation_fact* operation_of(operation_id id) const;
  const lease_fact* lease_of(lease_id id) const;
  const owner_fact* owner_of(operation_id id) const;
  const proof_fact* proof_of(operation_id id) const;

  time_point now;
  std::vector<const operation_fact*> operations;  ///< by id, one each
  std::vector<const lease_fact*> leases;
  std::vector<const owner_fact*> owners;
  std::vector<registration_fact> registrations;
  std::vector<std::string> holds;
  std::vector<std::string> maps;
  std::optional<backend_fact> backend;
  std::optional<device_fact> device;
  std::optional<slot_fact> slot;
  std::optional<request_fact> request;
  std::optional<fatal_record> fatal;
  std::optional<owner_fact> first_grace;
  bool stopping = false;
  std::size_t operations_total = 0, leases_total = 0;

 private:
  std::unordered_map<operation_id, const operation_fact*> by_operation_;
  std::unordered_map<lease_id, const operation_fact*> on_lease_;
  std::unordered_map<lease_id, const lease_fact*> by_lease_;
  std::unordered_map<operation_id, const owner_fact*> by_owned_;
  std::unordered_map<operation_id, const proof_fact*> proofs_;
};

/// Why the memory is held still, worst first, from what is known of its operation and lease. Either may be
/// missing. `stopping`: the runtime is going.
std::vector<held_reason> reasons_of(const operation_fact* op, const lease_fact* lease, bool stopping);

/// "not started", "running", "ended" or "unproven": as operation_line::access has it.
std::string_view access_text(access_phase p) noexcept;
/// "not started", "pending", "complete" or "unproven".
std::string_view copies_text(copy_phase p) noexcept;

}  // namespace kvlease
