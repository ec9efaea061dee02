#include "src/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvlease {

std::string to_string(const session_outcome& o) {
  if (std::holds_alternative<transferred>(o)) return "transferred";
  if (const auto* f = std::get_if<failed>(&o)) return to_string(outcome{*f});
  return to_string(outcome{std::get<cancelled>(o)});
}

// ---- session

retirement& session::clocks() const { return *table_.clocks_; }
void session::emit(session_event e) { table_.events_.push_back(std::move(e)); }
void session::catch_up(time_point now) { table_.advance(now); }

void session::decide(session_outcome value) {
  if (outcome_) return;
  outcome_ = std::move(value);
  on_decided(*outcome_);
  emit(session_decided{id_, *outcome_});
}

void session::end(time_point now, session_outcome value, const std::string& drain_reason) {
  if (closed_ || (outcome_ && std::holds_alternative<transferred>(*outcome_))) return;
  decide(std::move(value));
  clocks().request_drain(now, id_, drain_reason);
}

void session::cancel(time_point now, cancelled_by who) {
  catch_up(now);
  end(now, cancelled{who}, "cancelled");
  withdraw(now);
}

void session::fail(time_point now, const std::string& reason) {
  catch_up(now);
  end(now, failed{reason}, "failed");
  on_failed(now);
}

void session::peer_lost(time_point now) {
  catch_up(now);
  end(now, failed{"peer lost"}, "peer lost");
  withdraw(now);
}

void session::look(time_point now) {
  if (outcome_ || !all_arrived()) return;
  clocks().complete_pieces(now, id_);
  if (clocks().is_complete(now, id_)) decide(transferred{});
}

bool session::close(time_point now) {
  catch_up(now);
  if (closed_) return clocks().close(now, id_);
  if (!outcome_ || !drained(now) || !clocks().close(now, id_)) return false;
  closed_ = true;
  if (slot_) emit(slot_freed{id_, *slot_});
  const auto self = table_.sessions_.extract(id_);  // may be the last reference; it goes with this call
  return true;
}

// ---- send_session

send_session::send_session(session_table& table, identity who, std::set<peer_rank> peers)
    : session{table, who}, owner_{clocks(), who.id}, peers_{std::move(peers)} {}

result<piece_id> send_session::queue(time_point now, peer_rank peer, piece_kind kind, last_piece last) {
  catch_up(now);
  if (outcome()) return kvlease::fail(errc::state, "the session is decided: " + to_string(*outcome()));
  if (!peers_.contains(peer))
    return kvlease::fail(errc::unknown, fmt::format("peer {} is not of this session", peer));
  if (kind == piece_kind::aux && !with_aux())
    return kvlease::fail(errc::invalid, "an aux piece needs a slot, and the session took none");
  for (const auto& [id, p] : pieces_) {
    if (p.peer != peer || p.kind != kind || (kind == piece_kind::kv && p.last == last_piece::no)) continue;
    return kvlease::fail(errc::state, fmt::format("peer {} has its last piece of this kind", peer));
  }
  const auto id = table_.pieces_drawn_.next();
  pieces_.emplace(id, piece_state{.peer = peer, .kind = kind, .last = last, .value = std::nullopt});
  queue_.push_back(id);
  return id;
}

std::optional<piece_id> send_session::next(time_point now) {
  catch_up(now);
  if (queue_.empty()) return std::nullopt;
  const auto id = queue_.front();
  queue_.pop_front();
  owner_.begin(id.value, id);
  return id;
}

result<void> send_session::submit(time_point now, piece_id piece, std::shared_ptr<void> root) {
  catch_up(now);
  auto exposed = owner_.submit(now, piece.value, std::move(root));
  if (!exposed && owner_.state(piece.value) == send_state::not_submitted) {
    end(now, failed{"admission is closed"}, "failed");
    tell_over(piece, false);
    withdraw(now);
  }
  return exposed;
}

result<void> send_session::unsubmitted(time_point now, piece_id piece) {
  catch_up(now);
  auto retired = owner_.retire_unsubmitted(piece.value);
  if (retired) {
    end(now, failed{"a piece was not submitted"}, "failed");
    tell_over(piece, false);
    withdraw(now);
  }
  return retired;
}

