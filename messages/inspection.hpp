// What can be seen of a runtime from outside: why memory is still held, and by whom. Values of the standard
// library; no actor and no JSON in them. Text fields are for people, closed lists for programs.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/contract.hpp"
#include "messages/ids.hpp"
#include "messages/report.hpp"
#include "messages/retirement.hpp"

namespace kvlease {

inline constexpr std::uint32_t inspection_schema_version = 1;

/// Why memory is still held. The list is closed: programs and alerts name its members.
enum class held_reason : std::uint8_t {
  lent_not_submitted,      ///< a lease that its holder has not submitted
  backend_access_running,  ///< the backend may touch it still, and is asked again
  backend_end_unproven,    ///< the end of access is disputed: a proof has failed
  local_copy_pending,      ///< our own copies are under way
  consumer_reading,        ///< a read guard of the host (semantics 1.4)
  registered_by_backend,   ///< a registration covers it
  shutdown_drain,          ///< the runtime is going, and waits for evidence
  quarantined,             ///< a copy can't be proven complete: kept for good (6.5)
};
inline constexpr std::array all_held_reasons{
    held_reason::lent_not_submitted,   held_reason::backend_access_running,
    held_reason::backend_end_unproven, held_reason::local_copy_pending,
    held_reason::consumer_reading,     held_reason::registered_by_backend,
    held_reason::shutdown_drain,       held_reason::quarantined,
};

/// What one can ask about.
enum class subject_kind : std::uint8_t { lease, operation, slot, address, request, registration };
inline constexpr std::array all_subject_kinds{subject_kind::lease,   subject_kind::operation,
                                              subject_kind::slot,    subject_kind::address,
                                              subject_kind::request, subject_kind::registration};

enum class health : std::uint8_t {
  healthy = 0,
  held = 1,      ///< memory is held beyond its outcome, and evidence is still due
  unproven = 2,  ///< beyond budget, or fatal
};

constexpr std::string_view to_string(held_reason r) noexcept {
  constexpr std::array<std::string_view, all_held_reasons.size()> names{
      "lent_not_submitted", "backend_access_running", "backend_end_unproven", "local_copy_pending",
      "consumer_reading",   "registered_by_backend",  "shutdown_drain",       "quarantined"};
  return names[static_cast<std::size_t>(r)];
}
constexpr std::string_view to_string(subject_kind k) noexcept {
  constexpr std::array<std::string_view, all_subject_kinds.size()> names{
      "lease", "operation", "slot", "address", "request", "registration"};
  return names[static_cast<std::size_t>(k)];
}
constexpr std::string_view to_string(health h) noexcept {
  constexpr std::array<std::string_view, 3> names{"healthy", "held", "unproven"};
  return names[static_cast<std::size_t>(h)];
}
/// Empty for a word that is none of the list.
constexpr std::optional<subject_kind> parse_subject_kind(std::string_view text) noexcept {
  for (const auto k : all_subject_kinds)
    if (to_string(k) == text) return k;
  return std::nullopt;
}

/// `id` as it is printed: "1.7"; a slot "PART/INDEX", or "INDEX" where there is one part; an address in
/// decimal or as 0x hex.
struct subject {
  subject_kind kind = subject_kind::lease;
  std::string id;
  friend bool operator==(const subject&, const subject&) = default;
};

/// One reason why memory is still held.
struct holder {
  held_reason reason = held_reason::lent_not_submitted;
  std::string what;      ///< "lease 1.7", "registration kvlease-part-0", "read guard of lease 1.7"
  std::string evidence;  ///< exactly what is awaited: "access end of attempt 1.12"
  std::string from;      ///< who has to give it: "provider memory:", "CUDA actor", "host"
  std::chrono::nanoseconds age{};
  std::string last_evidence;  ///< the last one looked at, and its result; "" where there was none
  std::optional<std::chrono::nanoseconds> last_evidence_age;
  std::string next;  ///< what happens next: "fatal expiry of the grace"
  std::optional<std::chrono::nanoseconds> next_in;
};

/// The answer to: why is this still held?
struct explanation {
  subject about;
  bool found = false;
  std::string state;    ///< "released", "held", "free", ...
  std::string outcome;  ///< "" while undecided
  std::optional<std::chrono::nanoseconds> outcome_age;
  std::vector<holder> holders;       ///< empty: nothing holds it
  std::vector<std::string> safe;     ///< what a person may safely do
  std::vector<std::string> unknown;  ///< what is not known: actors that did not answer, with their age
  std::vector<std::pair<std::string, std::string>> facts;  ///< more, in order
};

struct actor_line {
  actor_kind kind = actor_kind::manager;
  std::string state;  ///< "up", "down" or "stuck"
  bool answered = false;
  std::chrono::nanoseconds age{};  ///< of what is shown
  std::int64_t mailbox = 0;        ///< messages that wait
  std::int64_t handled = 0;
  std::chrono::nanoseconds busy{};
  std::optional<std::chrono::nanoseconds> oldest_unanswered;
};

/// One operation, by the three answers of semantics 1.
struct operation_line {
  operation_id id;
  direction way = direction::fetch;
  request_id request;
  lease_id lease;
  std::string outcome;  ///< "" while pending
  std::string access;   ///< "not started", "running", "ended" or "unproven"
  std::string copies;   ///< "not started", "pending", "complete" or "unproven"
  std::string proof;    ///< the proof_source; "" before there is one
  std::chrono::nanoseconds age{};
  std::optional<std::chrono::nanoseconds> outcome_age;
  std::optional<std::chrono::nanoseconds> deadline_in, fatal_in;  ///< negative: past
  std::vector<held_reason> reasons;
};

struct lease_line {
  lease_id id;
  direction way = direction::fetch;
  request_id request;
  std::string state;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::chrono::nanoseconds age{};
  std::vector<held_reason> reasons;
};

/// One pool of staging slots. The four states add up to `total` (semantics 7.10).
struct pool_line {
  std::string name;
  std::int64_t slot_bytes = 0;
  std::int64_t total = 0;
  std::int64_t free = 0;
  std::int64_t lent = 0;
  std::int64_t awaiting_proof = 0;
  std::int64_t quarantined = 0;
  /// One character a slot: '.' free, 'L' lent, 'A' awaiting proof, 'Q' quarantined. At most 65,536: in a
  /// larger pool each character stands for a run of slots, and shows the worst of them.
  std::string map;
};

struct registration_line {
  std::string part;
  std::string state;
  std::string reason;  ///< of its failure
  std::chrono::nanoseconds age{};
};

/// A retirement owner with its clocks.
struct owner_line {
  std::string id;
  request_id request;
  direction way = direction::fetch;
  std::int64_t claims = 0;
  std::optional<std::chrono::nanoseconds> deadline_in, fatal_in;
  std::string drain_reason;  ///< "" while it does not drain
};

struct provider_line {
  std::string uri;
  std::vector<std::string> proofs;  ///< the proof sources that it can give
  std::int64_t attempts = 0;
  std::int64_t workers_busy = 0;
  std::int64_t workers = 0;
  std::map<std::string, std::int64_t> units;  ///< by "hit", "miss" and "failed"
};

struct device_line {
  std::string name;
  std::int64_t pending = 0;
  std::int64_t copies = 0;
  std::int64_t bytes = 0;
  std::int64_t unproven = 0;
  std::string lost;  ///< why nothing can be said of its copies any more; "" while all is well
};

struct inspection_snapshot {
  std::uint32_t schema_version = inspection_schema_version;
  incarnation runtime;
  std::chrono::system_clock::time_point taken;
  std::chrono::nanoseconds uptime{};
  std::vector<actor_line> actors;
  std::vector<operation_line> operations;  ///< the oldest ones, as many as were asked for
  std::vector<lease_line> leases;          ///< likewise
  std::vector<pool_line> pools;
  std::vector<registration_line> registrations;
  std::vector<owner_line> owners;  ///< likewise
  std::vector<provider_line> providers;
  std::vector<device_line> devices;
  std::vector<std::string> holds;
  std::uint64_t exposure_bytes = 0;
  std::optional<fatal_record> fatal;
  bool draining = false;
  std::size_t operations_total = 0;  ///< how many there are, listed or not
  std::size_t leases_total = 0;
};

struct histogram {
  std::vector<double> upper_seconds;  ///< rising
  std::vector<std::uint64_t> counts;  ///< one a bound, and one for what is above all of them
  double sum_seconds = 0;
};

/// Counters that are cheap and always complete: no lists.
struct inspection_metrics {
  std::map<std::string, std::uint64_t> operations_total;  ///< by direction and outcome: "fetch/delivered"
  std::map<held_reason, std::uint64_t> held_bytes;
  std::vector<pool_line> pools;  ///< their maps are empty
  std::uint64_t exposure_bytes = 0;
  bool fatal = false;
  histogram outcome_to_proof, proof_to_release;
  std::uint64_t journal_records = 0;
  std::uint64_t journal_lost = 0;
  std::map<std::string, std::uint64_t> messages_rejected;  ///< by actor
};

/// One record of the journal.
struct journal_event {
  std::uint64_t sequence = 0;
  std::chrono::nanoseconds at{};  ///< since the runtime's start
  std::string_view what;          ///< of a closed list; lives for ever
  actor_kind from = actor_kind::manager;
  std::array<std::uint64_t, 4> subject{};  ///< operation, lease, request, other; 0 where there is none
  std::uint64_t value = 0;
};

}  // namespace kvlease
