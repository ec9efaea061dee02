#include "src/providers/tier/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace kvlease {

tier_transfer::tier_transfer(std::shared_ptr<transfer_book> book, std::shared_ptr<const tier_stack> stack,
                             direction way, const cache_extent& extent)
    : unit_transfer{std::move(book), way, extent}, stack_{std::move(stack)} {}

void tier_transfer::begin(std::size_t tier, std::vector<unit> units, route* along) {
  part p;
  p.tier = tier;
  auto& store = *stack_->tiers[tier].store;
  const auto end = extent().is_last() ? end_of_sequence::yes : end_of_sequence::no;
  const auto asked = cache_extent::make(extent().name(), std::move(units), end);
  try {
    p.given = way() == direction::fetch ? store.as_fetches()->fetch(*asked, along)
                                        : store.as_publishes()->publish(*asked);
    if (p.given == nullptr) p.value = failed{"it gave no attempt"};
  } catch (const submission_rejected&) {
    throw;
  } catch (const std::exception& e) {
    p.value = failed{e.what()};
  } catch (...) {
    p.value = failed{"an exception of an unknown type"};
  }
  p.unproven = p.given == nullptr;  // it may have escaped
  parts_.push_back(std::move(p));
}

void tier_transfer::start(route* along, std::size_t along_tier) {
  const std::lock_guard lock{mutex_};
  if (way() == direction::fetch) {
    next_tier_ = 1;
    begin(0, extent().units(), along_tier == 0 ? along : nullptr);
    return;
  }
  for (std::size_t i = 0; i < stack_->tiers.size(); ++i) {
    try {
      begin(i, extent().units(), nullptr);
    } catch (const submission_rejected& e) {
      if (!stack_->tiers[i].required) continue;
      if (parts_.empty()) throw;
      if (reason_.empty()) reason_ = fmt::format("tier {} rejected the submission: {}", i, e.what());
      return;  // the others would be in vain
    }
  }
  if (parts_.empty()) throw submission_rejected{fmt::format("{}: every tier rejected it", book().who)};
}

void tier_transfer::advance() {
  if (wanted_.fetch_add(1) > 0) return;
  const auto self = shared_from_this();
  for (int seen = 1;;) {
    {
      const std::lock_guard lock{mutex_};
      step();
    }
    close_when_ended();
    // Somebody who has asked meanwhile must not be forgotten.
    const int more = wanted_.fetch_sub(seen) - seen;
    if (more == 0) return;
    seen = more;
  }
}

void tier_transfer::look_at(part& p) {
  if (p.given == nullptr) return;
  auto& store = *stack_->tiers[p.tier].store;
  try {
    if (!p.value) p.value = p.given->poll();
    if (p.ended) return;
    if (auto* asks = store.as_pollable()) {
      const auto answer = asks->poll_access(*p.given);
      if (answer.state == access_state::ended) p.ended = answer.source;
      p.unproven = answer.state == access_state::unproven;
    } else if (p.quiesced != nullptr) {
      if (*p.quiesced) p.ended = proof_source::terminal_status;
    } else if (p.value && book().context.exec != nullptr) {
      // It can only be waited for: on a worker, whose thread it may keep.
      p.quiesced = std::make_shared<std::atomic<bool>>(false);
      auto* waits = way() == direction::fetch ? static_cast<deliveries*>(store.as_fetches())
                                              : static_cast<deliveries*>(store.as_publishes());
      book().context.exec->post(
          [self = shared_from_this(), stack = stack_, waits, given = p.given, done = p.quiesced] {
            const std::shared_ptr<attempt> one[] = {given};
            if (waits->quiesce(one)) *done = true;
            std::static_pointer_cast<tier_transfer>(self)->advance();
          });
    }
  } catch (const std::exception& e) {
    if (!p.value) p.value = failed{e.what()};
    p.unproven = true;
  }
}

