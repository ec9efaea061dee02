#include "src/providers/redis/routes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace kvlease::redis {

namespace {

/// Servers of one cluster that we connect to at most, whatever redirects say.
constexpr std::size_t most_nodes = 512;
constexpr std::chrono::milliseconds between_refreshes{200};

}  // namespace

/// Asks a server for the map of the cluster.
class routes::map_refresh final : public command {
 public:
  explicit map_refresh(routes& of) : of_{of} {}
  bool wanted() const noexcept override { return true; }
  outgoing encode() override { return {.head = encode_command({"CLUSTER", "SLOTS"})}; }
  expectation expects() const override { return slot_map::limits(); }
  void replied(reply r, link& on) override {
    static_cast<void>(of_.learned(std::get<value>(r), on));  // a bad answer changes nothing
    finish();
  }
  void dropped(const std::string&) override { finish(); }

 private:
  void finish() {
    const std::lock_guard lock{of_.mutex_};
    of_.refreshing_ = false;
  }
  routes& of_;
};

routes::routes(options o, std::shared_ptr<const tls_context> tls)
    : options_{std::move(o)}, tls_{std::move(tls)} {}

result<void> routes::submit(std::span<const std::shared_ptr<command>> commands) {
  links chosen;
  chosen.reserve(commands.size());
  const auto give_up = [&](error why) -> result<void> {
    for (const auto& l : chosen) l->release();
    return tl::unexpected{std::move(why)};
  };
  {
    const std::lock_guard lock{mutex_};
    for (const auto& c : commands) {
      auto l = pick_for(c->key_slot());
      if (!l) return give_up(l.error());
      if (!(*l)->reserve())
        return give_up(
            {errc::capacity, fmt::format("{} units wait for {} already, at most {} may: {} more are too many",
                                         (*l)->open() - std::ranges::count(chosen, *l), to_string((*l)->to()),
                                         options_.queue, commands.size())});
      chosen.push_back(std::move(*l));
    }
  }
  for (std::size_t i = 0; i < commands.size(); ++i)
    if (!chosen[i]->push(commands[i])) {
      chosen[i]->release();
      commands[i]->dropped("the connection was closed");
    }
  return {};
}

result<void> routes::follow(const std::shared_ptr<command>& c, const redirect& r) {
  result<std::shared_ptr<link>> l;
  {
    const std::lock_guard lock{mutex_};
    if (!r.ask) {
      map_.move(r.slot, r.to);
      refresh_locked(nullptr);
    }
    l = pick(r.to);
  }
  if (!l) return tl::unexpected{l.error()};
  return hand_over(c, *l);
}

result<void> routes::again(const std::shared_ptr<command>& c) {
  result<std::shared_ptr<link>> l;
  {
    const std::lock_guard lock{mutex_};
    l = pick_for(c->key_slot());
  }
  if (!l) return tl::unexpected{l.error()};
  return hand_over(c, *l);
}

result<void> routes::hand_over(const std::shared_ptr<command>& c, const std::shared_ptr<link>& to) {
  to->reserve_beyond();
  if (to->push(c)) return {};
  to->release();
  return fail(errc::provider, fmt::format("{}: the connection was closed", to_string(to->to())));
}

/// With the lock held.
result<std::shared_ptr<link>> routes::pick(const endpoint& node) {
  if (closed_) return fail(errc::state, "the provider is closed");
  if (!nodes_.contains(node) && nodes_.size() >= most_nodes)
    return fail(errc::capacity, fmt::format("{} is one server too many, at most {} are connected to",
                                            to_string(node), most_nodes));
  auto& all = nodes_[node];
  std::shared_ptr<link> best;
  for (const auto& l : all)
    if (!l->down() && (!best || l->open() < best->open())) best = l;
  if (best && (best->open() == 0 || all.size() == options_.connections)) return best;
  if (!best && !all.empty()) return fail(errc::provider, "not connected: " + all.front()->why_down());
  try {
    return all.emplace_back(std::make_shared<link>(*this, options_, node, tls_));
  } catch (const std::system_error& e) {
    if (best) return best;
    return fail(errc::provider, fmt::format("{}: no connection can be made: {}", to_string(node), e.what()));
  }
}

/// With the lock held.
result<std::shared_ptr<link>> routes::pick_for(std::uint16_t slot) {
  if (options_.cluster)
    if (const auto* owner = map_.owner(slot)) return pick(*owner);
  auto any = pick(options_.seeds.front());
  for (std::size_t i = 1; !any && i < options_.seeds.size(); ++i)
    if (auto other = pick(options_.seeds[i])) return other;
  return any;
}

void routes::refresh() {
  const std::lock_guard lock{mutex_};
  refresh_locked(nullptr);
}

void routes::refresh_locked(const endpoint* but_not) {
  const auto now = std::chrono::steady_clock::now();
  if (!options_.cluster || refreshing_ || now - refreshed_ < between_refreshes) return;
  auto whom = map_.nodes();
  whom.insert(whom.end(), options_.seeds.begin(), options_.seeds.end());
  for (const auto& e : whom) {
    if (but_not != nullptr && e == *but_not) continue;
    const auto l = pick(e);
    if (!l || !hand_over(std::make_shared<map_refresh>(*this), *l)) continue;
    refreshing_ = true;
    refreshed_ = now;
    return;
  }
}

void routes::sweep() {
  const std::lock_guard lock{mutex_};
  for (const auto& [node, all] : nodes_)
    for (const auto& l : all) l->sweep();
  for (const auto& l : retired_) l->sweep();
}

void routes::close() {
  links all;
  {
    const std::lock_guard lock{mutex_};
    closed_ = true;
    for (auto& [node, of_node] : nodes_) all.insert(all.end(), of_node.begin(), of_node.end());
    all.insert(all.end(), retired_.begin(), retired_.end());
    nodes_.clear();
    retired_.clear();
  }
  for (const auto& l : all) l->stop();
  for (const auto& l : all) l->join();  // here, for one of them may hold the last reference to another
}

// ---- What links tell -------------------------------------------------------------------------------------

result<void> routes::learned(const value& slots, const link& from) {
  auto map = slot_map::from_reply(slots, from.to());
  if (!map) return tl::unexpected{map.error()};
  links ended;  // waits for their threads, after the lock
  const std::lock_guard lock{mutex_};
  map_ = std::move(*map);
  refreshed_ = std::chrono::steady_clock::now();
  retire_locked();
  for (auto& l : retired_)
    if (l->ended()) ended.push_back(std::move(l));
  std::erase(retired_, nullptr);
  return {};
}

/// Servers that the cluster does not name any more, and that nobody configured, are left.
void routes::retire_locked() {
  std::erase_if(nodes_, [this](auto& node) {
    if (std::ranges::count(map_.nodes(), node.first) + std::ranges::count(options_.seeds, node.first) > 0)
      return false;
    for (auto& l : node.second) {
      l->stop_when_idle();
      retired_.push_back(std::move(l));
    }
    return true;
  });
}

bool routes::rehome(const std::shared_ptr<command>& c, const link& from) {
  result<std::shared_ptr<link>> l;
  {
    const std::lock_guard lock{mutex_};
    const auto* owner = map_.owner(c->key_slot());
    if (owner == nullptr || *owner == from.to()) return false;
    l = pick(*owner);
  }
  return l && hand_over(c, *l);
}

void routes::unreachable(const link& from) {
  const std::lock_guard lock{mutex_};
  refresh_locked(&from.to());
}

}  // namespace kvlease::redis
