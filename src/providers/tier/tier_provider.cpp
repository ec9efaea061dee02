#include "src/providers/tier/tier_provider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "src/providers/uri_options.hpp"

namespace kvlease {

namespace {

constexpr const char* who = "tier provider";

/// The route of one tier.
class tier_route final : public route {
 public:
  tier_route(const tier_stack* stack, std::unique_ptr<route> of) : stack_{stack}, inner_{std::move(of)} {}
  void close() override { inner_->close(); }
  bool belongs_to(const tier_stack* s) const noexcept { return stack_ == s; }
  route* inner() const noexcept { return inner_.get(); }

 private:
  const tier_stack* stack_;
  std::unique_ptr<route> inner_;
};

/// One span with every tier. What could not be closed stays and is closed by the next try.
class tier_registration final : public registration {
 public:
  explicit tier_registration(std::vector<std::unique_ptr<registration>> with) : with_{std::move(with)} {}
  void close() override {
    const std::lock_guard lock{mutex_};
    while (!with_.empty()) {
      with_.back()->close();
      with_.pop_back();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<registration>> with_;
};

}  // namespace

/// What has not ended yet. A tier that advances makes all of them look, in one job.
class tier_provider::live_transfers : public std::enable_shared_from_this<live_transfers> {
 public:
  explicit live_transfers(std::shared_ptr<executor> exec) : exec_{std::move(exec)} {}

  void add(std::shared_ptr<tier_transfer> t) {
    const std::lock_guard lock{mutex_};
    live_.push_back(std::move(t));
  }
  void look() {
    {
      const std::lock_guard lock{mutex_};
      if (live_.empty() || std::exchange(posted_, true)) return;
    }
    try {
      exec_->post([self = shared_from_this()] { self->run(); });
    } catch (...) {
      const std::lock_guard lock{mutex_};
      posted_ = false;  // the next look tries again
    }
  }

 private:
  void run() {
    std::vector<std::shared_ptr<tier_transfer>> all;
    {
      const std::lock_guard lock{mutex_};
      posted_ = false;
      all.assign(live_.begin(), live_.end());
    }
    for (const auto& t : all) t->advance();
    const std::lock_guard lock{mutex_};
    std::erase_if(live_, [](const auto& t) { return t->over(); });
  }