result<void> send_session::submitted(time_point now, piece_id piece, send_owner::completion_query done) {
  catch_up(now);
  return owner_.submitted(piece.value, std::move(done));
}

void send_session::delivered(time_point now, piece_id piece) {
  catch_up(now);
  const auto at = owner_.state(piece.value);
  if (at == send_state::submitting || at == send_state::submitted || at == send_state::backend_done)
    decide_piece(piece, transferred{});
  look(now);
}

bool send_session::backend_done(time_point now, piece_id piece) {
  catch_up(now);
  if (owner_.state(piece.value) == send_state::submitted) decide_piece(piece, transferred{});
  const bool proven = owner_.retire_done(now, piece.value);
  if (proven) tell_over(piece, false);
  look(now);
  return proven;
}

void send_session::backend_failed(time_point now, piece_id piece, const std::string& reason) {
  catch_up(now);
  owner_.in_doubt(now, piece.value);  // first: the drain's reason is the doubt
  if (owner_.state(piece.value) != send_state::in_doubt) return;
  auto& p = pieces_.at(piece);
  if (!std::exchange(p.doubted, true)) emit(piece_in_doubt{id(), request(), piece, p.peer});
  decide_piece(piece, failed{reason});
  fail(now, reason);
}

bool send_session::answered(time_point now, piece_id piece, bool done) {
  catch_up(now);
  if (!owner_.answered(now, piece.value, done)) return false;
  tell_over(piece, true);
  return true;
}

bool send_session::drained(time_point now) {
  catch_up(now);
  return queue_.empty() && owner_.drained(now);
}

std::optional<session_outcome> send_session::piece_outcome(piece_id piece) const {
  const auto it = pieces_.find(piece);
  return it == pieces_.end() ? std::nullopt : it->second.value;
}

void send_session::decide_piece(piece_id piece, session_outcome value) {
  const auto it = pieces_.find(piece);
  if (it == pieces_.end() || it->second.value) return;
  it->second.value = std::move(value);
  emit(piece_decided{id(), piece, it->second.peer, *it->second.value});
}

void send_session::tell_over(piece_id piece, bool was_in_doubt) {
  auto& p = pieces_.at(piece);
  if (std::exchange(p.over, true)) return;
  const bool succeeded = p.value && std::holds_alternative<transferred>(*p.value);
  emit(piece_over{id(), request(), piece, p.peer, succeeded, was_in_doubt});
}

bool send_session::all_arrived() const {
  const auto has = [&](peer_rank peer, piece_kind kind) {
    return std::ranges::any_of(pieces_, [&](const auto& entry) {
      const auto& p = entry.second;
      return p.peer == peer && p.kind == kind && (kind == piece_kind::aux || p.last == last_piece::yes);
    });
  };
  const auto arrived = [](const auto& entry) {
    return entry.second.value && std::holds_alternative<transferred>(*entry.second.value);
  };
  return std::ranges::all_of(pieces_, arrived) && std::ranges::all_of(peers_, [&](peer_rank peer) {
           return has(peer, piece_kind::kv) && (!with_aux() || has(peer, piece_kind::aux));
         });
}

void send_session::on_decided(const session_outcome& value) {
  for (const auto& entry : pieces_) decide_piece(entry.first, value);
}

void send_session::withdraw(time_point) {
  for (const auto piece : std::exchange(queue_, {})) tell_over(piece, false);
}

// ---- receive_session

receive_session::destination* receive_session::find(piece_id piece) {
  const auto it = destinations_.find(piece);
  return it == destinations_.end() ? nullptr : &it->second;
}

const receive_owner* receive_session::destination_of(piece_id piece) const {
  const auto it = destinations_.find(piece);
  return it == destinations_.end() ? nullptr : &it->second.owner;
}

bool receive_session::knows(peer_rank who) const {
  return std::ranges::any_of(destinations_, [&](const auto& entry) { return entry.second.owner.knows(who); });
}

