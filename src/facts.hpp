// What actors answer to the inspector: plain facts, cheap to copy, without texts where a number will do.
// Whoever asked turns them into lines (src/assemble.hpp) and explanations (src/explain.hpp), on a thread of
// its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/inspection.hpp"
#include "messages/operation.hpp"
#include "messages/retirement.hpp"
#include "src/lending.hpp"
#include "src/observation.hpp"
#include "src/operation.hpp"
#include "src/registrar.hpp"

namespace kvlease {

/// An outcome without its names.
struct outcome_fact {
  outcome_detail what = outcome_detail::delivered;
  std::uint64_t served = 0;
  std::string reason;  ///< of a failure
};
outcome_fact fact_of(const outcome& o);
/// "delivered(3)", "miss", "failed(reason)", "cancelled(local)": as to_string(outcome).
std::string text_of(const outcome_fact& o);

/// One look at evidence.
struct evidence_fact {
  time_point at;
  std::string result;
};

/// The adapter's.
struct operation_fact {
  operation_id id;
  direction way = direction::fetch;
  request_id request;
  lease_id lease;
  std::optional<outcome_fact> value;
  access_phase access = access_phase::exposing;
  copy_phase copies = copy_phase::not_started;
  claim_phase claim = claim_phase::held;
  operation_times times;  ///< submitted, outcome, access_ended, copies_ended
  std::optional<proof_source> source;
  std::optional<proof_id> proof;          ///< in flight
  std::optional<evidence_fact> disputed;  ///< the last proof that failed
  std::string cancel;                     ///< what came of the cancel request
};

/// The lender's.
struct lease_fact {
  lease_id id;
  direction way = direction::fetch;
  request_id request;
  lease_phase phase = lease_phase::asking;
  bool outcome_known = false;
  std::int64_t slots = 0;
  std::int64_t nbytes = 0;
  time_point opened, changed;  ///< `changed`: when something was last heard of it
  std::size_t guards = 0;
  std::optional<copy_id> copying;
  std::vector<part_run> runs;  ///< in answers about one lease
};

/// The arbiter's.
struct owner_fact {
  owner_id id;
  operation_id operation;  ///< none: not used yet
  request_id request;
  direction way = direction::fetch;
  std::size_t claims = 0;
  bool registrations = false;
  std::optional<time_point> deadline, drain_started, fatal_at;
  std::string reason;
};

/// The collector's.
struct proof_fact {
  operation_id operation;
  proof_id proof;
  time_point since;
  std::uint64_t looks = 0;  ///< that said: running
  std::optional<time_point> last_look;
  bool blocking = false;  ///< one quiesce call, not polls
};

struct backend_fact {
  std::string uri;
  bool registers = false, polls = false;
  std::vector<proof_source> proofs;  ///< that the provider can give
  std::int64_t attempts = 0;         ///< without an outcome
  std::int64_t hits = 0, misses = 0, failures = 0;
  bool calling = false;  ///< a worker may be in the call of the operation asked about
  std::optional<time_point> queued_since;
};

struct device_fact {
  std::string name;
  std::int64_t pending = 0, copies = 0, nbytes = 0, unproven = 0;
  std::string lost;
  std::optional<copy_id> oldest;
  std::optional<time_point> last_look;
};

struct registration_fact {
  std::string part;
  registration_id id;  ///< none: never tried
  std::string state;   ///< "none", "registering", "registered", "closing"
  std::string reason;
  time_point since;  ///< when that state began
};

struct slot_fact {
  char state = '.';
  lease_id lease;
  std::optional<time_point> since;  ///< when that state began; none: it is as it was at the start
};

struct request_fact {
  bool known = false;
  std::int64_t prompt_tokens = 0, committed_tokens = 0, capacity_tokens = 0;
};

/// An actor's answer: one slice of its lists, or what it knows of some things.
struct actor_facts {
  actor_kind from = actor_kind::manager;
  bool more = false;  ///< there are things behind the last of this slice
  std::vector<operation_fact> operations;
  std::vector<lease_fact> leases;
  std::vector<owner_fact> owners;
  std::vector<proof_fact> proofs;
  std::vector<registration_fact> registrations;
  std::vector<std::string> holds;
  std::vector<std::string> maps;  ///< one a part: a character a slot, or a run of them
  std::optional<backend_fact> backend;
  std::optional<device_fact> device;
  std::optional<slot_fact> slot;
  std::optional<request_fact> request;
  std::optional<fatal_record> fatal;
  std::optional<owner_fact> first_grace;  ///< the arbiter's: whose grace ends first, of all owners
  bool stopping = false;                  ///< admission is closed for good
  std::size_t total = 0;                  ///< operations, leases or owners, in this slice or not
  std::vector<actor_kind> down;
};

/// Asks about some things. An actor answers what it knows of them.
struct about_question {
  std::vector<operation_id> operations;
  std::vector<lease_id> leases;
  std::optional<request_id> request;
  std::optional<std::pair<std::size_t, std::int64_t>> slot;  ///< part and slot
  bool registrations = false;
  std::size_t most = 64;  ///< things of a request
};

/// What the actors told, and who did not.
struct gathered_facts {
  struct answer {
    actor_kind from = actor_kind::manager;
    bool answered = false;  ///< this time; else the facts are the last there were, if there were any
    std::optional<time_point> at;
    std::vector<std::shared_ptr<const actor_facts>> facts;
  };
  time_point now;
  incarnation runtime;
  std::vector<answer> answers;
  std::vector<actor_kind> down;
};

}  // namespace kvlease
