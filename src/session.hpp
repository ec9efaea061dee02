// Transfer sessions (scenarios 7.G): one request's pieces, kv and aux, to several peers or from several
// writers, on one retirement owner. A session has one logical outcome, decided once; its memory is drained
// and its slot given back by evidence alone. Pure: time is an argument, and whatever blocks (a backend call,
// a wait, a publication, a log line) happens outside, between two calls. Owned by one thread; not
// thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/ownership.hpp"

namespace kvlease {

/// A piece is what one participant's operation carries; it goes by its claim.
using piece_id = claim_id;
using peer_rank = receive_owner::rank;
/// kv: a part of the cache. aux: what a receiver needs beside it, in a slot of the session's own.
enum class piece_kind : std::uint8_t { kv, aux };
/// Whether a kv piece ends its peer's sequence.
enum class last_piece : bool { no, yes };

struct aux_slot {
  std::uint32_t index = 0;
  friend bool operator==(const aux_slot&, const aux_slot&) = default;
};

/// All pieces arrived, and nothing was held any more when that was said.
struct transferred {
  friend bool operator==(const transferred&, const transferred&) = default;
};
using session_outcome = std::variant<transferred, failed, cancelled>;
/// "transferred", "failed(reason)", "cancelled(local)".
std::string to_string(const session_outcome& o);

// What happened, in order; nothing is called back.
struct session_decided {
  owner_id session;
  session_outcome value;
};
/// What a sent piece came to; the backend may still read or write for it.
struct piece_decided {
  owner_id session;
  piece_id piece;
  peer_rank peer = 0;
  session_outcome value;
};
struct piece_in_doubt {
  owner_id session;
  request_id request;
  piece_id piece;
  peer_rank peer = 0;
};
/// It was never submitted, or is proven over. Only now may a peer be told: to a receiver a result is
/// evidence.
struct piece_over {
  owner_id session;
  request_id request;
  piece_id piece;
  peer_rank peer = 0;
  bool succeeded = false;
  bool was_in_doubt = false;
};
struct slot_freed {
  owner_id session;
  aux_slot slot;
};
/// Every session is over: the memory that they share may be deregistered.
struct may_deregister {};
using session_event = std::variant<session_decided, piece_decided, piece_in_doubt, piece_over, slot_freed,
                                   may_deregister, drain_started, fatal_record>;

class session_table;

class session {
 public:
  virtual ~session() = default;
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  owner_id id() const noexcept { return id_; }
  request_id request() const noexcept { return request_; }
  const std::optional<session_outcome>& outcome() const noexcept { return outcome_; }
  bool closed() const noexcept { return closed_; }

  // The first outcome stands; each of these also starts drain, and nothing unsent goes out any more.
  void cancel(time_point now, cancelled_by who);
  void fail(time_point now, const std::string& reason);
  void peer_lost(time_point now);

  /// Nothing can touch the session's memory any more.
  virtual bool drained(time_point now) = 0;
  /// False until an outcome is there and all is drained, and for ever after fatal. Then the slot is given
  /// back, once, and the table forgets the session. Repeatable.
  bool close(time_point now);

 protected:
  struct identity {
    owner_id id;
    request_id request;
    std::optional<aux_slot> slot;
  };
  session(session_table& table, identity who)
      : table_{table}, id_{who.id}, request_{who.request}, slot_{who.slot} {}

  retirement& clocks() const;
  void emit(session_event e);
  /// Commits what has elapsed. First in every call (4.2).
  void catch_up(time_point now);
  /// Ends without success, unless ended before.
  void end(time_point now, session_outcome value, const std::string& drain_reason);
  /// Transferred, when all has arrived and no claim is left.
  void look(time_point now);
  bool with_aux() const noexcept { return slot_.has_value(); }

  session_table& table_;

 private:
  friend class session_table;
  void decide(session_outcome value);
  virtual bool all_arrived() const = 0;
  virtual void on_decided(const session_outcome& value) = 0;
  /// Takes back whatever nobody has been handed.
  virtual void withdraw(time_point now) = 0;
  virtual void on_failed(time_point now) { withdraw(now); }

  owner_id id_;
  request_id request_;
  std::optional<aux_slot> slot_;
  std::optional<session_outcome> outcome_;
  bool closed_ = false;
};

/// Pieces to one or several peers. A piece is queued, then taken by a worker (`next`), who submits it or
/// gives it back.
class send_session final : public session {
 public:
  /// Errors: state when the session is decided or the peer's sequence has ended; unknown peer; invalid for
  /// aux where the session has no slot.
  result<piece_id> queue(time_point now, peer_rank peer, piece_kind kind, last_piece last);
  /// The next piece for a worker, who owes submit or unsubmitted.
  std::optional<piece_id> next(time_point now);
  /// Before the backend is called, which happens only where this succeeds. Errors: unknown; state.
  result<void> submit(time_point now, piece_id piece, std::shared_ptr<void> root);
  result<void> unsubmitted(time_point now, piece_id piece);
  result<void> submitted(time_point now, piece_id piece, send_owner::completion_query done);
  /// The peer has it; the backend may still read. Proves nothing.
  void delivered(time_point now, piece_id piece);
  /// The backend said done: delivered, unless decided before, and proven. False when it can't be settled.
  bool backend_done(time_point now, piece_id piece);
  /// Submission, wait or transfer failed, without proof: failed and in doubt. Repeatable.
  void backend_failed(time_point now, piece_id piece, const std::string& reason);
  /// As send_owner: the question is asked outside.
  std::optional<send_owner::completion_query> ask(piece_id piece) const { return owner_.ask(piece.value); }
  bool answered(time_point now, piece_id piece, bool done);

