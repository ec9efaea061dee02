#include "src/acknowledgment.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvlease {

// ---- cancel_registry

void cancel_registry::cancel(time_point now, request_id request, std::optional<cancel_asker> from) {
  const auto origin = from ? cancelled_by::peer : cancelled_by::local;
  auto& f = fences_.try_emplace(request, fence{.origin = origin}).first->second;
  f.consumed = false;
  if (from) f.asked.try_emplace(*from, false);
  const auto by = f.origin;
  for (const auto& s : sessions_.sessions())
    if (s->request() == request) s->cancel(now, by);
  advance(now);
}

void cancel_registry::sweep(time_point oldest) {
  std::erase_if(data_, [&](const auto& entry) { return entry.second < oldest; });
}

void cancel_registry::apply_fence(time_point now, session& opened) {
  data_.erase(opened.request());
  const auto it = fences_.find(opened.request());
  if (it == fences_.end() || it->second.consumed) return;
  opened.cancel(now, it->second.origin);
  it->second.consumed = mode_ == fence_mode::consumed_once;
  advance(now);
}

bool cancel_registry::fenced(request_id request) const {
  const auto it = fences_.find(request);
  return it != fences_.end() && !it->second.consumed;
}

result<std::shared_ptr<send_session>> cancel_registry::open_send(time_point now,
                                                                 const session_table::setup& s,
                                                                 std::set<peer_rank> peers) {
  auto made = sessions_.open_send(now, s, std::move(peers));
  if (made) apply_fence(now, **made);
  return made;
}

result<std::shared_ptr<receive_session>> cancel_registry::open_receive(time_point now,
                                                                       const session_table::setup& s) {
  auto made = sessions_.open_receive(now, s);
  if (made) apply_fence(now, **made);
  return made;
}

bool cancel_registry::open(time_point now, request_id request) const {
  return std::ranges::any_of(sessions_.sessions(),
                             [&](const auto& s) { return s->request() == request && !s->drained(now); });
}

void cancel_registry::queue(const session_event& e) {
  using kind = notice::kind;
  if (const auto* d = std::get_if<piece_in_doubt>(&e))
    outbox_.push_back({.what = kind::in_doubt, .request = d->request, .to = d->peer, .piece = d->piece});
  if (const auto* o = std::get_if<piece_over>(&e))
    outbox_.push_back({.what = o->was_in_doubt ? kind::settlement : kind::result,
                       .request = o->request,
                       .to = o->peer,
                       .piece = o->piece,
                       .succeeded = o->succeeded});
}

void cancel_registry::advance(time_point now) {
  sessions_.advance(now);
  std::vector<notice> due;
  for (auto& [request, f] : fences_) {
    if (std::ranges::all_of(f.asked, [](const auto& a) { return a.second; }) || open(now, request)) continue;
    for (auto& [who, queued] : f.asked) {
      if (std::exchange(queued, true)) continue;
      due.push_back(
          {.what = notice::kind::acknowledgment, .request = request, .to = who.peer, .session = who.session});
    }
  }
  for (auto& e : sessions_.take_events()) {  // results first: an acknowledgment is the last word of a session
    queue(e);
    events_.push_back(std::move(e));
  }
  outbox_.insert(outbox_.end(), due.begin(), due.end());
  std::erase_if(fences_, [](const auto& entry) {
    const auto& f = entry.second;
    return f.consumed && std::ranges::all_of(f.asked, [](const auto& a) { return a.second; });
  });
}

std::optional<notice> cancel_registry::next() const {
  if (outbox_.empty()) return std::nullopt;
  return outbox_.front();
}

void cancel_registry::sent(bool arrived) {
  if (outbox_.empty() || (!arrived && failures_++ == 0)) return;
  if (!arrived) ++given_up_;
  failures_ = 0;
  outbox_.pop_front();
}

// ---- cancel_round

result<void> cancel_round::acknowledged(time_point now, const acknowledgment& a) {
  if (a.session != session_->id() || a.request != session_->request()) {
    ++rejected_;
    return fail(errc::unknown,
                fmt::format("acknowledgment by {} is for session {} of request {}, not {} of {}", a.from,
                            to_string(a.session), to_string(a.request), to_string(session_->id()),
                            to_string(session_->request())));
  }
  // A candidate that no destination knows was never told of one.
  if (candidates_.contains(a.from) && !session_->knows(a.from)) {
    heard_.insert(a.from);
    return {};
  }
  auto counted = session_->quiesced(now, a.from);
  if (counted) heard_.insert(a.from);
  return counted;
}

}  // namespace kvlease
