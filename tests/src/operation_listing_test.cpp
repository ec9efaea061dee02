// The listing that the formal model is made of (tests/model/transitions.txt) and the production core, side by
// side.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <optional>
#include <random>

#include "src/operation.hpp"
#include "tests/model/listing.hpp"
#include "tests/mutations.hpp"

using namespace kvlease;

namespace {

namespace ev = op_event;
namespace fx = op_effect;

/// A lease of two rows "a" and "b".
std::shared_ptr<const region_view> two_rows() {
  std::vector<group_run> runs;
  runs.push_back(*group_run::make(0, {0, 1}, group_run::placement{{"a", "b"}, {64, 128}, 0}));
  return std::make_shared<const region_view>(*region_view::make(std::move(runs)));
}

const outcome good{delivered{{"a", "b"}}}, bad{failed{"no"}}, foreign{delivered{{"a", "c"}}};

const proof_id never{1000};

/// What the listing calls an event; `current` is the last proof that was asked for, in flight or answered.
using make_event = std::function<operation_event(proof_id current)>;
const std::map<std::string, make_event>& named_events() {
  static const std::map<std::string, make_event> all{
      {"granted", [](proof_id) { return ev::granted{}; }},
      {"refused", [](proof_id) { return ev::refused{}; }},
      {"accepted", [](proof_id) { return ev::accepted{}; }},
      {"rejected", [](proof_id) { return ev::rejected{"no"}; }},
      {"withdrawn", [](proof_id) { return ev::withdrawn{}; }},
      {"escaped", [](proof_id) { return ev::escaped{"thrown"}; }},
      {"reported_good", [](proof_id) { return ev::reported{good}; }},
      {"reported_bad", [](proof_id) { return ev::reported{bad}; }},
      {"reported_foreign", [](proof_id) { return ev::reported{foreign}; }},
      {"decided_good", [](proof_id) { return ev::decided{good}; }},
      {"decided_bad", [](proof_id) { return ev::decided{bad}; }},
      {"access_ended", [](proof_id p) { return ev::access_ended{p}; }},
      {"access_ended_stale", [](proof_id) { return ev::access_ended{never}; }},
      {"access_unproven",
       [](proof_id p) {
         return ev::access_unproven{p, "can't tell"};
       }},
      {"access_unproven_stale",
       [](proof_id) {
         return ev::access_unproven{never, "can't tell"};
       }},
      {"copies_ended", [](proof_id) { return ev::copies_ended{}; }},
      {"copies_unproven", [](proof_id) { return ev::copies_unproven{"lost"}; }},
      {"authorised", [](proof_id) { return ev::authorised{}; }},
      {"not_authorised", [](proof_id) { return ev::not_authorised{}; }},
      {"fatal", [](proof_id) { return ev::fatal{}; }},
      {"cancel", [](proof_id) { return ev::cancel{}; }},
      {"retry_proof", [](proof_id) { return ev::retry_proof{}; }},
      {"backend_down_withdrawn", [](proof_id) { return ev::backend_down{.token_withdrawn = true}; }},
      {"backend_down_rooted", [](proof_id) { return ev::backend_down{.attempt_rooted = true}; }},
      {"backend_down", [](proof_id) { return ev::backend_down{}; }},
      {"collector_down", [](proof_id) { return ev::collector_down{}; }},
      {"lender_down", [](proof_id) { return ev::lender_down{}; }},
  };
  return all;
}

/// What the listing calls an effect.
struct name_of_effect {
  std::string operator()(const fx::start_backend&) const { return "start_backend"; }
  std::string operator()(const fx::withdraw_submission&) const { return "withdraw_submission"; }
  std::string operator()(const fx::commit& c) const {
    return std::holds_alternative<delivered>(c.value) ? "commit_good" : "commit_bad";
  }
  std::string operator()(const fx::collect_proof&) const { return "collect_proof"; }
  std::string operator()(const fx::request_cancel&) const { return "request_cancel"; }
  std::string operator()(const fx::finish_lease& f) const {
    for (const auto& mask : f.masks)
      for (const bool marked : mask)
        if (marked) return "finish_lease_marking";
    return "finish_lease";
  }
  std::string operator()(const fx::awaiting_proof&) const { return "awaiting_proof"; }
  std::string operator()(const fx::retain&) const { return "retain"; }
  std::string operator()(const fx::settle&) const { return "settle"; }
  std::string operator()(const fx::release&) const { return "release"; }
};

std::string text(const std::vector<std::string>& effects) {
  return fmt::format("[{}]", fmt::join(effects, " "));
}

/// The listing and the core in the same state, or not.
struct pair_of_both {
  listing::state listed;
  operation core;
  proof_id last;