  bool drained(time_point now) override;
  std::optional<send_state> state(piece_id piece) const { return owner_.state(piece.value); }
  std::optional<session_outcome> piece_outcome(piece_id piece) const;

 private:
  friend class session_table;
  struct piece_state {
    peer_rank peer = 0;
    piece_kind kind = piece_kind::kv;
    last_piece last = last_piece::no;
    std::optional<session_outcome> value;
    bool doubted = false;
    bool over = false;
  };
  send_session(session_table& table, identity who, std::set<peer_rank> peers);
  bool all_arrived() const override;
  void on_decided(const session_outcome& value) override;
  void withdraw(time_point now) override;
  void decide_piece(piece_id piece, session_outcome value);
  void tell_over(piece_id piece, bool was_in_doubt);

  send_owner owner_;
  std::set<peer_rank> peers_;
  std::map<piece_id, piece_state> pieces_;
  std::deque<piece_id> queue_;
};

/// Destinations that cohorts of writers fill. Prepared ones are published together: kv and aux in one
/// exposure.
class receive_session final : public session {
 public:
  struct cohort {
    std::int64_t count = 0;
    std::set<peer_rank> members, candidates;
  };
  /// A destination and its writers. Errors as receive_owner::seal, and then the session has failed and all
  /// that is unpublished is withdrawn; state when the session is decided; invalid for aux without a slot.
  result<piece_id> prepare(time_point now, piece_kind kind, last_piece last, cohort writers);
  /// Reserves all that is prepared, or nothing. True: publish, and say how it went. Refused: the session has
  /// ended, and what is unpublished is withdrawn.
  bool begin_publication(time_point now);
  void published(time_point now);
  /// It stopped; `reached` may write all the same.
  void publication_aborted(time_point now, const std::set<peer_rank>& reached);

  // Evidence, as receive_owner's. That about a closed session is ignored.
  result<receive_owner::reported> writer_result(time_point now, piece_id piece, peer_rank who, bool succeeded,
                                                bool wait_for_local_copy);
  void writer_in_doubt(time_point now, piece_id piece, peer_rank who);
  bool writer_settled(time_point now, piece_id piece, peer_rank who);
  /// The rank will write to no destination of this session any more.
  result<void> quiesced(time_point now, peer_rank who);
  void local_copy_ended(time_point now, piece_id piece);

  bool drained(time_point now) override;
  const receive_owner* destination_of(piece_id piece) const;
  bool knows(peer_rank who) const;

 private:
  friend class session_table;
  struct destination {
    piece_kind kind;
    last_piece last;
    receive_owner owner;
  };
  using session::session;
  bool all_arrived() const override;
  void on_decided(const session_outcome&) override {}
  void withdraw(time_point now) override;
  void on_failed(time_point now) override;
  destination* find(piece_id piece);

  std::map<piece_id, destination> destinations_;
  bool withdrawn_ = false;
};

/// A worker's sessions, and the routing of its clocks' events to them.
class session_table {
 public:
  /// Errors: invalid "deadline retirement requires ..." without clocks, without a timeout, or with one that
  /// is not finite and positive. The table takes the clocks' events; it outlives its sessions.
  static result<std::unique_ptr<session_table>> make(retirement* clocks,
                                                     std::optional<std::chrono::duration<double>> timeout,
                                                     incarnation of);
  session_table(const session_table&) = delete;
  session_table& operator=(const session_table&) = delete;

  struct setup {
    request_id request;
    // Called while opening, outside every state machine. Empty: a session without aux.
    std::function<result<aux_slot>()> take_slot;
    std::function<result<void>(aux_slot)> enroll;
  };
  // Errors: state when admission is closed; what the setup's functions answered, and then no owner is left
  // and a slot that was taken is given back.
  result<std::shared_ptr<send_session>> open_send(time_point now, const setup& s, std::set<peer_rank> peers);
  result<std::shared_ptr<receive_session>> open_receive(time_point now, const setup& s);

  /// Commits all that has elapsed, and tells the sessions.
  void advance(time_point now);
  /// Cancels every undecided session and closes those that are drained. Errors: state, with the sessions that
  /// are not: then nothing is deregistered. Repeatable.
  result<void> shutdown(time_point now);

  std::vector<session_event> take_events() { return std::exchange(events_, {}); }
  std::vector<std::shared_ptr<session>> sessions() const;
  retirement& clocks() const noexcept { return *clocks_; }

 private:
  friend class session;
  friend class send_session;
  friend class receive_session;
  session_table(retirement* clocks, transfer_timeout timeout, incarnation of)
      : clocks_{clocks}, timeout_{timeout}, pieces_drawn_{of} {}
  result<session::identity> admit(time_point now, const setup& s, direction way);

  retirement* clocks_;
  transfer_timeout timeout_;
  id_source<piece_id> pieces_drawn_;
  std::map<owner_id, std::shared_ptr<session>> sessions_;
  std::vector<session_event> events_;
  bool deregistered_ = false;
};

}  // namespace kvlease
