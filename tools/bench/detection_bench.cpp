#include "tools/bench/detection_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "cuda/cuda_actor.hpp"
#include "messages/wiring.hpp"
#include "tools/bench/watched_device.hpp"

namespace kvlease::bench {

namespace {

using std::chrono::nanoseconds;

constexpr std::size_t row_bytes = 4096;
constexpr std::uint64_t landed_mark = 0x6b766c6561736521;
constexpr auto patience = std::chrono::seconds{10};
/// A gate opens by itself after this, so that nothing can hold the GPU for good.
constexpr auto gate_limit = std::chrono::seconds{20};

double us_between(std::int64_t from, std::int64_t to) { return static_cast<double>(to - from) * 1e-3; }

/// Waits without sleeping, but lets others have the processor.
template <class Condition>
result<void> wait_for(const char* what, Condition met) {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  while (!met()) {
    if (std::chrono::steady_clock::now() > give_up)
      return fail(errc::timeout, fmt::format("bench: {} did not happen within {} s", what, patience.count()));
    std::this_thread::yield();
  }
  return {};
}

void pass(nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

/// Long holds get fewer rounds, so that they take seconds and not minutes.
std::size_t rounds_of(const detection_plan& plan, nanoseconds hold) {
  constexpr nanoseconds held_in_all = std::chrono::milliseconds{2500};
  constexpr std::size_t least = 100;
  if (hold.count() == 0) return plan.rounds;
  return std::min(plan.rounds, std::max(least, static_cast<std::size_t>(held_in_all / hold)));
}

/// What a client of the CUDA actor was told.
struct heard {
  std::atomic<std::int64_t> at{0};  ///< of the last copy_complete
  std::atomic<std::uint64_t> complete{0};
  std::atomic<std::uint64_t> unproven{0};
};

copy_client::behavior_type client(copy_client::pointer, const std::shared_ptr<heard>& notes) {
  return {
      [notes](const copy_complete&) {
        notes->at.store(steady_ns(), std::memory_order_release);
        notes->complete.fetch_add(1, std::memory_order_release);
      },
      [notes](const copy_unproven&) { notes->unproven.fetch_add(1, std::memory_order_release); },
  };
}

struct system_config : caf::actor_system_config {
  system_config() { configure_scheduler(*this, 2); }  // as runtime_options has it
};

/// The actor and its clients. All end before their system does.
class cast {
 public:
  cast(std::shared_ptr<device_port> device, bool keep_awake)
      : cuda_{spawn_cuda(system_, {.device = std::move(device), .keep_awake = keep_awake})},
        scheduled_{system_.spawn(client, notes_[0])},
        threaded_{spawn_own_thread(system_, client, notes_[1])} {
    caf::anon_send(cuda_, wired{std::make_shared<const wiring>()});
  }
  ~cast() {
    caf::anon_send(cuda_, quit_now{});
    caf::anon_send_exit(scheduled_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(threaded_, caf::exit_reason::user_shutdown);
  }
  cast(const cast&) = delete;
  cast& operator=(const cast&) = delete;

  void ask(const std::shared_ptr<const copy_batch>& batch, std::size_t client_number) {
    const auto& to = client_number == 0 ? scheduled_ : threaded_;
    caf::anon_send(cuda_, copy_rows{ids_.next(), batch, to});
  }
  const heard& notes(std::size_t client_number) const { return *notes_[client_number]; }

  result<std::map<std::string, std::int64_t>> figures() {
    caf::scoped_actor self{system_};
    result<std::map<std::string, std::int64_t>> answer =
        fail(errc::timeout, "bench: the CUDA actor gave no report");
    self->request(cuda_, patience, report_request{})
        .receive([&](const actor_report& r) { answer = r.figures; }, [](const caf::error&) {});
    return answer;
  }

 private:
  system_config config_;
  caf::actor_system system_{config_};
  id_source<copy_id> ids_{incarnation{1}};
  std::array<std::shared_ptr<heard>, 2> notes_{std::make_shared<heard>(), std::make_shared<heard>()};
  cuda_actor cuda_;
  copy_client scheduled_, threaded_;
};

/// One way to learn of the end of a copy: queue it behind a closed gate, then say when it was known.
struct learner {
  std::string name;
  gate* stream;
  std::function<result<void>()> queue;
  /// Nanoseconds of steady_clock, once known.
  std::function<result<std::optional<std::int64_t>>()> known;
  std::vector<double> us;
  std::string also;  ///< name of a second figure; empty: there is none
  std::function<std::int64_t()> also_known;
  std::vector<double> also_us;
};

class bench {
 public:
  /// `keep_awake`: the default; without it only what that changes.
  bench(const detection_plan& plan, target& on, detection_report& report, bool keep_awake)
      : plan_{plan}, on_{on}, report_{report}, keep_awake_{keep_awake} {}

  bool spins() const { return device_->spins(); }

  result<void> run() {
    if (auto ok = set_up(); !ok) return ok;
    // Unheld at first: code that is loaded when it is first used could wait for a held stream.
    actors_->ask(batch_, 0);
    actors_->ask(batch_, 1);
    if (auto ok = wait_for("the first copies", [&] { return completed() == 2; }); !ok) return ok;
    if (!keep_awake_) {
      has_callbacks_ = false;
    } else if (auto asked = lane_->stamp_from_callback(called_back_); !asked) {
      if (asked.error().code != errc::unsupported) return asked;
      has_callbacks_ = false;
      report_.notes.push_back("no host callback was measured: " + asked.error().text);
    }
    for (const auto hold : plan_.holds)
      if (auto ok = detect(hold); !ok) return ok;
    if (!keep_awake_) return {};
    for (const auto count : plan_.pending)
      if (auto ok = watch(count); !ok) return ok;
    return {};
  }

 private:
  result<void> set_up() {
    auto device = on_.open({});
    if (!device) return tl::unexpected{device.error()};
    device_ = *std::move(device);
    auto pages = device_->allocate_device(row_bytes);
    if (!pages) return tl::unexpected{pages.error()};
    pages_ = *std::move(pages);
    auto staging = device_->allocate_staging(row_bytes);
    if (!staging) return tl::unexpected{staging.error()};
    staging_ = *std::move(staging);
    auto batch = std::make_shared<copy_batch>();
    batch->kind = copy_kind::device_to_host;
    batch->rows.push_back({staging_->address(), pages_->address(), row_bytes});
    batch_ = std::move(batch);

    auto lane = on_.open_lane();
    if (!lane) return tl::unexpected{lane.error()};
    lane_ = *std::move(lane);
    if (auto marked = mark_pages(); !marked) return marked;
    auto lane_gate = on_.gate_on(*lane_);
    if (!lane_gate) return tl::unexpected{lane_gate.error()};
    lane_gate_ = *std::move(lane_gate);
    auto device_gate = on_.gate_on(device_);
    if (!device_gate) return tl::unexpected{device_gate.error()};
    device_gate_ = *std::move(device_gate);

    watched_ = std::make_shared<watched_device>(device_);
    actors_ = std::make_unique<cast>(watched_, keep_awake_);
    return wait_for("binding the device to the actor's thread", [&] { return watched_->bound(); });
  }

  /// The last word of the row: the work has ended when the host can read there what the page holds.
  std::atomic_ref<std::uint64_t> last_word() const {
    return std::atomic_ref{*reinterpret_cast<std::uint64_t*>(staging_->address() + row_bytes - 8)};
  }
  result<void> mark_pages() {
    last_word().store(landed_mark);
    if (auto ok = lane_->copy(copy_kind::host_to_device, pages_->address(), staging_->address(), row_bytes);
        !ok)
      return ok;
    if (auto ok = lane_->mark(); !ok) return ok;
    return wait_for("marking the page", [&] { return lane_->reached().value_or(false); });
  }

  std::uint64_t completed() const { return actors_->notes(0).complete + actors_->notes(1).complete; }

  result<void> copy_on_lane() {
    return lane_->copy(copy_kind::device_to_host, staging_->address(), pages_->address(), row_bytes);
  }

  learner bare_query() {
    return {.name = "a bare spinning event query",
            .stream = lane_gate_.get(),
            .queue =
                [this] {
                  const auto copied = copy_on_lane();
                  return copied ? lane_->mark() : copied;
                },
            .known = [this]() -> result<std::optional<std::int64_t>> {
              const auto reached = lane_->reached();
              if (!reached) return tl::unexpected{reached.error()};
              return *reached ? std::optional{steady_ns()} : std::nullopt;
            }};
  }

  learner callback() {
    return {.name = "a host callback (cudaLaunchHostFunc)",
            .stream = lane_gate_.get(),
            .queue = [this]() -> result<void> {
              called_back_ = 0;
              const auto copied = copy_on_lane();
              return copied ? lane_->stamp_from_callback(called_back_) : copied;
            },
            .known = [this]() -> result<std::optional<std::int64_t>> {
              const auto at = called_back_.load(std::memory_order_acquire);
              return at != 0 ? std::optional{at} : std::nullopt;
            }};
  }

  learner actor(std::size_t number, const char* name) {
    return {.name = name,
            .stream = device_gate_.get(),
            .queue = [this, number]() -> result<void> {
              before_ = actors_->notes(number).complete;
              const auto recorded = watched_->recorded();
              actors_->ask(batch_, number);
              return wait_for("queueing the copy", [&] { return watched_->recorded() > recorded; });
            },
            .known = [this, number]() -> result<std::optional<std::int64_t>> {
              const auto& notes = actors_->notes(number);
              if (notes.unproven > 0) return fail(errc::device, "bench: the actor could not prove a copy");
              if (notes.complete == before_) {
                std::this_thread::yield();
                return std::nullopt;
              }
              return notes.at.load(std::memory_order_acquire);
            },
            .also = "CUDA actor: its own query",
            .also_known = [this] { return watched_->seen_complete(); }};
  }

  result<void> detect(nanoseconds hold) {
    std::vector<learner> learners;
    learners.push_back(bare_query());
    if (has_callbacks_) learners.push_back(callback());
    if (keep_awake_) {
      learners.push_back(actor(0, "CUDA actor: message at a scheduled client"));
      learners.push_back(actor(1, "CUDA actor: message at a client with a thread"));
    } else {
      learners.push_back(actor(0, "a scheduled client, keep_awake off"));
    }
    learners.back().also.clear();  // the same query
    const std::size_t rounds = rounds_of(plan_, hold);
    const std::size_t warm_up = std::min<std::size_t>(rounds / 10 + 1, 50);
    for (std::size_t round = 0; round < rounds + warm_up; ++round)
      for (auto& l : learners)
        if (auto ok = take(l, hold, round >= warm_up); !ok) return ok;
    for (auto& l : learners) {
      report_.detection.push_back({l.name, hold, spread_of(std::move(l.us))});
      if (!l.also.empty()) report_.detection.push_back({l.also, hold, spread_of(std::move(l.also_us))});
    }
    return {};
  }

  result<void> take(learner& l, nanoseconds hold, bool counts) {
    last_word().store(0);
    if (auto closed = l.stream->close(gate_limit); !closed) return closed;
    if (auto queued = l.queue(); !queued) {
      l.stream->open();
      return queued;
    }
    pass(hold);
    const auto opened = steady_ns();
    l.stream->open();
    std::optional<std::int64_t> ended, at;
    while (!at) {
      if (!ended && last_word().load(std::memory_order_acquire) == landed_mark) ended = steady_ns();
      const auto known = l.known();
      if (!known) return tl::unexpected{known.error()};
      at = *known;
      if (!at && steady_ns() - opened > nanoseconds{patience}.count())
        return fail(errc::timeout, "bench: " + l.name + " told nothing of a copy");
    }
    if (last_word().load(std::memory_order_acquire) != landed_mark)
      return fail(errc::state, "bench: " + l.name + " told of the end of a copy before it");
    if (!counts) return {};
    // Where this thread saw the last byte later than who is measured heard of it, that counts as instant.
    const auto also = l.also_known ? l.also_known() : *at;
    ended = std::min({ended.value_or(*at), *at, also});
    l.us.push_back(us_between(*ended, *at));
    if (l.also_known) l.also_us.push_back(us_between(*ended, also));
    return {};
  }

  result<void> watch(std::size_t count) {
    const auto before = completed();
    if (count > 0)
      if (auto closed = device_gate_->close(gate_limit); !closed) return closed;
    const auto measured = watch_held(count);
    device_gate_->open();
    if (!measured) return tl::unexpected{measured.error()};
    report_.pending.push_back(*measured);
    if (count == 0 && measured->queries > 0)
      report_.problems.push_back(
          fmt::format("{} queries with nothing pending, must be 0", measured->queries));
    return wait_for("the end of the pending copies", [&] { return completed() == before + count; });
  }

  result<pending_series> watch_held(std::size_t count) {
    const auto start = actors_->figures();
    if (!start) return tl::unexpected{start.error()};
    for (std::size_t i = 0; i < count; ++i) actors_->ask(batch_, 0);
    const auto taken = wait_for("taking the copies", [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      const auto now = actors_->figures();
      return now && now->at("copies") == start->at("copies") + static_cast<std::int64_t>(count);
    });
    if (!taken) return tl::unexpected{taken.error()};
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // past the time without pauses

    const auto first = actors_->figures();
    if (!first) return tl::unexpected{first.error()};
    const auto began = steady_ns();
    const double cpu = watched_->cpu_seconds();
    std::this_thread::sleep_for(plan_.watch);
    pending_series p{.pending = count,
                     .seconds = static_cast<double>(steady_ns() - began) * 1e-9,
                     .cpu_seconds = watched_->cpu_seconds() - cpu};
    const auto last = actors_->figures();
    if (!last) return tl::unexpected{last.error()};
    if (last->at("pending") != static_cast<std::int64_t>(count))
      return fail(errc::state,
                  fmt::format("bench: {} copies were pending at the end of the watch, must be {}",
                              last->at("pending"), count));
    p.queries = last->at("queries") - first->at("queries");
    return p;
  }

  const detection_plan& plan_;
  target& on_;
  detection_report& report_;
  const bool keep_awake_;
  std::shared_ptr<device_port> device_;
  std::shared_ptr<memory_block> pages_, staging_;
  std::shared_ptr<const copy_batch> batch_;
  std::unique_ptr<lane> lane_;
  std::unique_ptr<gate> lane_gate_, device_gate_;
  std::shared_ptr<watched_device> watched_;
  std::atomic<std::int64_t> called_back_{0};
  bool has_callbacks_ = true;
  std::uint64_t before_ = 0;
  std::unique_ptr<cast> actors_;  // last: ends first
};

}  // namespace

result<void> run_detection_bench(const detection_plan& plan, target& on, detection_report& report) {
  report.facts = on.facts();
  bool spins = false;
  {
    bench by_default{plan, on, report, true};
    if (auto ok = by_default.run(); !ok) return ok;
    spins = by_default.spins();
  }
  if (!spins) return {};  // nobody stays awake for a device that does not
  return bench{plan, on, report, false}.run();
}

}  // namespace kvlease::bench
