#include "src/providers/segment/eviction.hpp"

#include <algorithm>
#include <cstddef>
#include <list>
#include <unordered_map>

namespace kvlease {

namespace {

/// Names of units that went, the oldest forgotten first.
class ghost_list {
 public:
  bool take(std::uint64_t name) {
    const auto it = known_.find(name);
    if (it == known_.end()) return false;
    order_.erase(it->second);
    known_.erase(it);
    return true;
  }
  void put(std::uint64_t name, std::size_t bound) {
    if (known_.contains(name)) return;
    known_.emplace(name, order_.insert(order_.end(), name));
    while (order_.size() > bound) {
      known_.erase(order_.front());
      order_.pop_front();
    }
  }

 private:
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> known_;
};

/// Two queues, each with its next victim in front, and a ghost list. LRU uses one queue of them.
class two_queues : public eviction_policy {
 public:
  void removed(place_id p) final {
    const auto it = units_.find(p);
    if (it == units_.end()) return;
    queue_of(it->second).erase(it->second.at);
    units_.erase(it);
  }

 protected:
  struct unit {
    std::list<place_id>::iterator at;
    std::uint64_t name;
    bool kept;           ///< in the second queue
    std::uint8_t count;  ///< of uses, at most 3
  };
  std::list<place_id>& queue_of(const unit& u) { return u.kept ? kept_ : fresh_; }
  void put(place_id p, std::uint64_t name, bool kept) {
    removed(p);
    auto& queue = kept ? kept_ : fresh_;
    units_.emplace(p, unit{queue.insert(queue.end(), p), name, kept, 0});
  }
  void move_to_end(unit& u, bool kept) {
    auto& from = queue_of(u);
    u.kept = kept;
    queue_of(u).splice(queue_of(u).end(), from, u.at);
  }
  /// Takes the first of `queue` that may go.
  std::optional<place_id> first_of(std::list<place_id>& queue, const std::function<bool(place_id)>& may_go,
                                   bool remember) {
    const auto it = std::ranges::find_if(queue, may_go);
    if (it == queue.end()) return std::nullopt;
    return give_up(*it, remember);
  }
  place_id give_up(place_id p, bool remember) {
    if (remember) ghosts_.put(units_.at(p).name, units_.size());
    removed(p);
    return p;
  }

  std::list<place_id> fresh_, kept_;
  std::unordered_map<place_id, unit> units_;
  ghost_list ghosts_;
};

class lru final : public two_queues {
 public:
  void added(place_id p, std::uint64_t name) override { put(p, name, false); }
  void used(place_id p) override {
    if (const auto it = units_.find(p); it != units_.end()) move_to_end(it->second, false);
  }
  std::optional<place_id> victim(const std::function<bool(place_id)>& may_go) override {
    return first_of(fresh_, may_go, false);
  }
};

class slru final : public two_queues {
 public:
  void added(place_id p, std::uint64_t name) override {
    put(p, name, ghosts_.take(name));
    bound_kept();
  }
  void used(place_id p) override {
    const auto it = units_.find(p);
    if (it == units_.end()) return;
    move_to_end(it->second, true);
    bound_kept();
  }
  std::optional<place_id> victim(const std::function<bool(place_id)>& may_go) override {
    if (auto p = first_of(fresh_, may_go, true)) return p;
    return first_of(kept_, may_go, true);
  }

 private:
  void bound_kept() {
    while (kept_.size() > std::max<std::size_t>(1, units_.size() / 4))
      move_to_end(units_.at(kept_.front()), false);
  }
};

class s3fifo final : public two_queues {
 public:
  void added(place_id p, std::uint64_t name) override { put(p, name, ghosts_.take(name)); }
  void used(place_id p) override {
    if (const auto it = units_.find(p); it != units_.end() && it->second.count < 3) ++it->second.count;
  }
  std::optional<place_id> victim(const std::function<bool(place_id)>& may_go) override {
    // A unit is passed at most 4 times before its count is spent; who may not go yet is passed too.
    for (std::size_t looks = 5 * units_.size() + 5; looks > 0 && !units_.empty(); --looks) {
      const bool small = !fresh_.empty() && (kept_.empty() || fresh_.size() * 10 >= units_.size());
      const place_id p = (small ? fresh_ : kept_).front();
      auto& u = units_.at(p);
      if (u.count == 0 && may_go(p)) return give_up(p, small);
      if (u.count > 0) u.count = small ? 0 : u.count - 1;
      move_to_end(u, true);
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<eviction_policy> make_eviction(eviction kind) {
  switch (kind) {
    case eviction::lru:
      return std::make_unique<lru>();
    case eviction::s3fifo:
      return std::make_unique<s3fifo>();
    case eviction::slru:
      break;
  }
  return std::make_unique<slru>();
}

}  // namespace kvlease
