// Cancel acknowledgments (scenarios 7.H, RC-16 to RC-22). A receiver that gives up a request tells every
// sender that might write for it. A sender fences the request, so that no later session of it submits
// anything, and acknowledges once all that was submitted is proven over. To the receiver that is evidence of
// this writer, and of nothing else. Pure, as src/session.hpp.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "src/session.hpp"

namespace kvlease {

/// Who asked for the cancel, and for which of his sessions: an acknowledgment goes back to both.
struct cancel_asker {
  peer_rank peer = 0;
  owner_id session;
  friend auto operator<=>(const cancel_asker&, const cancel_asker&) = default;
};

/// From a sender to a receiver.
struct notice {
  enum class kind : std::uint8_t { in_doubt, result, settlement, acknowledgment };
  kind what = kind::result;
  request_id request;
  peer_rank to = 0;
  piece_id piece;          ///< none in an acknowledgment
  bool succeeded = false;  ///< of a result
  owner_id session;        ///< the asker's, in an acknowledgment
  friend bool operator==(const notice&, const notice&) = default;
};

/// Whether a fence stays, or goes with the first session that it cancels (what older peers expect).
enum class fence_mode : std::uint8_t { lasting, consumed_once };

/// A worker's fences, and what it has to tell its peers, in order. All sessions of
/// the table are opened, and its events taken, here.
class cancel_registry {
 public:
  explicit cancel_registry(session_table& sessions, fence_mode mode = fence_mode::lasting)
      : sessions_{sessions}, mode_{mode} {}

  /// Fences the request and cancels its sessions. `from`: a peer, who gets one acknowledgment however often
  /// he asks; none: this side's own doing. Whose doing it was stays as it was first.
  void cancel(time_point now, request_id request, std::optional<cancel_asker> from);
  bool fenced(request_id request) const;
  /// The request's id will never come again.
  void forget(request_id request) { fences_.erase(request); }

  /// What a receiver asked for, kept until a session is opened for it.
  void request_data(time_point now, request_id request) { data_.insert_or_assign(request, now); }
  /// Drops data that came before `oldest`. No fence and no acknowledgment depends on it.
  void sweep(time_point oldest);
  bool has_data(request_id request) const { return data_.contains(request); }

  // As session_table, and under a fence the session is cancelled before anybody can use it.
  result<std::shared_ptr<send_session>> open_send(time_point now, const session_table::setup& s,
                                                  std::set<peer_rank> peers);
  result<std::shared_ptr<receive_session>> open_receive(time_point now, const session_table::setup& s);

  /// Commits what has elapsed, and turns into notices what the sessions brought about.
  void advance(time_point now);
  std::vector<session_event> take_events() { return std::exchange(events_, {}); }

  /// The notice to send now; it stays the next one until `sent` is told.
  std::optional<notice> next() const;
  /// A first failure is retried; after a second one the notice is given up, and counted.
  void sent(bool arrived);
  std::uint64_t given_up() const noexcept { return given_up_; }

 private:
  struct fence {
    cancelled_by origin = cancelled_by::local;
    std::map<cancel_asker, bool> asked;  ///< and whether the acknowledgment is queued
    bool consumed = false;               ///< cancels no further session, and may owe acknowledgments still
  };
  void apply_fence(time_point now, session& opened);
  /// Is a session of the request not drained?
  bool open(time_point now, request_id request) const;
  void queue(const session_event& e);

  session_table& sessions_;
  fence_mode mode_;
  std::map<request_id, fence> fences_;
  std::map<request_id, time_point> data_;
  std::deque<notice> outbox_;
  unsigned failures_ = 0;  ///< of the outbox's front
  std::uint64_t given_up_ = 0;
  std::vector<session_event> events_;
};

/// A receiver's cancelled session and the candidates that it tells.
class cancel_round {
 public:
  struct acknowledgment {
    owner_id session;
    request_id request;
    peer_rank from = 0;
  };
  cancel_round(std::shared_ptr<receive_session> of, std::set<peer_rank> candidates)
      : session_{std::move(of)}, untold_{candidates}, candidates_{std::move(candidates)} {}

  /// Whom to tell; each candidate once.
  std::set<peer_rank> take_untold() { return std::exchange(untold_, {}); }
  /// Proof that the rank will not write for this session any more, of no other rank and of no local copy.
  /// Errors: unknown for another session's or request's, which is counted and changes nothing; state for a
  /// rank that nobody knows, and then the session's evidence is invalid.
  result<void> acknowledged(time_point now, const acknowledgment& a);
  const std::set<peer_rank>& heard() const noexcept { return heard_; }
  std::uint64_t rejected() const noexcept { return rejected_; }

 private:
  std::shared_ptr<receive_session> session_;
  std::set<peer_rank> untold_, candidates_, heard_;
  std::uint64_t rejected_ = 0;
};

}  // namespace kvlease
