#include "src/operation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>

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

/// The machine with a little of the adapter: proofs get ids, effects are counted.
struct machine {
  explicit machine(direction way = direction::fetch) : core{way, two_rows()} {}

  void operator()(const operation_event& event) {
    for (const auto& e : core.apply(event)) {
      all.push_back(e);
      if (std::holds_alternative<fx::collect_proof>(e)) core.proof_started(proof = proof_id{proof.value + 1});
    }
  }
  void submit() {
    (*this)(ev::granted{});
    (*this)(ev::accepted{});
  }
  template <class Effect>
  std::ptrdiff_t count() const {
    return std::ranges::count_if(all, [](const auto& e) { return std::holds_alternative<Effect>(e); });
  }
  template <class Effect>
  const Effect& last() const {
    const Effect* found = nullptr;
    for (const auto& e : all)
      if (const auto* one = std::get_if<Effect>(&e)) found = one;
    REQUIRE(found != nullptr);
    return *found;
  }

  operation core;
  proof_id proof;
  std::vector<operation_effect> all;
};

const outcome served_all{delivered{{"a", "b"}}};

}  // namespace

static const broken_by settled{mutation::release_unsettled, "operation: any order*"};
static const broken_by stale{mutation::stale_proof_counts, "operation: any order*"};
TEST_CASE("operation: any order of evidence, each twice, ends in one release") {
  // Copies can end only after they have begun: then their end is given at the first chance in the order.
  for (const auto way : {direction::fetch, direction::publish}) {
    std::array order{0, 1, 2, 3, 4};
    int orders = 0;
    do {
      machine m{way};
      m.submit();
      const auto first_proof = m.proof;
      bool copies_ended = false, proven = false;
      const auto copies = [&] {
        if (copies_ended && m.core.copies() == copy_phase::pending) m(ev::copies_ended{});
      };
      for (const int step : order) {
        CHECK(m.count<fx::release>() == 0);
        const bool ready = m.core.decided() && proven;
        CHECK(m.count<fx::finish_lease>() == (ready ? 1 : 0));
        CHECK((m.count<fx::settle>() == 0 || (ready && copies_ended)));
        for (int twice = 0; twice < 2; ++twice) switch (step) {
            case 0:
              m(ev::decided{served_all});
              break;
            case 1:
              proven = true;
              m(ev::access_ended{first_proof});
              break;
            case 2:
              copies_ended = true;
              break;
            case 3:
              m(ev::cancel{});
              break;
            default:
              m(ev::access_ended{proof_id{99}});
              break;  // of no proof
          }
        copies();
      }
      CHECK(m.count<fx::settle>() == 1);
      CHECK(m.count<fx::release>() == 0);
      m(ev::authorised{});
      m(ev::authorised{});
      m(ev::copies_ended{});
      m(ev::access_ended{first_proof});
      CHECK(m.count<fx::release>() == 1);
      CHECK(m.count<fx::finish_lease>() == 1);
      CHECK(m.count<fx::settle>() == 1);
      CHECK(m.core.claim() == claim_phase::released);
      const auto marked = way == direction::fetch ? row_masks{{true, true}} : row_masks{};
      CHECK(m.last<fx::finish_lease>().masks == marked);
      CHECK(m.core.rejected() > 0);
      ++orders;
    } while (std::ranges::next_permutation(order).found);
    CHECK(orders == 120);
  }
}

static const broken_by decided_first{mutation::call_after_outcome, "operation: an outcome before*"};
TEST_CASE("operation: an outcome before the grant keeps the provider out") {
  machine m;
  m(ev::decided{cancelled{cancelled_by::local}});
  m(ev::granted{});
  CHECK(m.count<fx::start_backend>() == 0);
  CHECK(m.count<fx::withdraw_submission>() == 0);
  CHECK(m.core.access() == access_phase::ended);
  CHECK(m.last<fx::finish_lease>().masks == row_masks{{false, false}});
  m(ev::granted{});
  m(ev::refused{});
  CHECK(m.core.rejected() == 2);
}

static const broken_by keeps_token{mutation::withdrawal_skipped, "operation: a queued*"};
TEST_CASE("operation: a queued submission is withdrawn by its outcome, or runs to its own proof") {
  machine m;
  m(ev::granted{});
  m(ev::decided{failed{"transfer timeout"}});
  REQUIRE(m.count<fx::withdraw_submission>() == 1);
  CHECK(m.count<fx::request_cancel>() == 0);  // there is nothing to ask
  SUBCASE("the token was still there") {
    m(ev::withdrawn{});
    CHECK(m.core.access() == access_phase::ended);
    CHECK(m.count<fx::finish_lease>() == 1);
    CHECK(m.count<fx::collect_proof>() == 0);
    m(ev::withdrawn{});
    m(ev::accepted{});
    CHECK(m.core.rejected() == 2);
  }
  SUBCASE("a worker had entered") {
    m(ev::accepted{});
    CHECK(m.count<fx::collect_proof>() == 1);
    CHECK(m.count<fx::request_cancel>() == 1);
    CHECK(m.count<fx::finish_lease>() == 0);
    m(ev::access_ended{m.proof});
    CHECK(m.count<fx::finish_lease>() == 1);
  }
}

