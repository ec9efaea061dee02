#include "src/providers/ucx/fetch.hpp"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <utility>

namespace kvlease {

ucx_fetch::ucx_fetch(const std::shared_ptr<ucx_node>& node, std::shared_ptr<transfer_book> book,
                     const cache_extent& extent, std::shared_ptr<ucx_target> target)
    : unit_transfer{std::move(book), direction::fetch, extent},
      node_{node},
      on_{node.get()},
      target_{std::move(target)},
      walk_{extent.units().size(), target_ ? 1 : node->peers().size()} {}

cancel_disposition ucx_fetch::request_cancel() {
  if (unit_transfer::request_cancel(); const auto node = node_.lock())
    node->post([me = self()] { me->cancel(); });
  return cancel_disposition::requested;
}

// ---- From the own pool -----------------------------------------------------------------------------------

result<bool> ucx_fetch::serve_from(export_pool& pool) {
  for (std::size_t i = 0; i < places().size(); ++i) {
    const auto memory = places()[i].memory;
    const auto content = pool.get(extent().name(), unit_at(i).name());
    if (!content) continue;
    if (content->size != memory.size()) return fail(errc::invalid, size_text(i, content->size));
    touch(i, touch_kind::write);
    if (!memory.empty()) std::memcpy(memory.data(), content->data.get(), memory.size());
    walk_.served(i);
  }
  return walk_.done();
}

void ucx_fetch::deliver() {
  std::set<bytes> served;
  for (std::size_t i = 0; i < places().size(); ++i)
    if (walk_.is_served(i)) served.insert(unit_at(i).name());
  finish_and_end(delivered{std::move(served)});
}

// ---- Over the wire ---------------------------------------------------------------------------------------

void ucx_fetch::begin() {
  if (cancel_asked()) return cancel();
  advance();
}

/// Asks what is to be asked now, until all is asked or there is an outcome. An answer that comes from inside
/// it is seen by the loop.
void ucx_fetch::advance() {
  if (over_ || std::exchange(advancing_, true)) return;
  while (!over_) {
    const auto questions = walk_.take_questions();
    if (questions.empty()) break;
    for (const auto& q : questions) ask(q);
  }
  advancing_ = false;
  if (over_ || !walk_.done()) return;
  if (!walk_.failure().empty()) return decide(failed{walk_.failure()});
  over_ = true;
  deliver();
}

void ucx_fetch::ask(const source_walk::question& q) {
  const auto& from = target_ ? target_->peer : on_->peers()[q.source];
  if (!from) {
    for (const auto i : q.units) walk_.lost(i, "the route was closed");
    return;
  }
  std::vector<ucx_wanted> wanted;
  wanted.reserve(q.units.size());
  for (const auto i : q.units) wanted.push_back({unit_at(i).name(), places()[i].memory.size()});
  on_->client().ask(*from, self(), ucx_ask::fetch, extent().name(), q.units, wanted);
}

std::optional<std::span<std::byte>> ucx_fetch::land(std::size_t unit) {
  if (over_) return std::nullopt;
  touch(unit, touch_kind::write);
  ++landing_;
  return places()[unit].memory;
}

void ucx_fetch::landed(std::size_t unit, const unit_frame& frame, const std::string& why, bool by_force) {
  --landing_;
  by_force_ = by_force_ || by_force;
  if (over_) return end_if_over();
  if (!why.empty()) {
    walk_.lost(unit, why);
  } else if (checksum_of(places()[unit].memory) != frame.checksum) {
    return decide(failed{
        fmt::format("{}: the checksum of what came differs: it is damaged", unit_text(unit_at(unit)))});
  } else {
    walk_.served(unit);
  }
  advance();
}

void ucx_fetch::absent(std::size_t unit) {
  if (over_) return;
  walk_.absent(unit);
  advance();
}

void ucx_fetch::other_size(std::size_t unit, std::uint64_t size) { decide(failed{size_text(unit, size)}); }

void ucx_fetch::lost(std::size_t unit, const std::string& why) {
  if (over_) return;
  walk_.lost(unit, why);
  advance();
}

void ucx_fetch::taken_down(const std::string& why) { decide(failed{why}); }

void ucx_fetch::cancel() { decide(cancelled{cancelled_by::local}); }

/// The first decision stands. Nothing begins to land after it, what lands already may go on.
void ucx_fetch::decide(outcome o) {
  if (std::exchange(over_, true)) return;
  const auto keep = self();
  on_->client().withdraw(*this);
  finish(std::move(o));
  end_if_over();
}

void ucx_fetch::end_if_over() {
  if (over_ && landing_ == 0)
    end_access(by_force_ ? proof_source::endpoint_closed : proof_source::terminal_status);
}

std::string ucx_fetch::size_text(std::size_t unit, std::uint64_t size) const {
  return fmt::format("{} has {} bytes at its source, its slot {}", unit_text(unit_at(unit)), size,
                     places()[unit].memory.size());
}

}  // namespace kvlease
