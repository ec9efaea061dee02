// A provider that keeps the whole contract but for one lie, for the test that the suite finds it (2.14).
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/include/kvlease/provider.hpp"

namespace kvlease::test {

enum class lie {
  takes_any_route,   ///< 2.2, 2.7
  outcome_changes,   ///< 2.3
  ends_early,        ///< 2.4: access is over as soon as it is asked for
  proves_strangers,  ///< 2.4
  probe_hits_all,    ///< 2.6
  registers_twice,   ///< 2.9
  miss_fails,        ///< 2.11
  cancel_wavers,     ///< 2.12
  counts_nothing,    ///< 2.15
  none,              ///< the control
};

class lying_provider final : public provider,
                             public fetches,
                             public publishes,
                             public registers_pools,
                             public pollable {
 public:
  lying_provider(std::shared_ptr<provider> inner, lie which) : inner_{std::move(inner)}, lie_{which} {}

  std::string describe() const override { return "liar"; }
  unit_counters counters() const override {
    return tells(lie::counts_nothing) ? unit_counters{} : inner_->counters();
  }
  fetches* as_fetches() override { return this; }
  publishes* as_publishes() override { return this; }
  kvlease::registers_pools* as_registers_pools() override { return this; }
  kvlease::pollable* as_pollable() override { return this; }

  std::shared_ptr<attempt> fetch(const cache_extent& e, route* along) override {
    return std::make_shared<lying_attempt>(
        *this, inner_->as_fetches()->fetch(e, tells(lie::takes_any_route) ? nullptr : along));
  }
  std::shared_ptr<attempt> publish(const cache_extent& e) override {
    return std::make_shared<lying_attempt>(*this, inner_->as_publishes()->publish(e));
  }
  bool quiesce(attempt_list list) override {
    bool all = true;
    for (const auto& a : list)
      if (auto* mine = dynamic_cast<lying_attempt*>(a.get()))
        all = inner_->as_fetches()->quiesce({&mine->inner, 1}) && all;
      else
        all = tells(lie::proves_strangers) && all;
    return all;
  }
  void settle(attempt_list list) override {
    for (const auto& a : list) inner_->as_fetches()->settle({&dynamic_cast<lying_attempt&>(*a).inner, 1});
  }
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override {
    return tells(lie::probe_hits_all) ? names : inner_->as_fetches()->probe(extent, names);
  }
  result<std::unique_ptr<route>> open_route(const std::string& hint) override {
    return inner_->as_fetches()->open_route(hint);
  }
  std::unique_ptr<registration> register_pool(std::uintptr_t address, std::size_t size) override {
    struct nothing final : registration {
      void close() override {}
    };
    if (!tells(lie::registers_twice)) return inner_->as_registers_pools()->register_pool(address, size);
    try {
      return inner_->as_registers_pools()->register_pool(address, size);
    } catch (const std::exception&) {
      return std::make_unique<nothing>();
    }
  }
  access_answer poll_access(attempt& a) override {
    auto* mine = dynamic_cast<lying_attempt*>(&a);
    if (tells(lie::ends_early) && mine != nullptr)
      return {access_state::ended, proof_source::terminal_status};
    return inner_->as_pollable()->poll_access(mine != nullptr ? *mine->inner : a);
  }

 private:
  struct lying_attempt final : attempt, cancellable_attempt {
    lying_attempt(lying_provider& p, std::shared_ptr<attempt> a) : of{p}, inner{std::move(a)} {}
    std::optional<outcome> poll() override {
      const auto o = inner->poll();
      if (!o) return o;
      ++polls;
      if (of.tells(lie::outcome_changes) && polls > 1) return failed{"the second thought"};
      const auto* d = std::get_if<delivered>(&*o);
      if (of.tells(lie::miss_fails) && d != nullptr && d->served().empty()) return failed{"nothing found"};
      return o;
    }
    cancel_disposition request_cancel() override {
      const auto answer = kvlease::request_cancel(*inner);
      return of.tells(lie::cancel_wavers) && ++cancels > 1 ? cancel_disposition::unsupported : answer;
    }
    lying_provider& of;
    std::shared_ptr<attempt> inner;
    int polls = 0, cancels = 0;
  };
  bool tells(lie l) const { return lie_ == l; }

  std::shared_ptr<provider> inner_;
  lie lie_;
};

}  // namespace kvlease::test