  /// Both take the event. What differs; empty: nothing.
  std::string take(const listing::transitions& table, const std::string& event, const std::string& removed) {
    const auto before = listed;
    const auto step = table.take(listed, event, removed);
    const auto rejected_before = core.rejected();
    std::vector<std::string> effects;
    for (const auto& e : core.apply(named_events().at(event)(last))) {
      effects.push_back(std::visit(name_of_effect{}, e));
      if (std::holds_alternative<fx::collect_proof>(e)) {
        last = proof_id{last.value + 1};
        core.proof_started(last);  // as the adapter does
      }
    }
    const auto outcome_now = !core.decided()                                      ? "none"
                             : std::holds_alternative<delivered>(*core.decided()) ? "good"
                                                                                  : "bad";
    const auto rejected = static_cast<int>(core.rejected() - rejected_before);
    std::string differs;
    const auto compare = [&](std::string_view what, const std::string& table_has, std::string_view core_has) {
      if (table_has != core_has)
        differs += fmt::format(" {}: listed {}, core {};", what, table_has, core_has);
    };
    compare("effects", text(step.effects), text(effects));
    compare("rejects", std::to_string(step.rejected), std::to_string(rejected));
    compare("access", listed.at("access"), to_string(core.access()));
    compare("copies", listed.at("copies"), to_string(core.copies()));
    compare("claim", listed.at("claim"), to_string(core.claim()));
    compare("outcome", listed.at("outcome"), outcome_now);
    compare("proof", listed.at("proof"), core.proof_in_flight() ? "in_flight" : "none");
    if (differs.empty()) return {};
    std::string at;
    for (const auto& [name, value] : before) at += name + "=" + value + " ";
    return fmt::format("{} at {}:{}", event, at, differs);
  }
};

pair_of_both begin(const listing::transitions& table, direction way) {
  auto listed = table.initial();
  listed["way"] = way == direction::fetch ? "fetch" : "publish";
  return {listed, operation{way, two_rows()}, proof_id{}};
}

struct walked {
  std::size_t states = 0;
  std::string differs;  ///< the first difference
};

/// Every event in every state that any events lead to.
walked walk(const listing::transitions& table, direction way, const std::string& removed) {
  std::vector<pair_of_both> found{begin(table, way)};
  std::set<listing::state> known{found[0].listed};
  for (std::size_t at = 0; at < found.size(); ++at)
    for (const auto& event : table.events()) {
      auto next = found[at];
      if (auto differs = next.take(table, event, removed); !differs.empty()) return {found.size(), differs};
      if (known.insert(next.listed).second) found.push_back(std::move(next));
    }
  return {found.size(), {}};
}

struct without_guard {
  explicit without_guard(mutation m) { mutate(m); }
  ~without_guard() { mutate(mutation::none); }
};

std::optional<mutation> mutation_named(std::string_view name) {
#define KVLEASE_NAMED(m) \
  if (name == #m) return mutation::m;
  KVLEASE_FOR_EACH_MUTATION(KVLEASE_NAMED)
#undef KVLEASE_NAMED
  return std::nullopt;
}

const listing::transitions& table() {
  static const listing::transitions t{KVLEASE_SOURCE_DIR "/tests/model/transitions.txt"};
  return t;
}

}  // namespace

TEST_CASE("operation: the model's listing names every event of the core, and no other") {
  std::set<std::size_t> kinds;
  for (const auto& event : table().events()) {
    INFO(event);
    REQUIRE(named_events().contains(event));
    kinds.insert(named_events().at(event)(proof_id{}).index());
  }
  CHECK(table().events().size() == named_events().size());
  CHECK(kinds.size() == std::variant_size_v<operation_event>);
}

static const broken_by listed{mutation::two_proofs, "operation: every transition*"};
TEST_CASE("operation: every transition of the model's listing is the core's") {
  for (const auto way : {direction::fetch, direction::publish}) {
    const auto all = walk(table(), way, "");
    INFO(to_string(way));
    CHECK(all.differs == "");
    CHECK(all.states > 150);
  }
}

TEST_CASE("operation: long histories of the model's listing are the core's") {
  // The walk above meets each state once; what the core remembers of the way there would show here.
  std::mt19937 random{8};
  const auto& events = table().events();
  for (int history = 0; history < 4000; ++history) {
    auto both = begin(table(), history % 2 == 0 ? direction::fetch : direction::publish);
    for (int i = 0; i < 60; ++i) REQUIRE(both.take(table(), events[random() % events.size()], "") == "");
  }
}

TEST_CASE("operation: with a guard removed, the model's listing and the core go astray alike") {
  REQUIRE(table().guards().size() > 10);
  for (const auto& guard : table().guards()) {
    INFO(guard);
    const auto m = mutation_named(guard);
    REQUIRE(m.has_value());
    CHECK(walk(table(), direction::fetch, guard).differs != "");  // the core still has it
    const without_guard removed{*m};
    CHECK(walk(table(), direction::fetch, guard).differs == "");
    CHECK(walk(table(), direction::publish, guard).differs == "");
    CHECK(walk(table(), direction::fetch, "").differs != "");
  }
}
