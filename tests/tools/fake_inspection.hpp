// An inspection port with a script instead of a runtime: what tests of renderers, server and command look at.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "src/include/kvlease/inspection.hpp"
#include "tests/temporary_directory.hpp"

namespace kvlease::test {

using namespace std::chrono_literals;

/// Ids of runtime 1.
template <class Id>
Id id_of(std::uint64_t n) {
  return Id{(std::uint64_t{1} << id_sequence_bits) + n};
}

/// Two operations and three leases: one runs, one has failed and its end is unproven, one lease waits for its
/// holder.
inline inspection_snapshot some_snapshot() {
  inspection_snapshot s;
  s.runtime = {1};
  s.taken = std::chrono::system_clock::time_point{std::chrono::seconds{1'700'000'000}} + 250ms;
  s.uptime = 90s;
  s.actors = {{actor_kind::manager, "up", true, 0ms, 0, 120, 40ms, {}},
              {actor_kind::lender, "up", true, 0ms, 2, 340, 90ms, 1ms},
              {actor_kind::backend, "stuck", false, 2500ms, 17, 33, 5ms, 2400ms},
              {actor_kind::cuda, "down", false, 9s, 0, 5, 1ms, {}}};
  s.operations = {{id_of<operation_id>(7),
                   direction::fetch,
                   id_of<request_id>(3),
                   id_of<lease_id>(5),
                   "failed(transfer timeout)",
                   "unproven",
                   "not started",
                   "",
                   12s,
                   7s,
                   -7s,
                   1500ms,
                   {held_reason::backend_end_unproven}},
                  {id_of<operation_id>(9),
                   direction::publish,
                   id_of<request_id>(4),
                   id_of<lease_id>(6),
                   "",
                   "running",
                   "complete",
                   "",
                   800ms,
                   {},
                   4200ms,
                   {},
                   {held_reason::backend_access_running}}};
  s.leases = {{id_of<lease_id>(5),
               direction::fetch,
               id_of<request_id>(3),
               "awaiting proof",
               4,
               16384,
               13s,
               {held_reason::backend_end_unproven}},
              {id_of<lease_id>(6),
               direction::publish,
               id_of<request_id>(4),
               "submitted",
               2,
               8192,
               1s,
               {held_reason::backend_access_running}},
              {id_of<lease_id>(8),
               direction::fetch,
               id_of<request_id>(5),
               "ready",
               1,
               4096,
               300ms,
               {held_reason::lent_not_submitted}}};
  s.pools = {{"kvlease-part-0", 4096, 16, 9, 3, 4, 0, "AAAALLL........."}};
  s.registrations = {{"kvlease-part-0", "registered", "", 90s}};
  s.owners = {{"1.7", id_of<request_id>(3), direction::fetch, 1, -7s, 1500ms, "transfer timeout"},
              {"1.8", id_of<request_id>(4), direction::publish, 1, 4200ms, {}, ""}};
  s.providers = {
      {"memory:", {"terminal_status", "flush"}, 2, 1, 2, {{"hit", 40}, {"miss", 3}, {"failed", 1}}}};
  s.devices = {{"host", 0, 12, 49152, 0, ""}};
  s.holds = {"hold 1.1"};
  s.operations_total = 2;
  s.leases_total = 3;
  return s;
}

inline explanation some_explanation(const subject& about) {
  explanation e;
  e.about = about;
  e.found = true;
  e.state = "held";
  e.outcome = "failed(transfer timeout)";
  e.outcome_age = 7s;
  e.holders = {{held_reason::backend_end_unproven, "lease 1.5", "access end of attempt 1.12",
                "provider memory:", 12s, "poll_access: unproven", 600ms, "fatal expiry of the grace",
                1500ms}};
  e.safe = {"retry the proof of operation 1.7"};
  e.unknown = {"backend has not answered for 2.5 s"};
  e.facts = {{"request", "1.3"}, {"slots", "0-3"}};
  return e;
}

inline inspection_metrics some_metrics() {
  inspection_metrics m;
  m.operations_total = {{"fetch/delivered", 30}, {"fetch/failed", 2}, {"publish/delivered", 11}};
  m.held_bytes = {{held_reason::backend_end_unproven, 16384}, {held_reason::backend_access_running, 8192}};
  m.pools = some_snapshot().pools;
  m.outcome_to_proof = {{0.001, 0.01, 0.1}, {5, 3, 1, 1}, 0.75};
  m.proof_to_release = {{0.001, 0.01, 0.1}, {9, 0, 0, 0}, 0.002};
  m.journal_records = 6;
  m.messages_rejected = {{"adapter", 1}};
  return m;
}

class fake_inspection : public inspection_port {
 public:
  inspection_snapshot look(std::size_t limit) override {
    const std::lock_guard lock{mutex_};
    auto s = snapshot_;
    ++looks;
    if (s.operations.size() > limit) s.operations.resize(limit);
    if (s.leases.size() > limit) s.leases.resize(limit);
    return s;
  }
  explanation why(const subject& about) override {
    if (!ignorant && (about.id == "1.5" || about.id == "1.7" || about.id == "kvlease-part-0/2" ||
                      about.id == "1.6" || about.id == "1.8" || about.id == "1.9"))
      return some_explanation(about);
    explanation e;
    e.about = about;
    return e;
  }
  inspection_metrics metrics() override {
    const std::lock_guard lock{mutex_};
    auto m = some_metrics();
    m.journal_records = events_.size();
    return m;
  }
  health state() override { return state_; }
  std::vector<journal_event> events(std::uint64_t after, std::size_t limit, std::uint64_t& lost) override {
    const std::lock_guard lock{mutex_};
    lost = 0;
    std::vector<journal_event> out;
    for (auto i = after; i < events_.size() && out.size() < limit; ++i) out.push_back(events_[i]);
    return out;
  }

  void set(inspection_snapshot s) {
    const std::lock_guard lock{mutex_};
    snapshot_ = std::move(s);
  }
  void set(health h) { state_ = h; }
  void happens(std::string_view what, actor_kind from, std::array<std::uint64_t, 4> subject) {
    const std::lock_guard lock{mutex_};
    const auto n = events_.size() + 1;
    events_.push_back({n, n * 1ms, what, from, subject, 0});
  }

  std::atomic<int> looks{0};
  std::atomic<bool> ignorant{false};  ///< `why` knows nothing

 private:
  std::mutex mutex_;
  inspection_snapshot snapshot_ = some_snapshot();
  std::atomic<health> state_{health::held};
  std::vector<journal_event> events_;
};

/// A directory that goes with it.
struct scratch_directory : temporary_directory {
  std::string file(const std::string& name) const { return (*this / name).string(); }
};

}  // namespace kvlease::test
