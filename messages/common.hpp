// What every actor of a runtime understands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "messages/caf.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "messages/report.hpp"

namespace kvlease {

/// The handles of one runtime; see messages/wiring.hpp.
struct wiring;

/// First message to each actor: whom it talks to.
struct wired {
  std::shared_ptr<const wiring> peers;
};

/// From the supervisor: an actor has ended. What had no answer by now counts as undelivered (7.4).
struct peer_down {
  actor_kind kind = actor_kind::manager;
  incarnation runtime;
};

/// From the supervisor, last of all: let go of every handle and end.
struct quit_now {};

/// From the inspector.
struct report_request {};

/// What an actor tells the inspector, and what it is asked about (src/facts.hpp).
struct actor_facts;
struct about_question;
/// From the inspector: what comes behind the id `after` in the actor's list, at most `most` things.
struct ask_slice {
  std::uint64_t after = 0;
  std::size_t most = 0;
  bool summary = false;  ///< with all that is no list
};
/// From the inspector: what the actor knows of some things, looked up by id.
struct ask_about {
  std::shared_ptr<const about_question> what;
};
struct facts_answer {
  std::shared_ptr<const actor_facts> facts;
};

/// A request that is answered with nothing but success.
struct done {};

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::wired);
KVLEASE_LOCAL_MESSAGE(kvlease::peer_down);
KVLEASE_LOCAL_MESSAGE(kvlease::quit_now);
KVLEASE_LOCAL_MESSAGE(kvlease::report_request);
KVLEASE_LOCAL_MESSAGE(kvlease::actor_report);
KVLEASE_LOCAL_MESSAGE(kvlease::ask_slice);
KVLEASE_LOCAL_MESSAGE(kvlease::ask_about);
KVLEASE_LOCAL_MESSAGE(kvlease::facts_answer);
KVLEASE_LOCAL_MESSAGE(kvlease::done);
