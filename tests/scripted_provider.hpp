// A provider that does only what its test says: outcome and end of access are separate, and nothing moves a
// byte unless told to. The double of scenarios 7.A and 7.C.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/include/kvlease/provider.hpp"

namespace kvlease::test {

class scripted_attempt final : public attempt, public cancellable_attempt {
 public:
  scripted_attempt(cache_extent e, direction w, std::optional<cancel_disposition> cancel)
      : extent{std::move(e)}, way{w}, cancel_answer{cancel} {}

  std::optional<outcome> poll() override {
    ++polls;
    if (poll_throws) throw std::runtime_error{"poll broke"};
    return value;
  }
  cancel_disposition request_cancel() override {
    ++cancels;
    if (on_cancel) on_cancel();
    if (cancel_throws) throw std::runtime_error{"cancel broke"};
    return cancel_answer.value_or(cancel_disposition::unsupported);
  }

  // ---- what the test says
  void deliver_all() {
    std::set<bytes> all;
    for (const auto& u : extent.units()) all.insert(u.name());
    value = delivered{all};
  }
  /// Serves the units of these places in the extent.
  void deliver(const std::vector<std::size_t>& which) {
    std::set<bytes> some;
    for (const auto i : which) some.insert(extent.units().at(i).name());
    value = delivered{some};
  }
  void fail(std::string why) { value = failed{std::move(why)}; }
  void end_access() { access = access_state::ended; }
  void end_access_by(proof_source how) {
    end_access();
    source = how;
  }

  cache_extent extent;
  direction way;
  std::optional<outcome> value;
  access_state access = access_state::running;
  proof_source source = proof_source::terminal_status;
  bool poll_throws = false, cancel_throws = false, proof_throws = false;
  std::optional<cancel_disposition> cancel_answer;
  std::function<void()> on_cancel;
  int polls = 0, cancels = 0, proofs = 0;
};

struct scripted_options {
  bool pollable = true;
  bool cancellable = true;
  bool registers_pools = true;
  bool can_fetch = true;
  bool can_publish = true;
  std::vector<proof_source> rungs = {};
};

class scripted_provider final : public provider,
                                public fetches,
                                public publishes,
                                public registers_pools,
                                public pollable,
                                public proof_rungs {
 public:
  explicit scripted_provider(scripted_options o = {}) : options{o} {}

  std::string describe() const override { return "scripted"; }
  unit_counters counters() const override { return {}; }
  fetches* as_fetches() override { return options.can_fetch ? this : nullptr; }
  publishes* as_publishes() override { return options.can_publish ? this : nullptr; }
  kvlease::registers_pools* as_registers_pools() override { return options.registers_pools ? this : nullptr; }
  kvlease::pollable* as_pollable() override { return options.pollable ? this : nullptr; }
  proof_rungs* as_proof_rungs() override { return options.rungs.empty() ? nullptr : this; }

  std::vector<proof_source> rungs() const override { return options.rungs; }
  std::vector<std::shared_ptr<attempt>> climb(attempt&, proof_source rung) override {
    ++climbs;
    climbed.push_back(rung);
    return takes_down ? takes_down() : std::vector<std::shared_ptr<attempt>>{};
  }
  std::vector<proof_source> climbed;
  std::function<std::vector<std::shared_ptr<attempt>>()> takes_down;  ///< may throw
  int climbs = 0;

  std::shared_ptr<attempt> fetch(const cache_extent& e, route* along) override {
    last_route = along;
    return take(e, direction::fetch);
  }
  std::shared_ptr<attempt> publish(const cache_extent& e) override { return take(e, direction::publish); }
  std::optional<std::set<bytes>> probe(const bytes&, const std::set<bytes>&) override { return std::nullopt; }
  /// "good" opens a route that is closed once `fail_closes` has run out.
  result<std::unique_ptr<route>> open_route(const std::string& hint) override {
    if (hint == "good") return std::make_unique<scripted_route>(*this);
    if (hint == "bad") return kvlease::fail(errc::invalid, "scripted: 'bad' is no hint");
    return kvlease::fail(errc::unsupported, "scripted: one source");
  }
  bool quiesce(attempt_list list) override {
    ++quiesces;
    for (const auto& a : list)
      if (answer(*a).state != access_state::ended) return false;
    return true;
  }
  void settle(attempt_list) override {
    throw std::logic_error{"settle: no actor may call it (semantics 2.5)"};
  }
  access_answer poll_access(attempt& a) override { return answer(a); }

  std::unique_ptr<registration> register_pool(std::uintptr_t, std::size_t) override {
    log.push_back("register");
    if (registrations++ == fail_registration) throw std::runtime_error{"registration broke"};
    struct handle final : registration {
      explicit handle(scripted_provider& o) : owner{o} {}
      void close() override {
        owner.log.push_back("deregister");
        if (owner.fail_closes > 0) {
          --owner.fail_closes;
          throw std::runtime_error{"close broke"};
        }
      }
      scripted_provider& owner;
    };
    return std::make_unique<handle>(*this);
  }

  struct scripted_route final : route {
    explicit scripted_route(scripted_provider& o) : owner{o} {}
    void close() override {
      owner.log.push_back("close route");
      if (owner.fail_closes > 0) {
        --owner.fail_closes;
        throw std::runtime_error{"close broke"};
      }
    }
    scripted_provider& owner;
  };
  route* last_route = nullptr;

  scripted_attempt& last() { return *attempts.back(); }

  scripted_options options;
  std::vector<std::shared_ptr<scripted_attempt>> attempts;
  std::vector<std::string> log;
  std::function<void(const cache_extent&)> on_submit;  ///< may throw
  bool return_null = false;
  std::function<void(scripted_attempt&)> on_attempt;
  int submissions = 0, quiesces = 0, registrations = 0, fail_registration = -1, fail_closes = 0;

 private:
  std::shared_ptr<attempt> take(const cache_extent& e, direction way) {
    ++submissions;
    if (on_submit) on_submit(e);
    if (return_null) return nullptr;
    attempts.push_back(std::make_shared<scripted_attempt>(
        e, way, options.cancellable ? std::optional{cancel_disposition::requested} : std::nullopt));
    if (on_attempt) on_attempt(*attempts.back());
    return attempts.back();
  }
  static access_answer answer(attempt& a) {
    auto& mine = dynamic_cast<scripted_attempt&>(a);
    ++mine.proofs;
    if (mine.proof_throws) throw std::runtime_error{"proof broke"};
    return {mine.access, mine.source};
  }
};

}  // namespace kvlease::test
