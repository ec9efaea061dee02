// A seeded walk of the paged manager against a model that knows only what the port answers: who holds each
// page, who pins it, and which content it was last given (semantics 6.1, 6.4).
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/mix.hpp"
#include "tests/src/paged_manager_fixture.hpp"

namespace kvlease {
namespace {

using namespace paged_fixture;

constexpr std::int64_t tpb = 2;

/// A page of the walk, by its address.
using page_id = std::uintptr_t;

struct draws {
  std::uint64_t seed;
  std::uint64_t count = 0;
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(mix64(seed, 1, ++count) % static_cast<std::uint64_t>(n));
  }
};

struct live_request {
  std::string content;  ///< scope, then one letter a token
  std::vector<page_row> rows;
  request_info info;
  /// What the block at `ordinal` of `layer_group` says, and all before it.
  std::string content_of(const page_row& r) const {
    return std::to_string(r.layer_group) +
           content.substr(0, static_cast<std::size_t>(1 + (r.ordinal + 1) * tpb));
  }
};

class walk {
 public:
  explicit walk(std::uint64_t seed) : draw_{seed} {
    paged_manager_options o = two_pools();
    o.tokens_per_block = tpb;
    o.pool_groups[0].pages = 24;
    o.pool_groups[1].pages = 44;
    manager_ = make_manager(o);
  }

  void step() {
    const auto dice = draw_.below(100);
    if (dice < 22) {
      admit();
    } else if (dice < 50) {
      grow();
    } else if (dice < 68) {
      commit();
    } else if (dice < 80) {
      free();
    } else if (dice < 91) {
      pin();
    } else {
      unpin();
    }
    whole(*manager_);
    check_counts();
  }

  void finish() {
    while (!requests_.empty()) end(requests_.begin()->first);
    for (const auto& [id, pages] : pins_) REQUIRE(manager_->unpin(id));
    whole(*manager_);
    CHECK(manager_->counts().held == 0);
    CHECK(manager_->counts().pinned == 0);
    // Nothing is lost: all pages can be had again at once.
    const request_id last{++drawn_};
    REQUIRE(manager_->admit(last, spec(run(500, 1))));
    REQUIRE(manager_->grow(last, 22 * tpb));
    CHECK(manager_->counts().held == 66);
  }

  int reused = 0;
  int refused = 0;
  int pinned_across_free = 0;

 private:
  request_spec random_spec(std::string& content) {
    const auto scope = static_cast<std::size_t>(draw_.below(3));
    content = std::to_string(scope);
    request_spec s{{}, scopes()[scope]};
    for (auto n = 1 + draw_.below(17); n > 0; --n) {
      const auto t = draw_.below(10) == 0 ? 1 : 0;
      content += static_cast<char>('a' + t);
      s.prompt.push_back(static_cast<std::uint32_t>(t));
    }
    return s;
  }

  void admit() {
    if (requests_.size() >= 8) return free();
    live_request r;
    const auto s = random_spec(r.content);
    const request_id id{++drawn_};
    const auto got = manager_->admit(id, s);
    REQUIRE(got);
    r.info = *got;
    const auto prompt = static_cast<std::int64_t>(s.prompt.size());
    REQUIRE(got->committed_tokens <= (prompt - 1) / tpb * tpb);
    REQUIRE(got->capacity_tokens == got->committed_tokens);
    r.rows = *manager_->rows(id, {0, got->capacity_tokens});
    for (const page_row& row : r.rows) {
      const auto said = content_.find(row.address);
      REQUIRE(said != content_.end());
      REQUIRE(said->second == r.content_of(row));  // by content, scope and position, never by chance
      REQUIRE_FALSE(is_pinned(row.address));
      ++holders_[row.address];
      ++reused;
    }
    requests_.emplace(id, std::move(r));
  }

  void grow() {
    const auto id = pick();
    if (!id) return;
    live_request& r = requests_.at(*id);
    const auto end = draw_.below(r.info.prompt_tokens + 6);
    const auto before = manager_->counts();
    const auto got = manager_->grow(*id, end);
    if (!got) return grow_refused(*id, end, before, got.error());
    const auto blocks = std::max(r.info.capacity_tokens / tpb, (end + tpb - 1) / tpb);
    REQUIRE(got->capacity_tokens == blocks * tpb);
    const auto rows = *manager_->rows(*id, {0, got->capacity_tokens});
    const std::set<std::uintptr_t> old = addresses(r.rows);
    std::set<std::uintptr_t> fresh;
    for (const page_row& row : rows) {
      if (old.contains(row.address)) continue;
      REQUIRE(fresh.insert(row.address).second);
      REQUIRE(holders_[row.address] == 0);
      REQUIRE_FALSE(is_pinned(row.address));
      ++holders_[row.address];
      content_.erase(row.address);
    }
    REQUIRE(old.size() + fresh.size() == rows.size());
    r.rows = rows;
    r.info = *got;
  }

  void grow_refused(request_id id, std::int64_t end, const page_counts& before, const error& why) {
    ++refused;
    const live_request& r = requests_.at(id);
    REQUIRE(why.code == errc::no_memory);
    REQUIRE(manager_->counts() == before);
    REQUIRE(*manager_->describe(id) == r.info);
    REQUIRE(*manager_->rows(id, {0, r.info.capacity_tokens}) == r.rows);
    const auto blocks = (end + tpb - 1) / tpb - r.info.capacity_tokens / tpb;
    REQUIRE((blocks > surely_available(0) || 2 * blocks > surely_available(1)));
  }

