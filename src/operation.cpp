#include "src/operation.hpp"

#include "src/extent.hpp"
#include "src/guard.hpp"

namespace kvlease {

std::string_view to_string(access_phase p) noexcept {
  constexpr std::string_view names[] = {"exposing", "queued", "running", "disputed", "escaped", "ended"};
  return names[static_cast<std::size_t>(p)];
}
std::string_view to_string(copy_phase p) noexcept {
  constexpr std::string_view names[] = {"not_started", "pending", "complete", "unproven"};
  return names[static_cast<std::size_t>(p)];
}
std::string_view to_string(claim_phase p) noexcept {
  constexpr std::string_view names[] = {"held", "settling", "released", "fatal"};
  return names[static_cast<std::size_t>(p)];
}

std::vector<operation_effect> operation::apply(const operation_event& event) {
  effects out;
  std::visit([&](const auto& e) { on(e, out); }, event);
  return out;
}

void operation::propose(outcome value, effects& out) {
  if (!outcome_) out.push_back(op_effect::commit{std::move(value)});
}

void operation::collect(effects& out) {
  if (proof_ && !mutated(mutation::two_proofs)) return;  // one proof in flight, never two (5.4)
  access_ = access_phase::running;
  out.push_back(op_effect::collect_proof{});
}

void operation::maybe_cancel(effects& out) {
  // After the commitment, once, and only where there is something to cancel (5.5).
  if (!outcome_ || std::holds_alternative<delivered>(*outcome_) || !has_attempt_) return;
  if (claim_ == claim_phase::released || (cancel_sent_ && !mutated(mutation::cancel_repeats))) return;
  cancel_sent_ = true;
  out.push_back(op_effect::request_cancel{});
}

void operation::advance(effects& out) {
  if (claim_ != claim_phase::held) return;  // settling or released; after fatal nothing moves (4.5)
  const bool ended = access_ == access_phase::ended || mutated(mutation::release_at_outcome);
  if (!outcome_ || !ended) return;
  if (copies_ == copy_phase::not_started) {
    copies_ = copy_phase::pending;
    row_masks masks;
    if (way_ == direction::fetch) {
      const auto* ok = std::get_if<delivered>(&*outcome_);
      masks = view_->masks();
      if (ok != nullptr || mutated(mutation::mark_undelivered)) {
        auto served =
            ok != nullptr ? served_masks(*view_, ok->served()) : result<row_masks>{view_->masks(true)};
        if (served) masks = mutated(mutation::mask_widened) ? view_->masks(true) : *std::move(served);
      }
    }
    out.push_back(op_effect::finish_lease{std::move(masks)});
    if (!mutated(mutation::settle_before_copies)) return;
  }
  if (copies_ == copy_phase::complete || mutated(mutation::settle_before_copies)) {
    claim_ = claim_phase::settling;
    if (mutated(mutation::release_unsettled)) {
      claim_ = claim_phase::released;
      out.push_back(op_effect::release{});
    } else {
      out.push_back(op_effect::settle{});
    }
  }
}

void operation::on(const op_event::granted&, effects& out) {
  if (access_ != access_phase::exposing) return void(++rejected_);
  if (outcome_ && !mutated(mutation::call_after_outcome)) {  // decided while the grant was under way (5.3)
    access_ = access_phase::ended;
    return advance(out);
  }
  access_ = access_phase::queued;
  out.push_back(op_effect::start_backend{});
}

void operation::on(const op_event::refused&, effects& out) {
  if (access_ != access_phase::exposing) return void(++rejected_);
  if (mutated(mutation::call_when_refused)) out.push_back(op_effect::start_backend{});
  access_ = access_phase::ended;
  advance(out);
}

void operation::on(const op_event::accepted&, effects& out) {
  if (access_ != access_phase::queued) return void(++rejected_);
  has_attempt_ = true;
  collect(out);
  maybe_cancel(out);
}

void operation::on(const op_event::rejected& e, effects& out) {
  if (access_ != access_phase::queued) return void(++rejected_);
  access_ = access_phase::ended;
  propose(failed{"submission rejected: " + e.reason}, out);
  advance(out);
}

void operation::on(const op_event::withdrawn&, effects& out) {
  if (access_ != access_phase::queued) return void(++rejected_);
  access_ = access_phase::ended;
  propose(failed{"submission withdrawn"}, out);
  advance(out);
}

void operation::on(const op_event::escaped& e, effects& out) {
  if (access_ != access_phase::queued) return void(++rejected_);
  access_ = mutated(mutation::escape_is_rejection) ? access_phase::ended : access_phase::escaped;
  propose(failed{e.reason}, out);
  if (access_ == access_phase::escaped)
    out.push_back(op_effect::retain{"submission escaped without an Attempt: " + e.reason});
  advance(out);
}

void operation::on(const op_event::reported& e, effects& out) {
  if (reported_ || outcome_) return void(++rejected_);
  reported_ = true;
  const auto* ok = std::get_if<delivered>(&e.value);
  if (ok == nullptr) {
    if (mutated(mutation::error_as_miss)) return propose(delivered{{}}, out);
    return propose(e.value, out);
  }
  if (ok->served().empty() && mutated(mutation::miss_as_error)) return propose(failed{"miss"}, out);
  const auto served = served_masks(*view_, ok->served());
  if (served || mutated(mutation::unknown_served))
    propose(e.value, out);
  else
    propose(failed{"provider served what was not asked for: " + served.error().text}, out);
}

void operation::on(const op_event::decided& e, effects& out) {
  if (outcome_ && !mutated(mutation::last_outcome_wins)) return void(++rejected_);
  outcome_ = e.value;
  maybe_cancel(out);
  if (claim_ == claim_phase::held) out.push_back(op_effect::awaiting_proof{});
  advance(out);
  if (access_ == access_phase::disputed && mutated(mutation::dispute_retries_itself)) collect(out);
  // Nobody needs the call any more. Last: what comes of it is an event of its own (5.3).
  if (access_ == access_phase::queued && !mutated(mutation::withdrawal_skipped))
    out.push_back(op_effect::withdraw_submission{});
}

void operation::on(const op_event::access_ended& e, effects& out) {
  if (proof_ != e.proof && !mutated(mutation::stale_proof_counts)) return void(++rejected_);
  proof_.reset();
  if (access_ != access_phase::running && !mutated(mutation::stale_proof_counts)) return void(++rejected_);
  access_ = access_phase::ended;
  advance(out);
}

void operation::on(const op_event::access_unproven& e, effects& out) {
  if (proof_ != e.proof) return void(++rejected_);
  proof_.reset();
  access_ = mutated(mutation::dispute_is_proof) ? access_phase::ended : access_phase::disputed;
  if (!mutated(mutation::dispute_is_proof))
    out.push_back(op_effect::retain{"backend access end unproven: " + e.reason});
  advance(out);
}

void operation::on(const op_event::copies_ended&, effects& out) {
  if (copies_ != copy_phase::pending) return void(++rejected_);
  copies_ = copy_phase::complete;
  advance(out);
}

void operation::on(const op_event::copies_unproven& e, effects& out) {
  if (copies_ != copy_phase::pending) return void(++rejected_);
  copies_ = mutated(mutation::copy_error_is_done) ? copy_phase::complete : copy_phase::unproven;
  if (copies_ == copy_phase::unproven)
    out.push_back(op_effect::retain{"local copy evidence unavailable: " + e.reason});
  advance(out);
}

void operation::on(const op_event::authorised&, effects& out) {
  if (claim_ != claim_phase::settling) return void(++rejected_);
  claim_ = claim_phase::released;
  out.push_back(op_effect::release{});
}

void operation::on(const op_event::not_authorised&, effects&) {
  if (claim_ == claim_phase::settling) claim_ = claim_phase::fatal;
}

void operation::on(const op_event::cancel& e, effects& out) {
  if (outcome_) {  // a late cancel changes nothing
    if (mutated(mutation::cancel_repeats)) maybe_cancel(out);
    return;
  }
  if (mutated(mutation::cancel_before_commit) && has_attempt_ && !cancel_sent_) {
    cancel_sent_ = true;
    out.push_back(op_effect::request_cancel{});
  }
  propose(cancelled{e.who}, out);
}

void operation::on(const op_event::retry_proof&, effects& out) {
  const bool idle = access_ == access_phase::disputed;
  if ((idle || (proof_ && mutated(mutation::two_proofs))) && claim_ == claim_phase::held) collect(out);
}

void operation::on(const op_event::fatal&, effects&) {
  if (claim_ != claim_phase::released && !mutated(mutation::adapter_ignores_fatal))
    claim_ = claim_phase::fatal;
}

void operation::on(const op_event::backend_down& e, effects& out) {
  if (access_ == access_phase::queued) {
    if (e.token_withdrawn || (!e.attempt_rooted && mutated(mutation::lost_answer_is_rejection))) {
      access_ = access_phase::ended;
    } else if (e.attempt_rooted) {
      has_attempt_ = true;
      collect(out);
    } else {
      access_ = access_phase::escaped;
      out.push_back(op_effect::retain{"submission escaped without an Attempt: backend is down"});
    }
  } else if (access_ == access_phase::exposing || reported_) {
    return;  // nothing of it was at the backend, or all of its news has come
  }
  propose(failed{"backend is down"}, out);
  advance(out);
}

void operation::on(const op_event::collector_down&, effects& out) {
  if (!proof_) return;
  on(op_event::access_unproven{*proof_, "proof collector is down"}, out);
}

void operation::on(const op_event::lender_down&, effects& out) {
  if (copies_ == copy_phase::pending) on(op_event::copies_unproven{"lender is down"}, out);
  propose(failed{"lender is down"}, out);
}

}  // namespace kvlease