TEST_CASE("operation: how a submission can end, each once") {
  machine m;
  m(ev::granted{});
  operation_event end = ev::rejected{"no"};
  auto expected = access_phase::ended;
  SUBCASE("rejected") {}
  SUBCASE("withdrawn") { end = ev::withdrawn{}; }
  SUBCASE("escaped") { end = ev::escaped{"no"}, expected = access_phase::escaped; }
  m(end);
  m(end);
  CHECK(m.core.access() == expected);
  CHECK(m.core.rejected() == 1);
  CHECK(m.count<fx::commit>() == 1);
  CHECK(m.count<fx::collect_proof>() == 0);
  CHECK(m.count<fx::retain>() == (expected == access_phase::escaped ? 1 : 0));
  m(ev::decided{failed{"no"}});
  m(ev::retry_proof{});
  CHECK(m.count<fx::collect_proof>() == 0);
  CHECK(m.count<fx::finish_lease>() == (expected == access_phase::ended ? 1 : 0));
  CHECK(m.count<fx::request_cancel>() == 0);
}

static const broken_by one_cancel{mutation::cancel_repeats, "operation: the provider is asked*"};
static const broken_by cancel_first{mutation::cancel_before_commit, "operation: the provider is asked*"};
TEST_CASE("operation: the provider is asked to cancel once, after the commitment, and only for a bad end") {
  machine m;
  m.submit();
  SUBCASE("cancelled") {
    m(ev::cancel{});
    m(ev::cancel{cancelled_by::peer});
    CHECK(m.count<fx::commit>() == 2);  // the arbiter takes the first
    CHECK(m.count<fx::request_cancel>() == 0);
    m(ev::decided{cancelled{cancelled_by::local}});
    m(ev::decided{cancelled{cancelled_by::peer}});
    m(ev::cancel{});
    CHECK(m.count<fx::request_cancel>() == 1);
    CHECK(m.core.decided() == outcome{cancelled{cancelled_by::local}});
  }
  SUBCASE("delivered") {
    m(ev::reported{served_all});
    m(ev::decided{served_all});
    m(ev::cancel{});
    CHECK(m.count<fx::request_cancel>() == 0);
  }
  SUBCASE("access had ended") {
    m(ev::access_ended{m.proof});
    m(ev::decided{cancelled{cancelled_by::local}});
    CHECK(m.count<fx::request_cancel>() == 1);
    CHECK(m.count<fx::finish_lease>() == 1);
  }
}

static const broken_by dispute{mutation::dispute_is_proof, "operation: disputed*"};
static const broken_by retries{mutation::dispute_retries_itself, "operation: disputed*"};
static const broken_by parallel{mutation::two_proofs, "operation: disputed*"};
TEST_CASE("operation: disputed access is retained, retried when told, and answers of old proofs are stale") {
  machine m;
  m.submit();
  const auto old = m.proof;
  m(ev::retry_proof{});
  CHECK(m.count<fx::collect_proof>() == 1);
  m(ev::access_unproven{old, "false"});
  m(ev::access_unproven{old, "false"});
  CHECK(m.count<fx::retain>() == 1);
  CHECK(m.core.access() == access_phase::disputed);
  m(ev::decided{served_all});
  CHECK(m.count<fx::collect_proof>() == 1);
  m(ev::access_ended{old});
  CHECK(m.core.access() == access_phase::disputed);
  m(ev::retry_proof{});
  m(ev::retry_proof{});
  CHECK(m.count<fx::collect_proof>() == 2);
  m(ev::access_ended{old});
  CHECK(m.core.access() == access_phase::running);
  CHECK(m.count<fx::finish_lease>() == 0);
  m(ev::access_ended{m.proof});
  CHECK(m.count<fx::finish_lease>() == 1);
}

static const broken_by copied{mutation::copy_error_is_done, "operation: an unproven copy*"};
TEST_CASE("operation: an unproven copy settles nothing, whatever comes after") {
  machine m;
  m.submit();
  m(ev::decided{served_all});
  m(ev::access_ended{m.proof});
  SUBCASE("an error") { m(ev::copies_unproven{"lost"}); }
  SUBCASE("the lender is gone") { m(ev::lender_down{}); }
  m(ev::copies_ended{});
  m(ev::retry_proof{});
  CHECK(m.core.copies() == copy_phase::unproven);
  CHECK(m.count<fx::retain>() == 1);
  CHECK(m.count<fx::finish_lease>() == 1);
  CHECK(m.count<fx::settle>() == 0);
}

static const broken_by after_fatal{mutation::adapter_ignores_fatal, "operation: after fatal*"};
TEST_CASE("operation: after fatal late evidence marks and settles nothing") {
  machine m;
  m.submit();
  SUBCASE("access open") {
    m(ev::fatal{});
    m(ev::decided{served_all});
    m(ev::access_ended{m.proof});
    CHECK(m.count<fx::finish_lease>() == 0);
  }
  SUBCASE("copies open") {
    m(ev::decided{served_all});
    m(ev::access_ended{m.proof});
    m(ev::fatal{});
    m(ev::copies_ended{});
    CHECK(m.count<fx::settle>() == 0);
  }
  SUBCASE("settling: the arbiter refuses") {
    m(ev::decided{served_all});
    m(ev::access_ended{m.proof});
    m(ev::copies_ended{});
    m(ev::not_authorised{});
    m(ev::fatal{});
  }
  m(ev::authorised{});
  CHECK(m.count<fx::release>() == 0);
  CHECK(m.core.claim() == claim_phase::fatal);
}

static const broken_by strange{mutation::unknown_served, "operation: a report*"};
TEST_CASE("operation: a report is checked once, and the first counts") {
  machine m;
  m.submit();
  SUBCASE("what was not asked for") {
    m(ev::reported{delivered{{"a", "z"}}});
    CHECK(std::holds_alternative<failed>(m.last<fx::commit>().value));
  }
  SUBCASE("a miss") {
    m(ev::reported{delivered{{}}});
    CHECK(m.last<fx::commit>().value == outcome{delivered{{}}});
  }
  m(ev::reported{served_all});
  CHECK(m.count<fx::commit>() == 1);
  CHECK(m.core.rejected() == 1);
}