result<piece_id> receive_session::prepare(time_point now, piece_kind kind, last_piece last, cohort writers) {
  catch_up(now);
  if (outcome()) return kvlease::fail(errc::state, "the session is decided: " + to_string(*outcome()));
  if (kind == piece_kind::aux && !with_aux())
    return kvlease::fail(errc::invalid, "an aux destination needs a slot, and the session took none");
  const auto claim = table_.pieces_drawn_.next();
  destination d{kind, last, {clocks(), id(), claim}};
  auto sealed = d.owner.seal(writers.count, std::move(writers.members), std::move(writers.candidates));
  if (!sealed) {
    end(now, failed{sealed.error().text}, "failed");
    withdraw(now);
    return tl::unexpected{sealed.error()};
  }
  destinations_.emplace(claim, std::move(d));
  return claim;
}

bool receive_session::begin_publication(time_point now) {
  catch_up(now);
  std::vector<receive_owner*> together;
  for (auto& [claim, d] : destinations_)
    if (!d.owner.begun()) together.push_back(&d.owner);
  if (receive_owner::begin_publication(now, together)) return true;
  end(now, failed{"admission is closed"}, "failed");
  withdraw(now);
  return false;
}

void receive_session::published(time_point now) {
  catch_up(now);
  for (auto& [claim, d] : destinations_) d.owner.finish_publication(now);
  look(now);
}

void receive_session::publication_aborted(time_point now, const std::set<peer_rank>& reached) {
  catch_up(now);
  for (auto& [claim, d] : destinations_) {
    std::set<peer_rank> mine;
    std::ranges::set_intersection(d.owner.members(), reached, std::inserter(mine, mine.end()));
    d.owner.abort_publication(now, mine);
  }
  fail(now, "the publication was aborted");
}

result<receive_owner::reported> receive_session::writer_result(time_point now, piece_id piece, peer_rank who,
                                                               bool succeeded, bool wait_for_local_copy) {
  catch_up(now);
  auto* d = find(piece);
  if (d == nullptr) return kvlease::fail(errc::unknown, "no such destination: " + to_string(piece));
  auto got = d->owner.writer_result(now, who, succeeded, wait_for_local_copy);
  if (got && got->accepted && !succeeded) fail(now, fmt::format("writer {} failed", who));
  look(now);
  return got;
}

void receive_session::writer_in_doubt(time_point now, piece_id piece, peer_rank who) {
  catch_up(now);
  if (auto* d = find(piece)) d->owner.writer_in_doubt(now, who);
}

bool receive_session::writer_settled(time_point now, piece_id piece, peer_rank who) {
  catch_up(now);
  auto* d = find(piece);
  if (d == nullptr || !d->owner.writer_settled(now, who)) return false;
  fail(now, fmt::format("writer {} was in doubt", who));
  return true;
}

result<void> receive_session::quiesced(time_point now, peer_rank who) {
  catch_up(now);
  if (destinations_.empty()) return {};  // nobody was told of anything
  const bool known = knows(who);
  result<void> all;
  for (auto& [claim, d] : destinations_) {
    if (known && !d.owner.knows(who)) continue;
    const auto one = d.owner.session_quiesced(now, who);
    if (!one) all = one;
  }
  return all;
}

void receive_session::local_copy_ended(time_point now, piece_id piece) {
  catch_up(now);
  if (auto* d = find(piece)) d->owner.finish_local_completion(now);
  look(now);
}

bool receive_session::drained(time_point now) {
  catch_up(now);
  const bool any = std::ranges::any_of(destinations_, [](const auto& e) { return e.second.owner.begun(); });
  return (any || withdrawn_) && clocks().can_retire(now, id()) &&
         std::ranges::all_of(destinations_, [](const auto& entry) { return entry.second.owner.drained(); });
}

bool receive_session::all_arrived() const {
  const auto has = [&](piece_kind kind) {
    return std::ranges::any_of(destinations_, [&](const auto& entry) {
      return entry.second.kind == kind && (kind == piece_kind::aux || entry.second.last == last_piece::yes);
    });
  };
  return has(piece_kind::kv) && (!with_aux() || has(piece_kind::aux)) &&
         std::ranges::all_of(destinations_,
                             [](const auto& entry) { return entry.second.owner.all_succeeded(); });
}

void receive_session::withdraw(time_point now) {
  withdrawn_ = true;
  for (auto& [claim, d] : destinations_) d.owner.cancel_unpublished(now);
}