void tier_transfer::step() {
  for (auto& p : parts_) look_at(p);
  unproven_ = std::ranges::any_of(parts_, &part::unproven);
  if (decided_) return;
  way() == direction::fetch ? decide_fetch() : decide_publish();
}

std::vector<unit> tier_transfer::missing() const {
  std::vector<unit> units;
  std::ranges::copy_if(extent().units(), std::back_inserter(units),
                       [&](const unit& u) { return !served_.contains(u.name()); });
  return units;
}

void tier_transfer::decide_fetch() {
  while (!parts_.empty() && parts_.back().value) {
    const auto& last = parts_.back();
    const auto* got = std::get_if<delivered>(&*last.value);
    if (got != nullptr) {
      served_.insert(got->served().begin(), got->served().end());
    } else if (const auto* f = std::get_if<failed>(&*last.value); f != nullptr && reason_.empty()) {
      reason_ = fmt::format("tier {}: {}", last.tier, f->reason());
    }
    const bool stopped = std::holds_alternative<cancelled>(*last.value) || cancel_asked();
    const bool falls_through = got != nullptr || (stack_->past_failures && !stopped);
    const bool more = next_tier_ < stack_->tiers.size() && served_.size() < extent().units().size();
    if (stopped && served_.size() < extent().units().size()) {
      decided_ = true;
      return finish(cancelled{cancelled_by::local});
    }
    if (!more || !falls_through) break;
    // The slots of the missing units may still be written by the tier before.
    if (unproven_) break;
    if (std::ranges::any_of(parts_, [](const part& p) { return !p.ended; })) return;
    const auto tier = next_tier_++;
    try {
      begin(tier, missing(), nullptr);
    } catch (const submission_rejected& e) {
      if (reason_.empty()) reason_ = fmt::format("tier {} rejected the submission: {}", tier, e.what());
      if (!stack_->past_failures) break;
      continue;
    }
    look_at(parts_.back());
  }
  if (parts_.empty() || !parts_.back().value) return;
  decided_ = true;
  if (served_.empty() && !reason_.empty()) return finish(failed{reason_});
  finish(delivered{served_});
}

void tier_transfer::decide_publish() {
  std::optional<std::set<bytes>> everywhere;
  bool was_cancelled = false;
  for (const auto& p : parts_) {
    if (!stack_->tiers[p.tier].required) continue;
    if (!p.value) return;
    if (const auto* f = std::get_if<failed>(&*p.value)) {
      if (reason_.empty()) reason_ = fmt::format("tier {}: {}", p.tier, f->reason());
    } else if (const auto* d = std::get_if<delivered>(&*p.value)) {
      std::set<bytes> both;
      if (everywhere)
        std::ranges::set_intersection(*everywhere, d->served(), std::inserter(both, both.end()));
      everywhere = everywhere ? std::move(both) : d->served();
    } else {
      was_cancelled = true;
    }
  }
  decided_ = true;
  if (!reason_.empty()) return finish(failed{reason_});
  if (was_cancelled) return finish(cancelled{cancelled_by::local});
  finish(delivered{everywhere.value_or(std::set<bytes>{})});
}

/// Without the lock: who hears of the end may let go of the last handle.
void tier_transfer::close_when_ended() {
  auto how = proof_source::terminal_status;
  {
    const std::lock_guard lock{mutex_};
    if (!decided_ || unproven_) return;
    for (const auto& p : parts_) {
      if (!p.ended) return;
      if (*p.ended != proof_source::terminal_status) how = *p.ended;
    }
  }
  over_.store(true, std::memory_order_release);
  end_access(how);
}

cancel_disposition tier_transfer::request_cancel() {
  unit_transfer::request_cancel();
  std::vector<std::shared_ptr<attempt>> running;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& p : parts_)
      if (p.given != nullptr && !p.value) running.push_back(p.given);
  }
  for (const auto& a : running) kvlease::request_cancel(*a);
  return cancel_disposition::requested;
}

}  // namespace kvlease
