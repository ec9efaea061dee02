#include "tools/replay/gate.hpp"

namespace kvlease::replay {

void gate_book::hold(const bytes& name) {
  const std::lock_guard lock{mutex_};
  ++doors_[name].holds;
}

void gate_book::open(const bytes& name) {
  const std::lock_guard lock{mutex_};
  const auto it = doors_.find(name);
  if (it == doors_.end()) return;
  --it->second.holds;
  if (it->second.holds <= 0 && it->second.inside == 0) doors_.erase(it);
  changed_.notify_all();
}

bool gate_book::entered(const bytes& name, std::chrono::nanoseconds patience) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, patience, [&] { return abandoned_ || doors_[name].inside > 0; });
}

void gate_book::abandon() {
  const std::lock_guard lock{mutex_};
  abandoned_ = true;
  changed_.notify_all();
}

void gate_book::pass(const bytes& name) {
  std::unique_lock lock{mutex_};
  auto it = doors_.find(name);
  if (it == doors_.end() || abandoned_) return;
  ++it->second.inside;
  changed_.notify_all();
  changed_.wait(lock, [&] { return abandoned_ || doors_[name].holds <= 0; });
  it = doors_.find(name);
  if (--it->second.inside == 0 && it->second.holds <= 0) doors_.erase(it);
}

namespace {

class gated final : public provider, public fetches, public publishes {
 public:
  gated(std::shared_ptr<provider> inner, std::shared_ptr<gate_book> book)
      : inner_{std::move(inner)}, book_{std::move(book)} {}
  ~gated() override { book_->abandon(); }

  std::string describe() const override { return inner_->describe(); }
  unit_counters counters() const override { return inner_->counters(); }
  fetches* as_fetches() override { return inner_->as_fetches() != nullptr ? this : nullptr; }
  publishes* as_publishes() override { return inner_->as_publishes() != nullptr ? this : nullptr; }
  registers_pools* as_registers_pools() override { return inner_->as_registers_pools(); }
  pollable* as_pollable() override { return inner_->as_pollable(); }
  notifies* as_notifies() override { return inner_->as_notifies(); }
  proof_rungs* as_proof_rungs() override { return inner_->as_proof_rungs(); }

  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along) override {
    pass(extent);
    return inner_->as_fetches()->fetch(extent, along);
  }
  std::shared_ptr<attempt> publish(const cache_extent& extent) override {
    pass(extent);
    return inner_->as_publishes()->publish(extent);
  }
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override {
    return inner_->as_fetches()->probe(extent, names);
  }
  result<std::unique_ptr<route>> open_route(const std::string& hint) override {
    return inner_->as_fetches()->open_route(hint);
  }
  bool quiesce(attempt_list attempts) override { return any().quiesce(attempts); }
  void settle(attempt_list attempts) override { any().settle(attempts); }

 private:
  void pass(const cache_extent& extent) {
    if (!extent.units().empty()) book_->pass(extent.units().front().name());
  }
  deliveries& any() {
    if (auto* f = inner_->as_fetches()) return *f;
    return *inner_->as_publishes();
  }
  std::shared_ptr<provider> inner_;
  std::shared_ptr<gate_book> book_;
};

}  // namespace

std::shared_ptr<provider> gate(std::shared_ptr<provider> inner, std::shared_ptr<gate_book> book) {
  return std::make_shared<gated>(std::move(inner), std::move(book));
}

}  // namespace kvlease::replay