void receive_session::on_failed(time_point now) {
  // Who prepares a destination may be about to publish it, so that is his to give up: by cancel, by shutdown,
  // or by a reservation that is refused.
  if (std::ranges::any_of(destinations_, [](const auto& e) { return e.second.owner.begun(); })) withdraw(now);
}

// ---- session_table

result<std::unique_ptr<session_table>> session_table::make(
    retirement* clocks, std::optional<std::chrono::duration<double>> timeout, incarnation of) {
  if (clocks == nullptr)
    return fail(errc::invalid, "deadline retirement requires ownership by retirement clocks");
  if (!timeout) return fail(errc::invalid, "deadline retirement requires a timeout");
  const auto span = transfer_timeout::make(*timeout);
  if (!span) return fail(errc::invalid, "deadline retirement requires a timeout: " + span.error().text);
  return std::unique_ptr<session_table>{new session_table{clocks, *span, of}};
}

result<session::identity> session_table::admit(time_point now, const setup& s, direction way) {
  advance(now);
  const auto owner = clocks_->create_owner(now, s.request, way, timeout_);
  if (!owner) return tl::unexpected{owner.error()};
  session::identity who{*owner, s.request, std::nullopt};
  if (!s.take_slot) return who;
  result<void> ready;
  if (const auto slot = s.take_slot()) {
    who.slot = *slot;
    if (s.enroll) ready = s.enroll(*slot);
  } else {
    ready = tl::unexpected{slot.error()};
  }
  if (ready) return who;
  clocks_->close(now, *owner);
  if (who.slot) events_.push_back(slot_freed{*owner, *who.slot});
  return tl::unexpected{ready.error()};
}

result<std::shared_ptr<send_session>> session_table::open_send(time_point now, const setup& s,
                                                               std::set<peer_rank> peers) {
  if (peers.empty()) return fail(errc::invalid, "a send session needs a peer");
  const auto who = admit(now, s, direction::publish);
  if (!who) return tl::unexpected{who.error()};
  const std::shared_ptr<send_session> made{new send_session{*this, *who, std::move(peers)}};
  sessions_.emplace(who->id, made);
  return made;
}

result<std::shared_ptr<receive_session>> session_table::open_receive(time_point now, const setup& s) {
  const auto who = admit(now, s, direction::fetch);
  if (!who) return tl::unexpected{who.error()};
  const std::shared_ptr<receive_session> made{new receive_session{*this, *who}};
  sessions_.emplace(who->id, made);
  return made;
}

void session_table::advance(time_point now) {
  clocks_->advance(now);
  for (auto& event : clocks_->take_events()) {
    if (const auto* expired = std::get_if<request_expired>(&event)) {
      const auto it = sessions_.find(expired->owner);
      if (it == sessions_.end()) continue;
      it->second->decide(failed{"transfer timeout"});
      it->second->withdraw(now);
    } else if (auto* drain = std::get_if<drain_started>(&event)) {
      events_.emplace_back(std::move(*drain));
    } else {
      const auto fatal = std::get<fatal_record>(event);
      for (const auto& s : sessions()) s->decide(failed{"fatal: " + fatal.reason});
      events_.emplace_back(fatal);
    }
  }
}

result<void> session_table::shutdown(time_point now) {
  advance(now);
  clocks_->request_shutdown(now);
  for (const auto& s : sessions()) {
    s->end(now, cancelled{cancelled_by::local}, "shutdown");
    s->withdraw(now);
    s->close(now);
  }
  if (clocks_->fatal()) return fail(errc::state, "shutdown refused: fatal, " + clocks_->fatal()->reason);
  if (!sessions_.empty()) {
    std::string text = fmt::format("shutdown refused: {} sessions are not drained", sessions_.size());
    for (const auto& [id, s] : sessions_)
      text += "; " + to_string(id) + " of request " + to_string(s->request());
    return fail(errc::state, std::move(text));
  }
  if (!std::exchange(deregistered_, true)) events_.emplace_back(may_deregister{});
  return {};
}

std::vector<std::shared_ptr<session>> session_table::sessions() const {
  std::vector<std::shared_ptr<session>> all;
  all.reserve(sessions_.size());
  for (const auto& [id, s] : sessions_) all.push_back(s);
  return all;
}

}  // namespace kvlease
