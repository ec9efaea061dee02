// "replay checks every invariant": journals of real runs are accepted, and each of them with any single
// damage is not, but where the damaged journal is a legal one as well (tests/journal_damage_legal.cpp says
// why).
#include "tests/journal_damage.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "src/journal_check.hpp"
#include "tests/actors/journal_runs.hpp"

namespace kvlease::test {
namespace {

/// What came to what, over all journals.
struct tally {
  std::array<std::uint64_t, damage_classes> tried{}, found{}, legal{};
  std::map<std::string_view, std::uint64_t> why;
  std::uint64_t journals = 0, records = 0;

  void take(const std::string& name, const journal_kept& whole) {
    const incarnation of{1};
    CAPTURE(name);
    const auto accepted = check_journal(of, whole);
    INFO((accepted.broken ? accepted.broken->what : std::string{}));
    REQUIRE_FALSE(accepted.broken.has_value());
    REQUIRE(accepted.whole);
    ++journals;
    records += whole.size();
    for_each_damage(whole, [&](const damage& d) {
      const auto c = static_cast<std::size_t>(d.what);
      ++tried[c];
      if (const auto v = check_journal(of, d.records); v.broken) {
        ++found[c];
        if (v.broken->sequence <= d.at)  // ahead of it
          FAIL_CHECK(to_string(d.what), " at ", d.at + 1, " is named at ", v.broken->sequence);
      } else if (const auto reason = why_legal(whole, d)) {
        ++legal[c];
        ++why[*reason];
      } else {
        FAIL_CHECK(name, ": ", to_string(d.what), " ", d.field, " is not found at record ", d.at + 1, ", ",
                   to_string(whole[d.at].kind));
      }
    });
  }
  std::string text() const {
    auto out = fmt::format("{} journals, {} records\n{:14}{:>9}{:>9}{:>9}\n", journals, records, "damage",
                           "tried", "found", "legal");
    for (std::size_t c = 0; c < damage_classes; ++c)
      out += fmt::format("{:14}{:>9}{:>9}{:>9}\n", to_string(static_cast<damage_class>(c)), tried[c],
                         found[c], legal[c]);
    for (const auto& [reason, n] : why) out += fmt::format("{:>9} legal: {}\n", n, reason);
    return out;
  }
};

TEST_CASE("journal check: any single damage to the journal of any run is found, or leaves a legal one") {
  tally t;
  for (const auto& r : runs()) t.take(r.first, journal_of(r, r.first != "a registration fails"));
  for (const auto& r : deaths()) t.take(r.first, journal_of(r, true));
  for (std::uint64_t seed = 1; seed <= 8; ++seed) t.take(fmt::format("seed {}", seed), interleaved(seed));
  MESSAGE(t.text());
  for (std::size_t c = 0; c < damage_classes; ++c) CHECK(t.found[c] > 0);
  for (const auto c :
       {damage_class::foreign_id, damage_class::stray_field, damage_class::unknown_kind, damage_class::early})
    CHECK(t.legal[static_cast<std::size_t>(c)] == 0);
}

TEST_CASE("journal check: records that were lost, and are counted, are not held against what is there") {
  std::uint64_t tried = 0;
  const auto hold = [&tried](const journal_kept& whole, std::size_t from, std::size_t to) {
    auto holed = whole;  // the numbers stay: that is how a gap shows
    holed.erase(holed.begin() + static_cast<std::ptrdiff_t>(from),
                holed.begin() + static_cast<std::ptrdiff_t>(to));
    const auto v = check_journal({1}, holed);
    CAPTURE(from);
    CAPTURE(to);
    INFO((v.broken ? v.broken->what : std::string{}));
    CHECK_FALSE(v.broken.has_value());
    CHECK(v.whole == (to == whole.size()));
    ++tried;
  };
  auto all = deaths();
  all.insert(all.end(), runs().begin(), runs().end());
  std::vector<journal_kept> journals;
  for (const auto& r : all) journals.push_back(journal_of(r, r.first != "a registration fails"));
  for (std::uint64_t seed = 1; seed <= 4; ++seed) journals.push_back(interleaved(seed));
  for (const auto& whole : journals)
    for (std::size_t from = 0; from < whole.size(); ++from)
      for (const std::size_t n : {1, 2, 3, 7, 20})
        if (from + n <= whole.size()) hold(whole, from, from + n);
  MESSAGE(tried << " journals with a gap");
}

TEST_CASE("journal check: what happens behind a gap from its beginning is checked") {
  auto records = interleaved(1);
  // The first half is lost; an operation that is admitted behind it is settled before its copies have ended.
  const auto half = records.size() / 2;
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(half));
  REQUIRE_FALSE(check_journal({1}, records).broken.has_value());
  bool broken = false;
  for (std::size_t i = 0; i + 1 < records.size() && !broken; ++i) {
    auto less = records;
    if (less[i].kind != journal_kind::copies_ended) continue;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto j = i; j < less.size(); ++j) --less[j].sequence;
    const auto v = check_journal({1}, less);
    broken = v.broken.has_value() && v.broken->rule == "1.2" && !v.whole;
  }
  CHECK(broken);
}

}  // namespace
}  // namespace kvlease::test