  const std::shared_ptr<executor> exec_;
  std::mutex mutex_;
  std::list<std::shared_ptr<tier_transfer>> live_;
  bool posted_ = false;
};

tier_provider::tier_provider(tier_stack stack, provider_context context)
    : transfer_provider{who, std::move(context)},
      stack_{std::make_shared<const tier_stack>(std::move(stack))} {
  const auto& tiers = stack_->tiers;
  if (tiers.empty()) throw std::invalid_argument{"tier provider: no tiers"};
  if (!book()->context.exec) throw std::invalid_argument{"tier provider: no executor"};
  for (std::size_t i = 0; i < tiers.size(); ++i)
    if (tiers[i].store == nullptr || tiers[i].store->as_fetches() == nullptr ||
        tiers[i].store->as_publishes() == nullptr)
      throw std::invalid_argument{fmt::format("tier provider: tier {} must fetch and publish", i)};
  if (std::ranges::none_of(tiers, &tier::required))
    throw std::invalid_argument{"tier provider: no tier is required, so that a publish would keep nothing"};
  live_ = std::make_shared<live_transfers>(book()->context.exec);
  for (const auto& t : tiers)
    if (auto* n = t.store->as_notifies())
      n->on_progress([live = std::weak_ptr{live_}] {
        if (const auto l = live.lock()) l->look();
      });
}

tier_provider::~tier_provider() {
  for (const auto& t : stack_->tiers)
    if (auto* n = t.store->as_notifies()) n->on_progress({});
}

std::string tier_provider::describe() const {
  std::string text = "tiers:";
  for (std::size_t i = 0; i < stack_->tiers.size(); ++i)
    text += fmt::format(" {}{}: {}{}", i, stack_->tiers[i].required ? "" : " (optional)",
                        stack_->tiers[i].store->describe(), i + 1 < stack_->tiers.size() ? ";" : "");
  return text;
}

std::shared_ptr<attempt> tier_provider::fetch(const cache_extent& extent, route* along) {
  return submit(direction::fetch, extent, along);
}

std::shared_ptr<attempt> tier_provider::publish(const cache_extent& extent) {
  return submit(direction::publish, extent, nullptr);
}

std::shared_ptr<attempt> tier_provider::submit(direction way, const cache_extent& extent, route* along) {
  auto* mine_along = dynamic_cast<tier_route*>(along);
  if (along != nullptr && (mine_along == nullptr || !mine_along->belongs_to(stack_.get())))
    throw submission_rejected{"tier provider: foreign route"};
  auto made = std::make_shared<tier_transfer>(book(), stack_, way, extent);
  made->start(mine_along != nullptr ? mine_along->inner() : nullptr, 0);
  live_->add(made);
  live_->look();
  return made;
}

std::optional<std::set<bytes>> tier_provider::probe(const bytes& extent, const std::set<bytes>& names) {
  std::set<bytes> hits, rest = names;
  for (const auto& t : stack_->tiers) {
    if (rest.empty()) break;
    const auto here = t.store->as_fetches()->probe(extent, rest);
    if (!here) return std::nullopt;
    for (const auto& name : *here) {
      hits.insert(name);
      rest.erase(name);
    }
  }
  return hits;
}

result<std::unique_ptr<route>> tier_provider::open_route(const std::string& hint) {
  auto inner = stack_->tiers.front().store->as_fetches()->open_route(hint);
  if (!inner) return tl::unexpected{inner.error()};
  return std::make_unique<tier_route>(stack_.get(), *std::move(inner));
}

std::unique_ptr<registration> tier_provider::register_pool(std::uintptr_t address, std::size_t size) {
  std::vector<std::unique_ptr<registration>> with;
  try {
    with.push_back(transfer_provider::register_pool(address, size));
    for (const auto& t : stack_->tiers)
      if (auto* pools = t.store->as_registers_pools()) with.push_back(pools->register_pool(address, size));
  } catch (...) {
    for (auto& r : with) r->close();  // none of them has been used
    throw;
  }
  return std::make_unique<tier_registration>(std::move(with));
}

bool tier_provider::quiesce(attempt_list attempts) {
  for (const auto& a : attempts) {
    const auto t = std::dynamic_pointer_cast<tier_transfer>(mine(*a));
    if (t == nullptr) return false;
    t->advance();
    if (t->unproven()) return false;
  }
  return transfer_provider::quiesce(attempts);
}

access_answer tier_provider::poll_access(attempt& a) {
  auto answer = transfer_provider::poll_access(a);
  const auto t = std::dynamic_pointer_cast<tier_transfer>(mine(a));
  if (t == nullptr || answer.state == access_state::ended) return answer;
  live_->look();  // a tier that notifies nobody is looked at when we are
  if (t->unproven()) return {access_state::unproven, proof_source::terminal_status};
  return answer;
}

result<provider_factory> open_tier(std::string_view after_colon) {
  std::string_view options;
  if (after_colon.starts_with('?')) {
    const auto semicolon = after_colon.find(';');
    if (semicolon == std::string_view::npos)
      return fail(errc::invalid,
                  fmt::format("tier:{}: ';' must stand between the options and the tiers", after_colon));
    options = after_colon.substr(0, semicolon);
    after_colon.remove_prefix(semicolon + 1);
  }
  const auto o = uri_options::parse("tier", options, {"past"});
  if (!o) return tl::unexpected{o.error()};
  const auto past = o->choice("past", 0, {"misses", "failures"});
  if (!past) return tl::unexpected{past.error()};

  constexpr std::string_view optional_mark = "optional+";
  const auto begins_tier = [&](std::string_view text) {
    if (text.starts_with(optional_mark)) text.remove_prefix(optional_mark.size());
    return std::ranges::any_of(provider_entries(), [&](const provider_entry& e) {
      return text.starts_with(e.scheme) && text.substr(e.scheme.size()).starts_with(':');
    });
  };
  struct opened {
    provider_factory make;
    bool required;
  };
  std::vector<opened> tiers;
  while (!after_colon.empty()) {
    std::size_t end = after_colon.find(',');
    while (end != std::string_view::npos && !begins_tier(after_colon.substr(end + 1)))
      end = after_colon.find(',', end + 1);
    auto uri = after_colon.substr(0, end);
    after_colon.remove_prefix(end == std::string_view::npos ? after_colon.size() : end + 1);
    const bool optional = uri.starts_with(optional_mark);
    if (optional) uri.remove_prefix(optional_mark.size());
    if (uri.starts_with("tier:"))
      return fail(errc::invalid, fmt::format("tier: '{}' is a tier of tiers; list them in one", uri));
    auto made = provider_from_uri(uri);
    if (!made) return fail(errc::invalid, fmt::format("tier {}: {}", tiers.size(), made.error().text));
    tiers.push_back({*std::move(made), !optional});
  }
  if (std::ranges::none_of(tiers, &opened::required))
    return fail(errc::invalid,
                fmt::format("tier: {} tiers, none of them required; at least one must be", tiers.size()));
  return provider_factory{[tiers, past_failures = *past == 1](const provider_context& c) {
    tier_stack stack{{}, past_failures};
    for (const auto& t : tiers) stack.tiers.push_back({t.make(c), t.required});
    return std::make_shared<tier_provider>(std::move(stack), c);
  }};
}

}  // namespace kvlease