  /// Pages of the pool group that nobody holds or pins, but for those whose block may have to stay: content
  /// that something held or pinned goes on from, or is a part of.
  std::int64_t surely_available(std::size_t pool) const {
    std::set<std::string> kept;  // without the layer group: a block stays whole
    for (const auto& [page, said] : content_)
      if (in_use(page))
        for (auto n = static_cast<std::size_t>(1 + tpb); n < said.size(); n += tpb)
          kept.insert(said.substr(1, n));
    const auto& o = manager_->layout().pool_groups[pool];
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < o.pages; ++i) {
      const page_id page = fake_base(pool) + static_cast<page_id>(i * o.page_bytes);
      const auto said = content_.find(page);
      const bool stays = said != content_.end() && kept.contains(said->second.substr(1));
      if (!in_use(page) && !stays) ++sum;
    }
    return sum;
  }

  bool in_use(page_id page) const {
    const auto at = holders_.find(page);
    return (at != holders_.end() && at->second > 0) || is_pinned(page);
  }

  void commit() {
    const auto id = pick();
    if (!id) return;
    live_request& r = requests_.at(*id);
    const auto most = std::min(r.info.prompt_tokens, r.info.capacity_tokens) / tpb;
    const auto from = r.info.committed_tokens / tpb;
    const auto to = from + draw_.below(most - from + 1);
    const auto got = manager_->commit(*id, to * tpb);
    REQUIRE(got);
    r.info = *got;
    for (const page_row& row : r.rows)
      if (row.ordinal < to) content_[row.address] = r.content_of(row);
  }

  void free() {
    if (const auto id = pick()) end(*id);
  }

  void end(request_id id) {
    REQUIRE(manager_->free(id));
    for (const page_row& row : requests_.at(id).rows) {
      if (--holders_[row.address] == 0 && is_pinned(row.address)) ++pinned_across_free;
    }
    requests_.erase(id);
  }

  void pin() {
    const auto id = pick();
    if (!id) return;
    const live_request& r = requests_.at(*id);
    std::vector<page_row> wanted;
    std::vector<std::size_t> expected;
    for (const page_row& row : r.rows) {
      if (draw_.below(3) != 0) continue;
      wanted.push_back(row);
      if (draw_.below(4) == 0)
        wanted.back().ordinal += 1;  // a place that this page is not in
      else
        expected.push_back(wanted.size() - 1);
    }
    const pin_id p{++pins_drawn_};
    REQUIRE(manager_->pin(p, *id, wanted) == expected);
    if (expected.empty()) return;
    for (const auto i : expected) pins_[p].push_back(wanted[i].address);
  }

  void unpin() {
    if (pins_.empty()) return;
    const auto at = std::next(pins_.begin(), draw_.below(static_cast<std::int64_t>(pins_.size())));
    REQUIRE(manager_->unpin(at->first));
    pins_.erase(at);
  }

  void check_counts() {
    const page_counts c = manager_->counts();
    std::int64_t held = 0;
    for (const auto& [page, n] : holders_) held += n > 0 ? 1 : 0;
    std::set<page_id> left;
    for (const auto& [id, pages] : pins_)
      for (const auto page : pages)
        if (holders_[page] == 0) left.insert(page);
    REQUIRE(c.held == held);
    REQUIRE(c.pinned == static_cast<std::int64_t>(left.size()));
    REQUIRE(c.total == 68);
  }

  static std::set<page_id> addresses(const std::vector<page_row>& rows) {
    std::set<page_id> out;
    for (const page_row& r : rows) out.insert(r.address);
    return out;
  }

  bool is_pinned(page_id page) const {
    for (const auto& [id, pages] : pins_)
      for (const auto p : pages)
        if (p == page) return true;
    return false;
  }

  std::optional<request_id> pick() {
    if (requests_.empty()) return std::nullopt;
    return std::next(requests_.begin(), draw_.below(static_cast<std::int64_t>(requests_.size())))->first;
  }

  draws draw_;
  std::unique_ptr<paged_manager> manager_;
  std::map<request_id, live_request> requests_;
  std::map<page_id, int> holders_;          ///< how many requests show the page in their rows
  std::map<page_id, std::string> content_;  ///< what was committed in it since it was last handed out
  std::map<pin_id, std::vector<page_id>> pins_;
  std::uint64_t drawn_ = 0;
  std::uint64_t pins_drawn_ = 0;
};

TEST_CASE("paged manager: 20,000 random operations agree with a model of who owns each page") {
  int reused = 0;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    CAPTURE(seed);
    walk w{seed};
    for (int i = 0; i < 5'000; ++i) w.step();
    w.finish();
    // A walk in which the interesting things do not happen proves nothing.
    CHECK(w.reused > 100);
    CHECK(w.refused > 20);
    CHECK(w.pinned_across_free > 100);
    reused += w.reused;
  }
  CHECK(reused > 1'000);
}

}  // namespace
}  // namespace kvlease
